"""What the last night proposed, with the texts that it is about: for people, and for other sources.

What belongs here: reading the table, the corpus' account and the contents of some memories. What
does not: making proposals (`propose`), printing them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from noctuary.corpus.export import iter_records
from noctuary.corpus.report import read_report
from noctuary.curate.compose import joined_text
from noctuary.curate.model import Proposal
from noctuary.curate.table import PROPOSALS, read_proposals
from noctuary.errors import ConfigError, CurationRefusedError
from noctuary.hashing import hash_text


class Proposed(NamedTuple):
    """The last night's proposals.

    Attributes:
        proposals: In order of the table.
        is_on: False where that night did not look.
        source: Where the night read the memories.
        text_of: Contents by memory id, of every target that is still what it was.
    """

    proposals: tuple[Proposal, ...]
    is_on: bool
    source: str
    text_of: Mapping[str, str]


def read_proposed(work: Path) -> Proposed:
    """Return what the last night proposed.

    Args:
        work: The work directory of the store.

    Raises:
        StoreError: There is no table, or no corpus beside it.
    """
    table = read_proposals(work / PROPOSALS)
    report = read_report(work / "corpus")
    hashes = {t.memory_id: t.text_hash for p in table.proposals for t in p.targets}
    texts = {
        record.memory_id: record.content
        for batch in iter_records(work / "corpus")
        for record in batch
        if record.memory_id in hashes and hash_text(record.content) == hashes[record.memory_id]
    }
    return Proposed(table.proposals, table.is_on, report.identity.location, texts)


def replacement_text(proposal: Proposal, text_of: Mapping[str, str]) -> str | None:
    """Return the text of the row that an ADD would make; None for every other action.

    None as well where a part's text is not at hand.
    """
    if not proposal.pieces or any(piece.memory_id not in text_of for piece in proposal.pieces):
        return None
    return joined_text(proposal.pieces, text_of)


def chosen(
    proposals: Iterable[Proposal], ids: Sequence[str], least_confidence: float
) -> list[Proposal]:
    """Return the proposals to apply: those named by the start of their id, else all that would act.

    Args:
        proposals: What there is.
        ids: Ids or their beginnings; empty takes every one that is no NOOP.
        least_confidence: In [0, 1]; only counts where none is named.

    Raises:
        ConfigError: The confidence is out of range.
        CurationRefusedError: An id names no proposal, or more than one.
    """
    if not 0 <= least_confidence <= 1:
        raise ConfigError(f"found --min-confidence {least_confidence}, expected 0 to 1")
    known = list(proposals)
    if not ids:
        return [p for p in known if p.action != "NOOP" and p.confidence >= least_confidence]
    found: dict[str, Proposal] = {}
    for prefix in ids:
        matching = [p for p in known if prefix and p.proposal_id.startswith(prefix)]
        if len(matching) != 1:
            raise CurationRefusedError(
                f"{prefix!r} names {len(matching)} proposals, expected one: see `noctuary curate`. "
                "Ids change with every night that finds the memories changed."
            )
        found[matching[0].proposal_id] = matching[0]
    return list(found.values())
