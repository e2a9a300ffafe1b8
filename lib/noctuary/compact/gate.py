"""The preservation gate of a summary, and its fact check against the sources."""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.compact.claims import (
    Claim,
    Piece,
    Support,
    clauses,
    count_phrases,
    find_names,
    read_claims,
    sentences,
)
from noctuary.core.foreign_json import parse_json
from noctuary.graph.fold import words
from noctuary.text.marks import SENTENCE_END, find_speaker, split_speaker
from noctuary.text.tokens import tokenize

# The preservation gate: does a summary still point where its sources pointed? Every score stays in
# its range for every input: a zero vector, an empty cluster or a non-finite component scores 0 and
# fails the gate with a reason.

TAU_PRESERVE = 0.65  # least alignment; on the reference's 16 cases .75 refuses none, .85 two
# Share of geometric preservation in an abstractive summary's confidence; the rest is the decoder's
# own confidence, which knows its fluency but not the retrieval space.
PRESERVATION_WEIGHT = 0.8

Vector = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class GateReport:
    """One verdict on one candidate summary."""

    align: float  # cosine of the summary and the cluster's mean vector, in [-1, 1]
    cover: float  # mean positive cosine of the summary and each source, in [0, 1]
    confidence: float  # in [0, 1]
    decay_rate: float
    threshold: float  # least `align` that passes
    passed: bool  # `align >= threshold`, and every vector was usable
    reasons: tuple[str, ...]  # why it did not pass


def alignment(summary: Vector, sources: Vector) -> float:
    """Return cos(v_s, mean of v_i) in [-1, 1]; 0 for a zero or non-finite vector or no sources.

    Shapes (d,) and (n, d); no unit vectors are needed. Source: libravdb mathematics section 5.2.
    """
    members = _rows(sources)
    if not members.size or not np.isfinite(members).all():
        return 0.0
    scale = float(np.abs(members).max())
    # Dividing by the largest component first keeps the mean from overflowing and does not turn it.
    mean = (members / scale).mean(axis=0) if scale > 0.0 else members[0]
    return _clamp(float(_unit(_rows(summary))[0] @ _unit(mean[None, :])[0]), -1.0)


def coverage(summary: Vector, sources: Vector) -> float:
    """Return the mean of max(0, cos(v_s, v_i)) over i, in [0, 1]; 0 for no sources."""
    members = _rows(sources)
    if not members.size:
        return 0.0
    cosines = _unit(members) @ _unit(_rows(summary))[0]
    return _clamp(float(np.clip(cosines, 0.0, 1.0).mean()))


def preservation(align: float, cover: float) -> float:
    """Return clamp((align + cover) / 2, 0, 1), an extractive summary's confidence (section 5.2)."""
    return _clamp((align + cover) / 2.0)


def final_confidence(preserved: float, raw: float | None = None) -> float:
    """Return the stored confidence, in [0, 1].

    `raw` is the decoder's own for an abstractive summary, else None; NaN counts as 0.
    Source: libravdb mathematics section 5.4.
    """
    if raw is None:
        return _clamp(preserved)
    mixed = PRESERVATION_WEIGHT * _clamp(preserved) + (1.0 - PRESERVATION_WEIGHT) * _clamp(raw)
    return _clamp(mixed)


def decay_rate(confidence: float) -> float:
    """Return 1 - confidence, in [0, 1] (section 5.5)."""
    return 1.0 - _clamp(confidence)


def judge(
    summary: Vector, sources: Vector, *, raw: float | None = None, threshold: float = TAU_PRESERVE
) -> GateReport:
    """Judge one candidate summary, shape (d,), against its sources, shape (n, d), of one encoder.

    `raw` is the decoder's own confidence, for an abstractive candidate only. ValueError if the two
    sides have different dimensions.
    """
    members, candidate = _rows(sources), _rows(summary)
    if members.size and members.shape[1] != candidate.shape[1]:
        raise ValueError(
            f"the summary has {candidate.shape[1]} dimensions and its sources have "
            f"{members.shape[1]}; encode both with one model"
        )
    align, cover = alignment(summary, sources), coverage(summary, sources)
    confidence = final_confidence(preservation(align, cover), raw)
    reasons = [] if members.size else ["the cluster has no sources"]
    if not (np.isfinite(candidate).all() and np.isfinite(members).all()):
        reasons.append("a vector is not finite")
    elif not candidate.any():
        reasons.append("the summary's vector is zero")
    if not align >= threshold:
        reasons.append(f"align {align:.4f} is below {threshold:.4f}")
    rate = decay_rate(confidence)
    return GateReport(align, cover, confidence, rate, threshold, not reasons, tuple(reasons))


def _rows(vectors: Vector) -> NDArray[np.float64]:
    return np.atleast_2d(np.asarray(vectors, dtype=np.float64))


def _unit(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Normalise each row, scaled first for tiny ones; a zero or non-finite row becomes zero."""
    safe = np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, 0.0)
    peak = np.abs(safe).max(axis=1, keepdims=True)
    scaled = np.divide(safe, peak, out=np.zeros_like(safe), where=peak > 0.0)
    norm = np.sqrt((scaled * scaled).sum(axis=1, keepdims=True))
    return np.divide(scaled, norm, out=np.zeros_like(scaled), where=norm > 0.0)


def _clamp(value: float, low: float = 0.0) -> float:
    return low if math.isnan(value) else max(low, min(1.0, value))


# Find the source of a piece of a summary by the content words they share.

MIN_SHARED = 2  # content words that two pieces must share to speak of one thing: one is chance
# Share of a summary piece's content words that its source holds: loose for denials, which are read
# by clause; close for values and names, which a list has in every line.
LOOSE_COVERAGE, CLOSE_COVERAGE = 0.6, 0.75
# Share of a source piece's content words that the summary piece holds: "Have faith in yourself" is
# no denial of "it is hard to run a business when you don't have faith in yourself".
MIN_BACK_COVERAGE = 0.3
NEAR_BEST = 0.15  # sources that cover so little less than the best one speak of the same thing too


class Aligned(NamedTuple):
    """A source piece on the subject of a summary piece."""

    piece: Piece
    turn: int  # index of its source text
    coverage: float  # share of the summary piece's content words that it holds, in (0, 1]


class SourceIndex:
    """Pieces of all sources, given by source, looked up by content word."""

    def __init__(self, pieces: Sequence[Sequence[Piece]]) -> None:
        self._pieces = [(piece, turn) for turn, found in enumerate(pieces) for piece in found]
        self._holders: dict[str, list[int]] = defaultdict(list)
        for place, (piece, _) in enumerate(self._pieces):
            for token in piece.tokens | piece.speaker:
                self._holders[token].append(place)

    def align(self, tokens: frozenset[str], least: float) -> list[Aligned]:
        """Return the source pieces that hold a share `least` of some content words, best first."""
        shared: Counter[int] = Counter()
        for token in sorted(tokens):
            shared.update(self._holders.get(token, ()))
        found: list[Aligned] = []
        for place, count in shared.items():
            piece, turn = self._pieces[place]
            said = len(piece.tokens & tokens)
            is_alike = said >= MIN_SHARED and said >= MIN_BACK_COVERAGE * len(piece.tokens)
            if count >= least * len(tokens) and is_alike and not piece.is_question:
                found.append(Aligned(piece, turn, count / len(tokens)))
        best = max((aligned.coverage for aligned in found), default=0.0)
        near = [aligned for aligned in found if aligned.coverage >= best - NEAR_BEST]
        return sorted(near, key=lambda aligned: (-aligned.coverage, aligned.turn))


# Contradictions between a summary and its sources. Comparisons
# are one-sided on purpose: a source that agrees, or a pronoun that might mean the name,
# settles it in favour of the summary (docs/compaction.md).


class SourceSide:
    """The sources as all comparisons need them; built when the first one asks."""

    def __init__(self, sources: Sequence[str]) -> None:
        self.clauses = SourceIndex(list(map(clauses, sources)))
        self.sentences = SourceIndex(list(map(sentences, sources)))
        self.turns = [Support([source]) for source in sources]
        # The values that count a thing in any source, by its stem.
        self.counted: dict[str, set[str]] = defaultdict(set)
        for source in sources:
            for readings, things in count_phrases(source, claims=False):
                for thing in things:
                    self.counted[thing] |= readings
        # The single words that name people in the sources, speakers included.
        named = {name.folded for source in sources for name in find_names(source)}
        speakers = filter(None, map(find_speaker, sources))
        named.update(word.folded for speaker in speakers for word in words(speaker))
        self.known = frozenset(name for name in named if " " not in name)

    def find_contradictions(self, written: str) -> Iterator[str]:
        """Yield contradictions in written text, as "kind: claim, sources: claim"."""
        for clause in clauses(written):
            yield from self._flipped(clause)
        for sentence in sentences(written):
            yield from self._misplaced_values(sentence)
            yield from self._misplaced_names(sentence)
        yield from self._miscounted(written)

    def _flipped(self, clause: Piece) -> Iterator[str]:
        """A clause is denied where all its sources are not, or the other way round."""
        found = [] if clause.is_question else self.clauses.align(clause.tokens, LOOSE_COVERAGE)
        if clause.is_negated:
            agrees = any(a.piece.is_negated or a.piece.is_denying for a in found)
        else:
            agrees = clause.is_denying or not all(a.piece.is_negated for a in found)
        if found and not agrees:
            yield f"negation: {clause.text.strip()}, sources: {found[0].piece.text.strip()}"

    def _misplaced_values(self, sentence: Piece) -> Iterator[str]:
        """A number, date or time is another one's: its own sentence has a different one."""
        claims = [c for c in read_claims(sentence.text) if c.kind in ("number", "date", "time")]
        found = self._align_without(sentence, [claim.surface for claim in claims])
        for claim in claims if found else ():
            if any(self.turns[a.turn].holds(claim) for a in found):
                continue
            others = read_claims(found[0].piece.text)
            theirs = {other.key: other.surface for other in others if other.kind == claim.kind}
            if theirs:
                yield f"{claim.kind}: {claim.surface}, sources: {', '.join(theirs.values())}"

    def _misplaced_names(self, sentence: Piece) -> Iterator[str]:
        """A name where the sources mention another person."""
        names = find_names(sentence.text, self.known)
        found = self._align_without(sentence, [name.surface for name in names])
        for name in names if found else ():
            if all(self._is_of_another(name.folded, len(names), a) for a in found):
                best = found[0].piece
                theirs = ", ".join(other.surface for other in find_names(best.text))
                if best.says_i or not theirs:
                    theirs = " ".join(sorted(best.speaker))
                yield f"name: {name.surface}, sources: {theirs}"

    def _is_of_another(self, name: str, n_names: int, aligned: Aligned) -> bool:
        """Return whether a source is surely about its speaker or one other name."""
        piece = aligned.piece
        if self.turns[aligned.turn].holds_name(name) or piece.says_other:
            return False
        if piece.says_i:
            return bool(piece.speaker)
        return len(find_names(piece.text, self.known)) == n_names == 1

    def _miscounted(self, written: str) -> Iterator[str]:
        """A number counts a thing that the sources count otherwise: 2 cats where they have 3."""
        for readings, things in count_phrases(written, claims=True):
            counts = [(thing, self.counted[thing]) for thing in things if thing in self.counted]
            if counts and all(readings.isdisjoint(values) for _, values in counts):
                thing, values = counts[0]
                number = "/".join(sorted(readings))
                yield f"number: {number} {thing}, sources: {', '.join(sorted(values))}"

    def _align_without(self, sentence: Piece, surfaces: Sequence[str]) -> list[Aligned]:
        """Align a sentence by its words other than some values or names, of which it needs one."""
        if not surfaces:
            return []
        left_out = {token for surface in surfaces for token in tokenize(surface)}
        return self.sentences.align(sentence.tokens - left_out, CLOSE_COVERAGE)


# Which parts of a summary are whole turns or sentences of the sources, word for word.

_ENDS = ".!?…。！？"
_WORD = re.compile(r"\S+")
_BLANKS = re.compile(r"\s*")
_SENTENCE_KEY_CHARS = 8  # index key of sentences: at most so many first characters
_KEY_CHARS = 12  # of a turn's start that are compared: enough to distinguish most


class Parts(NamedTuple):
    """A summary cut into quotations and the rest."""

    quoted: tuple[int, ...]  # indices of the sources that it quotes whole, ascending
    written: tuple[str, ...]  # the other parts, in order


def find_verbatim(summary: str, sources: Sequence[str]) -> Parts:
    """Cut a summary into whole turns and the rest.

    A turn counts where it begins the summary, follows another one or follows the end of a sentence,
    and where nothing goes on behind it: "It is false that the rent is 500" quotes nothing, nor does
    "The rent is 500 no more".
    """
    turns = [(index, turn) for index, source in enumerate(sources) if (turn := source.strip())]
    quoted: set[int] = set()
    written: list[str] = []
    rest = _next_word(summary, 0)
    for word in _WORD.finditer(summary):
        place = word.start()
        before = summary[max(place - 64, 0) : place].rstrip()[-1:]
        # Behind a turn another one may begin whatever it ends with.
        if place >= rest and (place == rest or before in _ENDS):
            match = _match(summary, place, turns)
            if match is not None:
                quoted.add(match[0])
                written.append(summary[rest:place])
                rest = _next_word(summary, match[1])
    written.append(summary[rest:])
    return Parts(tuple(sorted(quoted)), tuple(part for part in written if part.strip()))


def _match(summary: str, place: int, turns: Sequence[tuple[int, str]]) -> tuple[int, int] | None:
    """Return the longest turn at a place, and where it ends."""
    found: tuple[int, int] | None = None
    for index, turn in turns:
        end = place + len(turn)
        if (found is None or end > found[1]) and summary.startswith(turn, place):
            behind = _next_word(summary, end)
            begins = (summary.startswith(other[:_KEY_CHARS], behind) for _, other in turns)
            ends = behind > end and (turn[-1] in _ENDS or any(begins))
            found = (index, end) if ends or behind == len(summary) else found
    return found


def _next_word(summary: str, place: int) -> int:
    blanks = _BLANKS.match(summary, place)
    return place if blanks is None else blanks.end()


def is_made_of_sentences(summary: str, sources: Sequence[str]) -> bool:
    """Return whether a summary is only whole sentences of the sources, under their speakers.

    From its first character to its last: labels ("Ann: ") followed by sentences that this speaker
    has written, word for word. "Ann: " before a sentence of Bob's is no quotation.
    """
    # The sentences of each speaker by their first characters; None: without a speaker.
    said: dict[str | None, dict[str, list[str]]] = {None: {}}
    for source in sources:
        speaker, body = split_speaker(source)
        by_start = said.setdefault(speaker, {})
        for sentence in filter(None, map(str.strip, re.split(SENTENCE_END, body))):
            by_start.setdefault(sentence[:_SENTENCE_KEY_CHARS], []).append(sentence)
    labels = sorted((name for name in said if name), key=len, reverse=True)
    # One sentence may begin with another, so every way to go on is tried, each place once.
    todo: list[tuple[int, str | None]] = [(_next_word(summary, 0), None)]
    tried: set[tuple[int, str | None]] = set()
    while todo:
        place, speaker = todo.pop()
        if place >= len(summary):
            return True
        if (place, speaker) in tried:
            continue
        tried.add((place, speaker))
        label = next((n for n in labels if summary.startswith(f"{n}: ", place)), None)
        if label is not None:
            speaker = label
            place = _next_word(summary, place + len(label) + 2)
        for who in {speaker, None}:
            ends = _sentence_ends(summary, place, said.get(who, {}))
            todo += [(_next_word(summary, end), speaker) for end in ends]
    return False


def _sentence_ends(summary: str, place: int, by_start: dict[str, list[str]]) -> Iterator[int]:
    """Yield the ends of sentences that begin at a place."""
    for length in range(1, _SENTENCE_KEY_CHARS + 1):
        for sentence in by_start.get(summary[place : place + length], ()):
            end = place + len(sentence)
            whole = end == len(summary) or _next_word(summary, end) > end or sentence[-1] in _ENDS
            if whole and summary.startswith(sentence, place):
                yield end


@dataclass(frozen=True, slots=True)
class FactReport:
    """Result of the fact check of one summary."""

    kept: int  # distinct facts of the sources that the summary repeats
    total: int  # distinct facts of the sources
    introduced: tuple[str, ...] = ()  # facts that no source holds, as "kind: claim", sorted
    contradicted: tuple[str, ...] = ()  # contradictions, as "kind: claim, sources: claim"

    @property
    def share(self) -> float:
        """Return kept / total, in [0, 1]; 1 where the sources hold no fact."""
        return self.kept / self.total if self.total else 1.0

    @property
    def passed(self) -> bool:
        """Return whether the text neither introduces nor contradicts anything."""
        return not self.introduced and not self.contradicted

    @property
    def reasons(self) -> tuple[str, ...]:
        """Return one sentence per fault; empty where it passed."""
        introduced = [f"introduces {fact}" for fact in self.introduced]
        return (*introduced, *(f"contradicts {fact}" for fact in self.contradicted))

    def to_json(self) -> str:
        """Return the report as canonical JSON, the share included for readers of the table."""
        document = {**asdict(self), "share": round(self.share, 6)}
        return json.dumps(document, ensure_ascii=False, sort_keys=True, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> FactReport:
        """Return the report that `to_json` wrote; ValueError if the text is none."""
        try:
            report: dict[str, Any] = parse_json(text)
            faults = tuple(report["introduced"]), tuple(report["contradicted"])
            return FactReport(int(report["kept"]), int(report["total"]), *faults)
        except (KeyError, TypeError) as error:
            raise ValueError(f"found {text[:80]!r}, expected a fact report as JSON") from error


# The fact check of one summary against its sources: strict on the summary, generous on the sources.
# Sums, conversions of units and dates worked out of "yesterday" are claims that no source holds; a
# summary that needs them falls back to verbatim turns, which costs tokens and loses nothing.

FACTS_VERSION = "1"  # raised whenever any summary could get another verdict

SHOWN_FACTS = 20  # faults listed per report: enough to see what went wrong
SHOWN_CHARS = 300  # of one fault: a clause may be as long as a turn


def check_facts(summary: str, sources: Sequence[str]) -> FactReport:
    """Return which facts of its sources a summary keeps, introduces and contradicts.

    Turns quoted word for word, and a summary of nothing but whole sentences under
    their speakers' names, are assumed to claim nothing new.
    """
    claims = [read_claims(source) for source in sources]
    parts = find_verbatim(summary, sources)
    kept, total = _preserved(summary, claims, parts.quoted)
    if not parts.written or is_made_of_sentences(summary, sources):
        return FactReport(kept, total)
    support, side = Support(sources), SourceSide(sources)
    introduced = {
        f"{claim.kind}: {claim.surface}"[:SHOWN_CHARS]
        for part in parts.written
        for claim in read_claims(part)
        if claim.kind != "negation" and not support.holds(claim)
    }
    contradicted = {
        fault[:SHOWN_CHARS] for part in parts.written for fault in side.find_contradictions(part)
    }
    faults = (tuple(sorted(found)[:SHOWN_FACTS]) for found in (introduced, contradicted))
    return FactReport(kept, total, *faults)


def _preserved(
    summary: str, claims: Sequence[Sequence[Claim]], quoted: Sequence[int]
) -> tuple[int, int]:
    """Return how many distinct facts of the sources the summary holds, and how many there are."""
    distinct = {(claim.kind, claim.key): claim for found in claims for claim in found}
    held = {(claim.kind, claim.key) for turn in quoted for claim in claims[turn]}
    open_ = [claim for key, claim in distinct.items() if key not in held]
    if open_:
        support = Support([summary])
        held.update((claim.kind, claim.key) for claim in open_ if support.holds(claim))
    return len(held & distinct.keys()), len(distinct)
