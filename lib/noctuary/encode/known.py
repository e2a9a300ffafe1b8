"""Fingerprints of models seen before, so that a night with nothing to embed does not load one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from noctuary.encode.fingerprint import EncoderFingerprint
from noctuary.encode.locate import locate_model, weights_sha256
from noctuary.errors import EncoderError
from noctuary.files import write_text
from noctuary.foreign_json import parse_json
from noctuary.hashing import hash_file, hash_text


def find_fingerprint(
    model: str, known_path: Path, measure: Callable[[], EncoderFingerprint]
) -> EncoderFingerprint:
    """Return a model's fingerprint, measured once per state of its files.

    Args:
        model: Name or path, as configured.
        known_path: JSON file of what was measured before; a damaged one is measured again.
        measure: Loads the model and reads its fingerprint.

    Raises:
        EncoderError: If the model is missing or not the expected one.
    """
    state = _files_state(locate_model(model))
    try:
        return EncoderFingerprint.from_json(parse_json(known_path.read_text("utf-8"))[state])
    except (OSError, ValueError, KeyError, TypeError, EncoderError):
        fingerprint = measure()
    write_text(known_path, json.dumps({state: fingerprint.to_json()}, indent=1) + "\n")
    return fingerprint


def _files_state(directory: Path) -> str:
    """Return a digest of the weights and of every small file that configures the model."""
    configs = sorted(directory.rglob("*.json"))
    parts = [f"{p.relative_to(directory)}:{hash_file(p)}" for p in configs]
    return hash_text(weights_sha256(directory), *parts)
