from __future__ import annotations

from pathlib import Path

import pytest

from noctuary.core.store import StorePaths
from noctuary.snapshot.publish import FAIL, PASS, CheckResult, read_verdict, store_verdict

DIGEST = "d" * 64
GOOD = CheckResult("rows_are_there", True, {"rows": 3})
BAD = CheckResult("vectors_are_unit", False, {"bad": 1, "ids": "7, 8"})


@pytest.mark.parametrize(
    ("checks", "outcome"),
    [([GOOD], PASS), ([GOOD, GOOD], PASS), ([GOOD, BAD], FAIL), ([BAD], FAIL), ([], FAIL)],
)
def test_pass_needs_at_least_one_check_and_every_check(
    tmp_path: Path, checks: list[CheckResult], outcome: str
) -> None:
    assert store_verdict(StorePaths(tmp_path), DIGEST, checks).outcome == outcome


def test_a_verdict_is_read_back_under_its_digest_only(tmp_path: Path) -> None:
    paths = StorePaths(tmp_path)
    stored = store_verdict(paths, DIGEST, [GOOD, BAD])
    assert read_verdict(paths, DIGEST) == stored
    assert read_verdict(paths, "e" * 64) is None


def test_a_newer_verdict_replaces_the_older(tmp_path: Path) -> None:
    paths = StorePaths(tmp_path)
    store_verdict(paths, DIGEST, [GOOD])
    store_verdict(paths, DIGEST, [BAD])
    verdict = read_verdict(paths, DIGEST)
    assert verdict is not None
    assert verdict.outcome == FAIL


def test_a_verdict_copied_under_another_digest_does_not_count(tmp_path: Path) -> None:
    paths = StorePaths(tmp_path)
    store_verdict(paths, DIGEST, [GOOD])
    (paths.verdicts / f"{DIGEST}.json").rename(paths.verdicts / f"{'e' * 64}.json")
    assert read_verdict(paths, "e" * 64) is None


@pytest.mark.parametrize("content", [b"", b"{", b"null", b"[]", b"{}", b"\xff", b'{"checks": [1]}'])
def test_a_damaged_verdict_is_none(tmp_path: Path, content: bytes) -> None:
    paths = StorePaths(tmp_path)
    store_verdict(paths, DIGEST, [GOOD])
    (paths.verdicts / f"{DIGEST}.json").write_bytes(content)
    assert read_verdict(paths, DIGEST) is None
