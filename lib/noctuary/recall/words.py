"""Recall by words alone, without numpy: what a prompt gets where no server answers.

The answer is that of a recall without its dense leg and its graph: the same rows in the same order,
judged by the threshold of words. It is given only where this file knows every rule that may change
it. For all else, damage too, it gives none, and the whole recall answers.
"""

# Not `from __future__ import annotations`: NamedTuple compiles each annotation that is a text.
import time
from array import array
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from itertools import compress
from operator import and_
from typing import TYPE_CHECKING, Any, NamedTuple

from noctuary.core import store as layout
from noctuary.core.files import view_arrays
from noctuary.core.foreign_json import parse_json
from noctuary.core.types import DAMAGED_TEXT, LIVE_KINDS, from_micros
from noctuary.graph.fold import ABOUT, NameTable, fold_name, link_query
from noctuary.recall.profile import OFF, RetrievalProfile, resolve_for_recall
from noctuary.recall.result import (
    WORDS,
    Answerability,
    LegHit,
    RecalledMemory,
    RecallResult,
    RecallWarning,
)
from noctuary.recall.snapshot_rows import SnapshotRows, open_published
from noctuary.recall.support import (
    BEST_TURNS,
    DOUBT,
    OTHER_WINGS,
    combine,
    idf_of,
    script_of_prompt,
    word_support,
)
from noctuary.text.marks import ROLES, may_concern_dates
from noctuary.text.tokens import tokenize

if TYPE_CHECKING:
    from pathlib import Path

    from noctuary.core.manifest import Manifest
    from noctuary.core.settings import Settings

# Whether the words of a store may answer a prompt. What is not known here is left to the whole
# recall: a guard that is forgotten here must cost time, and never show what it hides.

MOST_MEMORIES = 250_000  # of more, reading every scope code takes longer than importing numpy
MOST_POSTINGS = 300_000  # of the words of a prompt; as above
# Flags whose value may be any: they are applied here, or matter to the legs that are left out, or
# to nights. Everything else that plain fusion lacks must be off.
_APPLIED = frozenset(
    {
        "lexical_coverage", "date_boost", "graph_weight", "importance_prior", "model_guard",
        "wing_diversity_weight", "adaptive_compaction", "decay_enabled",
    }
)  # fmt: skip
_SHOWN = (
    "content", "category", "tags", "importance", "wing", "room", "session_id", "user", "origin",
)  # fmt: skip
WORDS_ONLY = RecallWarning("words_only", "answered by words alone: no server ran for the store")


class WordRecaller:
    """Answers prompts from one snapshot."""

    def __init__(self, store: "Path", settings: "Settings") -> None:
        """Open what serves; any error means that the whole recall has to answer."""
        self._paths, self._settings = layout.StorePaths(store), settings
        self.snapshot, self._id, _ = open_published(self._paths, _Snapshot)
        self._profile = resolve_for_recall(settings, self.snapshot.adopted).profile
        self.is_able = (
            self.snapshot.count <= MOST_MEMORIES
            and _is_plain(self._profile)
            and not self._has_changed()
        )

    def recall(
        self,
        query: str,
        k: int,
        *,
        user: str | None = None,
        wing: str | None = None,
        person: bool = False,
        session_id: str | None = None,
        dry_run: bool = False,
    ) -> RecallResult | None:
        """Return the answer by words; arguments as of `noctuary.recall`, None for no answer."""
        del session_id  # only a scorer that is left to the whole recall prefers its memories
        started_s, snapshot, profile = time.perf_counter(), self.snapshot, self._profile
        if not self.is_able or k <= 0 or not query.strip():
            return None
        visible = snapshot.visible(user, wing, person)
        asked = _Words(snapshot, sorted(set(tokenize(query))), visible)
        if asked.size > MOST_POSTINGS:
            return None
        hits = _rank(snapshot, asked, profile, k, wing if person else None)
        hits = _lift_dates(snapshot, query, hits, profile.date_boost)
        rows = snapshot.rows_of([hit.position for hit in hits[:k]])
        if any(row["content"] is DAMAGED_TEXT for row in rows.values()):
            return None
        judged, supports = None, list[float | None]([None] * k)
        if visible is None or any(visible):
            judged, supports = self._judge(query, asked, visible, hits, k)
        memories = tuple(
            _describe(snapshot, hit, rows[hit.position], support)
            for hit, support in zip(hits[:k], supports, strict=False)
        )
        if memories and not dry_run:
            self._log(memories)
        took_ms = round((time.perf_counter() - started_s) * 1000, 3)
        return RecallResult(
            query, memories, (WORDS_ONLY,), {"total": took_ms}, self._id, str(self._paths.root),
            answerability=judged,
        )  # fmt: skip

    def _has_changed(self) -> bool:
        """Say whether the archive hides, or the store itself has changed, any memory."""
        snapshot, settings = self.snapshot, self._settings
        if self._paths.archive.exists():
            from noctuary.compact.archive import ArchiveReader

            if ArchiveReader(self._paths.archive).applied_plans_at(None):
                return True
        if not settings.live.enabled or snapshot.manifest.source.get("kind") not in LIVE_KINDS:
            return False
        from noctuary.sources.live import look_now

        state = look_now(self._paths, snapshot, settings.live, settings.source)
        return state is not None and bool(state.rows or state.hidden)

    def _judge(
        self, query: str, asked: "_Words", visible: bytes | None, hits: "Sequence[_Hit]", k: int
    ) -> tuple[Answerability | None, list[float | None]]:
        """Judge an answer and each of its first k memories, as `answerability.score_answer`."""
        calibration = self.snapshot.calibration
        measure = calibration and calibration.measures.get(WORDS)
        if calibration is None or measure is None:
            return None, [None] * k
        usual = measure.usual_of(script_of_prompt(query))
        total = asked.total + DOUBT
        trust, known = asked.total / total, sum(asked.weights) / total
        covered = (asked.coverage_at(hit.position) for hit in hits)
        supports = [word_support(WORDS, trust * share, known, usual) for share in covered]
        attribution = _attribute(self.snapshot, query, visible)
        best = combine(max(supports, default=float("-inf")), attribution)
        own: list[float | None] = [combine(support, attribution) for support in supports[:k]]
        return calibration.judge(best, WORDS), own

    def _log(self, memories: Sequence[RecalledMemory]) -> None:
        if not self._settings.recall.log_retrievals:
            return
        from noctuary.usage.access_log import append_retrievals

        ids = [str(memory.id) for memory in memories]
        append_retrievals(self._paths.access_log, snapshot_id=self._id, memory_ids=ids)


def _is_plain(profile: RetrievalProfile) -> bool:
    return profile.lexical_weight > 0 and all(
        getattr(profile, flag) == value for flag, value in OFF.items() if flag not in _APPLIED
    )


class _Snapshot(SnapshotRows):
    """A snapshot with the arrays that words, scope and speakers need."""

    def __init__(self, directory: "Path", manifest: "Manifest") -> None:
        super().__init__(directory, manifest)
        arrays = view_arrays(directory / layout.ARRAYS_FILE)
        self.positions, self.scores = arrays["posting.positions"], arrays["posting.scores"]
        self.importance, self.created_at_us = arrays["importance"], arrays["created_at_us"]
        self.users, self.wings = arrays["facet.user"], arrays["facet.wing"]
        self.speakers, self.reach = arrays["sessions.speakers"], arrays["reach"]
        self.mentions = [arrays[f"mentions.{name}"] for name in ("indptr", "positions", "roles")]
        self._user_names = list[str](parse_json(self.meta["facet_user"]))
        self._wing_names = list[str](parse_json(self.meta["facet_wing"]))
        self._shares = [arrays.get(f"shares.{name}") for name in ("indptr", "positions")]
        of_memories = (
            self.importance, self.created_at_us, self.users, self.wings, self.speakers, self.reach
        )  # fmt: skip
        if {len(column) for column in of_memories} != {self.count} or (
            len(self.positions) != len(self.scores)
        ):
            raise ValueError("arrays of different lengths")

    def visible(self, user: str | None, wing: str | None, person: bool) -> bytes | None:
        """Return 1 for each memory that the scope shows, else 0; None: `query.build_mask`'s all."""
        shown: bytes | None = None
        now_us = time.time_ns() // 1000
        ended = [position for position, until_us in self.ends if until_us <= now_us]
        if self._user_names or self.gone or ended:
            # Denied by default: nobody's memories, one's own, and what others share with one.
            allowed = {-1, self.code_of_user(user)}
            own = bytearray(map(allowed.__contains__, self.users.tolist()))
            for position in self._shared_with(user):
                own[position] = 1
            for position in (*self.gone, *ended):
                own[position] = 0
            shown = bytes(own)
        if wing is not None:
            code = self.code_of_wing(wing)
            here = bytes(map(code.__eq__, self.wings.tolist()))
            if person:
                from noctuary.text.reach import PROJECT  # no other prompt needs its patterns

                of_person = {-1, self.code_of_user(user)}
                pairs = zip(here, self.reach.tolist(), self.users.tolist(), strict=True)
                here = bytes(h or (r > PROJECT and u in of_person) for h, r, u in pairs)
            shown = here if shown is None else bytes(map(and_, shown, here))
        return shown

    def code_of_user(self, user: str | None) -> int:
        """Return the code of a user; one that no memory has where it is unknown or None."""
        return _code_of(user, self._user_names)

    def code_of_wing(self, wing: str) -> int:
        """Return the same of a wing."""
        return _code_of(wing, self._wing_names)

    def _shared_with(self, user: str | None) -> Sequence[int]:
        starts, positions = self._shares
        if starts is None or positions is None or user is None:
            return ()
        readers = parse_json(self.meta[layout.SHARED_WITH])
        if user not in readers:
            return ()
        reader = readers.index(user)
        found = positions[starts[reader] : starts[reader + 1]].tolist()
        if min(found) < 0:
            raise ValueError("a share of no memory")
        return found


_NO_CODE = -2  # as `query.Facet.code_of` has it


def _code_of(value: str | None, values: Sequence[str]) -> int:
    return values.index(value) if value in values else _NO_CODE


class _Words:
    """Words of a prompt and who holds them, as `answerability.QueryWords` counts them."""

    def __init__(self, snapshot: _Snapshot, terms: Collection[str], visible: bytes | None) -> None:
        self.slices = snapshot.look_up_terms(sorted(terms))
        self.size = sum(stop - start for start, stop in self.slices)
        self.holders: list[Sequence[int]] = []  # visible memories by word, ascending
        if self.size <= MOST_POSTINGS:
            for start, stop in self.slices:
                held = snapshot.positions[start:stop].tolist()
                seen = held if visible is None else list(compress(held, _at(visible, held)))
                # A word that occurs in hidden memories only counts exactly as an unknown one.
                if seen:
                    self.holders.append(seen)
        count = snapshot.count if visible is None else visible.count(1)
        self.weights = [idf_of(len(held), count) for held in self.holders]
        unknown = len(terms) - len(self.holders)
        self.total = sum(self.weights) + unknown * idf_of(0, count)

    def coverage_at(self, position: int) -> float:
        """Return the share of the prompt, weighted by idf, in a memory, in [0, 1]."""
        held = 0.0
        for holders, weight in zip(self.holders, self.weights, strict=True):
            place = bisect_left(holders, position)
            if place < len(holders) and holders[place] == position:
                held += weight
        return min(held / self.total, 1.0) if self.total > 0.0 else held

    def coverage(self) -> Mapping[int, float]:
        """Return the same of every visible memory that holds a word."""
        held: dict[int, float] = {}
        for holders, weight in zip(self.holders, self.weights, strict=True):
            for position in holders:
                held[position] = held.get(position, 0.0) + weight
        return {position: min(value / self.total, 1.0) for position, value in held.items()}


def _at(mask: bytes, positions: Sequence[int]) -> Sequence[int]:
    return [mask[position] for position in positions]


class _Hit(NamedTuple):
    """One candidate with its scores."""

    position: int
    rank: int  # among the words' hits, from 1 on
    score: float  # BM25
    relevance: float
    final: float


def _rank(
    snapshot: _Snapshot, asked: _Words, profile: RetrievalProfile, k: int, home: str | None
) -> list[_Hit]:
    """Return the candidates, best first: `ranking.rank` without the legs that are left out.

    `home` is the wing whose memories come before those that reach it from others.
    """
    at_home = None if home is None else snapshot.code_of_wing(home)
    depth = max(k, profile.depth * profile.candidate_pool_multiplier)
    # Added up and rounded as float32, like the arrays of the whole recall.
    totals = array("f", bytes(4 * snapshot.count))
    for start, stop in asked.slices:
        scored = zip(snapshot.positions[start:stop], snapshot.scores[start:stop], strict=True)
        for position, score in scored:
            totals[position] += score
    touched = set[int]().union(*asked.holders)
    best = sorted(map(totals.__getitem__, touched), reverse=True)[:depth]
    least = best[-1] if best else 0.0
    found = [p for p in touched if totals[p] >= least and totals[p] > 0.0]
    ranked = sorted(found, key=lambda p: (-totals[p], p))[:depth]
    hits: list[_Hit] = []
    for rank, position in enumerate(ranked, start=1):
        score = totals[position]
        if profile.fusion == "rrf":
            relevance = (profile.rrf_k + 1) / (profile.rrf_k + rank)
        else:
            relevance = score / best[0]
        stored = snapshot.importance[position]
        importance = min(max(stored if stored == stored else 0.0, 0.0), 1.0)
        prior = profile.importance_prior
        final = relevance * ((1.0 - prior) + prior * importance)
        if at_home is not None and snapshot.wings[position] != at_home:
            final *= OTHER_WINGS
        hits.append(_Hit(position, rank, score, relevance, final))
    return sorted(hits, key=lambda hit: (-hit.final, -hit.relevance, hit.position))


def _lift_dates(
    snapshot: _Snapshot, query: str, hits: Sequence[_Hit], boost: float
) -> Sequence[_Hit]:
    """Lift memories of the dates that a prompt names: phases `dates` and `scale`."""
    if boost <= 0 or not may_concern_dates(query):
        return hits
    from noctuary.text.dates import date_factor, find_windows, wanted_words

    moments = ((hit.position, from_micros(snapshot.created_at_us[hit.position])) for hit in hits)
    days = {position: moment.date() for position, moment in moments if moment is not None}
    windows = find_windows(query, sorted({day.year for day in days.values()}))
    written = {p for p, day in days.items() if any(w.first <= day <= w.last for w in windows)}
    named, when = map(snapshot.look_up_terms, wanted_words(query))

    def factor_of(position: int) -> float:
        said, dated = _holds(snapshot, named, position), _holds(snapshot, when, position)
        return date_factor(position in written, said, dated, boost)

    finals = [hit.final * factor_of(hit.position) for hit in hits]
    divisor = max(1.0, *finals) if finals else 1.0
    moved = [hit._replace(final=f / divisor) for hit, f in zip(hits, finals, strict=True)]
    return sorted(moved, key=lambda hit: -hit.final)


def _holds(snapshot: _Snapshot, slices: Sequence[tuple[int, int]], position: int) -> bool:
    """Say whether a memory is in any of the slices of postings."""
    places = ((bisect_left(snapshot.positions, position, *pair), pair[1]) for pair in slices)
    return any(place < stop and snapshot.positions[place] == position for place, stop in places)


def _describe(
    snapshot: _Snapshot, hit: _Hit, row: Mapping[str, Any], support: float | None
) -> RecalledMemory:
    return RecalledMemory(
        id=snapshot.public_id(row["memory_id"]),
        created_at=from_micros(row["created_at_us"]),
        **{name: row[name] for name in _SHOWN},
        final_score=hit.final,
        relevance=hit.relevance,
        lexical=LegHit(hit.rank, hit.score),
        support=support,
    )


# Whether the speakers that a prompt names have said its words: `answerability._attribute`.


def _attribute(snapshot: _Snapshot, query: str, visible: bytes | None) -> float:
    speaking = snapshot.speakers.tolist()
    persons: dict[int, str] = {}
    for link in link_query(query, _names_seen(snapshot, visible)):
        words = query[link.start : link.end]
        # A role ("user") is not a person.
        if _speaks(link.ordinal, speaking, visible) and fold_name(words) not in ROLES:
            persons[link.ordinal] = f"{persons.get(link.ordinal, '')} {words}".lstrip()
    named = {token for words in persons.values() for token in tokenize(words)}
    asked = set(tokenize(query)) - named
    if not persons or not asked:
        return 0.0
    wings = snapshot.wings.tolist()
    turns = [p for p, speaker in enumerate(speaking) if speaker >= 0]
    if visible is not None:
        turns = list(compress(turns, _at(visible, turns)))
    said = [p for p in turns if speaking[p] in persons]
    entered = {wings[p] for p in said}
    others = [p for p in turns if speaking[p] not in persons and wings[p] in entered]
    coverage = _Words(snapshot, asked, visible).coverage()
    return _compare([coverage.get(p, 0.0) for p in said], [coverage.get(p, 0.0) for p in others])


def _compare(said: Sequence[float], others: Sequence[float]) -> float:
    """Return `answerability.find_attribution` of plain numbers."""
    best = min(BEST_TURNS, len(said), len(others))
    if best == 0:
        return 0.0
    return sum(sorted(said)[-best:]) / best - sum(sorted(others)[-best:]) / best


def _names_seen(snapshot: _Snapshot, visible: bytes | None) -> NameTable:
    """Return the names that a visible memory is about, or that speak in one."""
    table = snapshot.name_table()
    if visible is None:
        return table
    starts, positions, roles = snapshot.mentions
    speaking = snapshot.speakers.tolist()

    def is_seen(ordinal: int) -> bool:
        rows = range(starts[ordinal], starts[ordinal + 1])
        about = any(roles[row] == ABOUT and visible[positions[row]] for row in rows)
        return about or _speaks(ordinal, speaking, visible)

    def named(asked: Sequence[str]) -> Mapping[str, Any]:
        return {name: f for name, f in table.names(asked).items() if is_seen(f.ordinal)}

    return NameTable(table.longest, named)


def _speaks(ordinal: int, speaking: Sequence[int], visible: bytes | None) -> bool:
    if visible is None:
        return ordinal in speaking
    return any(
        shown and speaker == ordinal for speaker, shown in zip(speaking, visible, strict=True)
    )
