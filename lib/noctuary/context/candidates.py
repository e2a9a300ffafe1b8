"""V_rest of one query: variant nodes, turns before the tail and memories, made comparable.

What belongs here: which texts compete, and the two numbers that the score is made of. What does
not: the score (`scoring`), where memories come from (`searching`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.authored.node import Node
from noctuary.context.rendering import line_of_node, line_of_turn
from noctuary.context.searching import Found, FoundMemory, Search
from noctuary.context.values import PartSource, Turn
from noctuary.injection.block import Line
from noctuary.injection.injecting import line_of
from noctuary.recall.result import RecallWarning
from noctuary.recall.scorers import keyword_coverage
from noctuary.text.speaker import split_speaker
from noctuary.text.tokens import tokenize
from noctuary.types import UNDATED_US, to_micros

MAX_COMPARED = 64
"""Nodes and turns compared by meaning, those with most of the query's words first: four for each
place of the first pass. Each costs 10 to 60 ms when a process reads it for the first time; more
miss fewer that share no word with the query."""

MAX_EARLIER_TURNS = 2_000
"""Turns before the tail that are looked at, the newest ones; the night keeps older ones."""


class Candidate(NamedTuple):
    """A text that competes for a place.

    Attributes:
        id: Of the node, turn or memory, as text.
        source: Which of the three it is.
        text: Its content.
        line: How it is written.
        created_at_us: Its date; UNDATED_US if unknown.
        authored: a(d) of libravdb 7.3: a document's authority, a memory's importance, 0 for turns.
        hop_targets: Ids of nodes that come along.
        similarity: To the query: a cosine, or its coverage where no cosines are known.
        coverage: Share of the query's keywords that it holds, in [0, 1].
        score: S_final where the store has computed it, else None.
        memory: The memory's own fields; None for nodes and turns.
    """

    id: str
    source: PartSource
    text: str
    line: Line
    created_at_us: int = UNDATED_US
    authored: float = 0.0
    hop_targets: tuple[str, ...] = ()
    similarity: float = 0.0
    coverage: float = 0.0
    score: float | None = None
    memory: Mapping[str, Any] | None = None


class Gathered(NamedTuple):
    """All candidates, nodes first, then turns, then memories, and what was left out."""

    candidates: tuple[Candidate, ...]
    warnings: tuple[RecallWarning, ...]


def of_node(node: Node) -> Candidate:
    """Return a node as a candidate that was compared to nothing yet."""
    return Candidate(
        node.id, "authored", node.text, line_of_node(node), authored=node.authority,
        hop_targets=node.hop_targets,
    )  # fmt: skip


def of_turn(turn_id: str, turn: Turn) -> Candidate:
    """Return a turn of the session as a candidate that was compared to nothing yet."""
    at_us = UNDATED_US if turn.at_us is None else turn.at_us
    return Candidate(turn_id, "session", turn.text, line_of_turn(turn_id, turn), at_us)


def of_memory(found: FoundMemory) -> Candidate:
    """Return a recalled memory as a candidate with the store's own numbers."""
    memory = found.memory
    return Candidate(
        str(memory.get("id")),
        "memory",
        str(memory.get("content", "")),
        line_of(memory),
        _moment_us(memory.get("created_at")),
        float(memory.get("importance") or 0.0),
        similarity=found.similarity or 0.0,
        score=found.score,
        memory=memory,
    )


def gather(
    query: str,
    own: Sequence[Candidate],
    found: Found,
    search: Search,
    present: frozenset[str],
) -> Gathered:
    """Return what competes, each wording once.

    Args:
        query: Not blank.
        own: Nodes in authored order, then turns, newest first.
        found: The store's answer.
        search: Compares texts.
        present: Wordings (`wording`) of the prompt so far: saying them twice is no use.

    Returns:
        Candidates with similarity and coverage. At most `MAX_COMPARED` of `own`; more, and those
        that were not compared, are a warning.
    """
    warnings = list(found.warnings)
    own = _distinct(own, present)
    known = present | {wording(c.text) for c in own}
    memories = _distinct([of_memory(m) for m in found.memories], known)
    tokens = tokenize(query)
    own = _with_coverage(own, tokens)
    compared = _most_promising(own)
    if len(compared) < len(own):
        warnings.append(
            RecallWarning(
                "variants_not_compared",
                f"{len(own) - len(compared)} nodes and turns share fewest words with the query and "
                f"were left out: {MAX_COMPARED} are compared. Shorten the documents or the session",
            )
        )
    if not search.knows_cosines:
        everyone = [*compared, *_with_coverage(memories, tokens)]
        alike = tuple(c._replace(similarity=c.coverage, score=None) for c in everyone)
        return Gathered(alike, tuple(warnings))
    cosines = search.similarities(query, [c.text for c in compared])
    read = [
        c._replace(similarity=cosine)
        for c, cosine in zip(compared, cosines, strict=True)
        if cosine is not None
    ]
    if len(read) < len(compared):
        message = (
            f"{len(compared) - len(read)} nodes and turns were not compared: the deadline passed, "
            "or the encoder failed"
        )
        warnings.append(RecallWarning("variants_unread", message))
    return Gathered((*read, *_with_coverage(memories, tokens)), tuple(warnings))


def wording(text: str) -> str:
    """Return what two texts share that say the same in the same words."""
    return " ".join(text.split()).casefold()


def text_coverage(query_tokens: Sequence[str], texts: Sequence[str]) -> NDArray[np.float64]:
    """Return `keyword_coverage` of texts that are in no index, in [0, 1], shape (len(texts),)."""
    holders: dict[str, list[int]] = {token: [] for token in sorted(set(query_tokens))}
    for place, text in enumerate(texts):
        for token in set(tokenize(text)) & holders.keys():
            holders[token].append(place)
    ranges: dict[str, tuple[int, int]] = {}
    postings: list[int] = []
    for token, places in holders.items():
        ranges[token] = (len(postings), len(postings) + len(places))
        postings += places
    return keyword_coverage(
        query_tokens,
        lambda tokens: [ranges[token] for token in tokens],
        np.array(postings, dtype=np.int32),
        np.arange(len(texts), dtype=np.int64),
    )


def _with_coverage(candidates: Sequence[Candidate], tokens: Sequence[str]) -> list[Candidate]:
    shares = text_coverage(tokens, [c.text for c in candidates]).tolist()
    return [c._replace(coverage=s) for c, s in zip(candidates, shares, strict=True)]


def _distinct(
    candidates: Sequence[Candidate], present: frozenset[str] | set[str]
) -> list[Candidate]:
    """Return the first of each wording that is not present; of a memory also what a turn says."""
    seen, kept = set(present), list[Candidate]()
    for candidate in candidates:
        said = {wording(candidate.text)}
        if candidate.memory is not None and candidate.memory.get("session_id") is not None:
            said.add(wording(split_speaker(candidate.text)[1]))
        if not said & seen:
            kept.append(candidate)
            seen |= said
    return kept


def _most_promising(own: Sequence[Candidate]) -> list[Candidate]:
    """Return at most `MAX_COMPARED`, by coverage, in the order given."""
    if len(own) <= MAX_COMPARED:
        return list(own)
    best = sorted(range(len(own)), key=lambda place: (-own[place].coverage, place))
    return [own[place] for place in sorted(best[:MAX_COMPARED])]


def _moment_us(created_at: Any) -> int:
    return UNDATED_US if not created_at else to_micros(datetime.fromisoformat(str(created_at)))
