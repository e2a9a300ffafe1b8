from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from noctuary.core.errors import EncoderError
from noctuary.embed import sentence as export
from noctuary.embed.fingerprint import EncoderUnsupportedError
from noctuary.embed.lean import HEADER_FILE, VOCAB_FILE, WEIGHTS_FILE, LeanEncoder
from noctuary.embed.sentence import PROBE_TEXTS, SentenceEncoder, export_lean, open_sentence_encoder

TinyModel = Callable[..., Path]
SHARED = Path(os.environ.get("NOCTUARY_SHARED", Path(__file__).parents[4] / "shared"))
SAMPLES = ["where is the spare key?", "我们明天去北京开会。", "stone " * 300]


@pytest.fixture(scope="module")
def lean_dir(minilm: SentenceEncoder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("encoder") / "lean"
    export_lean(minilm, directory, [])
    return directory


def opened(directory: Path) -> SentenceEncoder:
    return open_sentence_encoder(str(directory))


def _tree(directory: Path) -> dict[str, tuple[int, bytes]]:
    return {f.name: (f.stat().st_mtime_ns, f.read_bytes()) for f in directory.iterdir()}


def _shared_texts(count: int) -> Iterator[str]:
    for name in ("realmem", "memdaily_zh"):
        with gzip.open(SHARED / "data" / name / "corpus.jsonl.gz", "rt", encoding="utf-8") as rows:
            for _, row in zip(range(count), rows, strict=False):
                yield json.loads(row)["content"]


def test_default_model_agrees_and_carries_the_same_fingerprint(
    minilm: SentenceEncoder, lean_dir: Path
) -> None:
    lean = LeanEncoder.open(lean_dir, verify=True)
    assert lean.fingerprint == minilm.fingerprint
    for text in (*PROBE_TEXTS, *SAMPLES):
        query = lean.encode_query(text)
        assert query.shape == (384,)
        assert query.dtype == np.float32
        np.testing.assert_allclose(query, minilm.encode_query(text), atol=2e-6)


@pytest.mark.skipif(not (SHARED / "data" / "realmem").is_dir(), reason="needs ../shared/data")
def test_default_model_agrees_on_real_texts(minilm: SentenceEncoder, lean_dir: Path) -> None:
    texts = list(_shared_texts(20))
    found = LeanEncoder.open(lean_dir).encode_documents(texts)
    cosines = np.einsum("ij,ij->i", found, minilm.encode_documents(texts))
    assert float(cosines.min()) >= 0.99999


def test_a_second_export_keeps_the_first(tiny_model: TinyModel, tmp_path: Path) -> None:
    encoder, out = open_sentence_encoder(str(tiny_model("m"))), tmp_path / "out" / "lean"
    least = export_lean(encoder, out, SAMPLES)
    before = _tree(out)
    assert set(before) == {HEADER_FILE, VOCAB_FILE, WEIGHTS_FILE}
    assert 0.99999 < least < 1.00001
    assert export_lean(encoder, out, SAMPLES) == least
    assert _tree(out) == before
    assert [path.name for path in out.parent.iterdir()] == ["lean"]


def test_another_model_and_a_damaged_export_are_replaced(
    tiny_model: TinyModel, tmp_path: Path
) -> None:
    out = tmp_path / "lean"
    first = open_sentence_encoder(str(tiny_model("first")))
    second = open_sentence_encoder(str(tiny_model("second", seed=2)))
    export_lean(first, out, [])
    reader = LeanEncoder.open(out)
    vector = reader.encode_query("stone")
    export_lean(second, out, [])
    assert LeanEncoder.open(out).fingerprint == second.fingerprint
    np.testing.assert_array_equal(reader.encode_query("stone"), vector)
    (out / WEIGHTS_FILE).write_bytes(b"damaged")
    export_lean(second, out, [])
    np.testing.assert_allclose(
        LeanEncoder.open(out, verify=True).encode_query("stone"),
        second.encode_query("stone"),
        atol=1e-5,
    )


def test_leftovers_of_a_killed_export_are_removed(tiny_model: TinyModel, tmp_path: Path) -> None:
    (tmp_path / "o" / ".lean.building").mkdir(parents=True)
    (tmp_path / "o" / ".lean.building" / "weights.bin").write_bytes(b"half")
    (tmp_path / "o" / ".lean.old").mkdir()
    export_lean(opened(tiny_model("m")), tmp_path / "o" / "lean", [])
    assert [path.name for path in (tmp_path / "o").iterdir()] == ["lean"]


def test_disagreement_leaves_what_was_there(
    tiny_model: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "o" / "lean"
    export_lean(opened(tiny_model("first")), out, [])
    before = _tree(out)
    monkeypatch.setattr(export, "MIN_COSINE", 1.1)
    with pytest.raises(EncoderError, match="disagrees with second on text"):
        export_lean(opened(tiny_model("second", seed=2)), out, [])
    assert _tree(out) == before
    assert [path.name for path in out.parent.iterdir()] == ["lean"]


def test_prefixes_are_applied(tiny_model: TinyModel, tmp_path: Path) -> None:
    directory = tiny_model("prompted")
    (directory / "config_sentence_transformers.json").write_text(
        '{"prompts": {"query": "ask: ", "document": "tell: "}}'
    )
    encoder = open_sentence_encoder(str(directory))
    export_lean(encoder, tmp_path / "lean", [])
    lean = LeanEncoder.open(tmp_path / "lean")
    np.testing.assert_allclose(lean.encode_query("a"), encoder.encode_query("a"), atol=1e-5)
    found, expected = lean.encode_documents(["a"]), encoder.encode_documents(["a"])
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert not np.allclose(lean.encode_query("a"), found[0], atol=1e-3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pooling": "cls"}, "with cls pooling"),
        ({"hidden_act": "relu"}, "hidden_act 'relu'"),
    ],
)
def test_other_architectures_are_unsupported(
    tiny_model: TinyModel, tmp_path: Path, options: dict[str, str], message: str
) -> None:
    with pytest.raises(EncoderUnsupportedError, match=message):
        export_lean(opened(tiny_model("m", **options)), tmp_path / "lean", [])
    assert not (tmp_path / "lean").exists()


def test_a_cased_tokenizer_is_unsupported(tiny_model: TinyModel, tmp_path: Path) -> None:
    directory = tiny_model("cased")
    path = directory / "tokenizer.json"
    path.write_text(path.read_text("utf-8").replace('"lowercase":true', '"lowercase":false'))
    config = directory / "tokenizer_config.json"
    config.write_text(config.read_text().replace('"do_lower_case": true', '"do_lower_case": false'))
    with pytest.raises(EncoderUnsupportedError, match="differently from an uncased BERT"):
        export_lean(opened(directory), tmp_path / "lean", [])


@pytest.mark.parametrize("name", [HEADER_FILE, VOCAB_FILE, WEIGHTS_FILE])
@pytest.mark.parametrize("damage", ["missing", "empty", "cut"])
def test_damaged_directories_are_errors(
    tiny_model: TinyModel, tmp_path: Path, name: str, damage: str
) -> None:
    out = tmp_path / "lean"
    export_lean(opened(tiny_model("m")), out, [])
    path = out / name
    content = path.read_bytes()
    path.unlink()
    if damage != "missing":
        path.write_bytes(b"" if damage == "empty" else content[: len(content) // 2])
    with pytest.raises(EncoderError, match="Export the encoder again"):
        LeanEncoder.open(out)


def test_verify_finds_one_flipped_bit(tiny_model: TinyModel, tmp_path: Path) -> None:
    out = tmp_path / "lean"
    export_lean(opened(tiny_model("m")), out, [])
    content = bytearray((out / WEIGHTS_FILE).read_bytes())
    content[5000] ^= 1
    (out / WEIGHTS_FILE).write_bytes(content)
    LeanEncoder.open(out)
    with pytest.raises(EncoderError, match="Export the encoder again"):
        LeanEncoder.open(out, verify=True)


def test_weights_that_are_not_finite_name_the_text(tiny_model: TinyModel, tmp_path: Path) -> None:
    out = tmp_path / "lean"
    export_lean(opened(tiny_model("m")), out, [])
    lean = LeanEncoder.open(out)
    word = lean.word.copy()
    word[lean.tokenizer.vocab["x"]] = np.nan
    broken = lean._replace(word=word)
    with pytest.raises(EncoderError, match="for text 1; expected finite numbers"):
        broken.encode_documents(["stone", "x"])


def test_a_checkpoint_with_a_task_head_is_read(tiny_model: TinyModel, tmp_path: Path) -> None:
    directory = tiny_model("nested")
    plain = open_sentence_encoder(str(directory)).encode_query("stone")
    path = directory / "model.safetensors"
    save_file({f"bert.{name}": tensor for name, tensor in load_file(path).items()}, path)
    export_lean(opened(directory), tmp_path / "lean", [])
    np.testing.assert_allclose(
        LeanEncoder.open(tmp_path / "lean").encode_query("stone"), plain, atol=1e-5
    )


def test_missing_tensor_is_unsupported(tiny_model: TinyModel, tmp_path: Path) -> None:
    encoder = open_sentence_encoder(str(tiny_model("m")))
    path = encoder.model_dir / "model.safetensors"
    weights = load_file(path)
    del weights["encoder.layer.1.output.dense.bias"]
    save_file(weights, path)
    with pytest.raises(EncoderUnsupportedError, match=r"encoder\.layer\.1\.output\.dense\.bias"):
        export_lean(encoder, tmp_path / "lean", [])


def test_reading_imports_nothing_heavy() -> None:
    code = (
        "import sys, noctuary.embed.lean\n"
        "heavy = {'torch', 'transformers', 'tokenizers', 'pandas', 'pydantic', 'polars', 'scipy'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
