"""The rule in SQL against the rule in Python, over whatever a SQLite column can hold."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.text.flags import FALSE_WORDS, FLAG_FIELDS, VAULT_FIELDS, find_mark, mark_sql

ALL = (*FLAG_FIELDS, *VAULT_FIELDS)
KINDS = ("", "INTEGER", "TEXT", "REAL", "BLOB", "BOOLEAN", "VARCHAR(5) COLLATE NOCASE")
SPACES = st.sampled_from(["", " ", "\t", "\n\r", "\x1f", "\x85", "\u00a0", "\u3000", "\x00"])


def _around(words: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(SPACES, words, SPACES).map("".join)


WORDS = st.sampled_from([*sorted(FALSE_WORDS), *(w.upper() for w in FALSE_WORDS), "1", "true", "x"])
TEXTS = _around(WORDS) | st.text(st.characters(codec="utf-8"), max_size=6)
VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.sampled_from([0, 1, -1, 0.0, -0.0, 0.5, 1e-300, float("inf"), float("nan")])
    | TEXTS
    | TEXTS.map(lambda text: text.encode())
    | TEXTS.map(lambda text: text.encode("utf-16-le"))
    | st.binary(max_size=6)
)


@pytest.fixture(scope="module", params=["UTF-8", "UTF-16le"])
def db(request: pytest.FixtureRequest) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as opened:
        opened.execute(f"PRAGMA encoding = '{request.param}'")
        for number, kind in enumerate(KINDS):
            columns = ", ".join(f"{name} {kind}" for name in ALL)
            opened.execute(f"CREATE TABLE t{number} ({columns})")
        yield opened


def _judged(db: sqlite3.Connection, table: str, row: dict[str, object]) -> tuple[object, object]:
    """Return what SQL and Python say of one row, as the table holds it."""
    db.execute(f"DELETE FROM {table}")
    names, marks = ", ".join(row), ", ".join("?" * len(row))
    db.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(row.values()))
    stored = db.execute(f"SELECT {names}, {mark_sql(ALL)} FROM {table}").fetchone()
    return stored[-1], find_mark(dict(zip(row, stored[:-1], strict=True)))


@given(table=st.sampled_from(range(len(KINDS))), name=st.sampled_from(ALL), value=VALUES)
def test_sql_never_lets_a_mark_pass(
    db: sqlite3.Connection, table: int, name: str, value: object
) -> None:
    by_sql, by_python = _judged(db, f"t{table}", {name: value})
    assert by_sql == by_python or (by_python is None and isinstance(value, str | bytes))


@given(row=st.fixed_dictionaries(dict.fromkeys(ALL, VALUES)))
def test_several_marks_of_one_row(db: sqlite3.Connection, row: dict[str, object]) -> None:
    by_sql, by_python = _judged(db, "t0", row)
    assert by_sql is not None or by_python is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None), (0, None), (0.0, None), ("0", None), (" False ", None), ("no", None),
        ("", None), (b"0", None), (b"", None),
        (1, "flagged"), (True, "flagged"), ("true", "flagged"), ("1", "flagged"),
        (0.5, "flagged"), ("maybe", "flagged"), (b"1", "flagged"), (b"0\x00", "flagged"),
        ("0\x00", "flagged"), ("\u00a00", "flagged"),
    ],
)  # fmt: skip
def test_flags(db: sqlite3.Connection, value: object, expected: str | None) -> None:
    assert _judged(db, "t0", {"is_sensitive": value})[0] == expected
    assert _judged(db, "t0", {"sensitive": value})[0] == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None), ("", None), (b"", None), (0, None),
        ("kv/x", "vaulted"), ("0", "vaulted"), (b"\x00", "vaulted"), ("\x00", "vaulted"),
        (7, "vaulted"),
    ],
)  # fmt: skip
def test_vaults(db: sqlite3.Connection, value: object, expected: str | None) -> None:
    assert _judged(db, "t0", {"vault_path": value})[0] == expected
    assert _judged(db, "t0", {"encrypted_content": value})[0] == expected


def test_a_flag_comes_before_a_vault(db: sqlite3.Connection) -> None:
    assert _judged(db, "t0", {"vault_path": "kv/x", "is_sensitive": 1}) == ("flagged", "flagged")


def test_only_columns_that_are_there_are_asked() -> None:
    assert mark_sql(()) == "NULL"
    assert "vault_path" not in mark_sql(("is_sensitive",))
    assert mark_sql(("vault_path",), "m").count("m.vault_path") == 4
