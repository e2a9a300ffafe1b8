from __future__ import annotations

import subprocess
import sys
import threading
import time
from dataclasses import asdict

import pytest

from noctuary.work.stage import Cost, measure


def test_wall_time_counts_waiting_and_cpu_time_does_not() -> None:
    # In a process of its own: CPU time counts every thread, and other tests may leave some behind.
    code = (
        "import time; from noctuary.work.stage import Cost, measure\n"
        "with measure() as cost: time.sleep(0.3)\n"
        "print(cost.wall_ms, cost.cpu_ms)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    wall_ms, cpu_ms = map(float, done.stdout.split())
    assert wall_ms >= 300
    assert cpu_ms < wall_ms / 2


def test_cpu_time_counts_every_thread() -> None:
    def spin() -> None:
        end = time.thread_time() + 0.05
        while time.thread_time() < end:
            pass

    with measure() as cost:
        threads = [threading.Thread(target=spin) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert cost.cpu_ms >= 100


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux forgets the high-water mark")
def test_peak_memory_is_that_of_the_block() -> None:
    # In a process of its own: a large one has room that it can give without growing.
    code = (
        "import numpy as np; from noctuary.work.stage import Cost, measure\n"
        "with measure() as small: pass\n"
        "with measure() as large: np.ones(64 << 20, dtype=np.uint8).sum()\n"
        "with measure() as after: pass\n"
        "print(small.peak_rss_bytes, large.peak_rss_bytes, after.peak_rss_bytes)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    small, large, after = map(int, done.stdout.split())
    assert large - small > 32 << 20
    assert after < large


def test_a_cost_is_filled_when_the_block_fails() -> None:
    seen: list[Cost] = []

    def fail() -> None:
        with measure() as cost:
            seen.append(cost)
            time.sleep(0.01)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert seen[0].wall_ms >= 10
    assert seen[0].peak_rss_bytes > 0


def test_a_cost_is_plain_values() -> None:
    with measure() as cost:
        time.sleep(0.002)
    found = asdict(cost)
    assert found.keys() == {"wall_ms", "cpu_ms", "peak_rss_bytes"}
    assert all(value == round(value, 1) for value in found.values())
