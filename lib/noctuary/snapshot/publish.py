"""Verdicts, sealing, publishing, rollback, retention: the only code that moves the pointer."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from noctuary.core.errors import (
    PublishRefusedError,
    SnapshotCorruptError,
    SnapshotMissingError,
    SnapshotOutdatedError,
    StoreError,
)
from noctuary.core.files import (
    JsonValue,
    fsync_dir,
    fsync_file,
    make_directory,
    remove_tree,
    write_text,
)
from noctuary.core.foreign_json import parse_json
from noctuary.core.manifest import (
    Manifest,
    Pointer,
    compute_digest,
    describe_files,
    full_check,
    pack_digest,
    read_manifest,
    read_pointer,
    write_manifest,
    write_pointer,
)
from noctuary.core.store import (
    ABSTENTION_FILE,
    DIGEST_NAME_CHARS,
    RANKING_FILE,
    SEALED_FILES,
    StorePaths,
    is_snapshot_id,
)

PASS = "PASS"
FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One sentence about the candidate, whether it holds, and the numbers behind it."""

    name: str
    passed: bool
    found: dict[str, int | float | str]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The gate's judgement of exactly one candidate."""

    digest: str
    outcome: str
    checks: tuple[CheckResult, ...]
    judged_at: str


def store_verdict(paths: StorePaths, digest: str, checks: Sequence[CheckResult]) -> Verdict:
    """Store the verdict on a candidate: PASS if every check holds and there is at least one."""
    passed = bool(checks) and all(c.passed for c in checks)
    verdict = Verdict(
        digest=digest,
        outcome=PASS if passed else FAIL,
        checks=tuple(checks),
        judged_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    write_text(paths.verdicts / f"{digest}.json", json.dumps(asdict(verdict), indent=1) + "\n")
    return verdict


def read_verdict(paths: StorePaths, digest: str) -> Verdict | None:
    """Return the verdict stored for a digest; a missing, damaged or foreign one is None."""
    try:
        raw = parse_json((paths.verdicts / f"{digest}.json").read_text(encoding="utf-8"))
        checks = tuple(CheckResult(**c) for c in raw.pop("checks"))
        verdict = Verdict(checks=checks, **raw)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return verdict if verdict.digest == digest else None


# A candidate is published only if a PASS verdict has exactly its digest and its bytes still match
# it. The move is rename, then pointer swap (write, fsync, rename): killed anywhere, either the old
# or the new pointer is intact.


_ID_DIGEST_CHARS = 12
_READ_ONLY_FILE = 0o400


@dataclass(frozen=True, slots=True)
class Publication:
    """The result of publishing."""

    snapshot_id: str  # the serving snapshot
    published: bool  # False when the candidate already served
    removed: tuple[str, ...]  # snapshots that the retention rule removed


def read_intact(directory: Path) -> Manifest | None:
    """Return the manifest of a directory whose bytes all match it; None otherwise."""
    try:
        manifest = read_manifest(directory)
        full_check(directory, manifest)
    except SnapshotCorruptError:
        return None
    return manifest


def serving_manifest(paths: StorePaths) -> Manifest | None:
    """Return the manifest of the serving snapshot, or None if nothing intact serves."""
    try:
        pointer = read_pointer(paths)
    except (SnapshotMissingError, SnapshotCorruptError):
        return None
    # Every byte: a damaged snapshot must not count as serving, or no night would replace it.
    manifest = read_intact(paths.snapshots / pointer.snapshot_id)
    return manifest if manifest is not None and manifest.digest == pointer.digest else None


def find_damage(paths: StorePaths, read: Callable[[Path], str]) -> str | None:
    """Return a description of damage to the serving snapshot; None if intact or none serves."""
    try:
        directory = paths.snapshots / read_pointer(paths).snapshot_id
        full_check(directory, read_manifest(directory), read)
    except (SnapshotMissingError, SnapshotOutdatedError):
        return None
    except SnapshotCorruptError as error:
        return str(error)
    return None


def serves(paths: StorePaths, digest: str) -> bool:
    """Return whether an intact snapshot of a digest serves; its bytes are read only if needed."""
    try:
        if read_pointer(paths).digest != digest:
            return False
    except (SnapshotMissingError, SnapshotCorruptError):
        return False
    return serving_manifest(paths) is not None


def find_refusal(paths: StorePaths, digest: str) -> str | None:
    """Return why the candidate of this digest may not serve; None where its verdict is PASS."""
    verdict = read_verdict(paths, digest)
    if verdict is None:
        return (
            f"candidate {digest[:_ID_DIGEST_CHARS]} has no verdict: run the gate (the whole "
            "nightly job) first"
        )
    if verdict.outcome == PASS:
        return None
    failed = ", ".join(c.name for c in verdict.checks if not c.passed)
    return (
        f"the gate failed candidate {digest[:_ID_DIGEST_CHARS]} ({failed}): yesterday's "
        "snapshot keeps serving"
    )


def publish_candidate(paths: StorePaths, digest: str, keep: int) -> Publication:
    """Make the candidate of this digest the serving snapshot, if its verdict is PASS.

    Raises:
        PublishRefusedError: If there is no verdict for this digest, or it is FAIL.
        SnapshotCorruptError: If the candidate's bytes do not have this digest any more.
    """
    if (refusal := find_refusal(paths, digest)) is not None:
        raise PublishRefusedError(refusal)
    if serves(paths, digest):
        return Publication(read_pointer(paths).snapshot_id, False, ())
    snapshot_id = _install(paths, digest)
    _point_at(paths, snapshot_id, digest, "publish")
    return Publication(snapshot_id, True, apply_retention(paths, keep))


def rollback(paths: StorePaths, snapshot_id: str | None = None) -> Pointer:
    """Point at an older published snapshot after verifying every byte of it."""
    published = list_snapshots(paths)
    if not published:
        raise SnapshotMissingError(
            f"nothing has been published in {paths.root}: run `noctuary nightly` first"
        )
    current = serving_id(paths)
    if snapshot_id is None:
        older = [name for name in published if current is None or name < current]
        if current not in published:  # a damaged pointer's name may sort before all of them
            older = older or published
        if not older:
            raise SnapshotMissingError(
                f"there is no snapshot older than {current}: `noctuary snapshots` lists what exists"
            )
        snapshot_id = older[-1]
    if snapshot_id not in published:
        raise SnapshotMissingError(
            f"there is no snapshot {snapshot_id!r}: `noctuary snapshots` lists what exists "
            f"({len(published)} found)"
        )
    manifest = read_manifest(paths.snapshots / snapshot_id)
    full_check(paths.snapshots / snapshot_id, manifest)
    return _point_at(paths, snapshot_id, manifest.digest, "rollback")


def list_snapshots(paths: StorePaths) -> list[str]:
    """Return the ids of all published snapshots, oldest first."""
    if not paths.snapshots.is_dir():
        return []
    return sorted(p.name for p in paths.snapshots.iterdir() if is_snapshot_id(p.name))


def apply_retention(paths: StorePaths, keep: int) -> tuple[str, ...]:
    """Remove the oldest snapshots beyond `keep`; never the serving one or the one before it."""
    names = list_snapshots(paths)
    pointer = read_pointer(paths)
    protected = {pointer.snapshot_id, pointer.previous_id}
    excess = [n for n in names if n not in protected][: max(len(names) - keep, 0)]
    return remove_snapshots(paths, excess)


def drop_older_snapshots(paths: StorePaths) -> tuple[str, ...]:
    """Remove every snapshot but the serving one: a published row has become sensitive since."""
    pointer = read_pointer(paths)
    return remove_snapshots(paths, [n for n in list_snapshots(paths) if n != pointer.snapshot_id])


def remove_snapshots(paths: StorePaths, names: Sequence[str]) -> tuple[str, ...]:
    """Remove snapshots by name, whichever they are; one that serves must not be among them."""
    # Renamed first, on disk too: a half-deleted snapshot is never mistaken for a published one.
    for name in names:
        (paths.snapshots / name).rename(paths.root / f".removing-{name}")
    if names:
        fsync_dir(paths.snapshots)
        fsync_dir(paths.root)
    for leftover in paths.root.glob(".removing-*"):
        remove_tree(leftover)
    fsync_dir(paths.root)  # before reporting that it is gone
    return tuple(names)


def forget_questions(paths: StorePaths) -> None:
    """Remove recorded questions: people ask in the words of their memories."""
    for log in (paths.queries, paths.replays):
        for ending in ("", "-wal", "-shm"):
            log.with_name(log.name + ending).unlink(missing_ok=True)


def _install(paths: StorePaths, digest: str) -> str:
    """Move the verified candidate below `snapshots`, or reuse one that a killed night moved."""
    make_directory(paths.snapshots)
    suffix = digest[:_ID_DIGEST_CHARS]
    for name in list_snapshots(paths):
        if name.endswith(f"-{suffix}") and is_intact(paths.snapshots / name, digest):
            return name
    candidate = paths.candidates / digest[:DIGEST_NAME_CHARS]
    if not candidate.is_dir():
        raise StoreError(
            f"there is no candidate {candidate.name} in {paths.root}: run the nightly job"
        )
    manifest = read_manifest(candidate)
    full_check(candidate, manifest)
    if manifest.digest != digest:
        raise SnapshotCorruptError(
            f"the candidate in {candidate.name} has digest {manifest.digest[:_ID_DIGEST_CHARS]}, "
            f"the verdict is for {suffix}: run the nightly job again"
        )
    for path in candidate.iterdir():
        path.chmod(_READ_ONLY_FILE)
    snapshot_id = f"{_next_stamp(paths)}-{suffix}"
    candidate.rename(paths.snapshots / snapshot_id)
    fsync_dir(paths.candidates)
    return snapshot_id


def find_by_digest(paths: StorePaths, digest: str) -> Path | None:
    """Return the directory that holds a digest, as a candidate or published, or None."""
    candidate = paths.candidates / digest[:DIGEST_NAME_CHARS]
    if candidate.is_dir():
        return candidate
    suffix = f"-{digest[:_ID_DIGEST_CHARS]}"
    for name in reversed(list_snapshots(paths)):
        if name.endswith(suffix):
            return paths.snapshots / name
    return None


def is_intact(directory: Path, digest: str) -> bool:
    """Return whether a directory holds exactly the bytes of a digest."""
    manifest = read_intact(directory)
    return manifest is not None and manifest.digest == digest


def _next_stamp(paths: StorePaths) -> str:
    """Return a UTC time stamp later than every published one, so that names sort by publication."""
    # The clock may have been set back since the last night.
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    names = list_snapshots(paths)
    newest = names[-1].split("-")[0] if names else ""
    if newest and now <= newest:
        head, digits = newest[:9], newest[9:]
        return f"{head}{int(digits) + 1:0{len(digits)}d}"
    return now


def _point_at(paths: StorePaths, snapshot_id: str, digest: str, reason: str) -> Pointer:
    pointer = Pointer(
        snapshot_id=snapshot_id,
        digest=digest,
        published_at=datetime.now(UTC).isoformat(timespec="seconds"),
        previous_id=serving_id(paths),
        reason=reason,
    )
    fsync_dir(paths.snapshots)  # also where a killed night moved it there
    write_pointer(paths, pointer)
    return pointer


def serving_id(paths: StorePaths) -> str | None:
    """Return the id in CURRENT, or None if it cannot be read."""
    try:
        return read_pointer(paths).snapshot_id
    except (SnapshotMissingError, SnapshotCorruptError):
        return None


Ranking = Mapping[str, JsonValue]
"""`adopted` (fusion, lexical_weight, dense_weight, graph_weight) and the evidence for it."""

Abstention = Mapping[str, JsonValue]
"""`signals`: by signal its threshold and the cost of that (docs/formats.md)."""


def find_pack(paths: StorePaths, digest: str) -> Path | None:
    """Return an intact directory that holds a pack, sealed or not, published or not, or None."""
    exact = find_by_digest(paths, digest)
    if exact is not None and is_intact(exact, digest):
        return exact
    published = [paths.snapshots / name for name in reversed(list_snapshots(paths))]
    candidates = sorted(paths.candidates.glob("[!.]*")) if paths.candidates.is_dir() else []
    for directory in (*candidates, *published):
        with suppress(SnapshotCorruptError):
            # Before its bytes: most hold other packs.
            if pack_digest(read_manifest(directory)) == digest and read_intact(directory):
                return directory
    return None


def seal_candidate(
    paths: StorePaths, digest: str, ranking: Ranking | None, abstention: Abstention | None = None
) -> Path:
    """Return the candidate made of a pack, an adopted ranking and thresholds for abstaining."""
    # Without either the pack itself is the candidate and nothing is copied.
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
    files = describe_files(building)
    digest = compute_digest(files, manifest.counts, manifest.id_kind, manifest.encoder_digest)
    built_at = datetime.now(UTC).isoformat(timespec="seconds")
    sealed_manifest = manifest._replace(files=files, digest=digest, built_at=built_at)
    return place_candidate(paths, building, sealed_manifest)


def place_candidate(paths: StorePaths, building: Path, manifest: Manifest) -> Path:
    """Give a directory its manifest, flush it and put it in place; an equal candidate goes."""
    write_manifest(building, manifest)
    for path in building.iterdir():
        fsync_file(path)
    fsync_dir(building)
    final = paths.candidates / manifest.digest[:DIGEST_NAME_CHARS]
    remove_tree(final)
    building.rename(final)
    fsync_dir(paths.candidates)
    return final


def _take_over(source: Path, target: Path, *, linked: bool) -> None:
    """Put a file of a pack into a candidate."""
    # Files of an unpublished pack are linked, not copied: nothing writes to them any more, and the
    # pack is removed soon. A published snapshot keeps its own bytes, so that damage stays local.
    if linked:
        with suppress(OSError):
            os.link(source, target)
            return
    shutil.copyfile(source, target)
