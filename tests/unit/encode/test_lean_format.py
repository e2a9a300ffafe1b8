from __future__ import annotations

import json
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import pytest

from noctuary.core.errors import EncoderError
from noctuary.embed.fingerprint import EncoderFingerprint
from noctuary.embed.lean import (
    ALIGNMENT_BYTES,
    HEADER_FILE,
    Architecture,
    FileIdentity,
    Header,
    header_text,
    read_header,
    tensor_shapes,
    tensor_table,
)

ARCH = Architecture(2, 4, 32, 64, 100, 16, 1e-12)
HEADER = Header(
    EncoderFingerprint("m", "ab" * 32, 32, "mean", True, "", "", 16),
    ARCH,
    FileIdentity(tensor_table(ARCH)[1], "cd" * 32),
    FileIdentity(7, "ef" * 32),
)


def test_tensors_are_aligned_do_not_overlap_and_fill_the_file() -> None:
    table, size_bytes = tensor_table(ARCH)
    end = 0
    for name, place in table.items():
        assert place.offset_bytes % ALIGNMENT_BYTES == 0
        assert 0 <= place.offset_bytes - end < ALIGNMENT_BYTES
        assert place.shape == tensor_shapes(ARCH)[name]
        end = place.offset_bytes + 4 * prod(place.shape)
    assert end == size_bytes
    assert list(table)[-1] == "word"


def test_header_round_trip(tmp_path: Path) -> None:
    (tmp_path / HEADER_FILE).write_text(header_text(HEADER))
    assert read_header(tmp_path) == HEADER


def _set(*path: str, value: object) -> Callable[[dict[str, Any]], None]:
    def change(header: dict[str, Any]) -> None:
        for key in path[:-1]:
            header = header[key]
        header[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set("format_version", value=2), "format version 2; expected 1"),
        (_set("architecture", "heads", value=5), "impossible architecture"),
        (_set("architecture", "layers", value=0), "impossible architecture"),
        (_set("architecture", "layers", value="2"), "impossible architecture"),
        (_set("architecture", "layers", value=3), "tensor table does not match"),
        (_set("tensors", "word", value=[0, 100, 32]), "tensor table does not match"),
        (_set("weights", "size_bytes", value=1), "tensor table does not match"),
        (_set("fingerprint", "dimension", value=31), "dimension is not the architecture's"),
        (_set("fingerprint", "dimension", value="32"), "dimension is '32'"),
        (_set("vocab", value=None), "TypeError"),
    ],
)
def test_inconsistent_headers_are_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    value = json.loads(header_text(HEADER))
    change(value)
    (tmp_path / HEADER_FILE).write_text(json.dumps(value))
    with pytest.raises(EncoderError, match=message):
        read_header(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}"])
def test_a_file_that_is_no_header_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / HEADER_FILE).write_text(text)
    with pytest.raises(EncoderError, match="Export the encoder again"):
        read_header(tmp_path)


def test_a_missing_header_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match="cannot read the exported encoder's header"):
        read_header(tmp_path)
