"""The sensor as Dagster evaluates it, on real sources, locks and marks; and its decision alone."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.data_version import CachingStaleStatusResolver
from dagster._core.loader import LoadingContextForTest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.core.settings import SensorSettings, Settings
from noctuary.core.store import StorePaths
from noctuary.work.lock import hold_lock
from noctuary_assets.ingest import memory_store
from noctuary_pipelines.definitions import build_definitions
from noctuary_pipelines.sensors import (
    MARKER_TAG,
    MAX_ATTEMPTS,
    START_PATIENCE_S,
    Asked,
    Decision,
    decide_run,
    read_asked,
    source_sensor,
    write_asked,
)
from noctuary_pipelines.site import Site
from noctuary_pipelines.source_versions import note_source, read_completed_marker

MINUTE_S = 60.0


@dg.asset(deps=[memory_store])
def memories() -> None:
    """Stand for the export."""


@dg.asset(deps=[memories])
def snapshot() -> None:
    """Stand for what is published."""


class Bench:
    """A source, a store and a clock; `look` is one tick of the sensor."""

    def __init__(
        self, directory: Path, settings: SensorSettings, instance: dg.DagsterInstance
    ) -> None:
        self.instance = instance
        self.source = directory / "memory.db"
        with closing(sqlite3.connect(self.source)) as db:
            db.execute("CREATE TABLE memories (id INTEGER PRIMARY KEY, content TEXT)")
        paths = StorePaths(directory / "store")
        self.site = Site(directory, self.source, paths, Settings()._replace(sensor=settings))
        self.now_s = 1_800_000_000.0
        self.cursor: str | None = None
        self.sensor = source_sensor(settings, lambda: self.site, lambda: self.now_s)

    def change(self) -> None:
        with closing(sqlite3.connect(self.source)) as db, db:
            db.execute("INSERT INTO memories (content) VALUES ('CANARY in a row')")

    def night(self, *, publishes: bool = True, changes: bool = False) -> None:
        """A night, as far as the sensor can see it."""
        note_source(self.instance, self.site)
        if changes:
            self.change()
        assets = [memory_store, memories, snapshot] if publishes else [memory_store, memories]
        assert dg.materialize(assets, instance=self.instance).success

    def staleness(self) -> str:
        """Say what the UI says of the memories."""
        graph = dg.Definitions(assets=[memory_store, memories]).resolve_asset_graph()
        loading = LoadingContextForTest(self.instance)
        resolver = CachingStaleStatusResolver(self.instance, graph, loading)
        return resolver.get_status(dg.AssetKey("memories")).value

    def look(self) -> dg.RunRequest | str:
        """Return the request, or why there is none; the cursor moves as the daemon moves it."""
        result: Any = self.sensor(dg.build_sensor_context(self.instance, cursor=self.cursor))
        if isinstance(result, dg.SkipReason):
            return str(result.skip_message)
        for event in result.asset_events:
            self.instance.report_runless_asset_event(event)
        if result.skip_reason:
            return str(result.skip_reason.skip_message)
        self.cursor = result.cursor
        (request,) = result.run_requests
        return request


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Bench(tmp_path, SensorSettings(minimum_minutes=15), instance)


def asks(found: dg.RunRequest | str) -> dg.RunRequest:
    assert isinstance(found, dg.RunRequest), found
    return found


def says(found: dg.RunRequest | str) -> str:
    assert isinstance(found, str), found
    return found


def test_the_sensor_waits_to_be_switched_on_and_follows_the_settings(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sensor = build_definitions().resolve_sensor_def("source_changed")
    assert sensor.default_status == dg.DefaultSensorStatus.STOPPED
    assert (sensor.job_name, sensor.minimum_interval_seconds) == ("nightly", 60)
    monkeypatch.setenv("NOCTUARY_SENSOR_POLL_SECONDS", "7")
    sensor = build_definitions().resolve_sensor_def("source_changed")
    assert sensor.minimum_interval_seconds == 7


def test_a_source_that_no_night_has_read_asks_once_and_tells_dagster_no_text(bench: Bench) -> None:
    bench.change()
    request = asks(bench.look())
    assert request.run_key
    assert request.run_key.endswith("-1")
    assert request.tags[MARKER_TAG] == request.run_key.removesuffix("-1")
    assert "CANARY" not in json.dumps([request.run_key, dict(request.tags), bench.cursor])
    assert "a night was asked for 0 min ago" in says(bench.look())
    # A tick that was cut off: Dagster starts one run per key.
    bench.cursor = None
    assert asks(bench.look()).run_key == request.run_key


def test_after_a_night_only_a_change_asks(bench: Bench) -> None:
    bench.night()
    assert "nothing changed" in says(bench.look())
    bench.change()
    first = asks(bench.look())
    bench.now_s += 5 * MINUTE_S
    bench.change()
    assert says(bench.look()) == (
        "the source changed; a night was asked for 5 min ago, the next may be in 10.0 min"
    )
    bench.now_s += 10 * MINUTE_S
    second = asks(bench.look())
    assert first.run_key != second.run_key
    bench.night()
    assert "nothing changed" in says(bench.look())


def test_a_night_that_somebody_else_ran_is_enough_one_that_failed_is_not(bench: Bench) -> None:
    """By cron or by hand: what it read need not be read again."""
    bench.night()
    bench.change()
    bench.night()
    assert "nothing changed" in says(bench.look())
    bench.change()
    bench.night(publishes=False)
    asks(bench.look())


def test_what_changes_while_a_night_reads_asks_for_the_next(bench: Bench) -> None:
    bench.night(changes=True)
    assert bench.staleness() == "FRESH"
    asks(bench.look())
    assert bench.staleness() == "STALE"


def test_a_change_makes_the_memories_stale_even_where_no_night_is_asked_for(bench: Bench) -> None:
    asks(bench.look())
    bench.night()
    assert bench.staleness() == "FRESH"
    bench.change()
    assert "a night was asked for" in says(bench.look())
    assert bench.staleness() == "STALE"
    seen = bench.instance.fetch_materializations(memory_store.key, limit=9).records
    says(bench.look())
    # One event for a state, however often it is seen.
    assert bench.instance.fetch_materializations(memory_store.key, limit=9).records == seen
    bench.night()
    assert bench.staleness() == "FRESH"


def test_while_a_night_runs_the_sensor_waits(bench: Bench) -> None:
    bench.change()
    with hold_lock(bench.site.paths.lock):
        assert says(bench.look()) == f"a night is running (process {os.getpid()})"
    asks(bench.look())


def test_a_night_that_never_goes_through_is_asked_for_three_times(bench: Bench) -> None:
    keys: set[str] = set()
    for _ in range(MAX_ATTEMPTS):
        keys.add(asks(bench.look()).run_key or "")
        bench.now_s += 16 * MINUTE_S
    assert len(keys) == MAX_ATTEMPTS
    assert f"{MAX_ATTEMPTS} nights were asked for" in says(bench.look())
    bench.change()
    asks(bench.look())


def test_a_source_that_is_gone_is_a_reason_and_does_not_stop_a_night(bench: Bench) -> None:
    assert read_completed_marker(bench.instance) is None
    bench.source.unlink()
    assert "there is no memory store at" in says(bench.look())
    bench.night()
    assert read_completed_marker(bench.instance) == "INITIAL"


@pytest.mark.parametrize(
    "cursor",
    [None, "", "{", "[]", "7", '{"marker": null, "at_s": "soon"}', '{"at_s": {}}', '"marker"'],
)
def test_a_cursor_that_cannot_be_read_has_asked_for_nothing(cursor: str | None) -> None:
    assert (read_asked(cursor).total, read_asked(cursor).at_s) == (0, 0)


moments = st.floats(0, 4e9, allow_nan=False)
markers = st.sampled_from(["a", "b", "c"])
askeds = st.builds(Asked, markers | st.just(""), moments, st.integers(0, 5), st.integers(0, 99))


@given(askeds)
def test_a_cursor_is_read_as_it_was_written(asked: Asked) -> None:
    assert read_asked(write_asked(asked)) == asked


@given(askeds, markers, markers | st.none(), moments, st.floats(0, 1e5, allow_nan=False))
def test_a_decision_is_a_reason_or_a_request(
    asked: Asked, marker: str, completed: str | None, now_s: float, minimum_s: float
) -> None:
    made = decide_run(asked, marker, completed, now_s=now_s, minimum_s=minimum_s)
    assert bool(made.reason) != bool(made.run_key)
    if made.reason:
        assert made.asked == asked
        return
    assert marker != completed
    assert (made.asked.marker, made.asked.at_s) == (marker, now_s)
    assert made.asked.total == asked.total + 1
    assert made.run_key == f"{marker}-{made.asked.total}"


@given(st.lists(st.tuples(markers, st.floats(0, 2000)), max_size=40), st.floats(0, 3000))
def test_whatever_happens_requests_are_rare_and_their_keys_are_all_different(
    looks: list[tuple[str, float]], minimum_s: float
) -> None:
    asked, now_s = Asked(), 1e9
    requests: list[tuple[float, str, Decision]] = []
    for marker, passed_s in looks:
        now_s += passed_s
        made = decide_run(asked, marker, None, now_s=now_s, minimum_s=minimum_s)
        if made.run_key:
            requests.append((now_s, marker, made))
        asked = made.asked
    assert len({made.run_key for _, _, made in requests}) == len(requests)
    for (before_s, before, _), (after_s, after, _) in pairwise(requests):
        least_s = max(minimum_s, START_PATIENCE_S) if before == after else minimum_s
        assert after_s - before_s >= least_s
    # The first change is never missed.
    assert bool(requests) == bool(looks)


def test_a_clock_that_was_set_back_does_not_silence_it() -> None:
    asked = Asked("a", 2e9, 1, 1)
    assert decide_run(asked, "b", None, now_s=1e9, minimum_s=900).run_key == "b-2"
