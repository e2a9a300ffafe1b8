"""Write and read the relations of exported memories as Parquet tables."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from noctuary.core.files import fsync_dir, replacement
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

# One table per kind of relation that has rows, sorted and distinct, so that equal evidence gives
# equal bytes.

SHARES_FILE = "shares.parquet"
_FILES: dict[type[Any], str] = {
    MemoryLink: "links.parquet",
    Share: SHARES_FILE,
    KnownConcept: "known_concepts.parquet",
    KnownMention: "known_mentions.parquet",
    KnownEdge: "known_edges.parquet",
}
EVIDENCE_FILES = tuple(_FILES.values())


class EvidenceCounts(NamedTuple):
    """Row counts of each table, and rows dropped because no exported memory backs them."""

    links: int = 0
    shares: int = 0
    concepts: int = 0
    mentions: int = 0
    edges: int = 0
    left_out: int = 0


def write_evidence(source: Source, out_dir: Path) -> EvidenceCounts:
    """Write the relations between exported memories of a source; atomic.

    A link needs both its ends, a share and a mention their memory, an edge one memory as evidence.
    Names of concepts are exported only if they occur in an exported memory about the concept.
    """
    import polars as pl

    said = {noun: _frame(noun, source.own.told(noun)) for noun in _FILES}
    concepts = [KnownConcept(*row) for row in said.pop(KnownConcept).sort("name").iter_rows()]
    memory_ids = read_column(out_dir / MEMORIES_FILE, "memory_id").to_pylist()
    known = pl.lit(pl.Series([memory_ids], dtype=pl.List(pl.String))).first()
    backing = pl.element().filter(pl.element().is_in(known))
    said[KnownEdge] = said[KnownEdge].with_columns(
        pl.col("evidence").list.eval(backing).list.unique().list.sort()
    )
    is_link = pl.col("link_type").is_in(LINK_TYPES) & (pl.col("from_id") != pl.col("to_id"))
    is_memory = pl.col("memory_id").is_in(known)
    backed = {
        MemoryLink: is_link & pl.col("from_id").is_in(known) & pl.col("to_id").is_in(known),
        Share: is_memory & (pl.col("shared_with") != ""),
        KnownMention: is_memory,
        KnownEdge: pl.col("evidence").list.len() > 0,
    }
    kept = {noun: frame.filter(backed[noun]) for noun, frame in said.items()}
    lost = sum(said[noun].height - kept[noun].height for noun in said)
    tables = {noun: frame.unique() for noun, frame in kept.items()}
    mentions, edges = tables[KnownMention], tables[KnownEdge]
    names = find_backed_names(concepts, _concepts_by_memory(mentions, edges), iter_records(out_dir))
    tables[KnownConcept] = _frame(KnownConcept, _join_concepts(concepts, names))
    tables[KnownMention] = _rename_concepts(mentions, names, "concept")
    renamed = _rename_concepts(edges, names, "source", "target")
    renamed = renamed.filter(pl.col("source") != pl.col("target"))
    tables[KnownEdge] = renamed.group_by("source", "target", "relation").agg(
        pl.col("weight").sum(), pl.col("evidence").explode().unique().sort()
    )
    lost += mentions.height - tables[KnownMention].height + edges.height - renamed.height
    counts = [_write(out_dir / file, tables[noun].unique()) for noun, file in _FILES.items()]
    fsync_dir(out_dir)
    return EvidenceCounts(*counts, left_out=lost + len(concepts) - len(names))


def read_evidence(directory: Path, noun: type[Told]) -> tuple[Told, ...]:
    """Return the exported relations of one record type, sorted; empty without a table."""
    path = directory / _FILES[noun]
    if not path.is_file():
        return ()
    return tuple(
        noun(*values)
        for batch in iter_batches(path, noun._fields)
        for values in zip(*map(_values, batch.columns), strict=True)
    )


def _values(column: Any) -> list[Any]:
    return [tuple(v) if isinstance(v, list) else v for v in column.to_pylist()]


def _frame(noun: type[Told], rows: Iterable[Told]) -> pl.DataFrame:
    import polars as pl

    texts, number = pl.List(pl.String), pl.Int64()
    kinds = {"aliases": texts, "evidence": texts, "created_at_us": number, "weight": number}
    schema = {name: kinds.get(name, pl.String()) for name in noun._fields}
    return pl.DataFrame(list(rows), schema=schema, orient="row")


def _write(path: Path, rows: pl.DataFrame) -> int:
    if rows.is_empty():
        path.unlink(missing_ok=True)
    else:
        with replacement(path) as tmp:
            rows.sort(rows.columns).write_parquet(tmp, compression_level=ZSTD_LEVEL)
    return rows.height


# Concept names that occur in an exported memory.

MAX_LABEL_CHARS = 200  # longest name, relation or category; anything longer is a sentence
_WORD = re.compile(r"[^\W_]+")
# Thai, kana, Han and Hangul do not put spaces between words.
_UNSPACED = re.compile("[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")

Names = Mapping[str, list[str]]
"""Exportable names by the store's canonical name; the first one becomes canonical."""


def find_backed_names(
    concepts: Iterable[KnownConcept],
    about: Mapping[str, Collection[str]],
    batches: Iterable[Iterable[MemoryRecord]],
) -> Names:
    """Return the names that occur in exported memories; long ones and secrets are dropped."""
    spellings = {concept.name: _spellings(concept) for concept in concepts}
    said: dict[str, set[str]] = defaultdict(set)
    for record in (record for batch in batches for record in batch):
        if names := about.get(record.memory_id):
            fields = (record.content, record.tags, record.expanded_keywords)
            # A break between fields, so that no name matches across two of them.
            text = "|".join(_words(field) for field in fields)
            for name in names:
                found = spellings.get(name, {}).items()
                said[name] |= {spelling for spelling, words in found if words in text}
    # Prefer the canonical name if a memory contains it, else the first alias found.
    return {n: sorted(said[n], key=lambda s: (s != n, s)) for n in spellings if said[n]}


def _spellings(concept: KnownConcept) -> Mapping[str, str]:
    """Return the names of a concept to search for, each with its normalised words."""
    found = {name: _words(_label(name)) for name in {concept.name, *concept.aliases}}
    return {
        name: words.strip() if _UNSPACED.search(words) else words
        for name, words in found.items()
        if words.strip()
    }


def _words(text: str) -> str:
    return f" {' '.join(_WORD.findall(text.casefold()))} "


@lru_cache(maxsize=4_096)  # relations and categories are few and repeat in every row
def _label(text: str) -> str:
    """Return a stripped label, or "" if it is too long or a secret."""
    text = text.strip()
    if len(text) > MAX_LABEL_CHARS or "\0" in text:
        return ""
    return "" if find_text_sensitivity(text) else text


def _concepts_by_memory(mentions: pl.DataFrame, edges: pl.DataFrame) -> Mapping[str, set[str]]:
    """Map each memory id to the names of the concepts that it mentions or is evidence for."""
    about: dict[str, set[str]] = defaultdict(set)
    for memory_id, concept, _ in mentions.iter_rows():
        about[memory_id].add(concept)
    for source, target, _, _, evidence in edges.iter_rows():
        for memory_id in evidence:
            about[memory_id] |= {source, target}
    return about


def _join_concepts(concepts: Iterable[KnownConcept], names: Names) -> Iterable[KnownConcept]:
    """Return the concepts under their exportable names; those with equal names are merged."""
    joined: dict[str, KnownConcept] = {}
    for concept in concepts:
        if concept.name in names:
            name, *aliases = names[concept.name]
            known = joined.get(name) or KnownConcept(name, (), _label(concept.category))
            joined[name] = known._replace(aliases=tuple(sorted({*known.aliases, *aliases})))
    return joined.values()


def _rename_concepts(rows: pl.DataFrame, names: Names, *columns: str) -> pl.DataFrame:
    """Rename concepts in some columns to exportable names; drop rows without one."""
    import polars as pl

    relation = pl.col("relation").map_elements(_label, pl.String)
    firsts = {name: found[0] for name, found in names.items()}
    found = [pl.col(c).replace_strict(firsts, default=None) for c in columns]
    return rows.with_columns(*found, relation).drop_nulls(columns)
