"""What recall returns, and what it knows of whether there is an answer at all."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import datetime
from typing import Any

from noctuary.core.foreign_json import parse_json
from noctuary.core.types import dataclass
from noctuary.text.marks import visible_line

# Whether the snapshot holds an answer to a query: a score, and the threshold it is held against.


WORDS_AND_VECTORS = "words_and_vectors"
"""The signal of a recall that has a dense leg."""

WORDS = "words"
"""The signal of a recall without one: past its deadline, or with no encoder."""

SIGNALS = (WORDS_AND_VECTORS, WORDS)

COSINE, COVERAGE, KNOWN, LIKENESS = FEATURES = ("cosine", "coverage", "known", "likeness")
"""What a score is made of (docs/abstention.md)."""

ANY_SCRIPT = "any"
"""Key of what is usual for prompts of a script that the everyday ones lack."""

RELATIVE_BAR = 0.4
"""Share of the best memory's score that each memory must reach by itself: more injects fewer that
only came along, less keeps a second half of an answer."""

Usual = Mapping[str, tuple[float, float]]
"""By feature, mean and deviation over everyday prompts."""


@dataclass(frozen=True, slots=True)
class Measure:
    """What prompts that are nobody's memory come to on a snapshot: the zero of its scores.

    Attributes:
        usual: By script of the prompt, and over all of them (ANY_SCRIPT).
        direction: (d + 1,) of a query vector and 1: larger where it reads like the store rather
            than like everyday prompts; empty for none.
    """

    usual: Mapping[str, Usual]
    direction: tuple[float, ...] = ()

    def usual_of(self, script: str) -> Usual:
        """Return what is usual for a script, or over all of them."""
        return self.usual.get(script) or self.usual[ANY_SCRIPT]

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        scripts = {s: {f: list(v) for f, v in u.items()} for s, u in self.usual.items()}
        return {"usual": scripts, "direction": list(self.direction)}

    @staticmethod
    def parse(raw: Mapping[str, Any]) -> Measure:
        """Read what `to_json` returned.

        Raises:
            KeyError, TypeError, ValueError: If it is anything else.
        """
        usual = {
            str(script): {name: _mean_and_deviation(found[name]) for name in FEATURES}
            for script, found in raw["usual"].items()
        }
        if ANY_SCRIPT not in usual:
            raise ValueError(f"nothing that is usual for {ANY_SCRIPT!r} script")
        direction = tuple(float(value) for value in raw["direction"])
        if not all(map(math.isfinite, direction)):
            raise ValueError("a direction that is not finite")
        return Measure(usual, direction)


def _mean_and_deviation(raw: Sequence[Any]) -> tuple[float, float]:
    mean, deviation = (float(value) for value in raw)
    if not (math.isfinite(mean) and 0.0 < deviation < math.inf):
        raise ValueError(f"no mean and deviation: {mean}, {deviation}")
    return mean, deviation


@dataclass(frozen=True, slots=True)
class Answerability:
    """How sure a recall is that the snapshot holds an answer.

    Attributes:
        score: In [0, 1]; 0 where nothing was found. Comparable within one snapshot and signal.
        threshold: In [0, 1]; what the snapshot's calibration chose.
        abstain: Whether score < threshold: better to inject nothing.
        signal: Which signal the score is of, one of SIGNALS.
        bar: In [0, 1]; a memory whose own score, `RecalledMemory.support`, is below it had better
            not be injected.
    """

    score: float
    threshold: float
    abstain: bool
    signal: str
    bar: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "score": self.score,
            "threshold": self.threshold,
            "abstain": self.abstain,
            "signal": self.signal,
            "bar": self.bar,
        }


@dataclass(frozen=True, slots=True)
class Calibration:
    """The thresholds of one snapshot.

    Attributes:
        thresholds: By signal, each in [0, 1]; a signal that is not there was not calibrated.
        measures: By the same signals, what their scores are measured by.
        bars: By signal, the score that each memory must reach by itself, in [0, 1]; 0 for none.
    """

    thresholds: Mapping[str, float]
    measures: Mapping[str, Measure]
    bars: Mapping[str, float] = field(default_factory=dict[str, float])

    @staticmethod
    def observing(measures: Mapping[str, Measure]) -> Calibration:
        """Return what shows every score and abstains from nothing: what a night asks with."""
        return Calibration(dict.fromkeys(measures, 0.0), measures)

    @staticmethod
    def parse(text: str) -> Calibration | None:
        """Read a snapshot's abstention.json; None where nothing was calibrated.

        A threshold without a `measure` is of a snapshot of before, whose scores had another scale:
        it counts as none.

        Raises:
            ValueError: If it is no JSON object of signals with thresholds in [0, 1].
        """
        try:
            raw = parse_json(text)["signals"]
            found = {str(name): float(entry["threshold"]) for name, entry in raw.items()}
            bars = {name: float(entry["bar"]) for name, entry in raw.items() if "bar" in entry}
            measures = {
                str(name): Measure.parse(entry["measure"])
                for name, entry in raw.items()
                if "measure" in entry
            }
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"no thresholds by signal: {error}") from error
        all_of_them = (*found.items(), *bars.items())
        wrong = {name: at for name, at in all_of_them if not 0.0 <= at <= 1.0}
        if wrong:
            raise ValueError(f"thresholds outside [0, 1]: {wrong}")
        measured = {name: found[name] for name in measures}
        return Calibration(measured, measures, bars) if measured else None

    def judge(self, score: float, signal: str) -> Answerability:
        """Hold a score against its signal's threshold.

        Raises:
            KeyError: If the signal was not calibrated.
        """
        bar = max(self.bars.get(signal, 0.0), RELATIVE_BAR * score)
        threshold = self.thresholds[signal]
        return Answerability(score, threshold, score < threshold, signal, bar)


# What recall returns: memories, why they are here, warnings, timings. Data only.


MemoryId = int | str

_SHOWN_CHARS = 80
"""Of a text in the short form of a result."""


@dataclass(frozen=True, slots=True)
class RecallWarning:
    """A degradation that the caller may act on.

    Attributes:
        code: Stable and machine-readable, for example "no_snapshot".
        message: What was found and what to do.
    """

    code: str
    message: str

    def to_json(self) -> dict[str, str]:
        """Return plain values."""
        return {"code": self.code, "message": self.message}


@dataclass(frozen=True, slots=True)
class LegHit:
    """What one leg said about a memory: 1-based rank and the leg's own score."""

    rank: int
    score: float


@dataclass(frozen=True, slots=True)
class GraphHit:
    """How the graph moved a memory: seed -> relation -> concept -> memory.

    Attributes:
        score: What was added before weight and scaling, > 0.
        seed_id: The memory that the strongest part came from; None where it came from the query.
        relation: The relation of the strongest part.
        concept: The concept on the way, or None for structural relations.
        evidence: Ids of the memories that hold the evidence.
        shares: By relation, what each added; they sum to `score`.
    """

    score: float
    seed_id: MemoryId | None
    relation: str
    concept: str | None
    evidence: tuple[MemoryId, ...] = ()
    shares: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, slots=True)
class RecalledMemory:
    """One memory with why it is here.

    Attributes:
        id: The source's own id, in the source's own type; a summary's own id.
        final_score: The ranking key, in [0, 1].
        relevance: The fused score before the importance prior, the phases and any other sort order,
            in [0, 1].
        kind: "memory", or "summary" where an accepted summary stands for its turns.
        sources: Ids of the memories that a summary stands for, in order of time; `expand` returns
            them. Empty for a memory.
        live: It comes from the store itself: the snapshot lacks it, or has another form of it.
        support: How sure it is that this one answers, in [0, 1], to be held against the answer's
            `answerability.bar`; None where that was not judged.
        annotations: What phases found out about it, for example {"superseded_by": 7}.
        score_breakdown: Share of every step in the final score, and "final_score"; only with
            `explain`.
        score_events: What every step changed, in order, with reasons; only with `explain`.
    """

    id: MemoryId
    content: str
    category: str
    tags: tuple[str, ...]
    importance: float
    created_at: datetime | None
    wing: str | None
    room: str | None
    session_id: str | None
    user: str | None
    final_score: float
    relevance: float
    lexical: LegHit | None = None
    dense: LegHit | None = None
    graph: GraphHit | None = None
    kind: str = "memory"
    annotations: Mapping[str, Any] = field(default_factory=dict[str, Any])
    score_breakdown: Mapping[str, float] | None = None
    score_events: tuple[Mapping[str, Any], ...] | None = None
    sources: tuple[MemoryId, ...] = ()
    live: bool = False
    support: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain values; dates as ISO-8601. Explanations only where there are any."""
        legs = {
            name: {key: _plain(getattr(hit, key)) for key in hit.__slots__}
            for name, hit in (
                ("lexical", self.lexical),
                ("dense", self.dense),
                ("graph", self.graph),
            )
            if hit is not None
        }
        plain: dict[str, Any] = {
            "id": self.id,
            "kind": self.kind,
            "content": self.content,
            "category": self.category,
            "tags": list(self.tags),
            "importance": self.importance,
            "created_at": self.created_at.isoformat() if self.created_at else None,
            "wing": self.wing,
            "room": self.room,
            "session_id": self.session_id,
            "user": self.user,
            "final_score": self.final_score,
            "relevance": self.relevance,
            "legs": legs,
        }
        if self.sources:
            plain["sources"] = list(self.sources)
        if self.live:
            plain["live"] = True
        if self.support is not None:
            plain["support"] = self.support
        if self.annotations:
            plain["annotations"] = dict(self.annotations)
        if self.score_breakdown is not None:
            plain["score_breakdown"] = dict(self.score_breakdown)
            plain["score_events"] = [dict(event) for event in self.score_events or ()]
        return plain


@dataclass(frozen=True, slots=True)
class RecallResult:
    """The answer to one query; always returned, whatever went wrong.

    Attributes:
        memories: Best first, at most k.
        warnings: Every degradation on the way.
        phase_timing_ms: Wall time by step.
        snapshot_id: The one snapshot that the answer comes from, or None.
        store: The store directory that was asked.
        profile: The profile in force, as plain values.
        profile_used: Its name.
        pipeline: What the phases did: applied, skipped, how many candidates, the model guard's
            verdict, each phase's own facts.
        candidates: Every candidate with its breakdown, best first; only with `dry_run` and
            `explain` together.
        candidate_trace: What was dropped: where, why and with which score; only with
            `candidate_trace`.
        replay_packet: What a re-run needs; only with the profile's `replay_log`.
        answerability: Whether there is an answer at all; None where the snapshot was not calibrated
            (docs/abstention.md) or nothing was searched. It changes no order and no other score.
    """

    query: str
    memories: tuple[RecalledMemory, ...] = ()
    warnings: tuple[RecallWarning, ...] = ()
    phase_timing_ms: dict[str, float] = field(default_factory=dict[str, float])
    snapshot_id: str | None = None
    store: str | None = None
    profile: dict[str, Any] = field(default_factory=dict[str, Any])
    profile_used: str = "default"
    pipeline: dict[str, Any] = field(default_factory=dict[str, Any])
    candidates: tuple[Mapping[str, Any], ...] | None = None
    candidate_trace: tuple[Mapping[str, Any], ...] | None = None
    replay_packet: Mapping[str, Any] | None = None
    answerability: Answerability | None = None

    def __repr__(self) -> str:
        """Return a line per warning, then one per memory; `to_json` has the rest."""
        lines = [f"! {w.code}: {w.message}" for w in self.warnings]
        lines.append(f"RecallResult for {_excerpt(self.query)}: {len(self.memories)} memories")
        lines += [f"{m.final_score:.3f} [{m.id}] {_excerpt(m.content)}" for m in self.memories]
        return "\n".join(map(visible_line, lines))

    def to_json(self) -> dict[str, Any]:
        """Return plain values; what was not asked for is left out."""
        plain: dict[str, Any] = {
            "query": self.query,
            "memories": [m.to_json() for m in self.memories],
            "warnings": [w.to_json() for w in self.warnings],
            "phase_timing_ms": self.phase_timing_ms,
            "snapshot_id": self.snapshot_id,
            "store": self.store,
            "profile": self.profile,
            "profile_used": self.profile_used,
            "pipeline": self.pipeline,
        }
        for name in ("candidates", "candidate_trace"):
            rows = getattr(self, name)
            if rows is not None:
                plain[name] = [dict(row) for row in rows]
        if self.replay_packet is not None:
            plain["replay_packet"] = dict(self.replay_packet)
        if self.answerability is not None:
            plain["answerability"] = self.answerability.to_json()
        return plain


def _excerpt(text: str) -> str:
    """Return the start of a text in quotes, with what a terminal would obey escaped."""
    cut = " ".join(text[: 2 * _SHOWN_CHARS].split())
    return repr(cut if len(cut) <= _SHOWN_CHARS else f"{cut[:_SHOWN_CHARS]} ...")


def _plain(value: Any) -> Any:
    """Return a value as JSON would hand it back."""
    return list(value) if isinstance(value, tuple) else value
