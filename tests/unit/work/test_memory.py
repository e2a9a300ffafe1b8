"""What was freed goes back to the system: the resident size of a process falls."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

from noctuary.work.stage import give_back

# A process of its own: what other tests hold lies in the same heap. The last block keeps the heap
# from shrinking by itself.
FREED_BELOW_A_BLOCK = """
import ctypes
from pathlib import Path
from noctuary.work.stage import give_back

def resident_mb():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS"))

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
blocks = []
for _ in range(50_000):
    blocks.append(libc.malloc(4_000))
    ctypes.memset(blocks[-1], 1, 4_000)
for block in blocks[:-1]:
    libc.free(block)
held = resident_mb()
give_back()
print(held, resident_mb())
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="not glibc")
def test_freed_memory_goes_back() -> None:
    words = [sys.executable, "-c", FREED_BELOW_A_BLOCK]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    held_mb, left_mb = map(int, done.stdout.split())
    assert held_mb > 190
    assert left_mb < held_mb - 150


def test_arrows_pool_is_asked_where_arrow_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow as pa

    asked: list[bool] = []

    class Pool:
        def release_unused(self) -> None:
            asked.append(True)

    monkeypatch.setattr(pa, "default_memory_pool", Pool)
    give_back()
    assert asked == [True]
    monkeypatch.delitem(sys.modules, "pyarrow")
    give_back()
    assert asked == [True]


def test_where_the_library_cannot_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    def another_library(name: str | None) -> object:
        return object()

    monkeypatch.setattr(ctypes, "CDLL", another_library)
    give_back()
