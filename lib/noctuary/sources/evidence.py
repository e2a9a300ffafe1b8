"""What a store says about its exported memories, in Parquet."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from noctuary.core.files import fsync_dir, replace_with
from noctuary.core.types import MemoryRecord
from noctuary.sources.corpus import (
    MEMORIES_FILE,
    ZSTD_LEVEL,
    iter_batches,
    iter_records,
    read_column,
)
from noctuary.sources.source import (
    LINK_TYPES,
    KnownConcept,
    KnownEdge,
    KnownMention,
    MemoryLink,
    Share,
    Source,
    Told,
)
from noctuary.text.secrets import find_text_sensitivity

if TYPE_CHECKING:
    import polars as pl


# Which names of a store's concepts an exported memory says itself.

MAX_LABEL_CHARS = 200
"""Longest name, relation or category of a concept that is taken: a sentence is no name."""

_LABELS_HELD = 4_096
"""Labels whose scan is remembered: relations and categories are few and come with every row."""

_WORD = re.compile(r"[^\W_]+")
# Thai, kana, Han and Hangul: words there do not end at a space.
_UNSPACED = re.compile("[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


class BackedNames(NamedTuple):
    """The names that may leave, by the store's canonical name."""

    name_of: Mapping[str, str]  # Itself if a memory says it, else the first alias that one says
    aliases_of: Mapping[str, tuple[str, ...]]  # The other names that a memory says, sorted


def find_backed_names(
    concepts: Iterable[KnownConcept],
    about: Mapping[str, Collection[str]],
    batches: Iterable[Iterable[MemoryRecord]],
) -> BackedNames:
    """Return the names, free of secrets and not too long, that exported memories say themselves."""
    spellings = {concept.name: _spellings(concept) for concept in concepts}
    said: dict[str, set[str]] = defaultdict(set)
    for record in (record for batch in batches for record in batch):
        if names := about.get(record.memory_id):
            fields = (record.content, record.tags, record.expanded_keywords)
            # A break between fields: no name runs from the end of one into the next.
            text = "|".join(_words(field) for field in fields)
            for name in names:
                found = spellings.get(name, {}).items()
                said[name] |= {spelling for spelling, words in found if words in text}
    name_of = {
        name: name if name in said[name] else min(said[name]) for name in spellings if said[name]
    }
    aliases_of = {name: tuple(sorted(said[name] - {own})) for name, own in name_of.items()}
    return BackedNames(name_of, aliases_of)


def _spellings(concept: KnownConcept) -> Mapping[str, str]:
    """Return every name of a concept that may be looked for, with its words."""
    found = {name: _words(_label(name)) for name in {concept.name, *concept.aliases}}
    return {
        name: words.strip() if _UNSPACED.search(words) else words
        for name, words in found.items()
        if words.strip()
    }


def _words(text: str) -> str:
    return f" {' '.join(_WORD.findall(text.casefold()))} "


@lru_cache(maxsize=_LABELS_HELD)
def _label(text: str) -> str:
    """Return a label of the store, or an empty one if it is none or holds a secret."""
    text = text.strip()
    if len(text) > MAX_LABEL_CHARS or "\0" in text:
        return ""
    return "" if find_text_sensitivity(text) else text


# What a store says about its exported memories, in Parquet beside them: a table per noun, only
# where it has a row. Rows are sorted and distinct; equal evidence gives equal bytes.

LINKS_FILE = "links.parquet"
SHARES_FILE = "shares.parquet"
CONCEPTS_FILE = "known_concepts.parquet"
MENTIONS_FILE = "known_mentions.parquet"
EDGES_FILE = "known_edges.parquet"
EVIDENCE_FILES = (LINKS_FILE, SHARES_FILE, CONCEPTS_FILE, MENTIONS_FILE, EDGES_FILE)


class Known(NamedTuple):
    """What a store knows about concepts; each sorted."""

    concepts: tuple[KnownConcept, ...] = ()
    mentions: tuple[KnownMention, ...] = ()
    edges: tuple[KnownEdge, ...] = ()


class EvidenceCounts(NamedTuple):
    """Rows of each table, and how much was left out because nothing exported stands behind it."""

    links: int = 0
    shares: int = 0
    concepts: int = 0
    mentions: int = 0
    edges: int = 0
    left_out: int = 0


def write_evidence(source: Source, out_dir: Path) -> EvidenceCounts:
    """Write what a source says about its exported memories; a failure leaves all as it was.

    A link needs both its ends, a share and a mention their memory, an edge one memory that says so.
    Names of concepts leave only where an exported memory about the concept says them.
    """
    import polars as pl

    own = source.own
    all_concepts = _frame(KnownConcept, own.told(KnownConcept)).sort("name").iter_rows()
    concepts = [KnownConcept(*row) for row in all_concepts]
    said = {
        LINKS_FILE: _frame(MemoryLink, own.told(MemoryLink)),
        SHARES_FILE: _frame(Share, own.told(Share)),
        MENTIONS_FILE: _frame(KnownMention, own.told(KnownMention)),
        EDGES_FILE: _frame(KnownEdge, own.told(KnownEdge)),
    }
    memory_ids = read_column(out_dir / MEMORIES_FILE, "memory_id").to_pylist()
    known = pl.lit(pl.Series([memory_ids], dtype=pl.List(pl.String))).first()
    backing = pl.element().filter(pl.element().is_in(known))
    said[EDGES_FILE] = said[EDGES_FILE].with_columns(
        pl.col("evidence").list.eval(backing).list.unique().list.sort()
    )
    is_link = pl.col("link_type").is_in(LINK_TYPES) & (pl.col("from_id") != pl.col("to_id"))
    is_memory = pl.col("memory_id").is_in(known)
    backed = {
        LINKS_FILE: is_link & pl.col("from_id").is_in(known) & pl.col("to_id").is_in(known),
        SHARES_FILE: is_memory & (pl.col("shared_with") != ""),
        MENTIONS_FILE: is_memory,
        EDGES_FILE: pl.col("evidence").list.len() > 0,
    }
    kept = {name: said[name].filter(backed[name]) for name in said}
    lost = sum(said[name].height - kept[name].height for name in said)
    tables = {name: frame.unique() for name, frame in kept.items()}
    mentions, edges = tables[MENTIONS_FILE], tables[EDGES_FILE]
    names = find_backed_names(concepts, _about(mentions, edges), iter_records(out_dir))
    named = [x for x in concepts if x.name in names.name_of]
    tables[CONCEPTS_FILE] = _frame(KnownConcept, _join_concepts(named, names))
    tables[MENTIONS_FILE] = _renamed(mentions, names, "concept")
    renamed = _renamed(edges, names, "source", "target")
    renamed = renamed.filter(pl.col("source") != pl.col("target"))
    tables[EDGES_FILE] = renamed.group_by("source", "target", "relation").agg(
        pl.col("weight").sum(), pl.col("evidence").explode().unique().sort()
    )
    lost += mentions.height - tables[MENTIONS_FILE].height + edges.height - renamed.height
    counts = [_write(out_dir / name, tables[name].unique()) for name in EVIDENCE_FILES]
    fsync_dir(out_dir)
    return EvidenceCounts(*counts, left_out=lost + len(concepts) - len(named))


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


def _frame(noun: type[Told], rows: Iterable[Told]) -> pl.DataFrame:
    import polars as pl

    texts, number = pl.List(pl.String), pl.Int64()
    kinds = {"aliases": texts, "evidence": texts, "created_at_us": number, "weight": number}
    schema = {name: kinds.get(name, pl.String()) for name in noun._fields}
    return pl.DataFrame(list(rows), schema=schema, orient="row")


def _about(mentions: pl.DataFrame, edges: pl.DataFrame) -> Mapping[str, set[str]]:
    """Return the names of the concepts that a memory is about, by its id."""
    about: dict[str, set[str]] = defaultdict(set)
    for memory_id, concept, _ in mentions.iter_rows():
        about[memory_id].add(concept)
    for source, target, _, _, evidence in edges.iter_rows():
        for memory_id in evidence:
            about[memory_id] |= {source, target}
    return about


def _join_concepts(concepts: Iterable[KnownConcept], names: BackedNames) -> Iterable[KnownConcept]:
    """Return one concept per name that may leave: two may have been left with the same one."""
    joined: dict[str, KnownConcept] = {}
    for concept in concepts:
        name, aliases = names.name_of[concept.name], names.aliases_of[concept.name]
        known = joined.get(name) or KnownConcept(name, (), _label(concept.category))
        joined[name] = known._replace(aliases=tuple(sorted({*known.aliases, *aliases})))
    return joined.values()


def _renamed(rows: pl.DataFrame, names: BackedNames, *columns: str) -> pl.DataFrame:
    """Return the rows whose concepts have names that may leave, under these."""
    import polars as pl

    relation = pl.col("relation").map_elements(_label, pl.String)
    found = [pl.col(c).replace_strict(names.name_of, default=None) for c in columns]
    return rows.with_columns(*found, relation).drop_nulls(columns)


def _write(path: Path, rows: pl.DataFrame) -> int:
    if rows.is_empty():
        path.unlink(missing_ok=True)
    else:
        ordered = rows.sort(rows.columns)
        replace_with(path, lambda tmp: ordered.write_parquet(tmp, compression_level=ZSTD_LEVEL))
    return rows.height


def _read(path: Path, noun: type[Told]) -> tuple[Told, ...]:
    if not path.is_file():
        return ()
    return tuple(
        noun(*values)
        for batch in iter_batches(path, noun._fields)
        for values in zip(*map(_values, batch.columns), strict=True)
    )


def _values(column: Any) -> list[Any]:
    return [tuple(v) if isinstance(v, list) else v for v in column.to_pylist()]
