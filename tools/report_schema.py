"""Write docs/report.schema.json from the report's structs; with --check, say whether it is what they say."""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SCHEMA = ROOT / "docs" / "report.schema.json"


def main() -> int:
    """Write the file, or return 1 when it is stale."""
    sys.path.insert(0, str(ROOT))
    from sgdoctor.report.json import schema

    text = json.dumps(schema(), indent=2) + "\n"
    if "--check" not in sys.argv[1:]:
        SCHEMA.write_text(text, encoding="utf-8")
        return 0
    if SCHEMA.exists() and SCHEMA.read_text(encoding="utf-8") == text:
        return 0
    print(f"{SCHEMA.relative_to(ROOT)} is stale: python {Path(__file__).relative_to(ROOT)}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
