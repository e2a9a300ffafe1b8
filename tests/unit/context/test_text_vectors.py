from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from noctuary.context.assemble import TextVectors


def vector(value: float) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.array([value], dtype=np.float32)


def test_the_oldest_vector_goes_first_and_encoders_are_told_apart() -> None:
    known = TextVectors(2)
    known.keep(("e1", "a"), vector(1))
    known.keep(("e2", "a"), vector(2))
    assert known.get(("e1", "a")) == vector(1)
    known.keep(("e1", "b"), vector(3))
    assert known.get(("e1", "a")) is None
    assert known.get(("e2", "a")) == vector(2)
    assert len(known) == 2


def test_a_text_that_is_kept_again_pushes_no_other_out() -> None:
    known = TextVectors(2)
    for text in ("a", "b", "b"):
        known.keep(("e", text), vector(1))
    assert known.get(("e", "a")) is not None


def test_threads_keep_within_the_limit() -> None:
    known = TextVectors(5)
    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(known.keep, ("e", str(n)), vector(n)) for n in range(500)]:
            done.result()
    assert len(known) == 5
