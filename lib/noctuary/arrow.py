"""pyarrow's functions on columns, where a type checker can see them.

What belongs here: getting at them. What does not: anything computed with them. pyarrow itself is
imported by the call.
"""

from __future__ import annotations

import importlib
from typing import Any


def arrow_compute() -> Any:
    """Return `pyarrow.compute`, which makes its functions when it is imported."""
    return importlib.import_module("pyarrow.compute")
