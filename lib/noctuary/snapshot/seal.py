"""Sealing: a serving pack and what the evaluation found out about it become one candidate.

What belongs here: finding a pack, putting the adopted ranking and the thresholds for abstaining
beside its files, the new digest. What does not: building the pack, deciding what is adopted,
choosing a threshold.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from noctuary.errors import SnapshotCorruptError, StoreError
from noctuary.files import fsync_dir, remove_tree, write_text
from noctuary.hashing import JsonValue
from noctuary.snapshot.layout import (
    ABSTENTION_FILE,
    DIGEST_NAME_CHARS,
    MANIFEST_FILE,
    RANKING_FILE,
    SEALED_FILES,
    StorePaths,
)
from noctuary.snapshot.manifest import (
    Manifest,
    compute_digest,
    describe_files,
    full_check,
    pack_digest,
    read_manifest,
    write_manifest,
)
from noctuary.snapshot.publish import find_by_digest, is_intact, list_snapshots

Ranking = Mapping[str, JsonValue]
"""`adopted` (fusion, lexical_weight, dense_weight, graph_weight) and the evidence for it."""

Abstention = Mapping[str, JsonValue]
"""`signals`: by signal its threshold and what that costs (docs/formats.md)."""


def find_pack(paths: StorePaths, digest: str) -> Path | None:
    """Return an intact directory that holds a pack, sealed or not, published or not, or None.

    Args:
        paths: The store.
        digest: The pack's own digest, without what was sealed in.
    """
    exact = find_by_digest(paths, digest)
    if exact is not None and is_intact(exact, digest):
        return exact
    published = [paths.snapshots / name for name in reversed(list_snapshots(paths))]
    candidates = sorted(paths.candidates.glob("[!.]*")) if paths.candidates.is_dir() else []
    for directory in (*candidates, *published):
        if _holds(directory, digest):
            return directory
    return None


def _holds(directory: Path, digest: str) -> bool:
    try:
        manifest = read_manifest(directory)
        if pack_digest(manifest) != digest:
            return False
        full_check(directory, manifest)
    except SnapshotCorruptError:
        return False
    return True


def seal_candidate(
    paths: StorePaths, digest: str, ranking: Ranking | None, abstention: Abstention | None = None
) -> Path:
    """Return the candidate made of a pack, an adopted ranking and thresholds for abstaining.

    Without either the pack itself is the candidate and nothing is copied.

    Args:
        paths: The store.
        digest: The pack's digest.
        ranking: What was adopted and why; None adopts nothing.
        abstention: Below which scores nothing is an answer; None never abstains.

    Raises:
        StoreError: If no intact directory holds the pack.
    """
    pack = find_pack(paths, digest)
    if pack is None:
        raise StoreError("tonight's serving pack is gone: run the nightly job again")
    manifest = read_manifest(pack)
    sealed = {RANKING_FILE: ranking, ABSTENTION_FILE: abstention}
    if ranking is None and abstention is None and manifest.digest == digest:
        return pack
    building = paths.candidates / f".building-{os.getpid()}"
    remove_tree(building)
    building.mkdir(parents=True)
    for name in manifest.files:
        if name not in SEALED_FILES:
            _take_over(pack / name, building / name, linked=pack.parent == paths.candidates)
    for name, document in sealed.items():
        if document is not None:
            text = json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False)
            write_text(building / name, text + "\n")
    return _finish(paths, building, manifest)


def _finish(paths: StorePaths, building: Path, pack: Manifest) -> Path:
    files = describe_files(building)
    digest = compute_digest(files, pack.counts, pack.id_kind, pack.encoder_digest)
    built_at = datetime.now(UTC).isoformat(timespec="seconds")
    write_manifest(building, replace(pack, files=files, digest=digest, built_at=built_at))
    for path in building.iterdir():
        if path.name != MANIFEST_FILE:
            _sync(path)
    fsync_dir(building)
    final = paths.candidates / digest[:DIGEST_NAME_CHARS]
    remove_tree(final)
    building.rename(final)
    fsync_dir(paths.candidates)
    return final


def _take_over(source: Path, target: Path, *, linked: bool) -> None:
    """Put a file of a pack into a candidate.

    What an unpublished pack holds is linked, not copied: nothing writes into it any more, and it is
    removed soon. A published snapshot keeps bytes of its own, so that one damage is one snapshot's.
    """
    if linked:
        with suppress(OSError):
            os.link(source, target)
            return
    shutil.copyfile(source, target)


def _sync(path: Path) -> None:
    with path.open("rb") as handle:
        os.fsync(handle.fileno())
