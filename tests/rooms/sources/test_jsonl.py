from __future__ import annotations

import gzip
import hashlib
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from noctuary.core.errors import SourceError, SourceFormatError
from noctuary.sources import jsonl
from noctuary.sources.jsonl import JsonlSource
from noctuary.sources.source import QuarantineReason, RawRow

Make = Callable[..., Path]
GOOD = {"id": 1, "content": "good"}
BAD_IDS = (b"true", b"1.0", b"9223372036854775808", b'" "', b'"a\\u0000"', b'"\\ud800"',
           b'"' + b"x" * 513 + b'"')  # fmt: skip


def read(path: Path, *, window_bytes: int = 1 << 20, max_line_bytes: int = 1 << 20) -> list[RawRow]:
    with pytest.MonkeyPatch.context() as patch, JsonlSource(path) as source:
        patch.setattr(jsonl, "WINDOW_BYTES", window_bytes)
        patch.setattr(jsonl, "MAX_LINE_BYTES", max_line_bytes)
        rows = [row for row in source.rows()]
        assert source.count() == len(rows)
    return rows


@pytest.mark.parametrize("name", ["corpus.jsonl", "corpus.jsonl.gz", "корпус 记忆 ?#.jsonl"])
def test_rows_and_identity(make_jsonl: Make, name: str) -> None:
    path = make_jsonl([GOOD, {"id": 2, "content": "b", "extra": {"deep": [1]}}], name)
    with JsonlSource(path) as source:
        identity = source.identity()
        batch = list(source.rows())
    assert [row.fields["content"] for row in batch] == ["good", "b"]
    assert [row.locator for row in batch] == ["line 1", "line 2"]
    assert identity.marker["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (identity.id_kind, identity.marker["rows"]) == ("int", 2)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"id": 2, "content": "canary', QuarantineReason.INVALID_JSON),
        (b'{"id": 2, "content": "canary\xff\xfe"}', QuarantineReason.NOT_UTF8),
        (b'["canary", 2]', QuarantineReason.NOT_AN_OBJECT),
        (b"null", QuarantineReason.NOT_AN_OBJECT),
        (b"[" * 100_000, QuarantineReason.INVALID_JSON),
        (b'{"id": ' + b"9" * 5000 + b"}", QuarantineReason.INVALID_JSON),
        *[(b'{"id": %b, "content": "x"}' % key, QuarantineReason.BAD_ID) for key in BAD_IDS],
        (b'{"content": "no id"}', QuarantineReason.BAD_ID),
    ],
)
def test_an_unusable_line_is_a_problem_at_its_line_that_keeps_no_text(
    make_jsonl: Make, line: bytes, reason: QuarantineReason
) -> None:
    first, row, last = read(make_jsonl([GOOD, line, {"id": 3, "content": "after"}]))
    assert (first.problem, row.problem, last.problem) == (None, reason, None)
    assert (row.locator, row.key, last.locator) == ("line 2", None, "line 3")
    assert "canary" not in row.problem_detail


@pytest.mark.parametrize("name", ["corpus.jsonl", "corpus.jsonl.gz"])
def test_a_half_written_last_line(make_jsonl: Make, name: str) -> None:
    rows = read(make_jsonl([GOOD, b'{"id": 2, "cont'], name, end=b""))
    assert rows[1].problem == QuarantineReason.HALF_WRITTEN_LINE
    assert rows[1].problem_detail == "15 bytes"


def test_blank_lines_and_a_byte_order_mark_are_no_rows(make_jsonl: Make) -> None:
    path = make_jsonl([b'\xef\xbb\xbf{"id": 1, "content": "a"}\r', b"", b"  \r", GOOD | {"id": 2}])
    assert [(row.key, row.locator) for row in read(path)] == [(1, "line 1"), (2, "line 4")]


@pytest.mark.parametrize("name", ["corpus.jsonl", "corpus.jsonl.gz"])
def test_a_line_over_the_limit_is_skipped_with_its_length(make_jsonl: Make, name: str) -> None:
    long = {"id": 2, "content": "x" * 5_000_000}
    rows = read(make_jsonl([GOOD, long, {"id": 3, "content": "c"}], name), max_line_bytes=1000)
    assert rows[1].problem == QuarantineReason.LINE_TOO_LONG
    assert rows[1].problem_detail == f"{len(json.dumps(long))} bytes"
    assert len(rows[1].unread_text) == 1000
    assert (rows[2].key, rows[2].locator) == (3, "line 3")


@pytest.mark.parametrize("name", ["corpus.jsonl", "corpus.jsonl.gz"])
@pytest.mark.parametrize("window_bytes", [1, 300])
def test_any_file_is_delivered_in_key_order(make_jsonl: Make, name: str, window_bytes: int) -> None:
    ids = list(range(-50, 50))
    random.Random(7).shuffle(ids)
    path = make_jsonl([{"id": i, "content": f"text {i}"} for i in ids], name)
    rows = read(path, window_bytes=window_bytes)
    assert [row.key for row in rows] == list(range(-50, 50))
    assert all(row.fields["content"] == f"text {row.key}" for row in rows)
    assert all(row.locator == f"line {ids.index(int(str(row.key))) + 1}" for row in rows)


@pytest.mark.parametrize(
    ("ids", "keys", "kind"),
    [((10, 9, 2), [2, 9, 10], "int"), (("b", 10, "é", 9, "B"), ["10", "9", "B", "b", "é"], "str")],
)
def test_numbers_order_by_value_and_texts_by_code_point(
    make_jsonl: Make, ids: tuple[object, ...], keys: list[object], kind: str
) -> None:
    """Also over windows and repeated ids: tests/properties/test_corpus.py."""
    path = make_jsonl([{"id": i, "content": "x"} for i in ids])
    assert [row.key for row in read(path)] == keys
    with JsonlSource(path) as source:
        assert source.identity().id_kind == kind


def test_lines_without_an_id_stay_behind_the_line_before_them(make_jsonl: Make) -> None:
    path = make_jsonl([b"?0", {"id": 5, "content": "x"}, b"?1", {"id": 3, "content": "x"}, b"?2"])
    assert [row.locator for row in read(path)] == ["line 4", "line 5", "line 1", "line 2", "line 3"]


@pytest.mark.parametrize("keep", [0.2, 0.6, 0.99, None])
def test_a_damaged_gz_is_refused_at_its_line(make_jsonl: Make, keep: float | None) -> None:
    noise = random.Random(1)
    lines = [{"id": i, "content": f"{noise.random()}" * 20} for i in range(3000)]
    path = make_jsonl(lines, "corpus.jsonl.gz")
    data = bytearray(path.read_bytes())
    data[-6] ^= 0xFF  # inside the checksum
    path.write_bytes(data if keep is None else data[: int(len(data) * keep)])
    said = "is damaged" if keep is None else r"is cut off after line \d+ .*export the file again"
    with pytest.raises(SourceFormatError, match=said):
        read(path)


def test_several_gzip_members_are_one_file(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl.gz"
    parts = [b'{"id": 1, "content": "a"}\n{"id": 2,', b' "content": "b"}\n']
    path.write_bytes(b"".join(gzip.compress(part) for part in parts))
    assert [row.fields["content"] for row in read(path)] == ["a", "b"]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            [{"query_id": "q", "text": "t", "relevant_ids": [1]}],
            "has the keys query_id.*expanded_keywords",
        ),
        ([{"id": 1}], "has the keys id.*expanded_keywords"),
        ([b"id,content", b"1,a"], "none of its 2 lines is a JSON object"),
    ],
)
def test_an_unknown_schema_is_described(make_jsonl: Make, lines: list[object], said: str) -> None:
    with pytest.raises(SourceFormatError, match=said):
        read(make_jsonl(lines))


def test_an_empty_file_is_an_empty_source(make_jsonl: Make) -> None:
    assert read(make_jsonl([])) == []
    assert read(make_jsonl([], "corpus.jsonl.gz")) == []


@pytest.mark.parametrize("change", ["append", "replace"])
def test_appending_and_replacing_disturb_no_pinned_read(make_jsonl: Make, change: str) -> None:
    path = make_jsonl([GOOD])
    with JsonlSource(path) as source:
        assert source.count() == 1
        if change == "append":
            with path.open("ab") as handle:
                handle.write(b'{"id": 2, "content": "later"}\n')
        else:
            make_jsonl([{"id": 9, "content": "new"}, GOOD], "new.jsonl").replace(path)
        assert [row.key for row in source.rows()] == [1]
    assert len(read(path)) == 2


@pytest.mark.parametrize("ids", [(1, 2), (2, 1)])
def test_rewriting_in_place_is_noticed(make_jsonl: Make, ids: tuple[int, int]) -> None:
    path = make_jsonl([{"id": i, "content": "aaaa"} for i in ids])
    with JsonlSource(path) as source:
        assert source.count() == 2
        path.write_bytes(path.read_bytes().replace(b"aaaa", b"bbbb"))
        with pytest.raises(SourceError, match="was rewritten while it was read"):
            list(source.rows())
