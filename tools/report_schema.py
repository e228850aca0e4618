"""Write the JSON Schemas of docs/ from the structs: of the reports of check, diff and fix, and of settings.

With --check, say whether they are what the structs say.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
REPORT = ROOT / "docs" / "report.schema.json"
DIFF = ROOT / "docs" / "diff.schema.json"
CONFIG = ROOT / "docs" / "config.schema.json"
FIX = ROOT / "docs" / "fix.schema.json"
FLAGS = ROOT / "docs" / "fix-flags.schema.json"


def schemas() -> dict[Path, dict[str, Any]]:
    """Return the schemas by their files."""
    sys.path.insert(0, str(ROOT))
    from sgdoctor import config
    from sgdoctor.compare import model
    from sgdoctor.fix import flags_report as flags
    from sgdoctor.fix import report as fix
    from sgdoctor.report.json import schema

    return {
        REPORT: schema(),
        DIFF: schema(model.Diff, model.SCHEMA, "diff"),
        CONFIG: config.schema(),
        FIX: schema(fix.FixReport, fix.SCHEMA, "fix --tune-moe"),
        FLAGS: schema(flags.FlagsReport, flags.SCHEMA, "fix --flags"),
    }


def main() -> int:
    """Write the files, or return 1 when one is stale."""
    stale = 0
    for file, made in schemas().items():
        text = json.dumps(made, indent=2) + "\n"
        if "--check" not in sys.argv[1:]:
            file.write_text(text, encoding="utf-8")
        elif not file.exists() or file.read_text(encoding="utf-8") != text:
            stale = 1
            name, tool = file.relative_to(ROOT), Path(__file__).relative_to(ROOT)
            print(f"{name} is stale: python {tool}", file=sys.stderr)
    return stale


if __name__ == "__main__":
    sys.exit(main())
