"""The file by which the read side finds a hosted model."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from noctuary.core.errors import EncoderError
from noctuary.core.settings import EncoderSettings
from noctuary.embed.hosted import HOSTED_FILE, hosted_model, read_description, write_description

MODEL = hosted_model(
    EncoderSettings("voyage-4", "voyage", "http://127.0.0.1:1/v1", "A_VARIABLE", 256)
)


def test_it_comes_back_and_is_the_same_bytes_every_time(tmp_path: Path) -> None:
    write_description(tmp_path / "a", MODEL)
    assert read_description(tmp_path / "a") == MODEL
    write_description(tmp_path / "b", MODEL)
    one, other = ((tmp_path / name / HOSTED_FILE).read_bytes() for name in "ab")
    assert one == other


def test_it_holds_the_name_of_the_key_and_not_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_VARIABLE", "the-key-itself")
    write_description(tmp_path, MODEL)
    text = (tmp_path / HOSTED_FILE).read_text()
    assert "A_VARIABLE" in text
    assert "the-key-itself" not in text


def _model(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda told: told["model"].update(changes)


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "another format": lambda told: told.update(format_version=2),
    "another fingerprint": lambda told: told["fingerprint"].update(dimension=3),
    "no model": lambda told: told.pop("model"),
    "a field missing": lambda told: told["model"].pop("url"),
    "a field more": _model(more=1),
    "a number as text": _model(dimension="256"),
    "true as a number": _model(dimension=True),
    "an unknown provider": _model(provider="nobody"),
    "an address that is none": _model(url="file:///etc/passwd"),
    "another dimension": _model(dimension=512),
}


@pytest.mark.parametrize("case", CHANGES)
def test_a_changed_file_is_refused(case: str, tmp_path: Path) -> None:
    write_description(tmp_path, MODEL)
    path = tmp_path / HOSTED_FILE
    told = json.loads(path.read_text())
    CHANGES[case](told)
    path.write_text(json.dumps(told))
    with pytest.raises(EncoderError, match="Run the nightly job"):
        read_description(tmp_path)


@pytest.mark.parametrize("content", [None, "", "[]", "null", "{", "\x00"])
def test_a_file_that_is_none_is_refused(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / HOSTED_FILE).write_text(content)
    with pytest.raises(EncoderError, match="Run the nightly job"):
        read_description(tmp_path)


def test_another_address_is_the_same_model(tmp_path: Path) -> None:
    write_description(tmp_path, replace(MODEL, url="http://127.0.0.1:2/v1"))
    assert read_description(tmp_path).fingerprint() == MODEL.fingerprint()
