"""``python -m lumberjack``: the command."""

import sys

from lumberjack.cli import main

if __name__ == "__main__":
    sys.exit(main())
