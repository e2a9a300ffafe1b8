from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from noctuary.core.errors import SourceFormatError, SourceMissingError
from noctuary.evaluate.run import Run, read_run, write_run

RUN = Run("arm", 1, 2, ("q1", "q2"), (("a", "ü"), ()), (0.1, None), (1.5, 2.5), 3.0, 4, 1)
MANIFEST = {"commit": "abc", "seed": 7, "libraries": {"python": "3.11"}}


@pytest.mark.parametrize("name", ["run.json", "run.json.gz"])
def test_a_run_and_its_manifest_survive_a_file(tmp_path: Path, name: str) -> None:
    write_run(tmp_path / name, RUN, MANIFEST)
    assert read_run(tmp_path / name) == (RUN, MANIFEST)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_the_file_is_one_json_object_that_says_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "run.json.gz"
    write_run(path, RUN, MANIFEST)
    found = json.loads(gzip.decompress(path.read_bytes()))
    assert found == {
        "kind": "run",
        "schema_version": 1,
        "manifest": MANIFEST,
        "run": json.loads(json.dumps(RUN.to_json())),
    }


@pytest.mark.parametrize("name", ["run.json", "run.json.gz"])
def test_equal_content_gives_equal_bytes_whatever_the_name_the_time_or_the_order(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path / name, RUN, MANIFEST)
    monkeypatch.setattr("time.time", lambda: 2e9)
    other = tmp_path / f"other-{name}"
    write_run(other, RUN, dict(reversed(MANIFEST.items())))
    assert other.read_bytes() == (tmp_path / name).read_bytes()
    write_run(other, replace(RUN, name="another"), MANIFEST)
    assert other.read_bytes() != (tmp_path / name).read_bytes()


def test_every_cut_of_a_file_is_refused_by_name(tmp_path: Path) -> None:
    for name in ("run.json", "run.json.gz"):
        path = tmp_path / name
        write_run(path, RUN, MANIFEST)
        whole = path.read_bytes()
        for size in range(len(whole)):
            path.write_bytes(whole[:size])
            with pytest.raises(SourceFormatError, match=name):
                read_run(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "expected a JSON object, found list"),
        ('{"kind": "report", "schema_version": 1}', "found 'report' of 1"),
        ('{"kind": "run", "schema_version": 2}', "found 'run' of 2"),
        ('{"kind": "run", "schema_version": 1}', "expected a manifest object, found NoneType"),
        ('{"kind": "run", "schema_version": 1, "manifest": {}}', "a run is a JSON object"),
    ],
)
def test_another_kind_of_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SourceFormatError, match=message):
        read_run(path)


def test_bytes_that_are_no_utf8_or_no_gzip_are_refused(tmp_path: Path) -> None:
    for name in ("x.json", "x.json.gz"):
        (tmp_path / name).write_bytes(b"\xff\xfe\x00")
        with pytest.raises(SourceFormatError, match=f"{name} holds no run"):
            read_run(tmp_path / name)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceMissingError, match=r"no run file at .*absent\.json"):
        read_run(tmp_path / "absent.json")
