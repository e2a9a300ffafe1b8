"""What an evaluation asks: any object with `retrieve(query, k)`, or a bare function.

What belongs here: the protocol, its optional members and the checks of what they return. What does
not: which queries, timing, scoring, any retrieval of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast

import numpy as np

from noctuary.errors import NoctuaryError
from noctuary.evaluate.labels.queries import Query


class Retriever(Protocol):
    """Anything that answers a query with ids.

    Optional members, used where an object has them:

    - `name: str`: what it is called in reports.
    - `build_index(corpus: Sequence[Mapping[str, Any]]) -> None`: prepares it; timed apart.
    - `index_size_bytes: int`, or a function without arguments that returns it.
    - `retrieve_hits(query: Query, k: int) -> Sequence[tuple[str, float]]`: ids with scores, higher
      is better; sees the whole query (wing, moment) and is asked instead of `retrieve`.
    """

    def retrieve(self, query: str, k: int) -> Sequence[int | str]:
        """Return at most k ids, best first."""
        ...


RetrieveFunction = Callable[[str, int], Sequence[int | str]]
"""A bare function in place of a retriever."""

Hits = tuple[tuple[str, ...], float | None]
"""Ids, best first, and the score of the first one where it is known."""


class RetrievalError(NoctuaryError):
    """A retriever failed; the message names it and the query's id, the cause is chained."""


def retriever_name(retriever: Retriever | RetrieveFunction) -> str:
    """Return the retriever's `name`, or else that of the function or class."""
    named = getattr(retriever, "name", None)
    if isinstance(named, str) and named:
        return named
    function_name = getattr(retriever, "__name__", None)
    return function_name if isinstance(function_name, str) else type(retriever).__name__


def asker_of(retriever: Retriever | RetrieveFunction, name: str) -> Callable[[Query, int], object]:
    """Return the function to time: a query and k in, whatever the retriever answers out.

    Args:
        retriever: An object with `retrieve_hits` or `retrieve`, or a function of text and k.
        name: What errors call it.

    Raises:
        TypeError: If it is none of these.
    """
    with_scores = getattr(retriever, "retrieve_hits", None)
    if callable(with_scores):
        return cast("Callable[[Query, int], object]", with_scores)
    method = getattr(retriever, "retrieve", None)
    function = method if callable(method) else retriever
    if not callable(function):
        raise TypeError(
            f"retriever {name!r} is a {type(retriever).__name__}; expected an object with "
            "retrieve(query, k), or a function of query and k"
        )
    retrieve = cast("Callable[[str, int], object]", function)
    return lambda query, k: retrieve(query.text, k)


def read_answer(answer: object, k: int, name: str, *, scored: bool) -> Hits:
    """Check what a retriever returned and take its first k ids as text.

    Args:
        answer: Ids, or pairs of id and score if `scored`.
        k: Results beyond it are ignored.
        name: The retriever's name, for the messages.
        scored: Whether the answer is that of `retrieve_hits`.

    Returns:
        The ids, best first, repeats kept, and the first one's score (None for plain ids and for an
        empty answer).

    Raises:
        TypeError: If the answer is not a sequence, an id neither an integer nor a string, a hit no
            pair of id and finite score. The message gives types, never values: they may hold text.
    """
    if not isinstance(answer, Sequence) or isinstance(answer, (str, bytes, bytearray)):
        wanted = "a list of (id, score) pairs" if scored else "a list of ids"
        raise TypeError(
            f"retriever {name!r} returned {_kind(answer)}; expected {wanted}, best first "
            "(an empty list where it finds nothing)"
        )
    results = cast("Sequence[object]", answer)[:k]
    if not scored:
        return tuple(_id_text(found, rank, name) for rank, found in enumerate(results, 1)), None
    pairs = [_pair(found, rank, name) for rank, found in enumerate(results, 1)]
    ids = tuple(_id_text(found, rank, name) for rank, (found, _) in enumerate(pairs, 1))
    return ids, pairs[0][1] if pairs else None


def index_bytes_of(retriever: object, name: str) -> int | None:
    """Return the size of the retriever's index in bytes, None where it does not say.

    Raises:
        TypeError: If `index_size_bytes` is neither an integer nor a function that returns one.
    """
    size = getattr(retriever, "index_size_bytes", None)
    if callable(size):
        size = size()
    if size is None:
        return None
    if isinstance(size, bool) or not isinstance(size, (int, np.integer)):
        raise TypeError(
            f"index_size_bytes of retriever {name!r} is {_kind(size)}; expected an integer or a "
            "function that returns one"
        )
    return int(size)


def index_builder_of(retriever: object) -> Callable[[Sequence[Mapping[str, Any]]], object] | None:
    """Return the retriever's `build_index`, None where it has none."""
    build = getattr(retriever, "build_index", None)
    return build if callable(build) else None


def _id_text(found: object, rank: int, name: str) -> str:
    if isinstance(found, str):
        return found
    if isinstance(found, (int, np.integer)) and not isinstance(found, bool):
        return str(int(found))
    raise TypeError(
        f"retriever {name!r} returned {_kind(found)} as the id at rank {rank}; "
        "expected an integer or a string"
    )


def _pair(found: object, rank: int, name: str) -> tuple[object, float]:
    if isinstance(found, Sequence) and not isinstance(found, (str, bytes)):
        parts = cast("Sequence[object]", found)
        if len(parts) == 2 and isinstance(parts[1], (int, float, np.integer, np.floating)):
            score = float(parts[1])
            if math.isfinite(score):
                return parts[0], score
    raise TypeError(
        f"retriever {name!r} returned {_kind(found)} at rank {rank}; "
        "retrieve_hits must return pairs of an id and a finite score"
    )


def _kind(value: object) -> str:
    return "None" if value is None else f"a value of type {type(value).__name__}"
