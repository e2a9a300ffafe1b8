"""Write the pages of docs/benchmarks, or with --check compare them with their JSON files.

`python -m bench.tables [--check] [--docs DIR]`
"""

from __future__ import annotations

import sys

from bench.tables.pages import main

if __name__ == "__main__":
    sys.exit(main())
