"""A tuning as one HTML page that needs nothing from elsewhere: what came of it, the picture, the table."""

from __future__ import annotations

from html import escape

from sgdoctor.fix import moe_picture, moe_report
from sgdoctor.report.html_page import page
from sgdoctor.tune.model import Tuning

_STYLE = """
figure, .table { margin: 1.5rem 0; overflow-x: auto; }
svg { display: block; width: 100%; min-width: 32rem; height: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; white-space: nowrap; }
th, td { text-align: right; padding: 0.15rem 0.6rem; }
thead th { font-weight: normal; color: var(--dim); }
thead tr:last-child th { border-bottom: 1px solid var(--line); }
th.group { text-align: center; }
.new { color: var(--new); font-weight: 600; }
.kept { color: var(--dim); }
"""


def html(tuning: Tuning) -> str:
    """Return the page; where matplotlib is missing it says so in place of the picture."""
    what, _, where = moe_report.title(tuning).partition(" · ")
    told = "\n".join(
        f"<dt>{escape(label)}</dt><dd>{escape(text)}</dd>" for label, text in moe_report.facts(tuning)
    )
    drawn = moe_picture.svg(tuning)
    picture = f"<figure>\n{drawn}</figure>" if drawn else f"<p>{escape(moe_picture.MISSING)}</p>"
    body = f"""<h1>Tuned fused-MoE config for {escape(what)}</h1>
<p>{escape(where)}</p>
<dl>
{told}
<dt>files</dt><dd>{escape(tuning.job.up_file)}</dd>
<dt></dt><dd>{escape(tuning.job.down_file)}</dd>
</dl>
{picture}
<div class="table">
<table>
{_table(tuning)}
</table>
</div>"""
    return page(f"Tuned fused-MoE config, {what}", body, _STYLE)


def _table(tuning: Tuning) -> str:
    heads = moe_report.head(tuning).cells()
    whole = len(heads) - 5
    groups = "".join(
        f'<th class="group" colspan="{span}" scope="colgroup">{name}, µs</th>'
        for name, span in (("whole", whole), ("up", 2), ("down", 2))
    )
    named = "".join(f'<th scope="col">{escape(head)}</th>' for head in heads)
    body = "\n".join(_row(row) for row in moe_report.rows(tuning))
    return f"<thead>\n<tr><td></td>{groups}</tr>\n<tr>{named}</tr>\n</thead>\n<tbody>\n{body}\n</tbody>"


def _row(row: moe_report.Row) -> str:
    """Return a row; the first cell is its head, and the gain stands out."""
    first, *cells = row.cells()
    gain = len(cells) - 5
    kept = ' class="kept"' if row.gain == moe_report.KEPT else ' class="new"'
    tags = (f"<td{kept if number == gain else ''}>{escape(cell)}</td>" for number, cell in enumerate(cells))
    return f'<tr><th scope="row">{escape(first)}</th>{"".join(tags)}</tr>'
