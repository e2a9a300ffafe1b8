from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from noctuary.core.errors import EncoderError
from noctuary.embed.lean import LeanEncoder
from noctuary.embed.onnx import OnnxEncoder
from noctuary.embed.sentence import (
    MIN_COSINE,
    PROBE_TEXTS,
    SentenceEncoder,
    export_lean,
    export_onnx,
    measure_agreement,
    open_sentence_encoder,
)

TinyModel = Callable[..., Path]


class ForgetsThePrefix(SentenceEncoder):
    """Its documents are right; a query loses what the model wants before it."""

    def encode_query(self, text: str) -> NDArray[np.float32]:
        return self.encode_documents([text])[0]


@pytest.fixture
def prompted(tiny_model: TinyModel) -> SentenceEncoder:
    directory = tiny_model("prompted")
    prompts = '{"prompts": {"query": "tell me of the long river and its stone: "}}'
    (directory / "config_sentence_transformers.json").write_text(prompts)
    return open_sentence_encoder(str(directory))


def forgetful(encoder: SentenceEncoder) -> SentenceEncoder:
    return ForgetsThePrefix(encoder.model, encoder.model_dir, encoder.fingerprint)


def test_all_three_faces_agree_on_documents_and_on_queries(
    prompted: SentenceEncoder, tmp_path: Path
) -> None:
    export_lean(prompted, tmp_path / "lean", [])
    assert not export_onnx(prompted, tmp_path / "m.onnx", []).declined
    texts = ["a river", "a stone and a lamp", *PROBE_TEXTS]
    for face in (LeanEncoder.open(tmp_path / "lean"), OnnxEncoder.open(tmp_path / "m.onnx")):
        cosines = measure_agreement(prompted, face, texts)
        assert cosines.shape == (len(texts) + len(PROBE_TEXTS),)
        assert float(cosines.min()) >= MIN_COSINE


def test_a_numpy_encoder_that_disagrees_on_queries_only_is_refused(
    prompted: SentenceEncoder, tmp_path: Path
) -> None:
    with pytest.raises(EncoderError, match=r"on query \d: cosine"):
        export_lean(forgetful(prompted), tmp_path / "lean", ["a river"])
    assert list(tmp_path.glob("lean*")) == []


def test_an_onnx_encoder_that_disagrees_on_queries_only_is_declined(
    prompted: SentenceEncoder, tmp_path: Path
) -> None:
    header = export_onnx(forgetful(prompted), tmp_path / "m.onnx", ["a river"])
    assert "disagrees with prompted on query" in header.declined
