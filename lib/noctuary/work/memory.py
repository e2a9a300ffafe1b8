"""Memory that a stage has let go of, given back to the system before the next one starts.

What belongs here: asking the allocators. What does not: what is held. Allocators keep freed memory
for later; the next stage's workers are other processes and cannot use it.
"""

from __future__ import annotations

import ctypes
import sys


def give_back() -> None:
    """Ask the C library and pyarrow to return what nothing uses; nothing where they cannot."""
    if "pyarrow" in sys.modules:
        import pyarrow as pa

        pa.default_memory_pool().release_unused()
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return  # not glibc
    trim(0)
