"""One opened snapshot: memory-mapped arrays and a read-only SQLite file; ranks nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.core import store as layout
from noctuary.core.errors import (
    NoctuaryError,
    SnapshotCorruptError,
)
from noctuary.core.files import group_arrays, read_array, read_arrays, release_pages
from noctuary.core.foreign_json import parse_json
from noctuary.core.manifest import Manifest
from noctuary.core.store import StorePaths
from noctuary.core.types import DAMAGED_TEXT, least_trusted, summary_id
from noctuary.graph.sessions import SessionArrays
from noctuary.graph.walk import GraphArrays, MentionArrays, RareConcepts
from noctuary.lexical.search import K1, B, idf
from noctuary.recall.query import Facet, Mask, query_tokens
from noctuary.recall.snapshot_rows import SnapshotRows, open_published
from noctuary.snapshot.arrays import OF_TURNS, SummaryArrays
from noctuary.text.reach import PROJECT
from noctuary.text.tokens import document_tokens

if TYPE_CHECKING:
    from noctuary.embed.funnel import PrefixTier
    from noctuary.graph.successors import SupersessionIndex
    from noctuary.recall.live import LiveRows


_NONE = -1  # in `Summaries.summary_of`: a memory that no summary of turns covers


class SummaryView(NamedTuple):
    """An accepted summary: its position, those of its sources, its confidence in [0, 1]."""

    position: int
    sources: tuple[int, ...]
    confidence: float


class Summaries:
    """All accepted summaries of a snapshot by id; summary i has the position count + i."""

    def __init__(
        self, count: int, arrays: SummaryArrays, plans: Sequence[str], ids: Sequence[str]
    ) -> None:
        if not arrays.is_aligned(count) or len(ids) != arrays.size:
            raise ValueError("arrays of summaries of different lengths")
        self.count = count
        self.arrays = arrays
        self.plans = tuple(plans)  # compaction plans by their number in `arrays.plans`
        self.ids = tuple(ids)

    @property
    def size(self) -> int:
        """How many summaries there are."""
        return self.arrays.size

    @property
    def views(self) -> tuple[SummaryView, ...]:
        """What phases see of each."""
        return tuple(self.at(self.count + i) for i in range(self.size))

    def at(self, position: int) -> SummaryView:
        """Return the summary at a position."""
        i = position - self.count
        sources = tuple(self.arrays.sources_of(i).tolist())
        return SummaryView(position, sources, float(self.arrays.confidences[i]))

    def position_of(self, summary_id: str) -> int | None:
        """Return the position of a summary, or None for an unknown id."""
        return self.count + self.ids.index(summary_id) if summary_id in self.ids else None

    def plan_of(self, position: int) -> str | None:
        """Return the compaction plan that a summary belongs to; None for one of turns."""
        number = int(self.arrays.plans[position - self.count])
        return None if number == OF_TURNS else self.plans[number]

    def of_sources(self, positions: NDArray[np.int64]) -> dict[int, SummaryView]:
        """Return the summary of turns of every position that is a source of one."""
        memories = positions[positions < self.count]
        pairs = zip(memories.tolist(), self.summary_of[memories].tolist(), strict=True)
        return {position: self.at(self.count + i) for position, i in pairs if i != _NONE}

    def largest(self, values: NDArray[Any], ordinals: NDArray[np.int64]) -> NDArray[Any]:
        """Return the largest of the memories' values (n,) among the sources of each summary."""
        found = [values[self.arrays.sources_of(i)].max() for i in ordinals.tolist()]
        return np.array(found, dtype=values.dtype)

    @cached_property
    def summary_of(self) -> NDArray[np.int32]:
        """Index of the summary of turns of every memory, _NONE where there is none, (count,)."""
        found = np.full(self.count, _NONE, dtype=np.int32)
        owners = np.repeat(np.arange(self.size, dtype=np.int32), np.diff(self.arrays.indptr))
        held = self.arrays.plans[owners] == OF_TURNS
        found[self.arrays.sources[held]] = owners[held]
        return found


if TYPE_CHECKING:
    shared = cached_property
else:

    class shared(cached_property):
        """Opened on first use, once for a snapshot and all views of it."""

        def __get__(self, reader: Any, owner: Any = None) -> Any:
            return super().__get__(reader if reader is None else reader.whole, owner)


class SnapshotReader(SnapshotRows):
    """A pinned, immutable view of one snapshot directory; safe to share between threads.

    Positions: memories from 0 on, summaries from `count` on, live rows (of the store itself, in a
    view of this snapshot) from `first_live` on.
    """

    def __init__(self, directory: Path, manifest: Manifest) -> None:
        super().__init__(directory, manifest)
        self.first_live = self.count + manifest.counts["summaries"]
        self.live: LiveRows | None = None
        self._snapshot: SnapshotReader | None = None
        self._arrays = arrays = read_arrays(directory / layout.ARRAYS_FILE)
        self.created_at_us: NDArray[np.int64] = arrays["created_at_us"]
        self.importance: NDArray[np.float32] = arrays["importance"]
        self.posting_positions: NDArray[np.int32] = arrays["posting.positions"]
        self.posting_scores: NDArray[np.float32] = arrays["posting.scores"]
        self.vectors: NDArray[np.float32] | None = None
        if manifest.encoder is not None:
            # The map itself: its pages are given back after a search.
            self.vectors = read_array(directory / layout.VECTORS_FILE)
        # A small store has no short tier; its thresholds of an early exit by dimension.
        self.tier: PrefixTier | None = None
        self.tier_exits: dict[int, float | None] = {}
        if tier := group_arrays(arrays, "tier"):
            from noctuary.embed.funnel import PrefixTier

            self.tier = PrefixTier(**tier)
            exits = parse_json((directory / layout.TIER_EXITS_FILE).read_text(encoding="utf-8"))
            self.tier_exits = {int(dim): at for dim, at in exits.items()}
        self.graph_edges = GraphArrays(**group_arrays(arrays, "graph"))
        self.mentions = MentionArrays(**group_arrays(arrays, "mentions"))
        self.rare = RareConcepts(**group_arrays(arrays, "rare"))
        self.sessions = SessionArrays(**group_arrays(arrays, "sessions"))
        meta = self.meta
        self.relations: tuple[str, ...] = tuple(parse_json(meta["relations"]))
        self.compaction_plans: tuple[str, ...] = tuple(parse_json(meta["summary_plans"]))
        self.facets: dict[str, Facet] = {
            name: Facet(tuple(parse_json(meta[f"facet_{name}"])), arrays[f"facet.{name}"])
            for name in layout.FACETS
        }
        self.reach: NDArray[np.int8] = arrays["reach"]  # of each memory, as noctuary.text.reach
        self.facets["wing"] = self.facets["wing"]._replace(everywhere=self.reach > PROJECT)
        if held := group_arrays(arrays, "shares"):
            from noctuary.snapshot.arrays import ShareArrays

            shares = ShareArrays(parse_json(meta[layout.SHARED_WITH]), **held)
            self.facets["user"] = self.facets["user"]._replace(shared=shares.by_reader(self.count))
        if self.gone:
            positions = np.array(self.gone, dtype=np.int64)
            self.facets["user"] = self.facets["user"]._replace(forgotten=positions)
        if self.ends:
            ends = np.array(self.ends, dtype=np.int64)
            self.facets["user"] = self.facets["user"]._replace(ends=ends)
        self._require_shapes()

    @property
    def end(self) -> int:
        """The first position that nothing has."""
        return self.first_live + (0 if self.live is None else len(self.live.rows))

    @property
    def whole(self) -> SnapshotReader:
        """The snapshot that this is a view of: itself where there are no live rows."""
        # No reference to itself: its files close with the last one from outside.
        return self if self._snapshot is None else self._snapshot

    def beside(self, live: LiveRows) -> SnapshotReader:
        """Return a view of this snapshot with live rows in it; the snapshot stays the owner."""
        view = object.__new__(SnapshotReader)
        view.__dict__.update(self.__dict__)
        view.live, view._snapshot = live, self
        view.facets = {name: live.widened(name, facet) for name, facet in self.facets.items()}
        return view

    def release(self) -> None:
        """Give back the memory of its files; the next recall reads them again, in milliseconds."""
        release_pages(self.created_at_us)  # one file holds every array but the vectors
        if self.vectors is not None:
            release_pages(self.vectors)

    def look_up_summary_terms(self, terms: Sequence[str]) -> list[tuple[int, int]]:
        """Return the slice of `summary_postings` of every known term, in the order asked."""
        return self._slices("summary_terms", terms)

    @shared
    def mean_length(self) -> float:
        """Mean length of the memories in tokens, above 0; 1 without a word.

        It is no part of a pack: score = idf * tf / (tf + k1 * (1 - b + b * length / mean)) is
        solved for it, over the terms of one memory, and the median taken: float32 scores are exact
        to seven digits.
        """
        if not self.posting_positions.size:
            return 1.0
        position = int(self.posting_positions[0])
        columns = "content, tags, expanded_keywords, category"
        (texts,) = self.look_up("memories", "position", columns, [str(position)])
        tokens = document_tokens(*texts)
        counts = Counter(tokens)
        found: list[float] = []
        for term, start, stop in self.look_up("terms", "term", "term, start, stop", list(counts)):
            held = self.posting_positions[start:stop]
            score = float(self.posting_scores[start + int(np.searchsorted(held, position))])
            rarity = float(idf(np.array(stop - start), self.count))
            norm = counts[term] * (rarity / score - 1.0)
            share = (norm / K1 - (1.0 - B)) / B
            if share > 0:
                found.append(len(tokens) / share)
        # Not np.median: its first call imports numpy.ma, which costs a one-shot hook 10 ms.
        return sorted(found)[len(found) // 2] if found else 1.0

    def live_word_scores(self, query: str) -> NDArray[np.float32]:
        """Return the BM25 score of every live row, on the scale of the snapshot's."""
        if self.live is None:
            return np.empty(0, dtype=np.float32)
        from noctuary.recall.live import score_rows

        tokens = query_tokens(query)
        frequencies = self.document_frequencies(sorted(set(tokens)))
        return score_rows(self.live.state, tokens, frequencies, self.count, self.mean_length)

    def holding(self, tokens: Sequence[str], positions: NDArray[np.int64]) -> Mask:
        """Tell which distinct token occurs at which position, shape (tokens, positions)."""
        held = np.zeros((len(tokens), positions.size), dtype=np.bool_)
        for table, first, end in (
            ("terms", 0, self.count), ("summary_terms", self.count, self.first_live)
        ):  # fmt: skip
            inside = np.flatnonzero((positions >= first) & (positions < end))
            if not inside.size:
                continue
            postings = self.posting_positions if first == 0 else self.summary_postings[0]
            # Of the postings' own type: searching them by another one would copy them.
            wanted = (positions[inside] - first).astype(postings.dtype)
            places = {token: place for place, token in enumerate(tokens)}
            for token, start, stop in self.look_up(table, "term", "term, start, stop", tokens):
                holders = postings[start:stop]
                if holders.size:
                    at = np.minimum(np.searchsorted(holders, wanted), holders.size - 1)
                    held[places[token], inside] = holders[at] == wanted
        if self.live is not None:
            beyond = np.flatnonzero(positions >= self.first_live)
            held[:, beyond] = self.live.held(tokens)[:, positions[beyond] - self.first_live]
        return held

    def describe(self, positions: Iterable[int]) -> dict[int, dict[str, Any]]:
        """Return ROW_COLUMNS and "sources" of each position by name; tags as a tuple of texts.

        A text that does not match its row's content hash, or its summary's id, is DAMAGED_TEXT.
        A summary has its own id and text, the category "summary", the scope of its first turn, the
        date of its latest, the importance of its most important and the origin of its least trusted
        one. A live row has "live".
        """
        wanted = [int(p) for p in positions]
        inside = [p for p in wanted if self.count <= p < self.first_live]
        summaries = {p: self.summaries.at(p).sources for p in inside}
        needed = {p for p in wanted if p < self.count}
        rows = self.rows_of(needed | {sources[0] for sources in summaries.values()})
        every = sorted({p for sources in summaries.values() for p in sources})
        origins = dict(self.look_up("memories", "position", "position, origin", every))
        for position, text, importance in self._summary_texts(summaries):
            rows[position] = {
                **rows[summaries[position][0]],
                "position": position,
                "memory_id": self.summaries.ids[position - self.count],
                "content": text,
                "category": "summary",
                "tags": (),
                "importance": importance,
                "created_at_us": int(self.created_at(np.array([position]))[0]),
                "is_turn": 0,
                "origin": least_trusted(origins[p] for p in summaries[position]),
                "sources": summaries[position],
            }
        if self.live is not None:
            rows |= {p: self.live.describe(p) for p in wanted if p >= self.first_live}
        return {p: rows[p] for p in wanted}

    def memory_ids(self, positions: Iterable[int]) -> dict[int, str]:
        """Return the id, as text, of each position; a summary's own id."""
        wanted = [int(p) for p in positions]
        found: dict[int, str] = {}
        for p in wanted:
            if p >= self.first_live and self.live is not None:
                found[p] = self.live.rows[p - self.first_live].memory_id
            elif p >= self.count:
                found[p] = self.summaries.ids[p - self.count]
        memories = [p for p in wanted if p < self.count]
        found.update(self.look_up("memories", "position", "position, memory_id", memories))
        return found

    @shared
    def summaries(self) -> Summaries:
        """The accepted summaries; ValueError if their arrays do not line up."""
        arrays = SummaryArrays(**group_arrays(self._arrays, "summary"))
        ids = self._query("SELECT summary_id FROM main.summaries ORDER BY ordinal")
        return Summaries(self.count, arrays, self.compaction_plans, [i for (i,) in ids])

    @shared
    def summary_postings(self) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Ordinals of the summaries with a term, ascending per term, and its scores there."""
        return self._arrays["summary_posting.positions"], self._arrays["summary_posting.scores"]

    @shared
    def summary_vectors(self) -> NDArray[np.float32]:
        """Unit vectors of the summaries, (s, d), of a snapshot with vectors."""
        vectors = self._arrays["summary_vectors"]
        if self.vectors is None or vectors.shape != (self.summaries.size, self.vectors.shape[1]):
            raise ValueError("vectors of summaries of another shape")
        return vectors

    def created_at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return creation times; a summary has its latest source's."""
        return self._column("created_at_us", self.created_at_us, positions)

    def importance_at(self, positions: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return importance as stored; a summary has its most important source's."""
        return self._column("importance", self.importance, positions)

    def codes_at(self, facet: str, positions: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return facet codes, -1 for none; a summary has its first source's."""
        return self._column(facet, self.facets[facet].codes, positions)

    def reach_at(self, position: int) -> int:
        """Return how far a memory reaches, as `noctuary.text.reach`; a summary as its sources."""
        if position >= self.first_live and self.live is not None:
            return self.live.state.rows[position - self.first_live].reach
        return min(int(self.reach[source]) for source in self.sources_at(position))

    def confidences_at(self, positions: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return confidences in [0, 1] of summaries, and 1 of everything else."""
        found = np.ones(positions.size, dtype=np.float64)
        inside = self._are_summaries(positions)
        if inside.any():
            found[inside] = self.summaries.arrays.confidences[positions[inside] - self.count]
        return found

    def summaries_in(self, searched: Mask | None) -> Mask | None:
        """Return which summaries (s,) are among rows that are searched; None where none is."""
        shown = None if searched is None else searched[self.count : self.first_live]
        return shown if shown is not None and shown.any() else None

    @shared
    def wing_codes(self) -> NDArray[np.int32]:
        """Codes of the wings of memories and summaries, (first_live,)."""
        codes = self.facets["wing"].codes
        if self.first_live == self.count:
            return codes
        return np.concatenate([codes, codes[self.summaries.arrays.first_sources()]])

    def _are_summaries(self, positions: NDArray[np.int64]) -> Mask:
        return (positions >= self.count) & (positions < self.first_live)

    def vectors_at(self, positions: NDArray[np.int64]) -> NDArray[np.float32] | None:
        """Return unit rows (m, d), a summary's of its own text; None without vectors."""
        vectors = self.vectors
        if vectors is None:
            return None
        rows = vectors[np.minimum(positions, self.count - 1)].astype(np.float32)
        inside = (positions >= self.count) & (positions < self.first_live)
        if inside.any():
            rows[inside] = self.summary_vectors[positions[inside] - self.count]
        if self.live is not None:
            beyond = positions >= self.first_live
            rows[beyond] = self.live.vectors[positions[beyond] - self.first_live]
        return rows

    def sources_at(self, position: int) -> Sequence[int]:
        """Return the memories of a position: itself, or the sources of a summary."""
        if self.count <= position < self.first_live:
            return self.summaries.at(position).sources
        return (position,)

    @shared
    def superseded(self) -> SupersessionIndex:
        """Which memory replaces which, read on first use."""
        from noctuary.graph.successors import SupersessionIndex, SupersessionRow

        rows = self._query(f"SELECT {', '.join(SupersessionRow._fields)} FROM supersessions")
        return SupersessionIndex(SupersessionRow(*row) for row in rows)

    def public_ids(self, positions: Iterable[int]) -> dict[int, int | str]:
        """Return the public id of each position."""
        found = self.memory_ids(positions)
        summaries = range(self.count, self.first_live)
        return {p: i if p in summaries else self.public_id(i) for p, i in found.items()}

    def _require_shapes(self) -> None:
        """Refuse (ValueError) arrays that do not line up: a shorter one would shift memories."""
        per_memory = [self.created_at_us, self.importance, self.reach]
        per_memory += [facet.codes for facet in self.facets.values()]
        indptr = self.graph_edges.indptr
        edges = group_arrays(self._arrays, "graph").items()
        steps = [array for name, array in edges if name != "indptr"]
        held, session = self.mentions, self.sessions
        dimension = -1 if self.vectors is None else self.vectors.shape[1]
        per_memory += [session.codes, session.places, session.turns, session.speakers]
        aligned = (
            all(array.shape == (self.count,) for array in per_memory)
            and held.positions.shape == held.roles.shape == (int(held.indptr[-1]),)
            and session.order.shape == (int(session.indptr[-1]),)
            and self.rare.indptr.shape == (self.count + 1,)
            and self.rare.concepts.shape == self.rare.others.shape == (int(self.rare.indptr[-1]),)
            and self.posting_positions.shape == self.posting_scores.shape
            and indptr.shape == (self.count + 1,)
            and all(array.shape == (int(indptr[-1]),) for array in steps)
            and (self.vectors is None or self.vectors.shape[0] == self.count)
            and (self.tier is None or self.tier.is_aligned(self.count, dimension))
        )
        if not aligned:
            raise ValueError("arrays of different lengths")

    def _column(
        self, name: str, of_memories: NDArray[Any], positions: NDArray[np.int64]
    ) -> NDArray[Any]:
        """Return one column of the table at positions of any kind."""
        if not positions.size or int(positions.max()) < self.count:
            return of_memories[positions]
        found = of_memories[np.minimum(positions, self.count - 1)]
        inside = (positions >= self.count) & (positions < self.first_live)
        if inside.any():
            ordinals = positions[inside] - self.count
            if name in self.facets:
                found[inside] = of_memories[self.summaries.arrays.first_sources()[ordinals]]
            else:
                found[inside] = self.summaries.largest(of_memories, ordinals)
        if self.live is not None:
            beyond = positions >= self.first_live
            found[beyond] = self.live.columns[name][positions[beyond] - self.first_live]
        return found

    def _summary_texts(self, positions: Iterable[int]) -> Iterable[tuple[int, str, float]]:
        """Return position, text and the importance of the most important source."""
        found = (
            "ordinal, text, summary_id, cluster_id, method, (SELECT MAX(m.importance) FROM "
            "summary_sources o JOIN memories m ON m.position = o.position "
            "WHERE o.summary_id = summaries.summary_id)"
        )
        asked = [str(p - self.count) for p in positions]
        rows = self.look_up("summaries", "ordinal", found, asked)
        for ordinal, text, known, cluster, method, importance in rows:
            shown = text if summary_id(cluster, method, text) == known else DAMAGED_TEXT
            yield self.count + int(ordinal), str(shown), float(importance)


class Opened(NamedTuple):
    """A pinned snapshot, and why it is not the one that the pointer names (or None)."""

    reader: SnapshotReader
    snapshot_id: str
    fallback_reason: str | None


def open_serving(paths: StorePaths) -> Opened:
    """Open the serving snapshot with its arrays; errors as of `open_published`."""
    return Opened(*open_published(paths, SnapshotReader))


@contextmanager
def telling_damage(snapshot_id: str) -> Generator[None]:
    """Re-raise unexpected errors, which mean damage to the snapshot, as SnapshotCorruptError."""
    try:
        yield
    except (NoctuaryError, OSError):
        raise
    except Exception as error:
        message = f"{type(error).__name__} in {snapshot_id}: run `noctuary doctor`"
        raise SnapshotCorruptError(message) from error
