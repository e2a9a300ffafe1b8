"""What a store says about its exported memories, in Parquet."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from noctuary.core.files import fsync_dir, replace_with
from noctuary.core.types import MemoryRecord
from noctuary.sources.corpus import ZSTD_LEVEL, iter_batches, iter_records
from noctuary.sources.export import CombinedSource
from noctuary.sources.source import (
    LINK_TYPES,
    HasEvidence,
    KnownConcept,
    KnownEdge,
    KnownMention,
    MemoryLink,
    Share,
    Source,
)
from noctuary.text.secrets import find_text_sensitivity

if TYPE_CHECKING:
    import pyarrow as pa


# Which names of a store's concepts an exported memory says itself.


MAX_LABEL_CHARS = 200
"""Longest name, relation or category of a concept that is taken: a sentence is no name. The server
allows 50 for the latter two and any length for names."""

_LABELS_HELD = 4_096
"""Labels whose scan is remembered: relations and categories are few and come with every row."""

_WORD = re.compile(r"[^\W_]+")
# Thai, kana, Han and Hangul: words there do not end at a space.
_UNSPACED = re.compile("[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


class BackedNames(NamedTuple):
    """The names that may leave."""

    # The store's canonical name to the one that is used here: itself if a memory says it, else the
    # first alias that one says
    name_of: Mapping[str, str]
    # The same key to the other names that a memory says, sorted
    aliases_of: Mapping[str, tuple[str, ...]]

    def rename_concept(self, concept: KnownConcept) -> KnownConcept | None:
        """Return a concept by the names that may leave, or None."""
        name = self.name_of.get(concept.name)
        if name is None:
            return None
        return KnownConcept(name, self.aliases_of[concept.name], _label(concept.category))

    def rename_mention(self, mention: KnownMention) -> KnownMention | None:
        """Return a mention of a concept that may be named, or None."""
        name = self.name_of.get(mention.concept)
        if name is None:
            return None
        return replace(mention, concept=name, relation=_label(mention.relation))

    def rename_edge(self, edge: KnownEdge) -> KnownEdge | None:
        """Return an edge between two concepts that may be named, or None."""
        source, target = self.name_of.get(edge.source), self.name_of.get(edge.target)
        if source is None or target is None or source == target:
            return None
        return replace(edge, source=source, target=target, relation=_label(edge.relation))


def find_backed_names(
    concepts: Sequence[KnownConcept],
    mentions: Iterable[KnownMention],
    edges: Iterable[KnownEdge],
    batches: Iterable[Iterable[MemoryRecord]],
) -> BackedNames:
    """Return the names that exported memories say about themselves.

    A text says a name if the name's words stand in it one after the other, whatever their case and
    whatever is between them. A name with a secret in it, or of more than MAX_LABEL_CHARS, is none.

    Args:
        concepts: Of the store, each name once.
        mentions: Of exported memories.
        edges: With exported memories as evidence only.
        batches: The exported memories.
    """
    about = _concepts_by_memory(mentions, edges)
    spellings = {x.name: _spellings(x) for x in concepts}
    said: dict[str, set[str]] = defaultdict(set)
    for batch in batches:
        for record in batch:
            names = about.get(record.memory_id)
            if names:
                _mark_said(record, names, spellings, said)
    name_of: dict[str, str] = {}
    aliases_of: dict[str, tuple[str, ...]] = {}
    for concept in concepts:
        found = sorted(said.get(concept.name, ()))
        if found:
            name = concept.name if concept.name in found else found[0]
            name_of[concept.name] = name
            aliases_of[concept.name] = tuple(x for x in found if x != name)
    return BackedNames(name_of, aliases_of)


def _concepts_by_memory(
    mentions: Iterable[KnownMention], edges: Iterable[KnownEdge]
) -> Mapping[str, set[str]]:
    about: dict[str, set[str]] = defaultdict(set)
    for mention in mentions:
        about[mention.memory_id].add(mention.concept)
    for edge in edges:
        for memory_id in edge.evidence:
            about[memory_id].update((edge.source, edge.target))
    return about


def _mark_said(
    record: MemoryRecord,
    names: Iterable[str],
    spellings: Mapping[str, Mapping[str, str]],
    said: dict[str, set[str]],
) -> None:
    fields = (record.content, record.tags, record.expanded_keywords)
    # A break between fields: no name runs from the end of one into the next.
    text = "|".join(_words(field) for field in fields)
    for name in names:
        for spelling, words in spellings.get(name, {}).items():
            if words in text:
                said[name].add(spelling)


def _spellings(concept: KnownConcept) -> Mapping[str, str]:
    """Return every name of a concept that may be looked for, with its words."""
    found: dict[str, str] = {}
    for name in {concept.name, *concept.aliases}:
        words = _words(_label(name))
        if words.strip():
            found[name] = words.strip() if _UNSPACED.search(words) else words
    return found


def _words(text: str) -> str:
    return f" {' '.join(_WORD.findall(text.casefold()))} "


@lru_cache(maxsize=_LABELS_HELD)
def _label(text: str) -> str:
    """Return a label of the store, or an empty one if it is none or holds a secret."""
    text = text.strip()
    if len(text) > MAX_LABEL_CHARS or "\0" in text:
        return ""
    return "" if find_text_sensitivity(text) else text


# What a store says about its exported memories, in Parquet beside them.
#
# A table exists only where it has a row, so that a store without evidence leaves no trace. Rows
# are sorted and distinct; equal evidence gives equal bytes.


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
    """What a store knows about concepts; each sorted."""

    concepts: tuple[KnownConcept, ...] = ()  # By name
    mentions: tuple[KnownMention, ...] = ()  # By memory id, concept, relation
    edges: tuple[KnownEdge, ...] = ()  # By source, target, relation


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
    about the concept says them (`noctuary.sources.evidence`): others may be of a row that stays.

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
    """Return the links between exported memories, sorted; empty where there is no table."""
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
    if not path.is_file():
        return ()
    batches = iter_batches(path, [field.name for field in fields(noun)])
    return tuple(
        noun(*values)
        for batch in batches
        for values in zip(*map(_values, batch.columns), strict=True)
    )


def _values(column: Any) -> list[Any]:
    return [tuple(v) if isinstance(v, list) else v for v in column.to_pylist()]
