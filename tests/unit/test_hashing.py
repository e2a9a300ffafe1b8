from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.core.files import canonical_json, hash_file, hash_json, hash_text

anything = st.text(st.characters(exclude_categories=()), max_size=30)


def test_hash_text_is_sha256_over_length_prefixed_parts() -> None:
    raw = (3).to_bytes(8, "big") + b"abc" + (2).to_bytes(8, "big") + "é".encode()
    assert hash_text("abc", "é") == hashlib.sha256(raw).hexdigest()
    assert hash_text() == hashlib.sha256(b"").hexdigest()


@pytest.mark.parametrize(
    ("left", "right"),
    [(("ab", ""), ("a", "b")), (("ab",), ("ab", "")), (("",), ()), (("a", "b"), ("b", "a"))],
)
def test_parts_do_not_run_together(left: tuple[str, ...], right: tuple[str, ...]) -> None:
    assert hash_text(*left) != hash_text(*right)


@given(st.lists(anything, max_size=4), st.lists(anything, max_size=4))
def test_only_equal_parts_hash_alike(left: list[str], right: list[str]) -> None:
    assert (hash_text(*left) == hash_text(*right)) == (left == right)


def test_a_lone_surrogate_can_be_hashed() -> None:
    assert hash_text("\ud800") != hash_text("\ud801")


def test_canonical_json_sorts_keys_and_keeps_text_as_it_is() -> None:
    assert canonical_json({"b": [1, 2.5, None], "a": {"z": True, "é": "🔑"}}) == (
        '{"a":{"z":true,"é":"🔑"},"b":[1,2.5,null]}'
    )


@given(st.dictionaries(anything, st.one_of(st.integers(), anything, st.none()), max_size=6))
def test_the_order_of_keys_does_not_change_the_hash(value: dict[str, object]) -> None:
    backwards = dict(reversed(list(value.items())))
    assert hash_json(backwards) == hash_json(value)


def test_a_file_is_hashed_by_its_bytes_in_chunks(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for size in (0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1):
        content = b"x" * size
        path.write_bytes(content)
        assert hash_file(path) == hashlib.sha256(content).hexdigest()
