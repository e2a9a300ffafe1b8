"""Whose rows are read, who else may read them, and what a database says about its memories."""

from __future__ import annotations

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noctuary.core.types import UNDATED_US
from noctuary.sources.source import KnownConcept, KnownEdge, KnownMention, MemoryLink, Share
from tests.support.claude_memory import Row, insert_rows, migrations
from tests.support.databases import MakeDatabase, open_database, rows_of, run_sql

DATE = "2026-03-01 12:00:00+00"
DATE_US = 1772366400_000_000


def users_of(dsn: str, user: str = "") -> dict[object, object]:
    return {row.key: row.fields.get("user_id") for row in rows_of(dsn, user)}


def test_the_only_user_is_nobody_in_particular(database: MakeDatabase) -> None:
    dsn = database([{"content": "One."}, {"content": "Two.", "user_id": " "}])
    assert users_of(dsn) == {1: None, 2: None}
    with open_database(dsn) as source:
        assert source.identity().marker["users"] == "single"
    # Asked for by name, the rows are theirs.
    assert users_of(dsn, "default") == {1: "default", 2: "default"}
    assert users_of(dsn, "zoe") == {}


@pytest.mark.parametrize(
    ("table", "row"),
    [
        ("memories", {"content": "x", "user_id": "zoe", "deleted_at": DATE}),
        ("memory_shares", {"memory_id": 1, "owner_id": "default", "shared_with": "zoe"}),
        ("tag_shares", {"owner_id": "default", "tag": "a", "shared_with": "zoe"}),
    ],
)
def test_with_a_second_person_every_row_is_somebodys(
    database: MakeDatabase, table: str, row: Row
) -> None:
    dsn = database([{"content": "One."}, {"content": "Two.", "user_id": ""}])
    insert_rows(dsn, table, [row])
    found = users_of(dsn)
    assert (found[1], found[2]) == ("default", "default")
    with open_database(dsn) as source:
        assert source.identity().marker["users"] == "several"


def shared(database: MakeDatabase) -> str:
    """Rows 1 to 3 are anna's, 4 and 5 ben's, 6 carl's; some are shared with others."""
    dsn = database(
        [
            {"content": "One.", "user_id": "anna", "tags": "boat"},
            {"content": "Two.", "user_id": "anna", "tags": "boat, tide"},
            {"content": "Three.", "user_id": "anna", "tags": "tides,TIDE,a tide"},
            {"content": "Four.", "user_id": "ben", "tags": "tide"},
            {"content": "Five.", "user_id": "ben", "tags": "boat"},
            {"content": "Six.", "user_id": "carl", "tags": None},
        ]
    )
    read: Row = {"owner_id": "anna", "shared_with": "ben"}
    singly = [
        {**read, "memory_id": 1},
        {"owner_id": "ben", "memory_id": 5, "shared_with": "anna", "permission": "write"},
        {"owner_id": "carl", "memory_id": 6, "shared_with": "anna", "permission": "none"},
    ]
    insert_rows(dsn, "memory_shares", singly)
    by_tag = [{**read, "tag": "tide"}, {"owner_id": "anna", "tag": "boat", "shared_with": "carl"}]
    insert_rows(dsn, "tag_shares", by_tag)
    return dsn


def test_a_user_reads_what_is_theirs_and_what_is_shared_with_them(database: MakeDatabase) -> None:
    dsn = shared(database)
    anna, ben = {1: "anna", 2: "anna", 3: "anna"}, {4: "ben", 5: "ben"}
    assert users_of(dsn) == {**anna, **ben, 6: "carl"}
    assert users_of(dsn, "anna") == {**anna, 5: "ben"}
    assert users_of(dsn, "ben") == {1: "anna", 2: "anna", **ben}
    assert users_of(dsn, "carl") == {1: "anna", 2: "anna", 6: "carl"}
    assert users_of(dsn, "default") == {}
    for user, keys in {"anna": [1, 2, 3, 5], "ben": [1, 2, 4, 5]}.items():
        with open_database(dsn, user) as source:
            assert [row.key for row in source.rows()] == keys
            assert [row.key for row in source.changed_since(0)] == keys
            assert source.count() == source.identity().marker["rows"] == 4
            assert source.identity().marker["users"] == f"user:{user}"
            assert source.identity().marker["last_id"] == 5


def test_shares_are_spelled_out_by_row(database: MakeDatabase) -> None:
    dsn = shared(database)
    carls = {Share("1", "carl"), Share("2", "carl")}
    bens = {Share("1", "ben"), Share("2", "ben")}
    expected = {"": carls | bens | {Share("5", "anna")}, "ben": bens, "carl": carls, "zoe": set()}
    for user, shares in expected.items():
        with open_database(dsn, user) as source:
            found = list(source.told(Share))
        assert set(found) == shares
        assert len(found) == len(shares)
    run_sql(dsn, "DELETE FROM tag_shares WHERE shared_with = 'ben'")
    with open_database(dsn) as source:
        assert set(source.told(Share)) == carls | {Share("1", "ben"), Share("5", "anna")}


_TAG = st.sampled_from(["a", "b", " a", "A", "ab", "", "a b"])


@given(
    owners=st.lists(
        st.tuples(st.sampled_from(["anna", "ben"]), st.lists(_TAG, max_size=3)),
        min_size=1,
        max_size=4,
    ),
    by_tag=st.sets(
        st.tuples(st.sampled_from(["anna", "ben"]), _TAG, st.sampled_from(["anna", "carl"])),
        max_size=3,
    ),
    singly=st.sets(st.tuples(st.integers(1, 4), st.sampled_from(["anna", "carl"])), max_size=3),
)
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_shares_are_those_of_the_rule_in_python(
    database: MakeDatabase,
    owners: list[tuple[str, list[str]]],
    by_tag: set[tuple[str, str, str]],
    singly: set[tuple[int, str]],
) -> None:
    rows = [{"content": "x", "user_id": user, "tags": ",".join(tags)} for user, tags in owners]
    dsn = database(rows, schema=migrations("004"))
    insert_rows(
        dsn, "tag_shares", [{"owner_id": o, "tag": t, "shared_with": w} for o, t, w in by_tag]
    )
    known = {(key, who) for key, who in singly if key <= len(rows)}
    insert_rows(
        dsn,
        "memory_shares",
        [{"memory_id": key, "owner_id": "?", "shared_with": who} for key, who in known],
    )
    expected = {Share(str(key), who) for key, who in known}
    for key, (owner, tags) in enumerate(owners, 1):
        # What the text of the column says, split as the server does.
        own = {tag.strip(" ") for tag in ",".join(tags).split(",")} if ",".join(tags) else set()
        expected |= {Share(str(key), w) for o, tag, w in by_tag if o == owner and tag in own}
    with open_database(dsn) as source:
        assert set(source.told(Share)) == expected
    with open_database(dsn, "carl") as source:
        assert {row.key for row in source.rows()} == {
            int(share.memory_id) for share in expected if share.shared_with == "carl"
        }


def test_links_are_read_as_they_are(database: MakeDatabase) -> None:
    dsn = database([{"content": f"Row {i}.", "user_id": "anna"} for i in range(3)])
    insert_rows(
        dsn,
        "memory_links",
        [
            {"user_id": "anna", "src_id": 2, "dst_id": 1, "link_type": "supersedes",
             "created_at": DATE},
            {"user_id": "ben", "src_id": 3, "dst_id": 1, "link_type": "part-of",
             "created_at": "infinity"},
            {"user_id": " ", "src_id": 1, "dst_id": 3, "link_type": "see-also",
             "created_at": None},
        ],
    )  # fmt: skip
    first = MemoryLink("2", "1", "supersedes", DATE_US, "anna")
    second = MemoryLink("3", "1", "part-of", UNDATED_US, "ben")
    third = MemoryLink("1", "3", "see-also", UNDATED_US, "default")
    with open_database(dsn) as source:
        assert list(source.told(MemoryLink)) == [first, second, third]
    with open_database(dsn, "anna") as source:
        assert list(source.told(MemoryLink)) == [first]
    # ben's link is about rows that are not his to see.
    with open_database(dsn, "ben") as source:
        assert list(source.told(MemoryLink)) == []
    run_sql(dsn, "UPDATE memories SET user_id = 'default'")
    run_sql(dsn, "UPDATE memory_links SET user_id = 'default'")
    with open_database(dsn) as source:
        assert {link.user for link in source.told(MemoryLink)} == {None}


def graph(database: MakeDatabase) -> str:
    """Three concepts, of which two are about rows of anna's and ben's."""
    dsn = database([{"content": f"Row {i}.", "user_id": u} for i, u in enumerate(["anna", "ben"])])
    names = {"harbour": ["port", "haven"], "tide": [], "ghost": ["spook"]}
    insert_rows(dsn, "concepts", [{"canonical_name": n, "aliases": a} for n, a in names.items()])
    insert_rows(
        dsn,
        "memory_concepts",
        [
            {"memory_id": 1, "concept_id": 1, "relation": "about"},
            {"memory_id": 2, "concept_id": 2, "relation": "mentions"},
        ],
    )
    edge: Row = {"src_id": 1, "dst_id": 2, "relation": "has", "weight": 3}
    lone: Row = {"src_id": 3, "dst_id": 2, "relation": "haunts", "evidence_memory_ids": [77]}
    insert_rows(dsn, "concept_edges", [{**edge, "evidence_memory_ids": [2, 1, 2, 99]}, lone])
    return dsn


def test_concepts_and_edges_are_those_of_rows_that_may_be_seen(database: MakeDatabase) -> None:
    dsn = graph(database)
    with open_database(dsn) as source:
        assert list(source.told(KnownConcept)) == [
            KnownConcept("harbour", ("haven", "port"), "concept"),
            KnownConcept("tide", (), "concept"),
            KnownConcept("ghost", ("spook",), "concept"),
        ]
        assert list(source.told(KnownMention)) == [
            KnownMention("1", "harbour", "about"),
            KnownMention("2", "tide", "mentions"),
        ]
        assert list(source.told(KnownEdge)) == [KnownEdge("harbour", "tide", "has", 3, ("1", "2"))]
    with open_database(dsn, "anna") as source:
        assert list(source.told(KnownMention)) == [KnownMention("1", "harbour", "about")]
        assert list(source.told(KnownEdge)) == [KnownEdge("harbour", "tide", "has", 3, ("1",))]


@pytest.mark.parametrize("table", ["memory_links", "concepts", "memory_concepts", "concept_edges"])
def test_a_database_with_a_table_less_says_less(database: MakeDatabase, table: str) -> None:
    dsn = graph(database)
    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute(f"DROP TABLE {table} CASCADE")  # pyright: ignore[reportArgumentType, reportCallIssue]
    with open_database(dsn) as source:
        said = {
            "concepts": bool(list(source.told(KnownConcept))),
            "memory_concepts": bool(list(source.told(KnownMention))),
            "concept_edges": bool(list(source.told(KnownEdge))),
        }
        assert list(source.told(MemoryLink)) == []
    lost = set(said) if table == "concepts" else {table}
    assert said == {name: name not in lost for name in said}


def test_evidence_is_of_the_pinned_state(database: MakeDatabase) -> None:
    dsn = shared(database)
    with open_database(dsn) as source:
        before = source.told(Share)
        first = next(before)
        run_sql(dsn, "DELETE FROM memory_shares")
        run_sql(dsn, "DELETE FROM tag_shares")
        assert len([first, *before]) == 5
        assert len(list(source.told(Share))) == 5
