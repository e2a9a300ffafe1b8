"""A store's plan: from its published snapshot and its counts of use. Needs no work directory.

What belongs here: finding and opening the files, all of them read-only. What does not: what is made
of them (`plan`).

Summaries of groups are judged with the store's query encoder (`encoders/<digest>`, the numpy
forward pass), which gives the vectors of the snapshot's model to float32 rounding and stores
nothing. A snapshot of a model that it cannot run has no plan for groups of several.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.archive.consolidation import Encoding
from noctuary.archive.plan import Plan, empty_plan, make_plan
from noctuary.archive.reading import ArchiveReader
from noctuary.archive.rules import ArchiveRules
from noctuary.archive.snapshot_rows import SnapshotRows
from noctuary.encode.fingerprint import EncoderFingerprint, require_same
from noctuary.encode.lean import LeanEncoder
from noctuary.encode.lean_format import HEADER_FILE
from noctuary.files import read_array
from noctuary.progress import SILENT, Progress
from noctuary.snapshot import layout
from noctuary.snapshot.layout import StorePaths
from noctuary.snapshot.manifest import Manifest, quick_check, read_manifest, read_pointer
from noctuary.types import UNDATED_US
from noctuary.usage.reading import UsageReader

NOT_COUNTED = (
    "no plan: no night has counted yet how memories are used ({}), and what is not known to be "
    "unused is not archived"
)


def plan_store(paths: StorePaths, rules: ArchiveRules, progress: Progress = SILENT) -> Plan:
    """Return the plan of a store's serving snapshot; writes nothing anywhere.

    Without readable counts of use the plan is empty and says so.

    Args:
        paths: The store.
        rules: What decides.
        progress: Told after each batch.

    Raises:
        SnapshotMissingError: Nothing was published yet.
        SnapshotCorruptError: The serving snapshot is damaged.
    """
    pointer = read_pointer(paths)
    directory = paths.snapshots / pointer.snapshot_id
    manifest = read_manifest(directory)
    quick_check(directory, manifest)
    usage = UsageReader.open(paths.usage)
    try:
        if usage.warning is not None:
            warning = NOT_COUNTED.format(usage.warning)
            return empty_plan(
                rules, snapshot_id=pointer.snapshot_id, as_of_us=UNDATED_US, warning=warning
            )
        with closing(SnapshotRows(directory / layout.ROWS_FILE)) as rows:
            return make_plan(
                rows,
                usage.counts,
                ArchiveReader.open(paths.archive),
                rules,
                snapshot_id=pointer.snapshot_id,
                as_of_us=usage.as_of_us,
                encoding=_encoding(paths, directory, manifest),
                progress=progress,
            )
    finally:
        usage.close()


def _encoding(paths: StorePaths, directory: Path, manifest: Manifest) -> Encoding | None:
    """Return how summaries are judged; None where this machine cannot encode for the snapshot."""
    if manifest.encoder is None or manifest.encoder_digest is None:
        return None
    place = paths.encoders / manifest.encoder_digest
    # Where a provider made the vectors there is none either: summaries are not sent in passing.
    if not (place / HEADER_FILE).is_file():
        return None
    vectors = read_array(directory / layout.VECTORS_FILE)
    expected = EncoderFingerprint.from_json(manifest.encoder)

    def vectors_of(positions: Any) -> NDArray[Any]:
        return np.asarray(vectors[list(positions)])

    return Encoding(vectors_of, _LazyEncoder(place, expected))


class _LazyEncoder:
    """Opens the encoder with the first text: most plans have no group to judge."""

    def __init__(self, directory: Path, expected: EncoderFingerprint) -> None:
        self._directory, self._expected = directory, expected
        self._encode: Callable[[list[str]], NDArray[Any]] | None = None

    def __call__(self, texts: list[str]) -> NDArray[Any]:
        if self._encode is None:
            encoder = LeanEncoder.open(self._directory)
            require_same(self._expected, encoder.fingerprint)
            self._encode = encoder.encode_documents
        return self._encode(texts)
