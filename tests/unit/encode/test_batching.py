from __future__ import annotations

import pytest

from noctuary.embed.onnx import BATCH_SIZE
from noctuary.embed.sentence import fill_batch, plan_batches


def test_equal_counts_go_together_longest_first() -> None:
    assert plan_batches([3, 9, 3, 5, 9, 3], 2) == [[1, 4], [3], [0, 2], [5]]


def test_default_batch_size() -> None:
    assert [len(batch) for batch in plan_batches([4] * (BATCH_SIZE + 1))] == [BATCH_SIZE, 1]


def test_no_texts_no_batches() -> None:
    assert plan_batches([]) == []


@pytest.mark.parametrize(
    ("texts", "token_count", "rows"),
    [
        (["a"], 256, 2),
        (["a", "b"], 256, 2),
        (["a"], 20, 4),
        (["a", "b", "c"], 2, 32),
        (["a"], 0, 64),
    ],
)
def test_small_batches_are_filled_with_repeats(
    texts: list[str], token_count: int, rows: int
) -> None:
    filled = fill_batch(texts, token_count)
    assert len(filled) == rows
    assert filled == (texts * rows)[:rows]
