"""Sessions as arrays, and the scores that they lend their members."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Sessions as arrays: who follows whom, who speaks. Numpy only; made by `build.build_sessions`.

MIN_MEMBERS = 2  # smallest session kept: a session of one memory relates it to nothing


class SessionArrays(NamedTuple):
    """Sessions of n memories, S with M members in all; one is of one owner and one wing."""

    codes: NDArray[np.int32]  # (n,), the session of every memory, -1 for none
    places: NDArray[np.int32]  # (n,), the memory's index in `order`, -1 for none
    order: NDArray[np.int32]  # (M,), members by session, then time, then position
    # int64 (S+1,); the members of session s are order[indptr[s]:indptr[s+1]]
    indptr: NDArray[np.int64]
    # int8 (n,), for a turn of a conversation 1 + the percentage of it that asks, 0 for the others
    turns: NDArray[np.int8]
    speakers: NDArray[np.int32]  # (n,), ordinal of the concept that speaks, -1 for none


# Scores lent by a session: words nearby, the turn before, words of the whole session, who speaks.
#
# A turn rarely repeats the words of a question: the question before it or the topic of its session
# does. The turns are reordered among themselves and keep the scores that they had before, so a
# conversation does not crowd out other memories. docs/decisions/0013 has the numbers.

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
# Positions and BM25 scores of one query term.
Posting = tuple[NDArray[np.int32], NDArray[np.float32]]
# Factor for the score of a word 1, 2, 3, 4 turns away; wider blurs turns into sessions, narrower
# loses answers that come a few turns after their question.
NEARBY = (0.9, 0.8, 0.6, 0.4)
_SHARES = np.array([*NEARBY[::-1], 0.0, *NEARBY])  # by place, from the farthest before
# Share of the words nearby, next to a base score of at most 1; more trusts words over vectors.
CONTEXT_WEIGHT = 1.1
# Share of the best base score in the session; more gathers answers from one session, which costs
# questions that need several.
SESSION_WEIGHT = 0.3
# Share for turns of a speaker whom the query names; more favours "who" over "what" questions.
SPEAKER_WEIGHT = 0.5
COMPANY_WEIGHT = 0.4  # share for turns in a wing in which that person speaks
# Share of its likeness to the question that a turn takes from the turn before it: "the third one is
# done" means what was asked. More lets answers pass that lie further from their own words.
BEFORE_WEIGHT = 0.3
# Share that a turn which only asks loses, any other in part: the turns after it answer. More costs
# R@10 inside a wing.
ASKING_WEIGHT = 0.2

# Share of the session as one document for memories that are no turns; their neighbours lend
# nothing, because neighbouring distilled facts do not answer each other.
FACT_COVERAGE_WEIGHT = 0.2
# The part of it inside one wing, where most sessions are about its topic.
WING_PART = 0.5
# BM25's k1 for the session as a document: how soon further hits of a word stop counting.
TF_SATURATION = 1.2
SESSIONS_MAX = 128  # sessions looked into, those with the best members first; more cost time
MEMBERS_MAX = 8192  # members looked at; a session that no longer fits is left out


class Talk(NamedTuple):
    """Scores lent by sessions; c members of active sessions, in session order."""

    members: Ints  # int64 (c,), positions, distinct
    owners: Ints  # int64 (c,), index of the session among the active ones
    words: Floats  # (t, c), BM25 score of every query term in every member
    context: Floats  # (c,), words in and near the member, over the largest; [0, 1]
    own: Floats  # (c,), the part of `context` from the member's own words
    # (c,), in [0, 2]: likeness of the turn before less its own, less the least of these; facts 0
    before: Floats
    coverage: Floats  # (c,), the session as one document, over the largest; x WING_PART in a wing
    speakers: NDArray[np.int32]  # (c,), ordinal of the concept that speaks, -1 for none
    said: NDArray[np.bool_]  # bool (c,), the query names the speaker
    company: NDArray[np.bool_]  # bool (c,), in a wing where that person speaks
    is_turn: NDArray[np.bool_]  # bool (c,)
    asking: Floats  # (c,), the part of a turn that asks, in [0, 1]; facts 0
    left_out: int


def listen(
    pool: Ints,
    base: Floats,
    sessions: SessionArrays,
    terms: Sequence[Posting],
    *,
    near: Sequence[tuple[int, Posting]] = (),
    likeness_at: Callable[[Ints], Floats] | None = None,
    mask: NDArray[np.bool_] | None = None,
    speakers: Sequence[int] = (),
    wings: NDArray[np.int32] | None = None,
    in_wing: bool = False,
) -> Talk | None:
    """Return the scores that the sessions of the best candidates lend to all their members.

    `mask` is (n,), True where a memory may be seen: others neither lend nor receive. `wings` are
    (n,) codes, -1 for none; `speakers` the ordinals of concepts that the query names; `in_wing`
    whether one wing is searched; `near` words near to a term, given by its index, with scores that
    count in a turn where they are more than its own; `likeness_at` gives the likeness of positions
    to the query, in [0, 1], None where no vectors are compared.
    """
    sizes = _visible_sizes(sessions, mask)
    active, left_out = _active_sessions(pool, base, sessions, sizes)
    if not active.size:
        return None
    members, owners, slot_of = _members(active, sessions, mask)
    words, coverage = _words(terms, near, active, members.size, slot_of, sessions, sizes, mask)
    coverage = coverage[owners]
    speaking = sessions.speakers[members]
    said = spoken_by(speaking, speakers)
    company = np.zeros(members.size, dtype=bool)
    if wings is not None and said.any():
        theirs = wings[members]
        entered = np.zeros(int(theirs.max()) + 2, dtype=np.bool_)  # the last is that of no wing
        entered[theirs[said]] = True
        entered[-1] = False
        company = entered[theirs]
    is_turn = sessions.turns[members] != 0
    before = np.zeros(members.size)
    if likeness_at is not None:
        like = likeness_at(members)
        follows = (owners[1:] == owners[:-1]) & is_turn[1:] & is_turn[:-1]
        before[1:] = (like[:-1] - like[1:]) * follows
        before = np.where(is_turn, before - before.min(), 0.0)  # nobody is lent less than nothing
    heard = spread(words, owners).sum(axis=0)
    peak = float(heard.max())
    scale = 1.0 / peak if peak > 0.0 else 0.0
    return Talk(
        members=members,
        owners=owners,
        words=words,
        context=heard * scale,
        own=words.sum(axis=0) * scale,
        before=before,
        coverage=_over_peak(coverage) * (WING_PART if in_wing else 1.0),
        speakers=speaking,
        said=said,
        company=company,
        is_turn=is_turn,
        asking=is_turn * (sessions.turns[members] - 1) / 100.0,
        left_out=left_out,
    )


def spoken_by(speaking: NDArray[np.int32], speakers: Collection[int]) -> NDArray[np.bool_]:
    """Return which memories have one of the speakers, in the shape of `speaking`."""
    said = np.zeros(speaking.size, dtype=np.bool_)
    for speaker in speakers:  # a question names few: np.isin costs as much as twenty passes
        said |= speaking == speaker
    return said


def lent_scores(talk: Talk, base: Floats) -> Floats:
    """Return the additions to the base score, (c,), of every member."""
    best = np.zeros(int(talk.owners[-1]) + 1)
    np.maximum.at(best, talk.owners, base)
    of_turn = (
        CONTEXT_WEIGHT * talk.context
        + BEFORE_WEIGHT * talk.before
        + SESSION_WEIGHT * best[talk.owners]
        + SPEAKER_WEIGHT * talk.said
        + COMPANY_WEIGHT * talk.company
        - ASKING_WEIGHT * talk.asking
    )
    return np.where(talk.is_turn, of_turn, FACT_COVERAGE_WEIGHT * talk.coverage)


def calibrate(base: Floats, raised: Floats) -> Floats:
    """Give the scores that a group of memories had, (m,), to its members in their new order."""
    order = np.lexsort((-base, -raised))
    result = np.empty(base.size)
    result[order] = np.sort(base)[::-1]
    return result


def spread(words: Floats, owners: Ints) -> Floats:
    """Add to every member's words those of its neighbours in the session, fading with distance."""
    heard = words.copy()
    for distance, share in enumerate(NEARBY, start=1):
        if distance >= owners.size:
            break
        same = owners[distance:] == owners[:-distance]
        later, earlier = heard[:, distance:], heard[:, :-distance]
        np.maximum(later, share * words[:, :-distance] * same, out=later)
        np.maximum(earlier, share * words[:, distance:] * same, out=earlier)
    return heard


def best_neighbour(talk: Talk, place: int) -> int | None:
    """Return the place of the member that lends the most words to one place, or None."""
    owner, reach = talk.owners[place], len(NEARBY)
    start, stop = max(place - reach, 0), place + reach + 1
    shares = _SHARES[start - place + reach :][: talk.owners[start:stop].size]
    shares = shares * (talk.owners[start:stop] == owner)
    more = np.maximum(shares * talk.words[:, start:stop] - talk.words[:, [place]], 0.0).sum(axis=0)
    best = int(more.argmax())  # the first of equals
    return start + best if more[best] > 0.0 else None


def _visible_sizes(sessions: SessionArrays, mask: NDArray[np.bool_] | None) -> Ints:
    """Return the visible members of every session; too few count as none, as if never built."""
    if mask is None:
        return np.diff(sessions.indptr)
    shown = sessions.codes[mask & (sessions.codes >= 0)]
    sizes = np.bincount(shown, minlength=sessions.indptr.size - 1)
    return np.where(sizes >= MIN_MEMBERS, sizes, 0)


def _active_sessions(
    pool: Ints, base: Floats, sessions: SessionArrays, sizes: Ints
) -> tuple[Ints, int]:
    """Return the sessions of the candidates, ascending, and how many the bounds left out."""
    codes = sessions.codes[pool]
    ordered = codes[np.lexsort((pool, -base))]
    ranked = [c for c in dict.fromkeys(ordered[ordered >= 0].tolist()) if sizes[c]]
    kept: list[int] = []
    room = MEMBERS_MAX
    for code in ranked[:SESSIONS_MAX]:
        size = int(sizes[code])
        if size <= room:
            kept.append(code)
            room -= size
    return np.array(sorted(kept), dtype=np.int64), len(ranked) - len(kept)


def _members(
    active: Ints, sessions: SessionArrays, mask: NDArray[np.bool_] | None
) -> tuple[Ints, Ints, NDArray[np.int64]]:
    """Return visible members, the index of their session, and by slot their place (or -1)."""
    starts = sessions.indptr[active]
    counts = sessions.indptr[active + 1] - starts
    owners = np.repeat(np.arange(active.size, dtype=np.int64), counts)
    before = np.cumsum(counts) - counts
    slots = np.arange(owners.size, dtype=np.int64) - before[owners] + starts[owners]
    members = sessions.order[slots].astype(np.int64)
    seen = np.ones(members.size, dtype=bool) if mask is None else mask[members]
    place_of_slot = np.where(seen, np.cumsum(seen) - 1, -1)
    return members[seen], owners[seen], place_of_slot


def _words(
    terms: Sequence[Posting],
    near: Sequence[tuple[int, Posting]],
    active: Ints,
    size: int,
    place_of_slot: NDArray[np.int64],
    sessions: SessionArrays,
    sizes: Ints,
    mask: NDArray[np.bool_] | None,
) -> tuple[Floats, Floats]:
    """Return term scores by member, (t, size), and every active session's score, (a,)."""
    count = int(np.count_nonzero(sizes))
    # One place more than sessions, where code -1 of a memory without one looks.
    index_of = np.full(sizes.size + 1, -1, dtype=np.int64)
    index_of[active] = np.arange(active.size)
    spans = sessions.indptr[active + 1] - sessions.indptr[active]
    offsets = np.cumsum(spans) - spans - sessions.indptr[active]
    words = np.zeros((len(terms), size))
    coverage = np.zeros(active.size)
    for number, (row, (positions, scores)) in enumerate([*enumerate(terms), *near]):
        codes = sessions.codes[positions]
        if mask is not None:
            codes = np.where(mask[positions] & (sizes[codes] > 0), codes, -1)
        if number < len(terms):
            hits = np.bincount(codes + 1, minlength=sizes.size + 1)[1:]
            df = int(np.count_nonzero(hits))
            here = hits[active]
            idf = np.log1p((count - df + 0.5) / (df + 0.5))
            coverage += idf * here / (here + TF_SATURATION)
        owners = index_of[codes]
        inside = owners >= 0
        slots = sessions.places[positions[inside]] + offsets[owners[inside]]
        places = place_of_slot[slots]
        words[row, places] = np.maximum(words[row, places], scores[inside])
    return words, coverage


def _over_peak(values: Floats) -> Floats:
    peak = float(values.max()) if values.size else 0.0
    return values / peak if peak > 0.0 else np.zeros(values.size)
