"""`python -m rabbet` runs the command `rabbet`, also where its script is not on PATH."""

import sys

from ._cli import main

if __name__ == "__main__":
    sys.exit(main())
