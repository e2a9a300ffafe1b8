"""The fact check of one summary against its sources.

What belongs here: the verdict. What does not: reading facts (reading), comparing who said what of
whom (contradictions), what becomes of a summary that fails.

Strict on the summary, generous on the sources: a claim fails only where no source holds it in any
reading. Sums, conversions of units and dates worked out of "yesterday" are claims that no source
holds; a summary that needs them falls back to verbatim turns, which costs tokens and loses nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from noctuary.compact.facts.contradictions import SourceSide, find_contradictions
from noctuary.compact.facts.reading import Claim, Support, read_claims
from noctuary.compact.facts.report import FactReport
from noctuary.compact.facts.verbatim import find_verbatim, is_made_of_sentences

FACTS_VERSION = "1"
"""Raised whenever any summary could get another verdict."""

SHOWN_FACTS = 20
"""Faults listed per report: enough to see what went wrong; the verdict needs one."""


SHOWN_CHARS = 300
"""Of one fault: a clause may be as long as a turn."""


def check_facts(summary: str, sources: Sequence[str], *, trust_quotes: bool = True) -> FactReport:
    """Return what a summary keeps, introduces and contradicts of its sources.

    Args:
        summary: The candidate.
        sources: The turns it stands for, chronological, with their speakers' prefixes.
        trust_quotes: Whether whole turns that stand in it word for word, and a summary of nothing
            but whole sentences under their speakers' names, are taken to claim nothing new; False
            reads them like the rest, for measuring the reading itself.
    """
    claims = [read_claims(source) for source in sources]
    parts = find_verbatim(summary, sources)
    if not trust_quotes:
        parts = parts._replace(written=(summary,))
    kept, total = _preserved(summary, claims, parts.quoted)
    if not parts.written or (trust_quotes and is_made_of_sentences(summary, sources)):
        return FactReport(kept, total)
    support = Support(sources)
    side = SourceSide(sources)
    introduced = {
        f"{claim.kind}: {claim.surface}"[:SHOWN_CHARS]
        for part in parts.written
        for claim in read_claims(part)
        if claim.kind != "negation" and not support.holds(claim)
    }
    contradicted = {
        fault[:SHOWN_CHARS] for part in parts.written for fault in find_contradictions(part, side)
    }
    return FactReport(
        kept,
        total,
        tuple(sorted(introduced)[:SHOWN_FACTS]),
        tuple(sorted(contradicted)[:SHOWN_FACTS]),
    )


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
