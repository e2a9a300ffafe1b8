"""Which names of a store's concepts an exported memory says itself.

What belongs here: one rule. A concept's name and aliases were collected from many memories, and
nothing tells from which: one of them may be sensitive now, deleted, or somebody else's. A name
leaves the store only where an exported memory that is about the concept says it: then nothing is
known by it that the export does not hold anyway. What does not: which rows are kept
(`noctuary.corpus.evidence_tables`).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from noctuary.corpus.evidence import KnownConcept, KnownEdge, KnownMention
from noctuary.text.sensitivity import find_text_sensitivity
from noctuary.types import MemoryRecord

MAX_LABEL_CHARS = 200
"""Longest name, relation or category of a concept that is taken: a sentence is no name. The server
allows 50 for the latter two and any length for names."""

_LABELS_HELD = 4_096
"""Labels whose scan is remembered: relations and categories are few and come with every row."""

_WORD = re.compile(r"[^\W_]+")
# Thai, kana, Han and Hangul: words there do not end at a space.
_UNSPACED = re.compile("[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


class BackedNames(NamedTuple):
    """The names that may leave.

    Attributes:
        name_of: The store's canonical name to the one that is used here: itself if a memory says
            it, else the first alias that one says.
        aliases_of: The same key to the other names that a memory says, sorted.
    """

    name_of: Mapping[str, str]
    aliases_of: Mapping[str, tuple[str, ...]]

    def rename_concept(self, concept: KnownConcept) -> KnownConcept | None:
        """Return a concept by the names that may leave, or None."""
        name = self.name_of.get(concept.name)
        if name is None:
            return None
        return KnownConcept(name, self.aliases_of[concept.name], _label(concept.category))

    def rename_mention(self, mention: KnownMention) -> KnownMention | None:
        """Return a mention of a concept that may be named, or None."""
        name = self.name_of.get(mention.concept)
        if name is None:
            return None
        return replace(mention, concept=name, relation=_label(mention.relation))

    def rename_edge(self, edge: KnownEdge) -> KnownEdge | None:
        """Return an edge between two concepts that may be named, or None."""
        source, target = self.name_of.get(edge.source), self.name_of.get(edge.target)
        if source is None or target is None or source == target:
            return None
        return replace(edge, source=source, target=target, relation=_label(edge.relation))


def find_backed_names(
    concepts: Sequence[KnownConcept],
    mentions: Iterable[KnownMention],
    edges: Iterable[KnownEdge],
    batches: Iterable[Iterable[MemoryRecord]],
) -> BackedNames:
    """Return the names that exported memories say about themselves.

    A text says a name if the name's words stand in it one after the other, whatever their case and
    whatever is between them. A name with a secret in it, or of more than MAX_LABEL_CHARS, is none.

    Args:
        concepts: Of the store, each name once.
        mentions: Of exported memories.
        edges: With exported memories as evidence only.
        batches: The exported memories.
    """
    about = _concepts_by_memory(mentions, edges)
    spellings = {x.name: _spellings(x) for x in concepts}
    said: dict[str, set[str]] = defaultdict(set)
    for batch in batches:
        for record in batch:
            names = about.get(record.memory_id)
            if names:
                _mark_said(record, names, spellings, said)
    name_of: dict[str, str] = {}
    aliases_of: dict[str, tuple[str, ...]] = {}
    for concept in concepts:
        found = sorted(said.get(concept.name, ()))
        if found:
            name = concept.name if concept.name in found else found[0]
            name_of[concept.name] = name
            aliases_of[concept.name] = tuple(x for x in found if x != name)
    return BackedNames(name_of, aliases_of)


def _concepts_by_memory(
    mentions: Iterable[KnownMention], edges: Iterable[KnownEdge]
) -> Mapping[str, set[str]]:
    about: dict[str, set[str]] = defaultdict(set)
    for mention in mentions:
        about[mention.memory_id].add(mention.concept)
    for edge in edges:
        for memory_id in edge.evidence:
            about[memory_id].update((edge.source, edge.target))
    return about


def _mark_said(
    record: MemoryRecord,
    names: Iterable[str],
    spellings: Mapping[str, Mapping[str, str]],
    said: dict[str, set[str]],
) -> None:
    fields = (record.content, record.tags, record.expanded_keywords)
    # A break between fields: no name runs from the end of one into the next.
    text = "|".join(_words(field) for field in fields)
    for name in names:
        for spelling, words in spellings.get(name, {}).items():
            if words in text:
                said[name].add(spelling)


def _spellings(concept: KnownConcept) -> Mapping[str, str]:
    """Return every name of a concept that may be looked for, with its words."""
    found: dict[str, str] = {}
    for name in {concept.name, *concept.aliases}:
        words = _words(_label(name))
        if words.strip():
            found[name] = words.strip() if _UNSPACED.search(words) else words
    return found


def _words(text: str) -> str:
    return f" {' '.join(_WORD.findall(text.casefold()))} "


@lru_cache(maxsize=_LABELS_HELD)
def _label(text: str) -> str:
    """Return a label of the store, or an empty one if it is none or holds a secret."""
    text = text.strip()
    if len(text) > MAX_LABEL_CHARS or "\0" in text:
        return ""
    return "" if find_text_sensitivity(text) else text
