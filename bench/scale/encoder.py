"""The bundled model cut to its first layer: every step of the real one at a fifth of the time.

`python -m bench.scale.encoder DIRECTORY`

A million texts take the bundled model hours on two cores; what comes after the vectors is the same
work whatever made them. What the bundled model itself costs is measured on fewer texts.
"""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from mnemon.encode.locate import DEFAULT_MODEL, locate_model

LAYERS = 1
_WEIGHTS = "model.safetensors"


def write_cut_model(directory: Path, layers: int = LAYERS) -> Path:
    """Write the bundled model's first layers as a model of their own, and return the directory.

    Args:
        directory: Replaced where it exists; its name is the model's name.
        layers: How many transformer layers are kept, at least 1.
    """
    arrays: Any = importlib.import_module("safetensors.numpy")
    source = locate_model(DEFAULT_MODEL)
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(source, directory, ignore=shutil.ignore_patterns(_WEIGHTS, "*.md"))
    kept = {f"encoder.layer.{layer}." for layer in range(layers)}
    weights = {
        name: array
        for name, array in arrays.load_file(source / _WEIGHTS).items()
        if not name.startswith("encoder.layer.") or any(name.startswith(p) for p in kept)
    }
    arrays.save_file(weights, directory / _WEIGHTS, metadata={"format": "pt"})
    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    config["num_hidden_layers"] = layers
    (directory / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    return directory


if __name__ == "__main__":
    write_cut_model(Path(sys.argv[1]))
