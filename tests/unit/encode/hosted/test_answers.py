"""What an answer may hold: one usable vector per text, in any order; everything else is told."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.core.settings import EncoderSettings
from noctuary.embed.hosted import BadVectorsError, hosted_model, read_batch
from noctuary.work.http import PassingFaultError

VOYAGE = hosted_model(EncoderSettings("a-model", "voyage", dimension=3))
COHERE = hosted_model(EncoderSettings("a-model", "cohere", dimension=3))
_number = st.floats(-1e6, 1e6, width=32)
_vectors = st.lists(
    st.lists(_number, min_size=3, max_size=3).filter(lambda v: max(map(abs, v)) > 1e-3),
    min_size=1,
    max_size=6,
)


def indexed(vectors: list[Any]) -> dict[str, Any]:
    rows = [{"index": index, "embedding": vector} for index, vector in enumerate(vectors)]
    return {"data": rows, "usage": {"total_tokens": 7}}


def read(answer: object, count: int = 2) -> Any:
    return read_batch(json.dumps(answer).encode(), VOYAGE, count)


@given(_vectors, st.randoms(use_true_random=False), st.booleans())
def test_any_order_and_either_encoding_give_the_unit_vectors_of_the_texts(
    vectors: list[list[float]], chance: Any, packed: bool
) -> None:
    """Against a naive reader."""
    answer = indexed(vectors)
    if packed:
        for row in answer["data"]:
            raw = np.asarray(row["embedding"], dtype="<f4").tobytes()
            row["embedding"] = base64.b64encode(raw).decode()
    chance.shuffle(answer["data"])
    found = read(answer, len(vectors))
    expected = [np.asarray(v) / np.sqrt(sum(x * x for x in v)) for v in vectors]
    assert found.vectors.dtype == np.float32
    np.testing.assert_allclose(found.vectors, expected, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(found.vectors, axis=1), 1.0, atol=1e-6)
    assert found.tokens == 7


def test_cohere_answers_in_the_order_of_the_texts() -> None:
    answer = {
        "embeddings": {"float": [[2, 0, 0], [0, 0, 3]]},
        "meta": {"billed_units": {"input_tokens": 11}},
    }
    found = read_batch(json.dumps(answer).encode(), COHERE, 2)
    assert found.vectors.tolist() == [[1, 0, 0], [0, 0, 1]]
    assert found.tokens == 11


def _drop(answer: dict[str, Any]) -> None:
    answer["data"].pop()


def _repeat(answer: dict[str, Any]) -> None:
    answer["data"][1]["index"] = 0


def _beyond(answer: dict[str, Any]) -> None:
    answer["data"][1]["index"] = 2


def _true(answer: dict[str, Any]) -> None:
    answer["data"][1]["index"] = True


def _set(value: object) -> Callable[[dict[str, Any]], None]:
    def change(answer: dict[str, Any]) -> None:
        answer["data"][1]["embedding"] = value

    return change


BAD: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "one missing": (_drop, "1 vectors for 2 texts"),
    "one twice": (_repeat, "not each text once"),
    "one beyond": (_beyond, "not each text once"),
    "an index that is no number": (_true, "not each text once"),
    "too short": (_set([1.0, 2.0]), r"text 1 .*\(2,\); expected \(3,\)"),
    "too long": (_set([1.0] * 4), r"expected \(3,\)"),
    "no list": (_set(None), "text 1"),
    "nested": (_set([[1.0], [2.0], [3.0]]), r"\(3, 1\)"),
    "words": (_set(["a", "b", "c"]), "not a list of numbers"),
    "a null": (_set([None, 1.0, 2.0]), "not finite"),
    "an object": (_set({"a": 1}), "not a list of numbers"),
    "no base64": (_set("@@@"), "not a list of numbers"),
    "half a number": (_set(base64.b64encode(b"12345").decode()), "not a list of numbers"),
    "NaN": (_set([float("nan"), 1.0, 2.0]), "not finite"),
    "infinite": (_set([float("inf"), 1.0, 2.0]), "not finite"),
    "too large to square": (_set([1e200, 1.0, 2.0]), "not finite"),
    "only zeros": (_set([0.0, 0.0, 0.0]), "only zeros"),
}


@pytest.mark.parametrize("case", BAD)
def test_an_answer_that_is_not_one_usable_vector_per_text_is_refused(case: str) -> None:
    change, message = BAD[case]
    answer = indexed([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    change(answer)
    with pytest.raises(BadVectorsError, match=message):
        read(answer)


@pytest.mark.parametrize("answer", [[], {}, {"data": {}}, {"data": [1]}, {"data": [{}]}, None, "x"])
def test_another_form_is_refused(answer: object) -> None:
    with pytest.raises(BadVectorsError):
        read(answer)


@pytest.mark.parametrize("body", [b"", b"{", b"<html>busy</html>", b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_json_may_be_better_next_time(body: bytes) -> None:
    with pytest.raises(PassingFaultError):
        read_batch(body, VOYAGE, 1)


@pytest.mark.parametrize("usage", [None, {}, {"total_tokens": "9"}, {"total_tokens": -1}, 3])
def test_without_a_usable_count_of_tokens_the_vectors_are_good_all_the_same(usage: object) -> None:
    answer = {**indexed([[1.0, 0.0, 0.0]]), "usage": usage}
    found = read(answer, 1)
    assert found.tokens is None
    assert found.vectors.tolist() == [[1.0, 0.0, 0.0]]
