"""The default model without torch: its graph over the weights of the package, its tokenizer."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from noctuary.core.errors import EncoderError
from noctuary.embed import checkpoint, default_model, lean
from noctuary.embed.checkpoint import (
    default_checkpoint,
    default_fingerprint,
    export_default,
    export_lean,
    write_graph,
)
from noctuary.embed.lean import LeanEncoder
from noctuary.embed.onnx import HEADER_FILE, MODEL_FILE, OnnxEncoder, known_header, read_header
from noctuary.embed.sentence import SentenceEncoder
from tests.support.labelled_cut import SHARED

SETS = ("locomo", "scifact", "memdaily_zh", "realmem", "cranfield")
TEXTS = (
    "",
    "a",
    "stone " * 254,
    "stone " * 255,
    "x" * 5_000,
    "[SEP] [CLS]",
    "\ud800",
    "北京 ΣΟΦΟΣ",
)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("encoders") / "default.onnx"
    export_default(directory)
    return directory


@pytest.fixture(scope="module")
def encoder(exported: Path) -> OnnxEncoder:
    return OnnxEncoder.open(exported)


def test_the_identity_is_the_one_that_the_loaded_model_tells(minilm: SentenceEncoder) -> None:
    assert default_fingerprint() == minilm.fingerprint


def test_nothing_of_the_model_is_copied(exported: Path) -> None:
    assert sorted(path.name for path in exported.iterdir()) == [MODEL_FILE, HEADER_FILE]
    assert (exported / MODEL_FILE).stat().st_size < 50_000
    header = read_header(exported)
    assert header.files["model.safetensors"] == checkpoint.DEFAULT_WEIGHTS_SHA256
    assert known_header(exported, default_fingerprint()) == header


def test_the_graph_is_the_same_in_every_process(exported: Path) -> None:
    code = (
        "import sys\nfrom noctuary.embed.checkpoint import default_checkpoint, write_graph\n"
        "sys.stdout.buffer.write(write_graph(default_checkpoint()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout == write_graph(default_checkpoint()) == (exported / MODEL_FILE).read_bytes()


def _least(minilm: SentenceEncoder, encoder: OnnxEncoder, texts: list[str]) -> float:
    expected = minilm.model.encode(
        [text.replace("\ud800", "\ufffd") for text in texts],
        normalize_embeddings=True,
        show_progress_bar=False,
    )
    found = encoder.encode_documents(texts)
    return float(np.einsum("ij,ij->i", found, expected, dtype=np.float64).min())


def test_odd_and_long_texts_agree_with_sentence_transformers(
    minilm: SentenceEncoder, encoder: OnnxEncoder
) -> None:
    assert _least(minilm, encoder, list(TEXTS)) >= 0.999999


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
def test_real_texts_agree_with_sentence_transformers(
    minilm: SentenceEncoder, encoder: OnnxEncoder, name: str
) -> None:
    texts = list(_texts(name, 200))
    assert len(texts) == 200
    assert _least(minilm, encoder, texts) >= 0.999999


def _texts(name: str, count: int) -> Iterator[str]:
    path = SHARED / name / "corpus.jsonl.gz"
    if not path.is_file():
        pytest.skip(f"needs the evaluation set {path}")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    for row in rows[:: len(rows) // count][:count]:
        yield next(str(row[key]) for key in ("text", "content") if row.get(key))


def test_the_numpy_encoder_is_checked_against_it(encoder: OnnxEncoder, tmp_path: Path) -> None:
    cosine = export_lean(encoder, default_checkpoint, tmp_path / "lean", ["a river"])
    assert cosine >= 0.999999
    assert LeanEncoder.open(tmp_path / "lean", verify=True).fingerprint == encoder.fingerprint


def test_the_numpy_encoder_has_no_copy_and_says_what_a_moved_store_lacks(
    encoder: OnnxEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export_lean(encoder, default_checkpoint, tmp_path / "lean", [])
    assert sorted(path.name for path in (tmp_path / "lean").iterdir()) == [
        lean.HEADER_FILE, lean.VOCAB_FILE,
    ]  # fmt: skip
    here = LeanEncoder.open(tmp_path / "lean").encode_query("a river")
    code = (
        "import sys\nfrom pathlib import Path\nfrom noctuary.embed.lean import LeanEncoder\n"
        "vector = LeanEncoder.open(Path(sys.argv[1])).encode_query('a river')\n"
        "assert 'safetensors' not in sys.modules and 'noctuary.embed.onnx' not in sys.modules\n"
        "sys.stdout.buffer.write(vector.tobytes())"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "lean")]
    assert subprocess.run(command, capture_output=True, check=True).stdout == here.tobytes()
    weights = lean.locate_weights(tmp_path / "lean", encoder.fingerprint)
    monkeypatch.setattr(default_model, "DEFAULT_PACKAGE", "absent_model_package")
    with pytest.raises(EncoderError, match="`noctuary nightly` fetches it"):
        LeanEncoder.open(tmp_path / "lean")
    (tmp_path / "lean" / lean.WEIGHTS_FILE).symlink_to(weights)
    assert np.array_equal(LeanEncoder.open(tmp_path / "lean").encode_query("a river"), here)


def test_a_missing_package_is_one_sentence(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default_model, "DEFAULT_PACKAGE", "absent_model_package")
    with pytest.raises(EncoderError, match="`noctuary nightly` fetches it"):
        OnnxEncoder.open(exported)
