from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from noctuary.embed.lean import MIN_COSINE, WARM_AFTER_QUERIES, LeanEncoder, WarmEncoder
from noctuary.embed.onnx import MODEL_FILE, OnnxEncoder, onnx_directory
from noctuary.embed.sentence import export_lean, export_onnx, open_sentence_encoder
from tests.unit.encode.conftest import TinyModel


@pytest.fixture
def faces(tiny_model: TinyModel, tmp_path: Path) -> SimpleNamespace:
    """A small model with its lean and its ONNX export."""
    source = open_sentence_encoder(str(tiny_model("tiny")))
    lean = tmp_path / "encoders" / source.fingerprint.digest
    onnx = onnx_directory(tmp_path / "encoders", source.fingerprint)
    export_lean(source, lean, ["a sample"])
    assert not export_onnx(source, onnx, ["a sample"]).declined
    return SimpleNamespace(lean=LeanEncoder.open(lean), onnx=onnx)


def texts(count: int) -> list[str]:
    return [f"question {number} about the boiler" for number in range(count)]


def test_the_runtime_takes_over_after_several_queries_and_agrees(faces: SimpleNamespace) -> None:
    warm = WarmEncoder(faces.lean, faces.onnx)
    early = [warm.encode_query(text) for text in texts(WARM_AFTER_QUERIES - 1)]
    assert "fewer than" in warm.reason
    assert all(
        np.array_equal(a, faces.lean.encode_query(b))
        for a, b in zip(early, texts(WARM_AFTER_QUERIES), strict=False)
    )
    thread = warm.load_behind()
    assert thread is not None
    thread.join()
    assert warm.reason == ""
    runtime = OnnxEncoder.open(faces.onnx, 1)
    for text in texts(3):
        found = warm.encode_query(text)
        assert np.array_equal(found, runtime.encode_query(text))
        assert float(found @ faces.lean.encode_query(text)) >= MIN_COSINE


def test_the_load_starts_with_exactly_one_query(
    faces: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []

    def note(self: WarmEncoder) -> None:
        started.append(1)

    monkeypatch.setattr(WarmEncoder, "load_behind", note)
    warm = WarmEncoder(faces.lean, faces.onnx)
    for number, text in enumerate(texts(WARM_AFTER_QUERIES + 5), start=1):
        warm.encode_query(text)
        assert len(started) == (number >= WARM_AFTER_QUERIES)


def test_without_an_export_the_lean_encoder_goes_on(faces: SimpleNamespace, tmp_path: Path) -> None:
    warm = WarmEncoder(faces.lean, tmp_path / "none")
    for text in texts(WARM_AFTER_QUERIES + 2):
        assert np.array_equal(warm.encode_query(text), faces.lean.encode_query(text))
    assert "no ONNX export" in warm.reason


def test_a_damaged_export_is_declined_and_the_reason_kept(faces: SimpleNamespace) -> None:
    with (faces.onnx / MODEL_FILE).open("ab") as handle:
        handle.write(b"x")
    warm = WarmEncoder(faces.lean, faces.onnx)
    assert not warm.load()
    assert "not what its header vouches for" in warm.reason
    assert np.array_equal(warm.encode_query("a"), faces.lean.encode_query("a"))


def test_another_model_s_export_is_declined(
    faces: SimpleNamespace, tiny_model: TinyModel, tmp_path: Path
) -> None:
    other = open_sentence_encoder(str(tiny_model("other", seed=2)))
    export_onnx(other, tmp_path / "other.onnx", ["a sample"])
    warm = WarmEncoder(faces.lean, tmp_path / "other.onnx")
    assert not warm.load()
    assert "FingerprintMismatchError" in warm.reason


def test_an_export_that_disagrees_is_declined(
    faces: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = OnnxEncoder.encode_query

    def swapped(self: OnnxEncoder, text: str) -> np.ndarray:  # pyright: ignore[reportMissingTypeArgument]
        return np.roll(honest(self, text), 1)

    monkeypatch.setattr(OnnxEncoder, "encode_query", swapped)
    warm = WarmEncoder(faces.lean, faces.onnx)
    assert not warm.load()
    assert "agrees with the lean encoder only" in warm.reason


def test_a_runtime_that_fails_later_is_left(
    faces: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    warm = WarmEncoder(faces.lean, faces.onnx)
    assert warm.load()

    def fail(self: OnnxEncoder, text: str) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(OnnxEncoder, "encode_query", fail)
    assert np.array_equal(warm.encode_query("a"), faces.lean.encode_query("a"))
    assert warm.reason == "a query failed: RuntimeError: out of memory"


def test_a_process_may_end_while_the_runtime_is_loading(faces: SimpleNamespace) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from noctuary.embed.lean import LeanEncoder\n"
        "from noctuary.embed.lean import WarmEncoder\n"
        f"warm = WarmEncoder(LeanEncoder.open(Path(sys.argv[1])), Path({str(faces.onnx)!r}))\n"
        "assert 'onnxruntime' not in sys.modules\n"
        "warm.load_behind(); print(len(warm.encode_query('a')))\n"
    )
    lean = str(faces.onnx).removesuffix(".onnx")
    done = subprocess.run(
        [sys.executable, "-c", code, lean], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == str(faces.lean.architecture.hidden)
