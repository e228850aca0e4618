"""``python -m sgdoctor`` is the command ``sgdoctor``."""

import sys

from sgdoctor.cli import main

if __name__ == "__main__":
    sys.exit(main())
