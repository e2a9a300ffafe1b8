"""The result of a recall, and its judgement whether the store holds an answer."""

# Not `from __future__ import annotations`: NamedTuple compiles each annotation that is a text.
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, cast

from noctuary.core.foreign_json import parse_json
from noctuary.core.types import NOTHING, Origin
from noctuary.text.marks import visible_line


def plain(value: Any) -> Any:
    """Return a value as JSON would hand it back, at any depth; dates as ISO-8601."""
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        return {key: plain(item) for key, item in fields.items()}
    if isinstance(value, list | tuple):
        items, names = cast("Sequence[Any]", value), getattr(value, "_fields", None)
        shown = [plain(item) for item in items]
        return shown if names is None else dict(zip(names, shown, strict=True))
    return value.isoformat() if isinstance(value, datetime) else value


# Whether the snapshot holds an answer to a query: a score, and the threshold it is held against.
# The signals of a recall that has a dense leg, and of one past its deadline or with no encoder.
WORDS_AND_VECTORS, WORDS = SIGNALS = ("words_and_vectors", "words")
# What a score is made of (docs/abstention.md).
COSINE, COVERAGE, KNOWN, LIKENESS = FEATURES = ("cosine", "coverage", "known", "likeness")
ANY_SCRIPT = "any"  # key for scripts that the everyday prompts lack
# Share of the best memory's score that each memory must reach by itself: more injects fewer that
# only came along, less keeps a second half of an answer.
RELATIVE_BAR = 0.4

Usual = Mapping[str, tuple[float, float]]  # by feature, mean and deviation over everyday prompts


class Measure(NamedTuple):
    """Mean and deviation of everyday prompts on a snapshot: the zero of its scores."""

    usual: Mapping[str, Usual]  # by script of the prompt, and over all of them (ANY_SCRIPT)
    # (d + 1,) of a query vector and 1: larger where it reads like the store rather than like
    # everyday prompts; empty for none.
    direction: tuple[float, ...] = ()

    def usual_of(self, script: str) -> Usual:
        """Return means and deviations for a script, or over all scripts."""
        return self.usual.get(script) or self.usual[ANY_SCRIPT]

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return plain(self)

    @staticmethod
    def parse(raw: Mapping[str, Any]) -> "Measure":
        """Read what `to_json` returned; KeyError, TypeError, ValueError for anything else."""
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


class Answerability(NamedTuple):
    """How sure a recall is that the snapshot holds an answer; all in [0, 1]."""

    score: float  # 0 where nothing was found; comparable within one snapshot and signal
    threshold: float  # what the snapshot's calibration chose
    abstain: bool  # whether score < threshold: better to inject nothing
    signal: str  # which signal the score is of, one of SIGNALS
    bar: float = 0.0  # a memory whose own `support` is below it had better not be injected

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return plain(self)


class Calibration(NamedTuple):
    """The thresholds of one snapshot, by signal; one that is not there was not calibrated."""

    thresholds: Mapping[str, float]  # each in [0, 1]
    measures: Mapping[str, Measure]  # what the scores of the same signals are measured by
    # The score that each memory must reach by itself, in [0, 1]; 0 for none.
    bars: Mapping[str, float] = NOTHING

    @staticmethod
    def observing(measures: Mapping[str, Measure]) -> "Calibration":
        """Return a calibration that scores everything and never abstains, as a night uses."""
        return Calibration(dict.fromkeys(measures, 0.0), measures)

    @staticmethod
    def parse(text: str) -> "Calibration | None":
        """Read an abstention.json; None where nothing was calibrated, ValueError if it is damaged.

        A threshold without a `measure` is of an older snapshot, whose scores had another scale.
        """
        try:
            raw = parse_json(text)["signals"].items()
            found = {str(name): float(entry["threshold"]) for name, entry in raw}
            bars = {name: float(entry["bar"]) for name, entry in raw if "bar" in entry}
            measures = {n: Measure.parse(e["measure"]) for n, e in raw if "measure" in e}
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"no thresholds by signal: {error}") from error
        both = (*found.items(), *bars.items())
        wrong = {name: at for name, at in both if not 0.0 <= at <= 1.0}
        if wrong:
            raise ValueError(f"thresholds outside [0, 1]: {wrong}")
        measured = {name: found[name] for name in measures}
        return Calibration(measured, measures, bars) if measured else None

    def judge(self, score: float, signal: str) -> Answerability:
        """Hold a score against its signal's threshold; KeyError if that was not calibrated."""
        bar = max(self.bars.get(signal, 0.0), RELATIVE_BAR * score)
        threshold = self.thresholds[signal]
        return Answerability(score, threshold, score < threshold, signal, bar)


# What recall returns: memories, why they are here, warnings, timings. Data only.

MemoryId = int | str

_SHOWN_CHARS = 80  # of a text in the short form of a result


class RecallWarning(NamedTuple):
    """A degradation that the caller may act on."""

    code: str  # stable and machine-readable, for example "no_snapshot"
    message: str  # the problem and the remedy

    def to_json(self) -> dict[str, str]:
        """Return plain values."""
        return {"code": self.code, "message": self.message}


class LegHit(NamedTuple):
    """Rank (1-based) and score of a memory in one leg."""

    rank: int
    score: float


class GraphHit(NamedTuple):
    """How the graph moved a memory: seed -> relation -> concept -> memory."""

    # The amount added, before weight and scaling; a turn that asks may lose.
    score: float
    seed_id: MemoryId | None  # where the strongest part came from; None for the query
    relation: str  # of the strongest part
    concept: str | None  # the concept on the way; None for structural relations
    evidence: tuple[MemoryId, ...] = ()  # memories that hold the evidence
    # By relation, what each added; they sum to `score`.
    shares: Mapping[str, float] = NOTHING


class RecalledMemory(NamedTuple):
    """One memory with why it is here."""

    id: MemoryId  # the source's own id, in the source's own type; a summary's own id
    content: str
    category: str
    tags: tuple[str, ...]
    importance: float
    created_at: datetime | None
    wing: str | None
    room: str | None
    session_id: str | None
    user: str | None
    final_score: float  # the ranking key, in [0, 1]
    # The fused score before the importance prior, the phases and any other sort order, in [0, 1].
    relevance: float
    lexical: LegHit | None = None
    dense: LegHit | None = None
    graph: GraphHit | None = None
    kind: str = "memory"  # or "summary", in place of its turns
    # What phases found out about it, for example {"superseded_by": 7}.
    annotations: Mapping[str, Any] = NOTHING
    # Share of every step in the final score, and "final_score"; only with `explain`.
    score_breakdown: Mapping[str, float] | None = None
    # What every step changed, in order, with reasons; only with `explain`.
    score_events: tuple[Mapping[str, Any], ...] | None = None
    # Ids of a summary's sources in order of time, see `expand`; empty for a memory.
    sources: tuple[MemoryId, ...] = ()
    live: bool = False  # from the store itself: the snapshot lacks it, or has another form of it
    # How sure it is that this one answers, in [0, 1], to be held against the answer's
    # `answerability.bar`; None where that was not judged.
    support: float | None = None
    # Who wrote it, a `noctuary.core.types.Origin`; of a summary the least trusted of its sources'.
    origin: str = Origin.IMPORT

    def to_json(self) -> dict[str, Any]:
        """Return plain values; dates as ISO-8601. Explanations only where there are any."""
        always = (
            "id", "kind", "content", "category", "tags", "importance", "created_at", "wing", "room",
            "session_id", "user", "origin", "final_score", "relevance",
        )  # fmt: skip
        found: dict[str, Any] = {name: plain(getattr(self, name)) for name in always}
        hits = {name: getattr(self, name) for name in ("lexical", "dense", "graph")}
        found["legs"] = {name: plain(hit) for name, hit in hits.items() if hit is not None}
        for name in ("sources", "live", "support", "annotations"):
            value = getattr(self, name)
            if value or (name == "support" and value is not None):
                found[name] = plain(value)
        if self.score_breakdown is not None:
            found["score_breakdown"] = dict(self.score_breakdown)
            found["score_events"] = [dict(event) for event in self.score_events or ()]
        return found


class RecallResult(NamedTuple):
    """The answer to one query; returned even on errors, as warnings."""

    query: str
    memories: tuple[RecalledMemory, ...] = ()  # best first, at most k
    warnings: tuple[RecallWarning, ...] = ()  # every degradation on the way
    phase_timing_ms: Mapping[str, float] = NOTHING  # wall time by step
    snapshot_id: str | None = None  # the one snapshot that the answer comes from
    store: str | None = None  # the store directory that was asked
    profile: Mapping[str, Any] = NOTHING  # in force, as plain values
    profile_used: str = "default"  # its name
    # What the phases did: applied, skipped, how many candidates, the model guard's verdict, each
    # phase's own facts.
    pipeline: Mapping[str, Any] = NOTHING
    # Every candidate with its breakdown, best first; only with `dry_run` and `explain` together.
    candidates: tuple[Mapping[str, Any], ...] | None = None
    # The dropped candidates: where, why and with which score; only with `candidate_trace`.
    candidate_trace: tuple[Mapping[str, Any], ...] | None = None
    replay_packet: Mapping[str, Any] | None = None  # only with the profile's `replay_log`
    # Whether there is an answer at all; None where the snapshot was not calibrated
    # (docs/abstention.md) or nothing was searched. It changes no order and no other score.
    answerability: Answerability | None = None

    def __repr__(self) -> str:
        """Return a line per warning, then one per memory; `to_json` has the rest."""
        lines = [f"! {w.code}: {w.message}" for w in self.warnings]
        lines.append(f"RecallResult for {_excerpt(self.query)}: {len(self.memories)} memories")
        lines += [f"{m.final_score:.3f} [{m.id}] {_excerpt(m.content)}" for m in self.memories]
        return "\n".join(map(visible_line, lines))

    def to_json(self) -> dict[str, Any]:
        """Return plain values, without optional parts that were not requested."""
        always = (
            "query", "memories", "warnings", "phase_timing_ms", "snapshot_id", "store", "profile",
            "profile_used", "pipeline",
        )  # fmt: skip
        found: dict[str, Any] = {name: getattr(self, name) for name in always}
        found["memories"] = [m.to_json() for m in self.memories]
        found["warnings"] = [w.to_json() for w in self.warnings]
        for name in ("candidates", "candidate_trace"):
            rows = getattr(self, name)
            if rows is not None:
                found[name] = [dict(row) for row in rows]
        if self.replay_packet is not None:
            found["replay_packet"] = dict(self.replay_packet)
        if self.answerability is not None:
            found["answerability"] = self.answerability.to_json()
        return found


def _excerpt(text: str) -> str:
    """Return the start of a text in quotes, with what a terminal would obey escaped."""
    cut = " ".join(text[: 2 * _SHOWN_CHARS].split())
    return repr(cut if len(cut) <= _SHOWN_CHARS else f"{cut[:_SHOWN_CHARS]} ...")
