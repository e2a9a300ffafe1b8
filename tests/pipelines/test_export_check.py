"""The check on the exported tables stops a night before anything is made of them."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from noctuary.core.errors import StoreError
from noctuary.core.store import StorePaths
from noctuary.sources import export as sift
from noctuary.sources.source import RawRow
from noctuary_assets.ingest import CORPUS, corpus_export
from noctuary_assets.night import MEMORIES, Night
from noctuary_pipelines.nightly import EXIT_FAILED, describe_failure
from tests.support.claude_memory import make_sqlite

CHECK = "no_exported_memory_is_sensitive"
TOKEN = "gh" + "p_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


@dg.asset(deps=["memories"])
def made_of_memories() -> None:
    """Stand for whatever comes after the export."""


def materialize(night: Night, home: Path) -> dg.ExecuteInProcessResult:
    home.mkdir()
    with dg.DagsterInstance.local_temp(str(home)) as instance:
        return dg.materialize(
            [corpus_export, made_of_memories],
            resources={"night": night},
            instance=instance,
            raise_on_error=False,
        )


def night_of(tmp_path: Path) -> Night:
    rows = [{"content": "a harmless note"}, {"content": f"the deploy key is {TOKEN}"}]
    source = make_sqlite(tmp_path / "memory.db", rows)
    return Night(StorePaths(tmp_path / "store"), source)


def let_everything_pass(row: RawRow, *_: object) -> str | None:
    return row.withheld


def check_of(result: dg.ExecuteInProcessResult) -> dg.AssetCheckEvaluation:
    (found,) = [e for e in result.get_asset_check_evaluations() if e.check_name == CHECK]
    return found


def test_a_clean_export_goes_on(tmp_path: Path) -> None:
    result = materialize(night_of(tmp_path), tmp_path / "home")
    check = check_of(result)
    assert result.success
    assert check.passed
    assert check.metadata["tables"].value == 3
    assert check.metadata["found"].value == 0
    assert result.asset_materializations_for_node("made_of_memories")


def test_a_gap_in_the_filter_stops_a_night(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The filter of the rows is broken on purpose; the check on the table is what is tested."""
    monkeypatch.setattr(sift, "find_sensitivity", let_everything_pass)
    night = night_of(tmp_path)
    result = materialize(night, tmp_path / "home")
    check = check_of(result)
    assert night.work(MEMORIES).is_file()
    assert not result.success
    assert not check.passed
    assert check.metadata["places"].value == "memories.content row 1"
    assert check.metadata["reasons"].value == {"secret:github_token": 1}
    assert TOKEN not in str(check.metadata)
    assert not result.asset_materializations_for_node("made_of_memories")
    # What was condemned is made again, and the command says which check it was.
    with pytest.raises(StoreError, match="missing or damaged"):
        night.result_of(CORPUS)
    outcome = describe_failure([], [], [check])
    assert (outcome.exit_code, outcome.status) == (EXIT_FAILED, "failed")
    assert outcome.message.startswith(f"{CHECK} does not hold (tables 3, ")
    assert "what serves is untouched" in outcome.message
    assert TOKEN not in outcome.message
