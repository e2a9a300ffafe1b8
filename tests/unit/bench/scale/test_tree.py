"""The memory of a process tree, and a limit that the kernel holds."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from bench.scale.limit import entrance, limited_memory
from bench.scale.tree import TreeWatch, sample_tree

MB = 2**20
_HOLD = "import time; held = bytearray(60 * 2**20); print('held', flush=True); time.sleep(60)"
_PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {_HOLD!r}])"


def test_a_childs_memory_counts_for_its_parent() -> None:
    parent = subprocess.Popen([sys.executable, "-c", _PARENT], stdout=subprocess.PIPE)
    try:
        assert parent.stdout is not None
        parent.stdout.readline()
        watch = TreeWatch(parent.pid, lambda: "now").start()
        time.sleep(0.7)
        watch.stop()
        pss, anonymous, processes = sample_tree(parent.pid)
        assert processes == 2
        assert 60 * MB < anonymous <= pss < 200 * MB
        assert watch.peaks["now"].anonymous > 60 * MB
    finally:
        for pid in _children(parent.pid):
            subprocess.run(["kill", "-9", str(pid)], check=False)
        parent.kill()
        parent.communicate()


def test_what_needs_more_than_the_limit_is_killed() -> None:
    with limited_memory(100 * MB) as group:
        if group is None:
            pytest.skip("no control group can be made here")
        word = "held = bytearray(200 * 2**20)"
        done = subprocess.run([sys.executable, "-c", word], preexec_fn=entrance(group), check=False)
        assert done.returncode == -9
        few = "held = bytearray(20 * 2**20)"
        fits = subprocess.run([sys.executable, "-c", few], preexec_fn=entrance(group), check=False)
        assert fits.returncode == 0
        assert (group.peak_bytes() or 0) > 20 * MB


def _children(pid: int) -> list[int]:
    said = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(word) for word in said.stdout.split()]
