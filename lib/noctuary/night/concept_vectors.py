"""Vectors of the names of concepts: which names get one, and what of them outlives a night.

Belongs here: the choice of names, the encoder's failure, the files. Does not belong here: which
names are one concept (`noctuary.graph.canonical`), embedding itself (`noctuary.vectors.embed`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.errors import EncoderError
from noctuary.files import replace_with, write_text
from noctuary.graph.canonical import Memo as MergeMemo
from noctuary.graph.canonical import NameStats
from noctuary.graph.canonical.kinds import family
from noctuary.graph.canonical.nearest import Neighbour
from noctuary.graph.canonical.stats import ranked
from noctuary.night.context import GRAPH, Night
from noctuary.night.embedding import Face, face_of
from noctuary.night.vectors import MEMORY_VECTORS
from noctuary.progress import Progress
from noctuary.vectors.embed import embed_texts, memo_kind, text_key
from noctuary.work.memo import Memo
from noctuary.work.stage import StageResult

CONCEPT_VECTORS = f"{GRAPH}/concept_vectors.parquet"
"""The table of concepts that have a vector."""

NAME_MEMO = "graph_names.json"
"""What the next night takes over: the names that were embedded and which is nearest to which."""

NAMES_MAX = 4096
"""Most names that are embedded, those in most memories first. More finds more synonyms among rare
names; the first night pays some 2 ms a name, and every new name is compared with all others."""

SHARED_DF = 2
"""Memories from which on any name is embedded: one that stands in a single memory joins nothing."""

AUTHOR_KINDS = frozenset({"title", "heading", "key", "label", "tag"})
"""Kinds that an author gave on purpose: embedded even where one memory has them."""

_MERGING_FAMILIES = frozenset({"words", "speaker"})
_TASK = "concept_vectors"
_FAILURE = "names_not_embedded"


def choose_names(names: Sequence[NameStats]) -> list[str]:
    """Return the names that get a vector, best rank first, at most NAMES_MAX."""
    wanted = [
        item
        for item in names
        if (item.df >= SHARED_DF or item.kind in AUTHOR_KINDS)
        and family(item.kind) in _MERGING_FAMILIES
    ]
    return [item.name for item in ranked(wanted)[:NAMES_MAX]]


@dataclass
class NameVectors:
    """The vectors of one night's names.

    Attributes:
        by_name: Filled by `embed`.
        computed: Names that the encoder saw tonight.
        failure: Why there are none; empty where there is nothing to tell.
    """

    night: Night
    by_name: dict[str, NDArray[np.float32]] = field(default_factory=dict[str, NDArray[np.float32]])
    computed: int = 0
    failure: str = ""

    def embed(self, names: Sequence[NameStats]) -> Mapping[str, NDArray[np.float32]] | None:
        """Return vectors of the chosen names; None without an encoder, whose failure is noted."""
        face = _face(self.night)
        if face is None:
            return None
        chosen = choose_names(names)
        try:
            with Memo.open(self.night.paths.memo) as memo:
                embedded = embed_texts(
                    chosen,
                    memo,
                    self.night.fingerprint(),
                    lambda: face.opened(self.night, chosen),
                    _Named(self.night.progress),
                    face=face.tag,
                    batches_per_write=face.batches_per_write,
                )
        except (EncoderError, OSError) as error:
            self.failure = f"{type(error).__name__}: {error}"
            return None
        self.computed = embedded.computed
        self.by_name = dict(zip(chosen, embedded.vectors, strict=True))
        return self.by_name

    def to_facts(self) -> dict[str, str]:
        """Return what the stage's facts say; `encoder_failed` reads it back."""
        return {_FAILURE: self.failure} if self.failure else {}

    def read_memo(self) -> MergeMemo | None:
        """Return what is known of near names; of another encoder, lost or damaged: None."""
        try:
            told = json.loads(self.night.work(NAME_MEMO).read_text(encoding="utf-8"))
            if told["encoder"] != self._encoder():
                return None
            near = {name: None if it is None else Neighbour(*it) for name, it in told["near"]}
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return MergeMemo(near)

    def write_memo(self, memo: MergeMemo) -> None:
        """Keep what is known of near names, and which names were embedded."""
        told = {
            "encoder": self._encoder(),
            "names": sorted(self.by_name),
            "near": sorted(memo.neighbours.items()),
        }
        write_text(self.night.work(NAME_MEMO), json.dumps(told, ensure_ascii=False) + "\n")

    def _encoder(self) -> str:
        face = _face(self.night)
        return "" if face is None else memo_kind(self.night.fingerprint(), face.tag)


def encoder_failed(last: StageResult | None) -> bool:
    """Say whether the last graph had to do without vectors that another night may get."""
    return last is not None and _FAILURE in last.facts


def live_names(night: Night) -> list[str]:
    """Return the memo keys of the names that were embedded for the last graph."""
    try:
        told = json.loads(night.work(NAME_MEMO).read_text(encoding="utf-8"))
        return [text_key(name) for name in told["names"]]
    except (OSError, ValueError, TypeError, KeyError):
        return []


def write_concept_vectors(night: Night, vectors: Mapping[str, NDArray[np.float32]]) -> None:
    """Replace the table of concept ids and their unit vectors, sorted; without any, remove it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = night.work(CONCEPT_VECTORS)
    if not vectors:
        path.unlink(missing_ok=True)
        return
    ids = sorted(vectors)
    table = pa.table(
        {
            "concept_id": pa.array(ids, pa.string()),
            "vector": pa.array([vectors[key] for key in ids], pa.list_(pa.float32())),
        }
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_with(path, lambda tmp: pq.write_table(table, tmp, compression="zstd"))


class _Named:
    """A progress under the name of this work: embedding reports under that of the memories."""

    def __init__(self, beyond: Progress) -> None:
        self._beyond = beyond

    def update(self, task: str, done: int, total: int) -> None:
        """Pass a report on."""
        del task
        self._beyond.update(_TASK, done, total)


def _face(night: Night) -> Face | None:
    """Return what made the memory vectors; None where no encoder of this project did."""
    facts: Mapping[str, Any] = night.result_of(MEMORY_VECTORS).facts
    return face_of(facts) if "face" in facts else None
