"""What a language model says about one memory, and what of it stands in the text.

A model may invent, or be told by a memory what to say. So nothing is believed that cannot be
pointed at: every name must stand in the content, folded, and gets the span of every place where it
does. The rest is dropped and counted. Nothing is sent from here (noctuary.night.llm_triples).
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from noctuary.foreign_json import parse_json
from noctuary.graph.extraction import Extraction, Found, Stated
from noctuary.graph.fold import fold_name, unsegmented_script, words
from noctuary.graph.merge import found_order, sort_stated
from noctuary.graph.model import StatedRelation
from noctuary.graph.relation_words import RELATION_NAMES, map_relation
from noctuary.hashing import hash_text
from noctuary.hosted.batches import DATA_RULE, MAX_MEMORY_CHARS
from noctuary.text.stopwords import is_stop_word

PROMPT_VERSION = "1"
"""Part of every key under which an answer is kept: raise it with any change of wording."""
READING_VERSION = "1"
"""Raised whenever the same answer may give other findings."""
TAG_HEX = 8
"""Letters of an item's id. Longer ones cost tokens and are copied wrong more often."""
MAX_NAMES = 40
"""Of one memory; a model that repeats itself fills any answer."""
MAX_TRIPLES = 40
MAX_TEXT_CHARS = 200
"""Of a name or a relation: longer ones are sentences, which the check would drop anyway."""
MAX_NAME_WORDS = 8
"""Of a name; longer ones are sentences. Higher lets through descriptions that occur once."""
MAX_PLACES = 16
"""Places of one name in one memory that are kept: more evidence of the same adds nothing."""

SYSTEM = (
    "You index a personal memory store. For each item list what its memory names (people, "
    "organisations, places, projects, products, files, events) under names, and what it states "
    "between two of them under triples, each a list of subject, relation and object. Copy names "
    "letter by letter as they stand in that memory; never translate, expand or complete them, "
    "and never name what does not stand there. Resolve pronouns to the name they stand for; "
    f"leave the triple out if you cannot. Use one of these relations: {', '.join(RELATION_NAMES)}; "
    "where none fits, use a verb of your own. Answer with empty lists where there is nothing. "
    + DATA_RULE
    + '{"items": [{"id": "...", "names": ["..."], "triples": [["...", "...", "..."]]}]}'
)

Span = tuple[int, int]
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


class Grounded(NamedTuple):
    """What is left of an answer.

    Attributes:
        extraction: The findings that stand in the text, in canonical order.
        dropped: How many names and statements were not kept, by reason: "not_in_text",
            "not_a_name" (no letter, or function words only), "too_long", "same_name" and
            "overlapping" (the two names of a statement are one, or stand in one place only).
        unmapped: How many relations the graph has not; their ends are names all the same.
    """

    extraction: Extraction
    dropped: Counter[str]
    unmapped: int


def answer_key(content: str, model: str) -> str:
    """Return what a memory's answer is kept under: its text, the model and the prompt."""
    return hash_text("triples", PROMPT_VERSION, str(MAX_MEMORY_CHARS), model, content)


def item_ids(keys: Sequence[str]) -> tuple[str, ...]:
    """Return the ids of a batch, made from its keys.

    They cannot be known to whoever wrote one of the memories, so that its text cannot answer for
    another by number, and a model that skips an item and counts on answers for nobody.
    """
    for length in (TAG_HEX, len(keys[0])):
        tags = tuple(f"m{key[:length]}" for key in keys)
        if len(set(tags)) == len(keys):
            return tags
    raise ValueError("two items of a batch have the same key, expected distinct texts")


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


def ground(content: str, answer: RawAnswer) -> Grounded:
    """Keep what stands in the content, at every place where it stands.

    Args:
        content: The memory's text.
        answer: What the model said about it.
    """
    places, dropped = _Places(content), Counter[str]()
    found: set[Found] = set()
    stated: set[Stated] = set()
    unmapped = 0
    ends = [end for triple in answer.triples for end in (triple[0], triple[2])]
    for name in dict.fromkeys([*answer.names, *ends]):
        fault = _fault(name)
        spans = [] if fault else places.find(name)
        if not spans:
            dropped[fault or "not_in_text"] += 1
        for start, end in spans:
            surface = content[start:end]
            found.add(Found("mentions", "name", fold_name(surface), start, end, surface))
    for subject, words_given, thing in answer.triples:
        mapped = map_relation(words_given)
        if mapped is None:
            unmapped += 1
            continue
        relation, swapped = mapped
        pair = (thing, subject) if swapped else (subject, thing)
        statement = _ground_statement(content, places, relation, pair)
        if isinstance(statement, str):
            dropped[statement] += 1
        else:
            stated.add(statement)
    kept = Extraction(tuple(sorted(found, key=found_order)), sort_stated(stated))
    return Grounded(kept, dropped, unmapped)


class _Places:
    """The words of a text, to look names up in, whatever their case and spelling."""

    def __init__(self, content: str) -> None:
        self._content = content
        self._parts: list[tuple[str, int, int]] = []
        self._starts: defaultdict[str, list[int]] = defaultdict(list)
        for word in words(content):
            parts = word.folded.split(" ")
            for number, part in enumerate(parts):
                # Inside of a word that folds to several, no name begins or ends: -1 is no offset.
                first = word.start if number == 0 else -1
                last = word.end if number == len(parts) - 1 else -1
                if first >= 0:
                    self._starts[part].append(len(self._parts))
                self._parts.append((part, first, last))

    def find(self, surface: str) -> list[Span]:
        """Return where a name stands, in order, at most MAX_PLACES; whole words only.

        A name in a script without spaces is looked for as it is written, because its words cannot
        be told apart.
        """
        folded = [word.folded for word in words(surface)]
        if any(unsegmented_script(word) for word in folded):
            return self._find_literally(surface.strip())
        wanted = " ".join(folded).split()
        if not wanted:
            return []
        spans = (self._match(at, wanted) for at in self._starts.get(wanted[0], ()))
        return [span for span in spans if span is not None][:MAX_PLACES]

    def _match(self, at: int, wanted: list[str]) -> Span | None:
        parts = self._parts[at : at + len(wanted)]
        if [part for part, _, _ in parts] != wanted or parts[-1][2] < 0:
            return None
        return parts[0][1], parts[-1][2]

    def _find_literally(self, surface: str) -> list[Span]:
        spans: list[Span] = []
        at = self._content.find(surface)
        while at >= 0 and len(spans) < MAX_PLACES:
            spans.append((at, at + len(surface)))
            at = self._content.find(surface, at + len(surface))
        return spans


def _ground_statement(
    content: str, places: _Places, relation: StatedRelation, surfaces: tuple[str, str]
) -> Stated | str:
    """Return the statement with its evidence, or why there is none."""
    for surface in surfaces:
        if (fault := _fault(surface)) is not None:
            return fault
    subjects, objects = map(places.find, surfaces)
    if not subjects or not objects:
        return "not_in_text"
    if fold_name(surfaces[0]) == fold_name(surfaces[1]):
        return "same_name"
    pairs = [(a, b) for a in subjects for b in objects if a[1] <= b[0] or b[1] <= a[0]]
    if not pairs:
        return "overlapping"
    pair = min(pairs, key=lambda pair: (_reach(*pair), pair))
    subject, thing = (content[start:end] for start, end in pair)
    start, end = min(span[0] for span in pair), max(span[1] for span in pair)
    return Stated(fold_name(subject), relation, fold_name(thing), start, end, subject, thing)


def _reach(left: Span, right: Span) -> int:
    """Return the length of the text around two places."""
    return max(left[1], right[1]) - min(left[0], right[0])


def _fault(surface: str) -> str | None:
    """Return why a text is no name, or None."""
    folded = fold_name(surface)
    parts = folded.split()
    if not any(character.isalpha() for character in folded) or all(map(is_stop_word, parts)):
        return "not_a_name"
    return "too_long" if len(parts) > MAX_NAME_WORDS else None


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
