"""Phase 7: ask again with words of what similar queries found before.

What belongs here: choosing the words, asking, and merging what comes back. What does not: the log
of queries (`noctuary.usage.query_log`), the ranking of the further questions (`Lookups.search`).

What only a further question found is marked `expanded`, so that it is not logged as a retrieval:
else expansion would feed itself. Where the reference's words were any words, here function words
are left out, and words that the query holds in another form ("flights" for "flight") as well.

Source: research/mempalace.md section 1, phase 7.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache

import numpy as np

from noctuary.recall.phases.base import (
    Candidates,
    PastQuery,
    PhaseContext,
    PhaseOutcome,
)
from noctuary.text.fold import MARKS
from noctuary.text.stopwords import is_stop_word
from noctuary.text.tokens import tokenize

PAST_QUERIES_AT_MOST = 20
"""Similar past queries whose results are read; more smooths the choice of words, fewer keeps it to
the nearest."""

RESULTS_PER_QUERY = 5
"""Best results of a past query whose words count; more adds words of weaker hits."""

CONTENT_CHARS = 240
"""Characters of a memory whose words count; more adds words from beside its point."""

LEAST_CHARS = 2
"""Shorter words say too little to ask with."""

_DAY_US = 86_400_000_000
_NOT_FOUND = (0.0, "")

_Found = dict[int, tuple[float, str]]
"""Position -> best boosted score, and the word that brought it."""


def expansion_terms(query: str, texts: Iterable[str], at_most: int) -> list[str]:
    """Return the words that the texts hold most often and the query does not.

    Args:
        query: As asked; a word of the same stem as one of its words is no new word.
        texts: What similar queries found; a text that comes twice counts twice.
        at_most: Most words returned.

    Returns:
        Lower-case words of `LEAST_CHARS` and more, no function words, most frequent first, those
        of equal frequency in order of appearance. Of several forms of a word the first.
    """
    asked = set(tokenize(query))
    counts: dict[str, int] = {}
    shown: dict[str, str] = {}
    for text in texts:
        for word in _words().findall(text.lower()):
            for token, form in _tokens_of(word):
                if token not in asked and len(form) >= LEAST_CHARS:
                    counts[token] = counts.get(token, 0) + 1
                    shown.setdefault(token, form)
    ranked = sorted(counts, key=lambda token: -counts[token])
    return [shown[token] for token in ranked[:at_most]]


def query_expansion(candidates: Candidates, context: PhaseContext) -> PhaseOutcome:
    """Add what further questions find; what the query itself found keeps its score."""
    similar = _similar_queries(context)
    terms = expansion_terms(
        context.query, _texts_found(similar, context), context.profile.query_expansion_max_terms
    )
    found = _ask(terms, candidates, context)
    return PhaseOutcome(
        _merged(candidates, found),
        reason_of=lambda position: (
            f"found by asking again with '{found[position][1]}': "
            f"x{context.profile.query_expansion_boost:g}"
        ),
        notes={
            "applied": bool(terms),
            "original_query": context.query,
            "similar_past_queries": len(similar),
            "expansion_terms": terms,
            "expansion_boost": context.profile.query_expansion_boost,
            "results_from_original": candidates.size,
            "results_from_expansion": len(found),
        },
    )


def _similar_queries(context: PhaseContext) -> list[PastQuery]:
    profile = context.profile
    since_us = context.now_us - profile.query_expansion_lookback_days * _DAY_US
    past = context.lookups.past_queries(since_us=since_us, limit=PAST_QUERIES_AT_MOST)
    wording = context.query.split()
    return [
        q
        for q in past
        if q.similarity >= profile.query_expansion_similarity_threshold
        and q.asked_us <= context.now_us
        and q.text.split() != wording
    ]


def _texts_found(similar: Sequence[PastQuery], context: PhaseContext) -> list[str]:
    positions = [p for q in similar for p in q.positions[:RESULTS_PER_QUERY]]
    rows = context.lookups.rows_of(list(dict.fromkeys(positions)))
    texts: list[str] = []
    for position in positions:
        row = rows[position]
        parts = (row["content"][:CONTENT_CHARS], row["room"], row["wing"])
        texts.append(" ".join(part for part in parts if part))
    return texts


def _ask(terms: Sequence[str], candidates: Candidates, context: PhaseContext) -> _Found:
    """Ask once per word; a memory that several words find has its best score."""
    profile = context.profile
    known = set(candidates.positions.tolist())
    found: _Found = {}
    for term in terms:
        question = f"{context.query} {term}"
        positions, scores = context.lookups.search(question, max(profile.depth, context.k))
        boosted = scores * profile.query_expansion_boost
        for position, score in zip(positions.tolist(), boosted.tolist(), strict=True):
            if position not in known and score > found.get(position, _NOT_FOUND)[0]:
                found[position] = (score, term)
    return found


def _merged(candidates: Candidates, found: _Found) -> Candidates:
    if not found:
        return candidates
    positions = np.array(list(found), dtype=np.int64)
    scores = np.array([score for score, _ in found.values()], dtype=np.float64)
    both = Candidates(
        np.concatenate([candidates.positions, positions]),
        np.concatenate([candidates.scores, scores]),
        np.concatenate([candidates.expanded, np.ones(positions.size, dtype=np.bool_)]),
    )
    return both.rescored(both.scores)


def _tokens_of(word: str) -> list[tuple[str, str]]:
    """Return a word's tokens, each with the form to ask with: the word itself if it is one."""
    tokens = [token for token in tokenize(word) if not is_stop_word(token)]
    return [(t, word) for t in tokens] if len(tokens) == 1 else [(t, t) for t in tokens]


# Compiled on first use: most processes never expand a query.
@cache
def _words() -> re.Pattern[str]:
    letters = rf"(?:[^\W_]|[{MARKS}])+"
    return re.compile(rf"{letters}(?:['’]{letters})*")
