from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from noctuary.evaluate.labels import Query
from noctuary.evaluate.run import (
    asker_of,
    index_builder_of,
    index_bytes_of,
    read_answer,
    retriever_name,
)

QUERY = Query("q1", "what did we eat", "a", ("m1",), wing="home")


class Plain:
    def retrieve(self, query: str, k: int) -> list[str]:
        return [query] * k


class Scored(Plain):
    name = "with scores"

    def retrieve_hits(self, query: Query, k: int) -> list[tuple[str, float]]:
        return [(str(query.wing), 2.5)][:k]


def bare(query: str, k: int) -> list[str]:
    return [query, str(k)]


def test_a_name_is_the_attribute_then_the_function_then_the_class() -> None:
    assert retriever_name(Scored()) == "with scores"
    assert retriever_name(bare) == "bare"
    assert retriever_name(Plain()) == "Plain"


def test_a_retriever_gets_the_text_and_retrieve_hits_gets_the_whole_query() -> None:
    assert asker_of(Plain(), "x")(QUERY, 2) == [QUERY.text, QUERY.text]
    assert asker_of(bare, "x")(QUERY, 7) == [QUERY.text, "7"]
    assert asker_of(Scored(), "x")(QUERY, 2) == [("home", 2.5)]


def test_what_cannot_be_asked_is_named() -> None:
    broken: Any = object()
    with pytest.raises(TypeError, match=r"'broken' is a object; expected an object with retrieve"):
        asker_of(broken, "broken")


@pytest.mark.parametrize(
    ("answer", "ids"),
    [
        ([], ()),
        (["a", 7, np.int64(8)], ("a", "7", "8")),
        (("a", "a", "b"), ("a", "a", "b")),
        (["a", "b", "c", "beyond k"], ("a", "b", "c")),
    ],
)
def test_integer_and_text_ids_become_text_and_repeats_stay(
    answer: Sequence[object], ids: tuple[str, ...]
) -> None:
    assert read_answer(answer, 3, "x", scored=False) == (ids, None)


def test_hits_give_ids_and_the_score_of_the_first() -> None:
    hits = [(7, np.float32(0.5)), ("b", 0)]
    assert read_answer(hits, 3, "x", scored=True) == (("7", "b"), 0.5)
    assert read_answer([], 3, "x", scored=True) == ((), None)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (None, "'arm' returned None; expected a list of ids"),
        ("m1", "'arm' returned a value of type str; expected a list of ids"),
        (b"m1", "'arm' returned a value of type bytes"),
        ({"m1": 1.0}, "'arm' returned a value of type dict"),
        (iter(["m1"]), "'arm' returned a value of type list_iterator"),
        (["m1", None], "'arm' returned None as the id at rank 2"),
        (["m1", True], "'arm' returned a value of type bool as the id at rank 2"),
        ([{"text": "a secret"}], "'arm' returned a value of type dict as the id at rank 1"),
        ([1.0], "'arm' returned a value of type float as the id at rank 1"),
    ],
)
def test_an_answer_of_the_wrong_kind_is_named_without_its_content(
    answer: object, message: str
) -> None:
    with pytest.raises(TypeError, match=message) as caught:
        read_answer(answer, 10, "arm", scored=False)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "answer", [["m1"], [("m1",)], [("m1", "0.5")], [("m1", float("nan"))], [("m1", None)]]
)
def test_hits_that_are_no_pairs_of_id_and_finite_score_are_refused(answer: object) -> None:
    with pytest.raises(TypeError, match=r"'arm' returned .* at rank 1; retrieve_hits must return"):
        read_answer(answer, 10, "arm", scored=True)
    with pytest.raises(TypeError, match=r"returned None; expected a list of \(id, score\) pairs"):
        read_answer(None, 10, "arm", scored=True)


class Sized:
    def __init__(self, index_size_bytes: object) -> None:
        self.index_size_bytes = index_size_bytes


def test_the_index_size_is_a_number_or_a_function() -> None:
    assert index_bytes_of(Sized(12), "x") == 12
    assert index_bytes_of(Sized(lambda: 34), "x") == 34
    assert index_bytes_of(Sized(None), "x") is None
    assert index_bytes_of(object(), "x") is None
    for wrong in ("12", 1.5, True):
        with pytest.raises(TypeError, match="index_size_bytes of retriever 'x' is a value of type"):
            index_bytes_of(Sized(wrong), "x")


def test_only_a_callable_build_index_counts() -> None:
    class Built(Plain):
        build_index = 3

    assert index_builder_of(Plain()) is None
    assert index_builder_of(Built()) is None
