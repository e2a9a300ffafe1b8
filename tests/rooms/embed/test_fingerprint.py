"""A model's fingerprint: measured once per state of its files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from noctuary.core.errors import EncoderError, FingerprintMismatchError
from noctuary.core.files import hash_json
from noctuary.embed.fingerprint import (
    EncoderFingerprint,
    EncoderUnsupportedError,
    require_same,
    require_unit_rows,
)
from noctuary.embed.sentence import FINGERPRINT_KIND, find_fingerprint
from noctuary.work.content import ContentStore

FINGERPRINT = EncoderFingerprint("m", "ab" * 32, 384, "mean", True, "", "passage: ", 256)


def test_digest_is_16_hex_digits_of_the_json_hash() -> None:
    assert FINGERPRINT.digest == hash_json(FINGERPRINT.to_json())[:16]
    assert (
        EncoderFingerprint.from_json(json.loads(json.dumps(FINGERPRINT.to_json()))) == FINGERPRINT
    )
    require_same(FINGERPRINT, FINGERPRINT._replace())
    require_unit_rows(np.eye(3, dtype=np.float32), [0, 1, 2])
    require_unit_rows(np.zeros((0, 3), dtype=np.float32), [])
    assert issubclass(EncoderUnsupportedError, EncoderError)


@pytest.mark.parametrize(
    "other",
    [
        FINGERPRINT._replace(model="n"),
        FINGERPRINT._replace(weights_sha256="cd" * 32),
        FINGERPRINT._replace(dimension=383),
        FINGERPRINT._replace(pooling="cls"),
        FINGERPRINT._replace(normalized=False),
        FINGERPRINT._replace(query_prefix="q"),
        FINGERPRINT._replace(document_prefix=""),
        FINGERPRINT._replace(max_tokens=128),
    ],
)
def test_every_field_changes_the_digest_and_is_named(other: EncoderFingerprint) -> None:
    (field,) = [k for k, v in FINGERPRINT.to_json().items() if other.to_json()[k] != v]
    assert other.digest != FINGERPRINT.digest
    with pytest.raises(FingerprintMismatchError, match=f"{field}: expected .*, found "):
        require_same(FINGERPRINT, other)


def test_all_differing_fields_are_named() -> None:
    other = FINGERPRINT._replace(dimension=8, pooling="cls")
    with pytest.raises(FingerprintMismatchError) as caught:
        require_same(FINGERPRINT, other)
    assert "dimension: expected 384, found 8" in str(caught.value)
    assert "pooling: expected 'mean', found 'cls'" in str(caught.value)
    assert "max_tokens" not in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        {"dimension": "384"},
        {"dimension": True},
        {"dimension": 384.0},
        {"normalized": 1},
        {"model": None},
        {"extra": 1},
    ],
)
def test_wrong_json_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(EncoderError, match=next(iter(change))):
        EncoderFingerprint.from_json(FINGERPRINT.to_json() | change)


def test_missing_field_is_refused() -> None:
    value = FINGERPRINT.to_json()
    del value["pooling"]
    with pytest.raises(EncoderError, match=r"expected .*pooling"):
        EncoderFingerprint.from_json(value)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 0.0, 0.9, 1.1])
def test_a_bad_row_is_named_by_its_position(value: float) -> None:
    vectors = np.eye(3, dtype=np.float32)
    vectors[1, 1] = value
    with pytest.raises(EncoderError, match="for text 5; expected"):
        require_unit_rows(vectors, [4, 5, 6])


TinyModel = Callable[..., Path]


class Measuring:
    """Counts how often a model would have been loaded."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> EncoderFingerprint:
        self.count += 1
        return EncoderFingerprint("m", f"{self.count:064}", 4, "mean", True, "", "é", 16)


def test_it_is_measured_once_and_again_when_a_file_changed(
    tiny_model: TinyModel, tmp_path: Path
) -> None:
    model, measure = tiny_model("model"), Measuring()

    def find() -> EncoderFingerprint:
        store = ContentStore(tmp_path / "content", FINGERPRINT_KIND)
        return find_fingerprint(str(model), store, measure)

    first = find()
    assert (find(), measure.count) == (first, 1)
    config = model / "config.json"
    before = config.read_text()
    config.write_text(before + " ")
    second = find()
    assert second != first
    assert (find(), measure.count) == (second, 2)
    store = ContentStore(tmp_path / "content", FINGERPRINT_KIND)
    assert store.rows == 1, "only the last one is kept"
    config.write_text(before)
    find()
    assert measure.count == 3


def test_one_that_is_damaged_is_measured_again(tiny_model: TinyModel, tmp_path: Path) -> None:
    model, measure = tiny_model("model"), Measuring()
    find_fingerprint(str(model), ContentStore(tmp_path, FINGERPRINT_KIND), measure)
    (fragment,) = ContentStore(tmp_path, FINGERPRINT_KIND).fragments
    fragment.path.write_bytes(fragment.path.read_bytes()[:-9])
    for _ in range(2):
        find_fingerprint(str(model), ContentStore(tmp_path, FINGERPRINT_KIND), measure)
    assert measure.count == 2
