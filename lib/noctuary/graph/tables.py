"""The tables of the concept graph: their columns, and their Parquet files."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from noctuary.core.errors import StoreError
from noctuary.core.files import replacement

Role = Literal["about", "mentions", "author", "speaker"]
# Relations that a text may state between two concepts: `subject relation object`. Only a store's
# own edges (`noctuary.graph.llm`) are `related_to`: their relation has no word here.
StatedRelation = Literal[
    "supersedes", "depends_on", "part_of", "is_a", "is_now", "prefers", "works_at", "lives_in",
    "has", "owned_by", "resolved_by", "related_to",
]  # fmt: skip
# `start` and `end` of a finding outside the content: a mention in an author field, or a fact from
# the store.
NO_SPAN = -1
# Begins a side of a statement that is a memory ("supersedes #12"); alone it is the memory itself:
# `#12 resolved_by #`, from "resolves #12".
ID_MARK = "#"
# File of each table, by its field in GraphTables.
FILES = {
    "concepts": "concepts.parquet",
    "mentions": "memory_concepts.parquet",
    "concept_edges": "concept_edges.parquet",
    "edges": "edges.parquet",
    "merges": "merges.parquet",
    "supersessions": "supersessions.parquet",
    "links": "links.parquet",
}
# By table, its columns with their types. Spans are (start, end), the end exclusive, or NO_SPAN;
# `_us` are microseconds, null where there is none.
_COLUMNS = {
    # Something that memories are about or name; sorted by concept_id, the row is the ordinal. The
    # name is the most frequent surface (of equal ones the smallest), the aliases are the others;
    # the kind is the strongest that any memory gave it, df the memories in which it has any role.
    "concepts": "concept_id text, canonical_name text, kind text, aliases texts, df int",
    # One place where a memory holds a concept; sorted by position, start, end, role, concept_id.
    "mentions": "position int, concept_id text, role text, start int, end int, surface text",
    # A relation that memories state; sorted by source, relation, target, which is never the source.
    # The weight is 1 - 1 / (1 + memories that state it), the evidence every place, never empty;
    # valid from the creation of the earliest memory that states it, recorded when that was written.
    "concept_edges": "src_concept text, dst_concept text, relation text, weight float, evidence "
    "places, valid_from_us int, valid_to_us int, recorded_at_us int, retracted_at_us int",
    # A typed, dated step from memory to memory; sorted by source, relation code, target. The weight
    # is the worth of the concept as a link / number of memories with the subject; 1 for adjacent
    # turns and links of the store. The concept is the session for turns, "" for a store's link.
    # Valid from the creation of the later memory; recorded when the store last wrote the evidence:
    # of the data and not of the clock, so that a rebuild gives the same graph.
    "edges": "src_position int, dst_position int, relation text, weight float, concept_id text, "
    "evidence_position int, evidence_start int, evidence_end int, valid_from_us int, valid_to_us "
    "int, recorded_at_us int, retracted_at_us int",
    # As Merge, sorted by name; as Supersession, sorted by older position.
    "merges": "name text, canonical text, reason text, score float, detail text",
    "supersessions": "older_position int, newer_position int, head_position int, reason text, "
    "confidence int, similarity float, age_gap_days int, concept_id text, evidence place, "
    "valid_to_us int, recorded_at_us int",
    # A folded name by which a query may name a concept; sorted by name. The weight, in [0, 1], is
    # given to each memory about it, 0 where it only speaks; cased: the query must show a
    # capital or a digit.
    "links": "name text, concept_id text, weight float, cased flag",
}
ArrowTable = Any  # A `pyarrow.Table`; pyarrow has no type information
ArrowColumn = Any  # A `pyarrow.Array` or `pyarrow.ChunkedArray`


@dataclass(frozen=True, slots=True)
class Evidence:
    """Where a memory states something."""

    position: int
    start: int  # or NO_SPAN
    end: int


@dataclass(frozen=True, slots=True)
class Merge:
    """Two names that are one concept, and why."""

    name: str  # folded name that was merged away
    canonical: str  # folded name of its concept
    reason: str  # "alias", "minhash", "embedding" or "rule"
    score: float  # Jaccard or cosine in [0, 1]; 1 for aliases and rules
    detail: str  # for people: the names compared, or the rule


@dataclass(frozen=True, slots=True)
class Supersession:
    """A memory that a newer one replaces."""

    older_position: int
    newer_position: int  # the direct successor
    head_position: int  # the newest of the chain
    reason: str  # "explicit", "is_now", "newer_value" or "near_duplicate"
    confidence: int  # 0 low, 1 medium, 2 high
    similarity: float | None  # cosine of the two memories, or None where none was needed
    age_gap_days: int  # 0 where a date is missing
    concept_id: str  # the subject on which both speak, or ""
    evidence: Evidence  # the span in the newer memory
    valid_to_us: int  # when the older one stopped holding: creation of the newer
    recorded_at_us: int  # when the store wrote the newer


@dataclass(frozen=True, slots=True)
class GraphTables:
    """A whole graph by columns, every table in its canonical order."""

    concepts: ArrowTable
    mentions: ArrowTable
    concept_edges: ArrowTable
    edges: ArrowTable
    merges: ArrowTable
    supersessions: ArrowTable
    links: ArrowTable


def write_tables(tables: GraphTables, directory: Path) -> None:
    """Replace the files of a graph; equal graphs give equal bytes."""
    import pyarrow.parquet as pq

    directory.mkdir(parents=True, exist_ok=True)
    for name, file in FILES.items():
        with replacement(directory / file) as tmp:
            pq.write_table(getattr(tables, name), tmp, compression="zstd")


def read_tables(directory: Path, names: Collection[str] = tuple(FILES)) -> GraphTables:
    """Read some files of a graph, the other tables empty: a million memories have 1 GB of them."""
    return GraphTables(
        **{
            name: _read(directory / file) if name in names else schema_of(name).empty_table()
            for name, file in FILES.items()
        }
    )


def to_table(name: str, rows: Sequence[Any]) -> ArrowTable:
    """Return the dataclass objects of one table, a field of GraphTables, as its rows."""
    import pyarrow as pa

    return pa.Table.from_pylist([asdict(row) for row in rows], schema=schema_of(name))


def schema_of(name: str) -> Any:
    """Return the columns of one table, a field of GraphTables."""
    import pyarrow as pa

    place = pa.struct([(name, pa.int64()) for name in ("position", "start", "end")])
    types = {
        "int": pa.int64(), "float": pa.float64(), "flag": pa.bool_(), "text": pa.string(),
        "texts": pa.list_(pa.string()), "place": place, "places": pa.list_(place),
    }  # fmt: skip
    columns = (column.split() for column in _COLUMNS[name].split(", "))
    return pa.schema([(column, types[kind]) for column, kind in columns])


def _read(path: Path) -> ArrowTable:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise StoreError(
            f"{path} cannot be read ({type(error).__name__}): run the nightly job to rebuild it"
        ) from error
