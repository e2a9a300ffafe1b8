"""After publishing: forget the heavy steps' results for texts that are gone.

What belongs here: which results are live, and that nothing is read where nothing changed. What does
not: forgetting itself (`noctuary.shards.fragment_store`), the memo's results (`housekeeping`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np

from noctuary.files import remove_tree, write_text
from noctuary.graph.extraction_task import EXTRACTION_KIND
from noctuary.graph.extraction_task import iter_keyed as keyed_extractions
from noctuary.hashing import hash_file, hash_json
from noctuary.lexical.tokenizing import TOKENS_KIND
from noctuary.lexical.tokenizing import iter_keyed as keyed_tokens
from noctuary.night.context import FRAGMENTS, MEMORIES, SHARDS, Night
from noctuary.night.vector_rows import keyed_batches as keyed_vectors
from noctuary.night.vector_rows import vector_kind
from noctuary.night.vectors import chosen_face
from noctuary.shards.fragment_store import KEY
from noctuary.shards.keys import rows_of
from noctuary.shards.manifest import MANIFEST_FILE, remove_unnamed, store_directory
from noctuary.shards.task import RecordBatch
from noctuary.work.settled import hash_settled

_PRUNED = "stamps/fragments_pruned"

_Keyed = Callable[[Path], Iterator[RecordBatch]]


def prune_fragments(night: Night) -> None:
    """Forget results of texts that are gone, and of kinds that nothing asks for any more.

    Keys are compared only where the corpus or a kind's fragments differ from what the last
    comparison left; files that no manifest names go every time.
    """
    kinds = _live_kinds(night)
    places = {kind: store_directory(night.work(FRAGMENTS), kind) for kind in kinds}
    for path in night.work(FRAGMENTS).glob("*"):
        if path not in places.values():
            remove_tree(path)
    # Rows of a task that was killed: they hold texts.
    remove_tree(night.work(SHARDS))
    for kind, place in places.items():
        remove_unnamed(place, kind)

    stamp = night.work(_PRUNED)
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == _state(night, places):
        return
    for kind, keyed in kinds.items():
        keys = [rows_of(batch.column(KEY)) for batch in keyed(night.work(MEMORIES))]
        night.fragments(kind).prune(np.concatenate(keys) if keys else ())
    # Of what is left: a stamp of what was found would hold again when that comes back.
    write_text(stamp, _state(night, places))


def _state(night: Night, places: Mapping[str, Path]) -> str:
    """Return the digest of everything that decides what is forgotten."""
    manifests = {kind: place / MANIFEST_FILE for kind, place in places.items()}
    held = {kind: hash_file(path) for kind, path in manifests.items() if path.exists()}
    return hash_json({"memories": hash_settled(night.work(MEMORIES)), "fragments": held})


def _live_kinds(night: Night) -> dict[str, _Keyed]:
    kinds: dict[str, _Keyed] = {TOKENS_KIND: keyed_tokens, EXTRACTION_KIND: keyed_extractions}
    if (vectors := vector_kind(night, chosen_face(night))) is not None:
        kinds[vectors] = keyed_vectors
    return kinds
