"""The directory of an exported ONNX encoder: names, header, and what identifies its vectors.

What belongs here: the files and their checks. Exporting is in `onnx_export`, running in
`onnx_encoder`; neither onnxruntime nor torch is imported here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from noctuary.encode.fingerprint import DIGEST_CHARS, EncoderFingerprint
from noctuary.errors import EncoderError
from noctuary.files import write_text
from noctuary.foreign_json import parse_json
from noctuary.hashing import hash_file, hash_json

MODEL_FILE = "model.onnx"
TOKENIZER_FILE = "tokenizer.json"
HEADER_FILE = "onnx.json"

EXPORT_VERSION = 1
"""Bumped when an export of the same model would give other files, or be judged otherwise."""

_PACKAGES = ("onnx", "onnxruntime", "sentence-transformers", "torch", "transformers")

_FIELDS = {
    "fingerprint": dict,
    "toolchain": dict,
    "files": dict,
    "min_cosine": float,
    "sampled_texts": int,
    "declined": str,
}


@dataclass(frozen=True, slots=True)
class OnnxHeader:
    """What an export found, kept beside it; also kept where the model was declined.

    Attributes:
        fingerprint: Of the model.
        toolchain: What exported, checked and runs it (see `toolchain`).
        files: SHA-256 by file name; empty where declined.
        min_cosine: Worst agreement with sentence-transformers; 0 where it was not measured.
        sampled_texts: Texts compared.
        declined: Why the model is not used this way; empty if it is.
    """

    fingerprint: EncoderFingerprint
    toolchain: Mapping[str, str]
    files: Mapping[str, str]
    min_cosine: float
    sampled_texts: int
    declined: str = ""

    @property
    def tag(self) -> str:
        """Name of these vectors among those of one fingerprint; empty where declined.

        It changes with the graph, the tokenizer and the version of the runtime, because each of
        them may change the last bits.
        """
        if self.declined:
            return ""
        runtime = self.toolchain["onnxruntime"]
        return f"onnx-{hash_json({'files': dict(self.files), 'runtime': runtime})[:DIGEST_CHARS]}"


def onnx_directory(encoders: Path, fingerprint: EncoderFingerprint) -> Path:
    """Return where the ONNX face of a fingerprint is, below a store's encoders."""
    return encoders / f"{fingerprint.digest}.onnx"


def toolchain() -> dict[str, str] | None:
    """Return the versions that an export depends on, or None if one is not installed."""
    try:
        return {
            "export": str(EXPORT_VERSION),
            **{name: version(name) for name in _PACKAGES},
        }
    except PackageNotFoundError:
        return None


def write_header(directory: Path, header: OnnxHeader) -> None:
    """Write the header; last, because it vouches for the other files."""
    write_text(directory / HEADER_FILE, json.dumps(asdict(header), indent=1, sort_keys=True) + "\n")


def read_header(directory: Path) -> OnnxHeader:
    """Read the header without touching the other files.

    Raises:
        EncoderError: It is missing or damaged.
    """
    path = directory / HEADER_FILE
    try:
        return _parse(parse_json(path.read_text("utf-8")))
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise EncoderError(
            f"{path} is not the header of an ONNX export ({type(error).__name__}: {error}). Delete "
            "its directory; the next night exports again."
        ) from error


def _parse(value: dict[str, Any]) -> OnnxHeader:
    wrong = [name for name, kind in _FIELDS.items() if not isinstance(value[name], kind)]
    if wrong:
        raise TypeError(f"of another type: {', '.join(wrong)}")
    return OnnxHeader(
        fingerprint=EncoderFingerprint.from_json(value["fingerprint"]),
        toolchain=value["toolchain"],
        files=value["files"],
        min_cosine=value["min_cosine"],
        sampled_texts=value["sampled_texts"],
        declined=value["declined"],
    )


def hash_files(directory: Path) -> dict[str, str]:
    """Return the SHA-256 of the graph and of the tokenizer.

    Raises:
        EncoderError: One of them is missing.
    """
    try:
        return {name: hash_file(directory / name) for name in (MODEL_FILE, TOKENIZER_FILE)}
    except OSError as error:
        raise EncoderError(
            f"the ONNX export in {directory} is incomplete ({error}). Delete the directory; the "
            "next night exports again."
        ) from error
