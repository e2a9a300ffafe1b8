"""JSON that somebody else wrote: every reader says what is wrong, and none recurses into it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.agents.hooks import answer
from noctuary.agents.state import read_json
from noctuary.cli.exchange import ExportFormatError
from noctuary.cli.exchange import read_export_manifest as read_export
from noctuary.core.errors import ConfigError, EncoderError, SnapshotCorruptError
from noctuary.core.foreign_json import MOST_LEVELS, parse_json
from noctuary.core.manifest import read_manifest, read_pointer
from noctuary.core.settings import Settings
from noctuary.core.store import MANIFEST_FILE, StorePaths
from noctuary.embed.hosted import HOSTED_FILE, read_description
from noctuary.embed.lean import HEADER_FILE, read_header
from noctuary.recall.result import Calibration
from noctuary.snapshot.publish import read_verdict
from noctuary.sources.palace import _ids  # pyright: ignore[reportPrivateUsage]
from noctuary.sources.transcripts import FileContext, parse_object
from tests.support.hook_worlds import MemoryWorld

DEEP = "[" * 100_000 + "]" * 100_000


def nested(levels: int) -> str:
    return '{"a":' * levels + "[1, 2]" + "}" * levels


@given(st.integers(0, 3 * MOST_LEVELS), st.booleans())
def test_what_is_nested_deeper_than_the_limit_is_no_json(levels: int, as_bytes: bool) -> None:
    text = nested(levels)
    given_text = text.encode() if as_bytes else text
    if levels < MOST_LEVELS:
        assert parse_json(given_text) == json.loads(text)
    else:
        with pytest.raises(ValueError, match="nested too deeply"):
            parse_json(given_text)


def test_brackets_in_a_text_and_beside_each_other_are_not_nesting() -> None:
    value = {"text": "[{" * 10_000, "rows": [[] for _ in range(10_000)]}
    assert parse_json(json.dumps(value)) == value


def file(path: Path, text: str = DEEP) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def in_config(path: Path) -> Any:
    return Settings.load(file(path / "noctuary.toml", f"a = {DEEP}"), environ={})


READERS: dict[str, tuple[Callable[[Path], Any], type[Exception] | None]] = {
    "a pointer": (
        lambda p: read_pointer(StorePaths(file(p / "CURRENT").parent)), SnapshotCorruptError
    ),
    "a manifest": (lambda p: read_manifest(file(p / MANIFEST_FILE).parent), SnapshotCorruptError),
    "an export's": (lambda p: read_export(file(p / MANIFEST_FILE).parent), ExportFormatError),
    "an encoder": (lambda p: read_header(file(p / HEADER_FILE).parent), EncoderError),
    "a provider": (lambda p: read_description(file(p / HOSTED_FILE).parent), EncoderError),
    "a calibration": (lambda p: Calibration.parse(DEEP), ValueError),
    "settings": (in_config, ConfigError),
    "a verdict": (lambda p: read_verdict(StorePaths(file(p / "verdicts/x.json").parents[1]), "x"),
                  None),
    "a hook's event": (lambda p: answer(DEEP.encode(), MemoryWorld()) or None, None),
    "a hook's notes": (lambda p: read_json(file(p / "x.json"), 1 << 20)[0], None),
    "a transcript": (lambda p: parse_object(DEEP.encode()), None),
    "a transcript's context": (
        lambda p: None if FileContext.from_json(DEEP) == FileContext() else DEEP, None
    ),
    "a palace's marks": (lambda p: _ids(DEEP) or None, None),
}  # fmt: skip


@pytest.mark.parametrize("name", READERS)
def test_no_reader_recurses_into_what_is_nested_without_end(tmp_path: Path, name: str) -> None:
    read, raises = READERS[name]
    if raises is None:
        assert read(tmp_path) is None
        return
    with pytest.raises(raises):
        read(tmp_path)
