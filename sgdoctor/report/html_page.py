"""A page that needs nothing from elsewhere: light and dark, down to the width of a phone."""

from __future__ import annotations

from html import escape

# Wider than a phone: what cannot be narrower scrolls inside a box of its own.
STYLE = """
:root { color-scheme: light dark; --dim: #6a6a6a; --line: #d8d8d8; --new: #14699a; }
@media (prefers-color-scheme: dark) { :root { --dim: #a2a2a2; --line: #3a3a3a; --new: #6fc1ea; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.3rem; line-height: 1.3; margin: 0; }
p { margin: 0.2rem 0 1rem; color: var(--dim); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.2rem 1rem; }
dt { color: var(--dim); }
dd { margin: 0; overflow-wrap: anywhere; }
""".strip()


def page(title: str, body: str, style: str = "") -> str:
    """Return an HTML page; ``body`` and ``style`` (of this page alone) are HTML and CSS already."""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>
{STYLE}
{style.strip()}
</style>
</head>
<body>
{body.strip()}
</body>
</html>
"""
