"""Earlier runs of a store: those whose processes are gone, and those of long ago."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import dagster as dg
from sqlalchemy import Engine, event

from noctuary_pipelines.nightly import records_at_leisure
from noctuary_pipelines.resources import close_dead_runs, drop_old_runs


def test_a_night_closes_dead_runs_but_not_itself() -> None:
    @dg.job
    def nothing() -> None:
        pass

    with dg.DagsterInstance.ephemeral() as instance:
        started = dg.DagsterRunStatus.STARTED
        own, dead = (instance.create_run_for_job(nothing, status=started) for _ in range(2))
        close_dead_runs(instance, own.run_id)
        found = [instance.get_run_by_id(run.run_id) for run in (own, dead)]
        assert [run.status.value for run in found if run] == ["STARTED", "FAILURE"]


def test_of_runs_long_ago_no_row_and_no_file_stays(tmp_path: Path) -> None:
    @dg.asset
    def thing() -> None:
        pass

    @dg.asset_check(asset=thing)
    def holds() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    def ids(table: str, place: str) -> set[str]:
        with closing(sqlite3.connect(tmp_path / "history" / place)) as db:
            return {run_id for (run_id,) in db.execute(f"SELECT run_id FROM {table}")}

    (tmp_path / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    seen = dg.AssetKey("seen")
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        for _ in range(4):
            instance.report_runless_asset_event(dg.AssetMaterialization(seen))
        runs = [
            dg.materialize([thing, holds], instance=instance, tags={"night": str(i)}).run_id
            for i in range(4)
        ]
        left = tmp_path / "history" / "runs" / "0000.db-wal"
        left.touch()  # by a night that was killed here
        drop_old_runs(instance, keep=2)
        kept = set(runs[2:])
        assert not left.exists()
        assert {run.run_id for run in instance.get_runs()} == kept
        assert ids("runs", "runs.db") == ids("run_tags", "runs.db") == kept
        for table in ("event_logs", "asset_check_executions"):
            assert ids(table, "runs/index.db") - {""} == kept
        for place in ("index.db", ".db"):
            with closing(sqlite3.connect(tmp_path / "history" / "runs" / place)) as db:
                sql = "SELECT COUNT(*) FROM event_logs WHERE run_id = ''"
                assert db.execute(sql).fetchone() == (2,)
        files = {path.name for path in (tmp_path / "history" / "runs").glob("*.db")}
        assert files == {*(f"{run_id}.db" for run_id in kept), "index.db", ".db"}
        for key, run_id in ((dg.AssetKey("thing"), runs[-1]), (seen, "")):
            latest = instance.get_latest_materialization_event(key)
            assert latest is not None
            assert latest.run_id == run_id


def test_a_night_opens_its_records_once_and_leaves_them_whole(tmp_path: Path) -> None:
    @dg.asset
    def thing() -> None:
        pass

    opened = Counter[str]()

    def count(connection: sqlite3.Connection, _: object) -> None:
        opened[connection.execute("PRAGMA database_list").fetchone()[2]] += 1

    event.listen(Engine, "connect", count)
    try:
        (tmp_path / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
        with records_at_leisure(), dg.DagsterInstance.from_config(str(tmp_path)) as instance:
            runs = [dg.materialize([thing], instance=instance).run_id for _ in range(3)]
            during = opened.copy()
            drop_old_runs(instance, keep=2)
        with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
            assert {run.run_id for run in instance.get_runs()} == set(runs[1:])
            assert len(instance.all_logs(runs[2])) > 10
    finally:
        event.remove(Engine, "connect", count)
    assert max(during.values()) <= 2, "one more where a table is made while another is read"
    assert opened.total() > during.total(), "afterwards Dagster opens them as it always does"
    assert not list(tmp_path.rglob("*-wal")), "the last to close writes the log back"
