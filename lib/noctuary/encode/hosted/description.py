"""The file by which the read side finds a hosted model: `encoders/<fingerprint>/hosted.json`.

What belongs here: writing and reading it. It holds names, an address and the name of a variable,
never a key. A recall asks the model that made the snapshot it reads, whatever the settings say by
then: that is why this is a file of the store.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from noctuary.encode.hosted.model import HostedModel
from noctuary.encode.hosted.shapes import SHAPES
from noctuary.errors import EncoderError
from noctuary.files import write_text
from noctuary.foreign_json import parse_json
from noctuary.settings.web_address import require_web_address

HOSTED_FILE = "hosted.json"
FORMAT_VERSION = 1

_TYPES: Mapping[str, type] = {"str": str, "int": int, "bool": bool}


def describe_model(model: HostedModel) -> dict[str, Any]:
    """Return what the file says."""
    return {
        "format_version": FORMAT_VERSION,
        "fingerprint": model.fingerprint().to_json(),
        "model": asdict(model),
    }


def write_description(directory: Path, model: HostedModel) -> None:
    """Replace the file atomically; the directory is made."""
    directory.mkdir(parents=True, exist_ok=True)
    text = json.dumps(describe_model(model), indent=1, sort_keys=True)
    write_text(directory / HOSTED_FILE, text + "\n")


def read_description(directory: Path) -> HostedModel:
    """Return the model of a directory.

    Raises:
        EncoderError: There is no file, or it is not one that this version wrote.
    """
    path = directory / HOSTED_FILE
    try:
        told: Any = parse_json(path.read_text(encoding="utf-8"))
        model = _model(told["model"])
        whole = told["format_version"] == FORMAT_VERSION
        agrees = told["fingerprint"] == model.fingerprint().to_json()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EncoderError(
            f"cannot read {path} ({type(error).__name__}); expected what a night writes of a "
            "hosted model. Run the nightly job again."
        ) from None
    if not whole or not agrees:
        raise EncoderError(
            f"{path} is of another version of noctuary, or was changed by hand. Run the nightly "
            "job again."
        )
    return model


def _model(told: Mapping[str, Any]) -> HostedModel:
    for field in fields(HostedModel):
        # bool is a subclass of int, and True must not pass for a dimension.
        if type(told[field.name]) is not _TYPES[str(field.type)]:
            raise TypeError(field.name)
    model = HostedModel(**told)
    if model.provider not in SHAPES or model.dimension < 1:
        raise ValueError(model.provider)
    if model.url:
        require_web_address(model.url)
    return model
