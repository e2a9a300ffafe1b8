"""proposals.parquet: a row per proposal, no text of a memory in it.

What belongs here: columns, rows and back, and which corpus they were made from.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from noctuary.curate.model import Evidence, Piece, Proposal, Span, Target
from noctuary.errors import StoreError
from noctuary.files import replace_with

PROPOSALS = "curation/proposals.parquet"
"""Where the table lies, below the work directory."""

_JSON = ("targets", "evidence", "pieces", "fields")
_COLUMNS = ("proposal_id", "action", "kind", "confidence", "user", "wing", *_JSON)
_NOTES = b"noctuary"


class ProposalTable(NamedTuple):
    """What a night proposed.

    Attributes:
        proposals: In the order of `propose`.
        is_on: False where curation.enabled was off, and nothing was looked for.
        corpus: Digest of the corpus that they were made from; "" where it was off.
    """

    proposals: tuple[Proposal, ...]
    is_on: bool
    corpus: str


def write_proposals(path: Path, table: ProposalTable) -> None:
    """Replace the table atomically; equal tables give equal bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema(
        [pa.field(n, pa.float64() if n == "confidence" else pa.string()) for n in _COLUMNS]
    )
    notes = json.dumps({"on": table.is_on, "corpus": table.corpus}, sort_keys=True)
    rows = [_row(proposal) for proposal in table.proposals]
    found = pa.Table.from_pylist(rows, schema=schema).replace_schema_metadata({_NOTES: notes})
    replace_with(path, lambda tmp: pq.write_table(found, tmp, compression="zstd"))


def read_proposals(path: Path) -> ProposalTable:
    """Read what `write_proposals` wrote.

    Raises:
        StoreError: There is no such table, or it is damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
        notes = json.loads((table.schema.metadata or {})[_NOTES])
        proposals = tuple(_proposal(row) for row in table.to_pylist())
    except FileNotFoundError:
        raise StoreError(
            f"There are no curation proposals at {path}: set curation.enabled and run the night."
        ) from None
    except (pa.ArrowInvalid, KeyError, TypeError, ValueError):
        raise StoreError(
            f"{path} is no readable table of proposals: run the night again."
        ) from None
    return ProposalTable(proposals, bool(notes["on"]), str(notes["corpus"]))


def _row(proposal: Proposal) -> dict[str, Any]:
    value = proposal.to_json()
    return {n: json.dumps(value[n], sort_keys=True) if n in _JSON else value[n] for n in _COLUMNS}


def _proposal(row: dict[str, Any]) -> Proposal:
    value: dict[str, Any] = {n: json.loads(row[n]) if n in _JSON else row[n] for n in _COLUMNS}
    evidence = value["evidence"]
    spans = tuple(Span(**span) for span in evidence.pop("spans"))
    value["targets"] = tuple(Target(**target) for target in value["targets"])
    value["evidence"] = Evidence(spans=spans, **evidence)
    value["pieces"] = tuple(Piece(**piece) for piece in value["pieces"])
    value["fields"] = tuple(value["fields"])
    return Proposal(**value)
