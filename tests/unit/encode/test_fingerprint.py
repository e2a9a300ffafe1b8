from __future__ import annotations

import json

import pytest

from noctuary.core.errors import EncoderError, FingerprintMismatchError
from noctuary.core.files import hash_json
from noctuary.embed.fingerprint import EncoderFingerprint, require_same

FINGERPRINT = EncoderFingerprint("m", "ab" * 32, 384, "mean", True, "", "passage: ", 256)


def test_json_round_trip_gives_an_equal_value() -> None:
    stored = json.loads(json.dumps(FINGERPRINT.to_json()))
    assert EncoderFingerprint.from_json(stored) == FINGERPRINT


def test_digest_is_16_hex_digits_of_the_json_hash() -> None:
    assert FINGERPRINT.digest == hash_json(FINGERPRINT.to_json())[:16]


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


def test_equal_fingerprints_pass() -> None:
    require_same(FINGERPRINT, FINGERPRINT._replace())


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
