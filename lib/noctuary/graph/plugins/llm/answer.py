"""What a model said about one memory: reading it, keeping it, proposing it to the graph.

What belongs here: one memory's answer, unverified. What does not: batches (asking.py), whether it
stands in the text (plugins.verify).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from noctuary.foreign_json import parse_json
from noctuary.graph.extraction import Extraction, Found, Stated
from noctuary.graph.fold import fold_name
from noctuary.graph.model import NO_SPAN
from noctuary.graph.plugins.llm.relations import map_relation

MAX_NAMES = 40
"""Of one memory; a model that repeats itself fills any answer."""
MAX_TRIPLES = 40
MAX_TEXT_CHARS = 200
"""Of a name or a relation: longer ones are sentences, which the check would drop anyway."""

Triple = tuple[str, str, str]


class RawAnswer(NamedTuple):
    """A memory's answer as given; kept as it is, so that stricter checks ask nothing anew.

    Attributes:
        names: Names, at most MAX_NAMES.
        triples: Subject, relation, object; at most MAX_TRIPLES.
        malformed: Entries that were neither, or too long, or too many.
    """

    names: tuple[str, ...]
    triples: tuple[Triple, ...]
    malformed: int = 0

    def to_bytes(self) -> bytes:
        """Return what is kept."""
        return json.dumps(self._asdict()).encode("ascii")


class Failures(NamedTuple):
    """Instead of an answer: how many nights a memory, asked alone, got none of any use."""

    nights: int

    def to_bytes(self) -> bytes:
        """Return what is kept."""
        return json.dumps({"failed": self.nights}).encode("ascii")


def decode(raw: bytes | None) -> RawAnswer | Failures:
    """Return what is kept of a memory; no failures where there is nothing, or damage."""
    try:
        value: Any = parse_json(raw or b"{}")
        if isinstance(value.get("failed"), int):
            return Failures(value["failed"])
        answer = read_answer(value)
        return Failures(0) if answer is None else answer
    except (ValueError, AttributeError):
        return Failures(0)


def read_answer(row: Mapping[str, Any]) -> RawAnswer | None:
    """Return an item's answer; None unless it holds a list of names or of triples."""
    given_names, given_triples = row.get("names"), row.get("triples")
    if not isinstance(given_names, list) and not isinstance(given_triples, list):
        return None
    raw_names: list[Any] = given_names if isinstance(given_names, list) else []
    raw_triples: list[Any] = given_triples if isinstance(given_triples, list) else []
    names = [name for name in raw_names if _is_text(name)][:MAX_NAMES]
    triples = [triple for raw in raw_triples if (triple := _read_triple(raw))][:MAX_TRIPLES]
    lost = len(raw_names) - len(names) + len(raw_triples) - len(triples)
    before = row.get("malformed", 0)
    return RawAnswer(tuple(names), tuple(triples), lost + (before if _is_count(before) else 0))


def propose(answer: RawAnswer) -> tuple[Extraction, int]:
    """Return an answer as findings without places, and how many relations the graph has not.

    The ends of such a triple are names all the same.
    """
    stated: list[Stated] = []
    unmapped = 0
    for subject, relation, thing in answer.triples:
        mapped = map_relation(relation)
        if mapped is None:
            unmapped += 1
            continue
        name, swapped = mapped
        ends = (thing, subject) if swapped else (subject, thing)
        stated.append(Stated(fold_name(ends[0]), name, fold_name(ends[1]), NO_SPAN, NO_SPAN, *ends))
    ends_too = [end for triple in answer.triples for end in (triple[0], triple[2])]
    return Extraction(_mentions([*answer.names, *ends_too]), tuple(stated)), unmapped


def _mentions(names: Iterable[str]) -> tuple[Found, ...]:
    return tuple(
        Found("mentions", "name", fold_name(name), NO_SPAN, NO_SPAN, name)
        for name in dict.fromkeys(names)
    )


def _read_triple(raw: Any) -> Triple | None:
    if isinstance(raw, dict):
        raw = [raw.get("subject"), raw.get("relation", raw.get("predicate")), raw.get("object")]
    parts: list[Any] = raw if isinstance(raw, list) else []
    if len(parts) != 3 or not all(map(_is_text, parts)):
        return None
    return parts[0], parts[1], parts[2]


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value.strip() != "" and len(value) <= MAX_TEXT_CHARS


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
