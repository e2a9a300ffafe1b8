from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.sources.palace import DOCUMENT_KEY, MARKS, drawer_links, drawer_row
from noctuary.sources.source import LINK_TYPES, PART_OF, SUPERSEDES, QuarantineReason


def links(**marks: object) -> list[tuple[str, str, str]]:
    return [(x.from_id, x.link_type, x.to_id) for x in drawer_links("me", marks)]


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ({"consolidated_into": "sum"}, [("me", PART_OF, "sum")]),
        ({"source_drawers": '["a", "b", "a"]'}, [("a", PART_OF, "me"), ("b", PART_OF, "me")]),
        ({"source_drawers": ["a"]}, [("a", PART_OF, "me")]),
        ({"superseded_by": "new"}, [("new", SUPERSEDES, "me")]),
        ({"synapse_superseded_by": " new "}, [("new", SUPERSEDES, "me")]),
        ({"supersedes": '["old"]'}, [("me", SUPERSEDES, "old")]),
        ({"synapse_supersedes": "old"}, [("me", SUPERSEDES, "old")]),
        ({"superseded_by": ""}, []),
        ({"superseded_by": 7}, []),
        ({"superseded_by": True}, []),
        ({"supersedes": "[broken"}, []),
        ({"supersedes": '["a", 5, null]'}, [("me", SUPERSEDES, "a")]),
        ({"synapse_mark": "new", "status": "consolidated"}, []),
    ],
)
def test_a_mark_is_a_link(marks: dict[str, Any], expected: list[tuple[str, str, str]]) -> None:
    assert links(**marks) == expected


_VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.text()),
    st.lists(st.text()).map(json.dumps),
)  # fmt: skip


@given(st.dictionaries(st.sampled_from([*MARKS, "wing", "tags", DOCUMENT_KEY, "x"]), _VALUES))
def test_whatever_the_metadata_hold_a_row_and_links_come_of_it(metadata: dict[str, Any]) -> None:
    row = drawer_row(3, "me", metadata)
    assert (row.key, row.locator, row.fields["metadata"]) == ("me", "row 3", metadata)
    for link in drawer_links("me", metadata):
        assert link.link_type in LINK_TYPES
        assert "me" in (link.from_id, link.to_id)
        assert link.from_id.strip()
        assert link.to_id.strip()


@pytest.mark.parametrize("drawer_id", [b"\xff", "", None])
def test_a_drawer_without_a_usable_id_is_set_aside_with_its_metadata_to_be_scanned(
    drawer_id: object,
) -> None:
    row = drawer_row(3, drawer_id, {"note": "text"})
    assert (row.key, row.problem) == (None, QuarantineReason.BAD_ID)
    assert row.fields["metadata"] == {"note": "text"}


@pytest.mark.parametrize("marks", [{"room": "_registry"}, {"ingest_mode": "registry"}])
def test_what_the_miner_files_for_itself_is_no_memory(marks: dict[str, str]) -> None:
    assert drawer_row(3, "_reg_1", marks).problem == QuarantineReason.BOOKKEEPING


@pytest.mark.parametrize(
    ("metadata", "field", "expected"),
    [
        ({"source_file": "/a/b/notes.md"}, "expanded_keywords", "notes.md"),
        ({"source_file": r"C:\Users\ana\notes.md"}, "expanded_keywords", "notes.md"),
        ({"source_file": 4}, "expanded_keywords", ""),
        ({"topic": "a", "entities": "b;c; a", "keywords": ["d|e"]}, "tags", "a,b,c,d,e"),
        ({"topic": "user:eve"}, "tags", ""),
        ({"type": "diary_entry", "hall": "x"}, "category", "diary_entry"),
        ({"type": " ", "hall": "x"}, "category", "x"),
        ({"status": "consolidated", "hall": "x"}, "category", "x"),
        ({"status": "consolidated_summary", "hall": "x"}, "category", "consolidated_summary"),
        ({"importance": 5, "filed_at": "2026-01-01"}, "created_at", "2026-01-01"),
    ],
)
def test_metadata_are_fields(metadata: dict[str, Any], field: str, expected: str) -> None:
    fields = drawer_row(3, "me", metadata).fields
    assert fields[field] == expected
    assert "importance" not in fields, "MemPalace counts to five"
