from __future__ import annotations

import json
from pathlib import Path

import pytest

from noctuary.core.errors import EncoderError
from noctuary.core.files import hash_file
from noctuary.embed.sentence import (
    DEFAULT_MODEL,
    DEFAULT_WEIGHTS_SHA256,
    locate_model,
    model_name,
    require_default_weights,
    weights_sha256,
)


def test_default_model_is_the_installed_package_with_the_expected_weights() -> None:
    directory = locate_model(DEFAULT_MODEL)
    assert DEFAULT_WEIGHTS_SHA256.startswith("53aa5117")
    assert weights_sha256(directory) == DEFAULT_WEIGHTS_SHA256
    assert model_name(DEFAULT_MODEL) == DEFAULT_MODEL


def test_other_weights_are_refused(tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match=f"have SHA-256 {'0' * 64}; expected 53aa5117"):
        require_default_weights(tmp_path, "0" * 64)


def test_a_directory_is_itself(tmp_path: Path) -> None:
    model = tmp_path / "my-model"
    model.mkdir()
    assert locate_model(str(model)) == model
    assert model_name(f"{model}/") == "my-model"


@pytest.mark.parametrize("model", ["./absent", "/absent/model", "~/absent-model", ""])
def test_an_absent_path_says_so(model: str) -> None:
    with pytest.raises(EncoderError, match="no model directory at"):
        locate_model(model)


@pytest.mark.parametrize("model", ["absent-model-x", "nobody/absent-model-x", "a/b/c d"])
def test_an_uncached_name_says_what_to_do(model: str) -> None:
    with pytest.raises(EncoderError, match="noctuary never downloads: fetch it yourself"):
        locate_model(model)


def test_one_weights_file_gives_its_own_hash_and_formats_are_not_counted_twice(
    tmp_path: Path,
) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"one")
    (tmp_path / "pytorch_model.bin").write_bytes(b"same weights, other format")
    assert weights_sha256(tmp_path) == hash_file(tmp_path / "model.safetensors")


def test_weights_of_later_modules_count(tmp_path: Path) -> None:
    dense = tmp_path / "2_Dense"
    dense.mkdir()
    (tmp_path / "modules.json").write_text(json.dumps([{"path": ""}, {"path": "2_Dense"}]))
    (tmp_path / "model.safetensors").write_bytes(b"one")
    (dense / "model.safetensors").write_bytes(b"two")
    first = weights_sha256(tmp_path)
    (dense / "model.safetensors").write_bytes(b"three")
    assert weights_sha256(tmp_path) != first


def test_no_weights_and_a_broken_module_list_are_errors(tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match=r"no \*\.safetensors or \*\.bin weights"):
        weights_sha256(tmp_path)
    (tmp_path / "modules.json").write_text("{")
    with pytest.raises(EncoderError, match="not a list of modules"):
        weights_sha256(tmp_path)
