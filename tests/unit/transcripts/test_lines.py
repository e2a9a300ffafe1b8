from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.sources import transcripts as module
from noctuary.sources.transcripts import parse_object, read_lines


@given(st.binary(max_size=200), st.integers(0, 200))
def test_lines_from_any_offset_cover_every_byte_once(data: bytes, start: int) -> None:
    start = min(start, len(data))
    found = list(read_lines(io.BytesIO(data), start, len(data)))
    assert sum(line.size_bytes for line in found) == len(data) - start
    assert [line.end for line in found] == [
        start + sum(x.size_bytes for x in found[: i + 1]) for i in range(len(found))
    ]
    assert all(line.is_ended for line in found[:-1])
    expected = [raw.strip(b" \t\r\n\0") for raw in data[start:].split(b"\n")]
    if expected[-1] == b"" and (not data[start:] or data.endswith(b"\n")):
        expected.pop()
    assert [line.data for line in found] == expected


def test_bytes_behind_the_stop_are_not_read() -> None:
    found = list(read_lines(io.BytesIO(b"one\ntwo\nthree\n"), 0, 6))
    assert [(x.data, x.is_ended) for x in found] == [(b"one", True), (b"tw", False)]


def test_a_line_that_is_too_long_is_passed_over_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_READ_BYTES", 16)
    monkeypatch.setattr(module, "_CHUNK_BYTES", 7)
    data = b"x" * 40 + b"\nshort\n" + b"y" * 40
    found = list(read_lines(io.BytesIO(data), 0, len(data)))
    assert [(x.data, x.size_bytes, x.is_ended) for x in found] == [
        (None, 41, True),
        (b"short", 6, True),
        (None, 40, False),
    ]


def test_a_parsed_line_is_bounded_but_for_encoded_images() -> None:
    image = {"type": "image", "source": {"data": "iVBORw0KGgo" * 500_000}}
    spoken = {"type": "text", "text": "what is on this picture?"}
    data = json.dumps([spoken, image]).encode() + b"\n"
    assert len(data) > module.MAX_LINE_BYTES
    (line,) = read_lines(io.BytesIO(data), 0, len(data))
    assert line.data is not None
    assert json.loads(line.data)[0] == spoken
    words = json.dumps({"text": "some words " * 500_000}).encode()
    (line,) = read_lines(io.BytesIO(words), 0, len(words))
    assert line.data is None


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[1]", b"null", b'{"a": nope}', b"[" * 100_000, b'{"a": ' + b"1" * 5_000 + b"}"],
    ids=["empty", "cut", "array", "null", "word", "deep", "huge number"],
)
def test_what_is_no_object_is_none(data: bytes) -> None:
    assert parse_object(data) is None


def test_bytes_that_are_no_text_are_replaced() -> None:
    assert parse_object(b'{"a": "x\xffy"}') == {"a": "x\ufffdy"}
