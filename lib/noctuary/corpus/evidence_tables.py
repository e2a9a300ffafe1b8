"""What a store says about its exported memories, in Parquet beside them.

What belongs here: which of it may leave the store, the tables, reading them back. What does not:
asking a store (`noctuary.corpus.postgres_evidence`), which names are backed by exported text
(`noctuary.corpus.backed_names`), what the graph makes of them.

A table exists only where it has a row, so that a store without evidence leaves no trace. Rows are
sorted and distinct; equal evidence gives equal bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from noctuary.corpus.backed_names import find_backed_names
from noctuary.corpus.combined_source import CombinedSource
from noctuary.corpus.evidence import (
    LINK_TYPES,
    HasEvidence,
    KnownConcept,
    KnownEdge,
    KnownMention,
    MemoryLink,
    Share,
)
from noctuary.corpus.records import iter_records
from noctuary.corpus.source import Source
from noctuary.corpus.tables import ZSTD_LEVEL
from noctuary.errors import StoreError
from noctuary.files import fsync_dir, replace_with

if TYPE_CHECKING:
    import pyarrow as pa

LINKS_FILE = "links.parquet"
SHARES_FILE = "shares.parquet"
CONCEPTS_FILE = "known_concepts.parquet"
MENTIONS_FILE = "known_mentions.parquet"
EDGES_FILE = "known_edges.parquet"
EVIDENCE_FILES = (LINKS_FILE, SHARES_FILE, CONCEPTS_FILE, MENTIONS_FILE, EDGES_FILE)

_Noun = TypeVar("_Noun", MemoryLink, Share, KnownConcept, KnownMention, KnownEdge)

# Arrow types by field name; columns are in the order of the noun's fields.
_KINDS = {
    MemoryLink: ("string", "string", "string", "int64", "string"),
    Share: ("string", "string"),
    KnownConcept: ("string", "list<string>", "string"),
    KnownMention: ("string", "string", "string"),
    KnownEdge: ("string", "string", "string", "int64", "list<string>"),
}


class Known(NamedTuple):
    """What a store knows about concepts; each sorted.

    Attributes:
        concepts: By name.
        mentions: By memory id, concept, relation.
        edges: By source, target, relation.
    """

    concepts: tuple[KnownConcept, ...] = ()
    mentions: tuple[KnownMention, ...] = ()
    edges: tuple[KnownEdge, ...] = ()


@dataclass(frozen=True, slots=True)
class EvidenceCounts:
    """Rows of each table, and how much was left out because nothing exported stands behind it."""

    links: int = 0
    shares: int = 0
    concepts: int = 0
    mentions: int = 0
    edges: int = 0
    left_out: int = 0


def evidence_of(source: Source) -> HasEvidence | None:
    """Return the source that says more about its memories, or None."""
    own = source.primary if isinstance(source, CombinedSource) else source
    return own if isinstance(own, HasEvidence) else None


def write_evidence(source: Source, out_dir: Path) -> EvidenceCounts:
    """Write what a source says about the memories that were exported from it, and nothing else.

    A link needs both its ends, a share and a mention their memory, an edge one memory that says
    so (others are dropped from it). Names of concepts leave only where an exported memory that is
    about the concept says them (`noctuary.corpus.backed_names`): others may be of a row that stays.

    Args:
        source: Open and pinned, the one that was exported; one that says nothing removes tables.
        out_dir: Holds memories.parquet; each table there is replaced atomically or removed.

    Raises:
        SourceError: The source cannot be read to its end; the tables stay as they were.
        StoreError: There is no memories.parquet.
    """
    evidence = evidence_of(source)
    if evidence is None:
        _remove_tables(out_dir)
        return EvidenceCounts()
    exported = frozenset(r.memory_id for rows in iter_records(out_dir) for r in rows)
    links, lost_links = _kept(evidence.links(), lambda x: _keep_link(x, exported))
    shares, lost_shares = _kept(
        evidence.shares(), lambda x: x if x.memory_id in exported and x.shared_with else None
    )
    known, lost_known = _keep_known(evidence, out_dir, exported)
    _write(out_dir / LINKS_FILE, MemoryLink, links)
    _write(out_dir / SHARES_FILE, Share, shares)
    _write(out_dir / CONCEPTS_FILE, KnownConcept, known.concepts)
    _write(out_dir / MENTIONS_FILE, KnownMention, known.mentions)
    _write(out_dir / EDGES_FILE, KnownEdge, known.edges)
    return EvidenceCounts(
        *map(len, (links, shares, *known)), left_out=lost_links + lost_shares + lost_known
    )


def read_links(directory: Path) -> tuple[MemoryLink, ...]:
    """Return the links between exported memories, sorted; empty where there is no table.

    Args:
        directory: The corpus directory.

    Raises:
        StoreError: The table is not readable.
    """
    return _read(directory / LINKS_FILE, MemoryLink)


def read_shares(directory: Path) -> tuple[Share, ...]:
    """Return who else may read which exported memory, sorted; as `read_links`."""
    return _read(directory / SHARES_FILE, Share)


def read_known(directory: Path) -> Known:
    """Return concepts, mentions and edges of the store about exported memories; as `read_links`."""
    return Known(
        _read(directory / CONCEPTS_FILE, KnownConcept),
        _read(directory / MENTIONS_FILE, KnownMention),
        _read(directory / EDGES_FILE, KnownEdge),
    )


def _keep_link(link: MemoryLink, exported: frozenset[str]) -> MemoryLink | None:
    ends = {link.from_id, link.to_id}
    is_kept = len(ends) == 2 and ends <= exported and link.link_type in LINK_TYPES
    return link if is_kept else None


def _keep_known(
    evidence: HasEvidence, out_dir: Path, exported: frozenset[str]
) -> tuple[Known, int]:
    mentions, lost_mentions = _kept(
        evidence.mentions(), lambda x: x if x.memory_id in exported else None
    )
    edges, lost_edges = _kept(evidence.edges(), lambda x: _keep_edge(x, exported))
    concepts = sorted(evidence.concepts(), key=lambda x: x.name)
    names = find_backed_names(concepts, mentions, edges, iter_records(out_dir))
    named = [x for concept in concepts if (x := names.rename_concept(concept)) is not None]
    kept_mentions, unnamed_mentions = _kept(mentions, names.rename_mention)
    kept_edges, unnamed_edges = _kept(edges, names.rename_edge)
    known = Known(
        tuple(_join_concepts(named)), tuple(kept_mentions), tuple(_join_edges(kept_edges))
    )
    lost = lost_mentions + lost_edges + unnamed_mentions + unnamed_edges
    return known, lost + len(concepts) - len(named)


def _keep_edge(edge: KnownEdge, exported: frozenset[str]) -> KnownEdge | None:
    backed = tuple(sorted({x for x in edge.evidence if x in exported}))
    return replace(edge, evidence=backed) if backed else None


def _join_concepts(concepts: Iterable[KnownConcept]) -> Iterator[KnownConcept]:
    """Yield one concept per name: two may have been left with the same one."""
    joined: dict[str, KnownConcept] = {}
    for concept in concepts:
        other = joined.get(concept.name)
        if other is not None:
            aliases = {*other.aliases, *concept.aliases} - {concept.name}
            concept = replace(other, aliases=tuple(sorted(aliases)))
        joined[concept.name] = concept
    yield from (joined[name] for name in sorted(joined))


def _join_edges(edges: Iterable[KnownEdge]) -> Iterator[KnownEdge]:
    joined: dict[tuple[str, str, str], KnownEdge] = {}
    for edge in edges:
        key = (edge.source, edge.target, edge.relation)
        other = joined.get(key)
        if other is not None:
            both = tuple(sorted({*other.evidence, *edge.evidence}))
            edge = replace(edge, weight=other.weight + edge.weight, evidence=both)
        joined[key] = edge
    yield from (joined[key] for key in sorted(joined))


def _kept(found: Iterable[_Noun], keep: Callable[[_Noun], _Noun | None]) -> tuple[list[_Noun], int]:
    """Return what is kept, sorted and once, and how many were left out."""
    kept: set[_Noun] = set()
    lost = 0
    for noun in found:
        mine = keep(noun)
        if mine is None:
            lost += 1
        else:
            kept.add(mine)
    return sorted(kept, key=_sort_key), lost


def _sort_key(noun: Any) -> tuple[Any, ...]:
    values = (getattr(noun, name) for name in noun.__slots__)
    return tuple("" if value is None else value for value in values)


def _remove_tables(directory: Path) -> None:
    present = [directory / name for name in EVIDENCE_FILES if (directory / name).exists()]
    for path in present:
        path.unlink()
    if present:
        fsync_dir(directory)


def _schema(noun: type) -> pa.Schema:  # pyright: ignore[reportUnknownParameterType]
    import pyarrow as pa

    kinds = {"string": pa.string(), "int64": pa.int64(), "list<string>": pa.list_(pa.string())}
    columns = zip(fields(noun), _KINDS[noun], strict=True)
    return pa.schema([pa.field(field.name, kinds[kind]) for field, kind in columns])


def _write(path: Path, noun: type[_Noun], rows: Sequence[_Noun]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not rows:
        path.unlink(missing_ok=True)
        return
    schema = _schema(noun)
    columns = [
        pa.array([getattr(row, field.name) for row in rows], type=field.type) for field in schema
    ]
    table = pa.Table.from_arrays(columns, schema=schema)
    replace_with(
        path,
        lambda tmp: pq.write_table(
            table, tmp, compression="zstd", compression_level=ZSTD_LEVEL, use_dictionary=False
        ),
    )


def _read(path: Path, noun: type[_Noun]) -> tuple[_Noun, ...]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        return ()
    names = [field.name for field in fields(noun)]
    try:
        with pq.ParquetFile(path) as file:
            table = file.read(columns=names)
        columns = [table.column(name).to_pylist() for name in names]
    except (pa.ArrowInvalid, KeyError):
        raise StoreError(
            f"{path} is not a readable table of this version. Run the export again."
        ) from None
    return tuple(noun(*map(_value, values)) for values in zip(*columns, strict=True))


def _value(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
