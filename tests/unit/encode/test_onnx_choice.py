"""Which implementation a night embeds with: chosen once, remembered, never mixed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from noctuary.core.errors import EncoderError
from noctuary.core.settings import EncoderSettings, Settings
from noctuary.core.store import StorePaths
from noctuary.embed.documents import LIBRARY, Backend, text_key
from noctuary.embed.onnx import HEADER_FILE, MODEL_FILE
from noctuary_assets.night import CONTENT, Night

TinyModel = Callable[..., Path]
TEXTS = ["a river", "stone and paper", "window lamp stone river"]


def _night(root: Path, model: Path) -> Night:
    settings = Settings(encoder=EncoderSettings(model=str(model)))
    return Night(StorePaths(root), root / "memory.db", settings)


def _export(night: Night) -> Path:
    return night.encoder.onnx_directory


def _kept(night: Night, tag: str) -> int:
    handles = night.encoder.vectors(Backend(tag)).find([text_key(text) for text in TEXTS])
    return int((handles >= 0).sum())


def _embed(night: Night, backend: Backend) -> tuple[int, NDArray[np.float32]]:
    found = night.encoder.embed(backend, TEXTS)
    return found.computed, found.vectors


def test_a_supported_model_embeds_with_onnx_and_a_second_night_opens_nothing(
    tiny_model: TinyModel, tmp_path: Path
) -> None:
    night = _night(tmp_path / "store", tiny_model("model"))
    backend = night.encoder.choose_backend(TEXTS)
    assert backend.tag.startswith("onnx-")
    assert _embed(night, backend)[0] == 3
    assert (_kept(night, backend.tag), _kept(night, "")) == (3, 0)
    later = _night(tmp_path / "store", tmp_path / "model")
    again = later.encoder.choose_backend(TEXTS)
    assert (again.tag, again.min_cosine) == (backend.tag, backend.min_cosine)
    assert Backend.from_facts(backend.to_facts()).tag == backend.tag
    assert _embed(later, again)[0] == 0


def test_a_lost_or_damaged_export_is_made_again_with_the_same_bits(
    tiny_model: TinyModel, tmp_path: Path
) -> None:
    night = _night(tmp_path / "store", tiny_model("model"))
    backend = night.encoder.choose_backend(TEXTS)
    _, vectors = _embed(night, backend)
    (_export(night) / MODEL_FILE).write_bytes(b"damaged")
    assert night.encoder.choose_backend(TEXTS).tag == backend.tag
    shutil.rmtree(_export(night))
    shutil.rmtree(night.work(CONTENT))
    # A later stage of a night whose vectors are up to date: it knows the tag from the facts only.
    computed, found = _embed(night, Backend.from_facts(backend.to_facts()))
    assert computed == 3
    np.testing.assert_array_equal(found, vectors)


def test_a_declined_model_is_embedded_by_sentence_transformers_and_the_facts_say_why(
    tiny_model: TinyModel, tmp_path: Path
) -> None:
    night = _night(tmp_path / "store", tiny_model("model"))
    night.encoder.choose_backend(TEXTS)
    header = json.loads((_export(night) / HEADER_FILE).read_text())
    (_export(night) / HEADER_FILE).write_text(
        json.dumps(header | {"declined": "it is a test", "files": {}})
    )
    backend = night.encoder.choose_backend(TEXTS)
    assert backend.to_facts() == {"face": LIBRARY, "onnx_declined": "it is a test"}
    assert _embed(night, backend)[0] == 3
    assert _kept(night, "") == 3
    assert Backend.from_facts(backend.to_facts()).tag == ""


def test_a_later_stage_refuses_to_mix_faces(tiny_model: TinyModel, tmp_path: Path) -> None:
    night = _night(tmp_path / "store", tiny_model("model"))
    with pytest.raises(EncoderError, match="embeds again"):
        _embed(night, Backend("onnx-of-another-runtime"))
