from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.graph.llm import (
    MAX_NAMES,
    RELATION_NAMES,
    SYSTEM,
    RawAnswer,
    decode,
    encode,
    ground,
    item_ids,
    map_relation,
    read_answer,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["names", "triples", "malformed", "failed", "subject"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("works_at", ("works_at", False)),
        ("Works at", ("works_at", False)),
        ("is replaced by", ("supersedes", True)),
        ("was fixed by", ("resolved_by", False)),
        ("fixed", ("resolved_by", True)),
        ("employs", ("works_at", True)),
        ("is a", ("is_a", False)),
        ("is now", ("is_now", False)),
        ("is", None),
        ("admires", None),
        ("", None),
        ("работает в", None),
    ],
)
def test_relations_are_mapped_by_a_table(text: str, expected: object) -> None:
    assert map_relation(text) == expected


def test_the_prompt_lists_every_relation_and_each_means_itself() -> None:
    for name in RELATION_NAMES:
        assert name in SYSTEM
        assert map_relation(name) == (name, False)


def test_the_good_entries_of_an_answer_are_kept_and_the_others_counted() -> None:
    row = {
        "names": ["Acme", 7, "", "x" * 201, " "],
        "triples": [
            ["Maria", "works at", "Acme"],
            {"subject": "Maria", "predicate": "likes", "object": "tea"},
            ["Maria", "works at"],
            ["Maria", None, "Acme"],
            "Maria",
        ],
    }
    answer = read_answer(row)
    assert answer is not None
    assert answer.names == ("Acme",)
    assert answer.triples == (("Maria", "works at", "Acme"), ("Maria", "likes", "tea"))
    assert answer.malformed == 7


def test_an_item_with_neither_list_is_no_answer_and_empty_lists_are_one() -> None:
    assert read_answer({"id": "m1"}) is None
    assert read_answer({"names": "Acme", "triples": None}) is None
    assert read_answer({"names": []}) == RawAnswer((), ())
    many = read_answer({"names": ["Acme"] * (MAX_NAMES + 5)})
    assert many is not None
    assert (len(many.names), many.malformed) == (MAX_NAMES, 5)


@given(JSON)
def test_what_is_kept_is_read_back_and_nothing_raises(value: object) -> None:
    answer = read_answer(value) if isinstance(value, dict) else None
    if answer is not None:
        assert decode(encode(answer)) == answer
        ground("a text", answer)
    assert isinstance(decode(json.dumps(value).encode()), RawAnswer | int)


@pytest.mark.parametrize("raw", [None, b"", b"{", b"[]", b"\xff", b"[" * 100_000])
def test_damage_is_asked_again(raw: bytes | None) -> None:
    assert decode(raw) == 0
    assert decode(encode(2)) == 2


def test_swapped_relations_are_swapped_and_others_name_only() -> None:
    answer = RawAnswer(
        ("Hetzner",), (("Atlas", "was replaced by", "Borealis"), ("Maria", "admires", "Tom"))
    )
    content = "Hetzner: Atlas was replaced by Borealis, which Maria admires, as Tom does"
    found, _, unmapped = ground(content, answer)
    assert unmapped == 1
    ((subject, relation, thing, *_),) = found.stated
    assert (subject, relation, thing) == ("borealis", "supersedes", "atlas")
    assert {f.name for f in found.found} == {"hetzner", "atlas", "borealis", "maria", "tom"}


def test_ids_of_a_batch_are_distinct_even_when_keys_begin_alike() -> None:
    keys = ["a" * 8 + "1" * 56, "a" * 8 + "2" * 56]
    assert len(set(item_ids(keys))) == 2
    assert item_ids(["b" * 64, keys[0]]) == ("mbbbbbbbb", "maaaaaaaa")
    with pytest.raises(ValueError, match="the same key"):
        item_ids([keys[0], keys[0]])
