"""What `noctuary doctor` says about what serves: pointer, snapshot, age, encoder, calibration.

What belongs here: the serving snapshot and what was made with it. What does not: files beside it
(`doctor`), where it came from (`inputs`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from noctuary.diagnosis.finding import Finding
from noctuary.diagnosis.inputs import look_at_source
from noctuary.diagnosis.rows import look_at_vectors
from noctuary.encode.fingerprint import EncoderFingerprint, require_same
from noctuary.errors import ConfigError, NoctuaryError, SnapshotCorruptError
from noctuary.recall.answerability import Calibration
from noctuary.settings import Settings
from noctuary.snapshot.layout import ABSTENTION_FILE, StorePaths
from noctuary.snapshot.manifest import Manifest, Pointer, full_check, read_manifest, read_pointer
from noctuary.snapshot.nights import last_night_hours


def look_at_serving(paths: StorePaths, settings: Settings, *, is_hooked: bool) -> Iterator[Finding]:
    """Yield how it is with the snapshot that serves.

    Args:
        paths: The store.
        settings: The settings in force.
        is_hooked: Whether some agent runs noctuary's hooks.
    """
    try:
        pointer = read_pointer(paths)
    except NoctuaryError as error:
        yield Finding("pointer", "fail", str(error), "run `make nightly`, or `noctuary rollback`")
        return
    yield Finding("pointer", "ok", f"{pointer.snapshot_id} serves since {pointer.published_at}")
    directory = paths.snapshots / pointer.snapshot_id
    try:
        manifest = _verified(directory, pointer)
    except NoctuaryError as error:
        yield Finding(
            "snapshot", "fail", str(error), "run `noctuary rollback`, then `make nightly`"
        )
        return
    total = sum(entry.bytes for entry in manifest.files.values())
    yield Finding(
        "snapshot", "ok", f"{len(manifest.files)} files, {total / 1e6:.1f} MB, every checksum holds"
    )
    yield look_at_age(paths, pointer, settings.recall.stale_after_hours)
    yield _encoder(paths, manifest)
    yield from look_at_vectors(directory, manifest)
    yield look_at_source(manifest)
    yield look_at_abstention(directory, wants=is_hooked and settings.hook.abstain)


def look_at_age(paths: StorePaths, pointer: Pointer, limit_hours: float) -> Finding:
    """Return how long ago a night went through.

    Args:
        paths: The store.
        pointer: What serves.
        limit_hours: From which age on the snapshot is stale; 0 means never.
    """
    hours = last_night_hours(paths)
    if hours is None or 0 < limit_hours < hours:
        since = "ever" if hours is None else f"for {hours:.0f} h"
        return Finding(
            "age",
            "warn",
            f"no night went through {since}; the snapshot was published at {pointer.published_at}",
            "check that the schedule is on (`make ui`) or that cron runs `make nightly`",
        )
    return Finding("age", "ok", f"the last night went through {hours:.1f} h ago")


def look_at_abstention(snapshot: Path, *, wants: bool) -> Finding:
    """Return whether the snapshot knows below which score it had better say nothing.

    Args:
        snapshot: The snapshot's directory.
        wants: Whether anything abstains by it: hooks are installed and hook.abstain is true.
    """
    try:
        calibration = Calibration.parse((snapshot / ABSTENTION_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        calibration = None
    except (OSError, ValueError) as error:
        return Finding(
            "abstention", "warn", f"{ABSTENTION_FILE} cannot be read: {error}", "run `make nightly`"
        )
    if calibration is not None:
        thresholds = sorted(calibration.thresholds.items())
        told = ", ".join(f"{signal} below {at:.2f}" for signal, at in thresholds)
        return Finding("abstention", "ok", f"calibrated: {told}")
    if not wants:
        return Finding("abstention", "ok", "not calibrated, and nothing abstains by it here")
    message = "not calibrated: prompts get the best memories, however unlike them"
    remedy = "run `make nightly`: each night calibrates (docs/abstention.md)"
    return Finding("abstention", "warn", message, remedy)


def _verified(directory: Path, pointer: Pointer) -> Manifest:
    manifest = read_manifest(directory)
    full_check(directory, manifest)
    if manifest.digest != pointer.digest:
        raise SnapshotCorruptError(
            f"snapshot {pointer.snapshot_id} is whole, but not the one that was published"
        )
    return manifest


def _encoder(paths: StorePaths, manifest: Manifest) -> Finding:
    if manifest.encoder is None or manifest.encoder_digest is None:
        return Finding(
            "encoder", "warn", "the snapshot has no vectors: recall is lexical and graph only"
        )
    if EncoderFingerprint.from_json(manifest.encoder).is_hosted:
        return _hosted_encoder(paths.encoders / manifest.encoder_digest)
    # Here and not above: numpy must not be loaded before `noctuary recall` has limited its threads.
    from noctuary.encode.lean import LeanEncoder
    from noctuary.encode.onnx_encoder import OnnxEncoder
    from noctuary.encode.onnx_format import onnx_directory

    expected = EncoderFingerprint.from_json(manifest.encoder)
    directory = paths.encoders / manifest.encoder_digest
    export = onnx_directory(paths.encoders, expected)
    try:
        if export.is_dir() and not directory.is_dir():
            encoder = OnnxEncoder.open(export, 1)
        else:
            encoder = LeanEncoder.open(directory, verify=True)
        require_same(expected, encoder.fingerprint)
    except NoctuaryError as error:
        return Finding(
            "encoder", "fail", str(error), "run `make nightly`: it exports the query encoder again"
        )
    by = "" if isinstance(encoder, LeanEncoder) else ", by ONNX Runtime"
    made = encoder.fingerprint
    return Finding("encoder", "ok", f"{made.model}, {made.dimension} dimensions{by}")


def _hosted_encoder(directory: Path) -> Finding:
    """Look at the description and the key; the provider is not asked, because that costs."""
    from noctuary.encode.hosted.model import read_description
    from noctuary.settings.api_key import read_api_key

    try:
        model = read_description(directory)
    except NoctuaryError as error:
        return Finding(
            "encoder", "fail", str(error), "run `make nightly`: it describes the encoder again"
        )
    try:
        read_api_key(model.api_key_variable, "encoder.api_key_variable")
    except ConfigError as error:
        return Finding(
            "encoder",
            "warn",
            f"{model.title} cannot be asked from here: {error}; recall is lexical and graph only",
            f"set {model.api_key_variable} where recall runs, hooks and servers included",
        )
    message = f"{model.title}, {model.dimension} dimensions, over the network: queries leave"
    return Finding("encoder", "ok", message)
