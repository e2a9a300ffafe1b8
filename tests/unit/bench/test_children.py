from __future__ import annotations

import pytest

from bench.children import ONE_THREAD, measure_in_child
from bench.datasets import CHECKOUT
from noctuary.core.errors import StoreError

_SAY = """
import json, os
print("first")
print(json.dumps({"directory": os.getcwd(), "environment": dict(os.environ)}))
"""


def test_the_last_line_of_a_child_in_the_checkout_with_one_thread_counts() -> None:
    said = measure_in_child(["-c", _SAY])
    assert said["directory"] == str(CHECKOUT)
    assert said["environment"].items() >= ONE_THREAD.items()


def test_a_child_that_fails_says_why() -> None:
    with pytest.raises(StoreError, match=r"failed: the disk is full"):
        measure_in_child(["-c", "raise SystemExit('the disk is full')"])
