"""From tonight's memories to their findings, to one graph, and to its arrays for a snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.core.errors import EncoderError, StoreError
from noctuary.core.files import hash_text
from noctuary.core.types import SILENT, MemoryRecord, Progress
from noctuary.embed.documents import Embedded
from noctuary.graph.canonical import MergeRules, canonicalise, keep_runs
from noctuary.graph.duplicates import Corpus
from noctuary.graph.extract import (
    EXTRACTION_COLUMNS,
    Extraction,
    ExtractMemories,
    add_keys,
    decode_extraction,
    encode_extraction,
)
from noctuary.graph.fold import ROLES
from noctuary.graph.guards import NameStats, family, ranked
from noctuary.graph.llm import Extended, merge_extractions
from noctuary.graph.sessions import MIN_MEMBERS, SessionArrays
from noctuary.graph.state import GraphState
from noctuary.graph.supersession import close_intervals, find_supersessions
from noctuary.graph.tables import ArrowColumn, ArrowTable, GraphTables, to_table
from noctuary.graph.walk import (
    NO_CONCEPT,
    OPEN_END_US,
    RARE_OTHERS,
    RELATIONS,
    GraphArrays,
    MentionArrays,
    RareConcepts,
)
from noctuary.sources.corpus import MEMORIES_FILE, arrow_schema, column_batches, take_columns
from noctuary.text.marks import asking_share
from noctuary.work.content import KEY, ContentStore, Filled, as_rows, fill
from noctuary.work.shards import RecordBatch, Runner, arrow_compute

# The extractor's findings for tonight's memories: read from cache, computed or extended.

KeyRows = NDArray[np.uint8]  # keys, shape (n, 32)
_READ_ROWS = 4_096  # findings decoded at once: some ten MB of objects


@dataclass(frozen=True, slots=True)
class Extractor:
    """Read cached findings, and compute the missing ones with a runner."""

    store: ContentStore
    runner: Runner
    shards: Path
    progress: Progress = SILENT

    def fill(self, keyed: Iterable[RecordBatch]) -> Filled:
        """Compute the missing findings of some memories, given as `add_keys` does."""
        return fill(self.store, keyed, ExtractMemories(), self.runner, self.shards, self.progress)

    def read(self, records: Sequence[MemoryRecord]) -> list[Extraction]:
        """Return the findings of some memories, computing those missing from the store."""
        self.fill(map(add_keys, column_batches(records, EXTRACTION_COLUMNS)))
        return list(self.read_kept(_keys_of(records)))

    def read_kept(self, keys: KeyRows) -> Iterator[Extraction]:
        """Yield the cached findings for some keys, in their order."""
        for start in range(0, len(keys), _READ_ROWS):
            handles = self.store.find(keys[start : start + _READ_ROWS])
            if lacking := int((handles < 0).sum()):
                raise StoreError(
                    f"found no findings of {lacking} memories in {self.store.directory}, which "
                    "were written just now: something else writes there; run the night again"
                )
            yield from map(decode_extraction, self.store.take(handles).to_pylist())


class Extractions:
    """Lazily extracted memories, merged with facts from the store; both are part of the cache key.

    With `extend` (see `extend_extractions`) all are in memory; a late model answer changes a key.
    """

    def __init__(
        self,
        extractor: Extractor,
        records: Sequence[MemoryRecord],
        told: Mapping[str, Extraction],
        extend: Callable[[Sequence[MemoryRecord], Sequence[Extraction]], Extended] | None = None,
    ) -> None:
        self._extractor = extractor
        self._records = records if extend is None else list(records)
        self._text_keys = _keys_of(self._records)
        self._told: dict[int, Extraction] = {}
        self._held: Sequence[Extraction] | None = None
        keys = self._text_keys.copy() if told else self._text_keys
        for batch in column_batches(self._records, ("position", "memory_id")) if told else ():
            columns = (column.to_pylist() for column in batch.columns)
            for position, memory_id in zip(*columns, strict=True):
                if (more := told.get(memory_id)) is not None:
                    self._told[position] = more
                    key = _with_added(keys[position].tobytes().hex(), more)
                    keys[position] = as_rows([bytes.fromhex(key)])
        self.keys: Sequence[str] = _as_hex(keys)
        self.extracted = 0
        self.facts: Mapping[str, Any] = {}
        self.notes: Mapping[str, Any] = {}
        if extend is not None:
            extended = extend(self._records, list(self.load(range(len(self._records)))))
            self._held, self.facts, self.notes = extended
            self.keys = list(map(_with_added, self.keys, self._held))

    def load(self, chosen: Sequence[int]) -> Iterable[Extraction]:
        """Yield the extractions of the memories at ascending positions."""
        if self._held is not None:
            yield from (self._held[position] for position in chosen)
            return
        positions = np.array(chosen, dtype=np.int64)
        rows = take_columns(self._records, positions, EXTRACTION_COLUMNS)
        self.extracted += self._extractor.fill(map(add_keys, rows)).computed
        found = self._extractor.read_kept(self._text_keys[positions])
        for position, extraction in zip(chosen, found, strict=True):
            told = self._told.get(position)
            yield extraction if told is None else merge_extractions(extraction, told)


def _with_added(key: str, found: Extraction) -> str:
    return hash_text(key, encode_extraction(found).decode("utf-8"))


def _as_hex(keys: KeyRows) -> Sequence[str]:
    """Return keys as hex digits, in one column: a million texts would be objects of 110 MB."""
    import polars as pl

    column: Any = pl.Series(keys.view("V32")[:, 0].tolist(), dtype=pl.Binary).bin.encode("hex")
    return column


def _keys_of(records: Sequence[MemoryRecord]) -> KeyRows:
    keys = [
        as_rows(add_keys(batch).column(KEY).to_pylist())
        for batch in column_batches(records, EXTRACTION_COLUMNS)
    ]
    return np.concatenate([*keys, as_rows([])])


# Which names of concepts get a vector.

# Most names that are embedded, those in most memories first. More finds more synonyms among rare
# names; the first night pays some 2 ms a name, and every new name is compared with all others.
NAMES_MAX = 4096
# Fewest memories for any name to be embedded: a name in a single memory connects nothing.
SHARED_DF = 2
# Kinds that an author gave on purpose: embedded even where one memory has them.
AUTHOR_KINDS = frozenset({"title", "heading", "key", "label", "tag"})
_MERGING_FAMILIES = frozenset({"words", "speaker"})

Encode = Callable[[Sequence[str]], Embedded]


def choose_names(names: Sequence[NameStats]) -> list[str]:
    """Return the names that get a vector, best rank first, at most NAMES_MAX."""
    merging = (item for item in names if family(item.kind) in _MERGING_FAMILIES)
    wanted = [item for item in merging if item.df >= SHARED_DF or item.kind in AUTHOR_KINDS]
    return [item.name for item in ranked(wanted)[:NAMES_MAX]]


# From a state in step with the corpus to one graph: names, sums, supersessions.

_NO_RULES = MergeRules()


@dataclass(frozen=True, slots=True)
class Built:
    """A graph and what was decided on the way."""

    tables: GraphTables
    unmerged: Mapping[str, int]  # pairs of names that were not merged, by the guard that bit
    rejected: Mapping[str, int]  # statements and links that superseded nothing, by reason
    unknown_names: tuple[str, ...]
    embedded_names: tuple[str, ...]  # whose vectors stay as long as they are
    names_computed: int  # of them, those encoded tonight
    encoder_failure: str  # why no name has a vector; empty if there was no failure


def build_graph(
    state: GraphState,
    records: Sequence[MemoryRecord],
    *,
    rules: MergeRules = _NO_RULES,
    vectors: NDArray[np.float32] | None = None,
    encode: Encode | None = None,
) -> Built:
    """Build the graph of the records that the state was last brought in step with.

    `vectors` are unit rows by position, (n, d); None finds no near duplicates. Without a working
    encoder, names are not merged by meaning.
    """
    state.place(keep_runs(state.runs(), len(records)))
    names = list(state.names())
    by_name, computed, failure = _embed(names, encode)
    merged = canonicalise(names, state.aliases(), rules, by_name)
    del names  # hundreds of thousands of objects
    tables = state.fold(merged.canonical_of, merged.merges)
    corpus = Corpus.read(records, state.iter_outlines, state.text_keys())
    replaced = find_supersessions(corpus, merged.canonical_of, vectors)
    tables = replace(tables, supersessions=to_table("supersessions", replaced.found))
    return Built(
        tables=close_intervals(tables, (*replaced.found, *replaced.others)),
        unmerged=merged.refused,
        rejected=replaced.rejected,
        unknown_names=merged.unknown_names,
        embedded_names=tuple(by_name),
        names_computed=computed,
        encoder_failure=failure,
    )


def _embed(
    names: Sequence[NameStats], encode: Encode | None
) -> tuple[dict[str, NDArray[np.float32]], int, str]:
    """Return vectors by name, how many of them are of tonight, and why there are none."""
    if encode is None:
        return {}, 0, ""
    chosen = choose_names(names)
    try:
        embedded = encode(chosen)
    except (EncoderError, OSError) as error:
        return {}, 0, f"{type(error).__name__}: {error}"
    return dict(zip(chosen, embedded.vectors, strict=True)), embedded.computed, ""


# The graph's edges and mentions as arrays: recall knows these and no tables.


def to_arrays(tables: GraphTables, n: int) -> GraphArrays:
    """Return the edges in compressed sparse rows over n positions; equal graphs, equal bytes."""
    pc = arrow_compute()
    edges = tables.edges
    sources, targets = (edges[name].to_numpy() for name in ("src_position", "dst_position"))
    for name, ends in (("source", sources), ("target", targets)):
        if ends.size and (int(ends.min()) < 0 or int(ends.max()) >= n):
            raise ValueError(
                f"found an edge with {name} {int(ends.min())}..{int(ends.max())}, expected "
                f"positions in 0..{n - 1}: the graph belongs to another corpus"
            )
    relations = _codes(edges["relation"], RELATIONS)
    is_link: NDArray[np.bool_] = pc.equal(edges["concept_id"], "").to_numpy()
    concepts = np.full(len(sources), NO_CONCEPT, dtype=np.int64)
    found = np.flatnonzero(~is_link)
    concepts[found] = concept_ordinals(tables.concepts, edges["concept_id"].take(found))
    in_degrees = np.zeros(len(targets), dtype=np.int64)
    for code in range(len(RELATIONS)):
        chosen = relations == code
        in_degrees[chosen] = np.bincount(targets[chosen], minlength=n)[targets[chosen]]
    order = np.lexsort((concepts, targets, relations, sources))

    # One column at a time is as wide as the table has it: there are some millions of edges.
    def read(name: str, kind: type[np.generic]) -> NDArray[Any]:
        return pc.fill_null(edges[name], OPEN_END_US).to_numpy()[order].astype(kind)

    return GraphArrays(
        indptr=_indptr(sources, n),
        targets=targets[order].astype(np.int32),
        weights=edges["weight"].to_numpy()[order].astype(np.float32),
        relations=relations[order].astype(np.int8),
        concepts=concepts[order].astype(np.int32),
        in_degrees=in_degrees[order].astype(np.int32),
        valid_from_us=read("valid_from_us", np.int64),
        valid_to_us=read("valid_to_us", np.int64),
        recorded_at_us=read("recorded_at_us", np.int64),
        retracted_at_us=read("retracted_at_us", np.int64),
        evidence_starts=read("evidence_start", np.int32),
        evidence_ends=read("evidence_end", np.int32),
    )


def to_mention_arrays(tables: GraphTables) -> MentionArrays:
    """Return the mentions in compressed sparse rows over the concepts' ordinals."""
    mentions = tables.mentions
    concepts = concept_ordinals(tables.concepts, mentions["concept_id"])
    positions, starts, ends = (
        mentions[name].to_numpy().astype(np.int32) for name in ("position", "start", "end")
    )
    roles = _codes(mentions["role"], ROLES).astype(np.int8)
    order = np.lexsort((roles, ends, starts, positions, concepts))
    indptr = _indptr(concepts, tables.concepts.num_rows)
    return MentionArrays(indptr, positions[order], roles[order], starts[order], ends[order])


# Kinds of concept that are phrases ("general method") and name no one thing.
PHRASES = frozenset({"run", "stated"})


def find_rare_concepts(mentions: MentionArrays, kinds: Sequence[str], count: int) -> RareConcepts:
    """Return the rare names of each memory, which may link it to another, in a corpus of `count`.

    `kinds` are the concepts', by ordinal.
    """
    names = np.array([kind not in PHRASES for kind in kinds], dtype=np.bool_)
    owners = np.repeat(np.arange(names.size, dtype=np.int64), np.diff(mentions.indptr))
    # Each memory that holds a concept counts once, however often it names it.
    held = mentions.positions.astype(np.int64) * names.size + owners
    held = np.unique(held[names[owners]])
    positions, owners = np.divmod(held, names.size)
    others = np.bincount(owners)[owners] - 1
    rare = (others > 0) & (others <= RARE_OTHERS)
    return RareConcepts(
        _indptr(positions[rare], count), owners[rare].astype(np.int32), others[rare].astype(np.int8)
    )


def speaking_concepts(mentions: MentionArrays) -> dict[int, int]:
    """Return, by position, the ordinal of the concept that speaks; the smallest, where several."""
    owners = np.repeat(np.arange(mentions.indptr.size - 1), np.diff(mentions.indptr))
    speaking = np.flatnonzero(mentions.roles == ROLES.index("speaker"))[::-1]
    positions, ordinals = mentions.positions[speaking], owners[speaking]
    return dict(zip(positions.tolist(), ordinals.tolist(), strict=True))


def build_sessions(
    records: Sequence[MemoryRecord], speakers: Mapping[int, int] | None = None
) -> SessionArrays:
    """Return the sessions of a corpus: an id is only unique inside its owner and its wing."""
    import polars as pl

    key, n = ["user", "wing", "session_id"], len(records)
    names = [*key, "created_at_us", "is_turn"]
    none = arrow_schema(MEMORIES_FILE).empty_table().select(names)
    frames, turns = [pl.DataFrame(none)], list[int]()
    for batch in column_batches(records, [*names, "content"]):
        frames.append(pl.DataFrame(batch.select(names)))
        said = zip(batch["is_turn"].to_pylist(), batch["content"].to_pylist(), strict=True)
        turns += [1 + round(100 * asking_share(text)) if is_turn else 0 for is_turn, text in said]
    rows = pl.concat(frames)
    told = (
        rows.select(pl.col("user", "wing").fill_null(""), "session_id", "created_at_us")
        .with_row_index("position")
        .filter(pl.Series([bool(s and s.strip()) for s in rows["session_id"]], dtype=pl.Boolean))
    )
    groups = told.group_by(key).len().filter(pl.col("len") >= MIN_MEMBERS).sort(key)
    members = told.join(groups.with_row_index("code"), on=key)
    members = members.sort("code", "created_at_us", "position")
    order = members["position"].to_numpy()
    codes, places, spoken = (np.full(n, -1, dtype=np.int32) for _ in range(3))
    codes[order], places[order] = members["code"].to_numpy(), np.arange(len(order))
    for position, ordinal in (speakers or {}).items():
        spoken[position] = ordinal
    return SessionArrays(
        codes=codes,
        places=places,
        order=order.astype(np.int32),
        indptr=np.concatenate(([0], np.cumsum(groups["len"].to_numpy()))).astype(np.int64),
        turns=np.array(turns, dtype=np.int8),
        speakers=spoken,
    )


def concept_ordinals(concepts: ArrowTable, ids: ArrowColumn) -> NDArray[np.int64]:
    """Return the ordinals of concepts by id; a ValueError where an id is no concept's."""
    found = arrow_compute().index_in(ids, value_set=concepts["concept_id"].combine_chunks())
    if found.null_count:
        raise ValueError(
            f"found {found.null_count} ids of no concept: the tables are of different graphs"
        )
    return found.to_numpy().astype(np.int64)


def _codes(names: ArrowColumn, known: Sequence[str]) -> NDArray[np.int64]:
    import pyarrow as pa

    found = arrow_compute().index_in(names, value_set=pa.array(known, pa.string()))
    return found.to_numpy().astype(np.int64)


def _indptr(rows: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    indptr = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows, minlength=n), out=indptr[1:])
    return indptr
