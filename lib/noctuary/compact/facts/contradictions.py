"""Where a summary says of one thing what its sources say of another, or the opposite.

What belongs here: four comparisons of aligned pieces. What does not: what no source holds at all
(check), reading a text (reading).

Each comparison is one-sided on purpose: a single source that agrees, or a pronoun that might stand
for the name, settles it in favour of the summary. What is missed is stated in docs/compaction.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from noctuary.compact.facts.alignment import CLOSE_COVERAGE, LOOSE_COVERAGE, Aligned, SourceIndex
from noctuary.compact.facts.clauses import Piece, clauses, sentences
from noctuary.compact.facts.counted import count_phrases, counted_things
from noctuary.compact.facts.names import NameSupport, find_names
from noctuary.compact.facts.reading import Support, read_claims
from noctuary.graph.fold import words
from noctuary.text.speaker import find_speaker
from noctuary.text.tokens import tokenize

_VALUED = frozenset({"number", "date", "time"})


class SourceSide:
    """The sources as all comparisons need them; built when the first one asks."""

    def __init__(self, sources: Sequence[str]) -> None:
        self.clauses = SourceIndex(sources, clauses)
        self.sentences = SourceIndex(sources, sentences)
        self.turns = [Support([source]) for source in sources]
        self.names = [NameSupport([source]) for source in sources]
        self.known = _known_names(sources)
        self.counted = counted_things(sources, claims=False)


def find_contradictions(written: str, side: SourceSide) -> Iterator[str]:
    """Yield what a written part of a summary contradicts, as "kind: what, sources: what".

    Args:
        written: No whole turn (verbatim).
        side: The sources.
    """
    for clause in clauses(written):
        yield from _flipped(clause, side)
    for sentence in sentences(written):
        yield from _misplaced_values(sentence, side)
        yield from _misplaced_names(sentence, side)
    yield from _miscounted(written, side)


def _flipped(clause: Piece, side: SourceSide) -> Iterator[str]:
    """A clause is denied where all its sources are not, or the other way round."""
    if clause.is_question:
        return
    aligned = side.clauses.align(clause.tokens, LOOSE_COVERAGE)
    if not aligned:
        return
    if clause.is_negated:
        agrees = any(a.piece.is_negated or a.piece.is_denying for a in aligned)
    else:
        agrees = clause.is_denying or not all(a.piece.is_negated for a in aligned)
    if not agrees:
        yield f"negation: {clause.text.strip()}, sources: {aligned[0].piece.text.strip()}"


def _misplaced_values(sentence: Piece, side: SourceSide) -> Iterator[str]:
    """A number, date or time is another one's: its own sentence has a different one."""
    claims = [claim for claim in read_claims(sentence.text) if claim.kind in _VALUED]
    if not claims:
        return
    content = _without(sentence, [claim.surface for claim in claims])
    aligned = side.sentences.align(content, CLOSE_COVERAGE)
    for claim in claims:
        if not aligned or any(side.turns[a.turn].holds(claim) for a in aligned):
            continue
        theirs = _values_of(aligned[0].piece, claim.kind)
        if theirs:
            yield f"{claim.kind}: {claim.surface}, sources: {', '.join(theirs)}"


def _values_of(piece: Piece, kind: str) -> list[str]:
    found: dict[str, str] = {c.key: c.surface for c in read_claims(piece.text) if c.kind == kind}
    return list(found.values())


def _misplaced_names(sentence: Piece, side: SourceSide) -> Iterator[str]:
    """A name stands where the sources speak of somebody else."""
    names = find_names(sentence.text, side.known)
    if not names:
        return
    content = _without(sentence, [name.surface for name in names])
    aligned = side.sentences.align(content, CLOSE_COVERAGE)
    for name in names:
        if aligned and all(_is_of_another(name.folded, len(names), a, side) for a in aligned):
            yield f"name: {name.surface}, sources: {_who(aligned[0])}"


def _is_of_another(name: str, n_names: int, aligned: Aligned, side: SourceSide) -> bool:
    """Say whether a source speaks of somebody, surely not of this name.

    Of its speaker, or of as many names: a list of names is no sentence about one of them.
    """
    if side.names[aligned.turn].holds(name) or aligned.piece.says_other:
        return False
    if aligned.piece.says_i:
        return bool(aligned.piece.speaker)
    return len(find_names(aligned.piece.text, side.known)) == n_names == 1


def _who(aligned: Aligned) -> str:
    named = find_names(aligned.piece.text)
    if aligned.piece.says_i or not named:
        return " ".join(sorted(aligned.piece.speaker))
    return ", ".join(name.surface for name in named)


def _miscounted(written: str, side: SourceSide) -> Iterator[str]:
    """A number counts a thing that the sources count otherwise: 2 cats where they have 3."""
    for readings, things in count_phrases(written, claims=True):
        counts = [(thing, side.counted[thing]) for thing in things if thing in side.counted]
        if counts and all(readings.isdisjoint(values) for _, values in counts):
            thing, values = counts[0]
            number = "/".join(sorted(readings))
            yield f"number: {number} {thing}, sources: {', '.join(sorted(values))}"


def _known_names(sources: Sequence[str]) -> frozenset[str]:
    """Return the single words that name somebody in the sources, speakers included."""
    found = {name.folded for source in sources for name in find_names(source)}
    speakers = (find_speaker(source) for source in sources)
    found.update(word.folded for speaker in speakers if speaker for word in words(speaker))
    return frozenset(name for name in found if " " not in name)


def _without(sentence: Piece, surfaces: Sequence[str]) -> frozenset[str]:
    """Return the content words of a sentence beside some values or names."""
    left_out: set[str] = set()
    for surface in surfaces:
        left_out.update(tokenize(surface))
    return sentence.tokens - left_out
