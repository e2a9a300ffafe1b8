"""The command `noctuary proposals compact`: what it prints, what it writes, how it leaves."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from noctuary.compact.archive import ArchiveReader
from noctuary.work.lock import hold_lock
from tests.rooms.cli.conftest import Run
from tests.support.archive import copy_archive_store, new_archive_store
from tests.support.claude_memory import table_of
from tests.support.curation import TEXT, Nights
from tests.support.lean import write_encoder
from tests.support.promotions import Nights as PromotionNights
from tests.support.promotions import turn
from tests.support.store import Store

RunJson = Callable[..., Any]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Store:
    root = tmp_path_factory.mktemp("compact") / "house"
    return new_archive_store(root, write_encoder(root / "encoders"))


@pytest.fixture
def store(template: Store, tmp_path: Path, home: Path) -> Store:
    return copy_archive_store(template, tmp_path / "house")


def tree(root: Path) -> dict[str, tuple[bytes, int, int]]:
    return {
        str(p.relative_to(root)): (p.read_bytes(), p.stat().st_mtime_ns, p.stat().st_ino)
        for p in sorted(root.rglob("*"))
        if p.is_file()
    }


def test_the_plan_is_the_default_and_writes_nothing(run: Run, store: Store, home: Path) -> None:
    before, around = tree(store.root), sorted(home.rglob("*"))
    few = run("proposals", "compact", "--limit", "1", "--store", str(store.root)).stdout
    assert "... and 3 more; --json shows all" in few
    assert "superseded_by=106" not in few
    shown = [
        run("proposals", "compact", "--store", str(store.root)),
        run("proposals", "compact", "--texts", "--store", str(store.root)),
        run("proposals", "compact", "--json", "--store", str(store.root)),
        run("proposals", "compact", "--list", "--store", str(store.root)),
    ]
    assert [r.exit_code for r in shown] == [0, 0, 0, 0]
    assert tree(store.root) == before
    assert sorted(home.rglob("*")) == around
    assert "4 memories would be archived, 1 summaries created" in shown[0].stdout
    assert "superseded_by=106 (explicit, high), never recalled, created=397 days ago" in (
        shown[0].stdout
    )
    assert "hangs in the hall" not in shown[0].stdout
    assert "The spare key hangs in the hall." in shown[1].stdout
    assert "no plan was applied yet" in shown[3].stdout


def test_the_plan_as_json_has_the_rfcs_names(run_json: RunJson, store: Store) -> None:
    plan = run_json("proposals", "compact", "--store", str(store.root))
    assert (plan["would_archive"], plan["would_create_summaries"], plan["summary_count"]) == (
        4, 1, 1,
    )  # fmt: skip
    times = plan["phase_timing_ms"]["adaptive_compaction"]
    assert times.keys() == {
        "ltp_scan_ms", "supersede_check_ms", "consolidation_plan_ms", "total_ms",
    }  # fmt: skip
    assert all(ms >= 0 for ms in times.values())
    assert sum(times.values()) - times["total_ms"] <= times["total_ms"] + 0.1
    into = {c["memory_id"]: c["consolidated_into"] for c in plan["candidates"]}
    (summary,) = plan["summaries"]
    assert {m for m, s in into.items() if s == summary["summary_id"]} == {"101", "102", "103"}
    assert into["105"] is None
    assert "text" not in summary
    (told,) = run_json("proposals", "compact", "--texts", "--store", str(store.root))["summaries"]
    assert told["text"]


def test_apply_list_and_undo(run: Run, run_json: RunJson, store: Store) -> None:
    place = ("--store", str(store.root))
    plan_id = run_json("proposals", "compact", *place)["plan_id"]
    done = run("proposals", "compact", "--apply", plan_id, *place)
    assert done.exit_code == 0
    assert f"plan {plan_id} archived 4 memories; nothing was deleted" in done.stdout
    assert sorted(ArchiveReader(store.paths.archive).entries_at(None)) == [
        "101", "102", "103", "105",
    ]  # fmt: skip
    (told,) = run_json("proposals", "compact", "--list", *place)["plans"]
    assert (told["plan_id"], told["in_force"]) == (plan_id, True)
    assert len(told["memory_ids"]) == 4
    listed = run("proposals", "compact", "--list", *place).stdout
    assert f"plan {plan_id}  in force, 4 memories" in listed
    assert (
        "nothing to archive; nothing was written"
        in run("proposals", "compact", "--apply", *place).stdout
    )
    assert run_json("proposals", "compact", "--undo", plan_id, *place)["plan_id"] == plan_id
    assert ArchiveReader(store.paths.archive).entries_at(None) == {}
    assert "undone, 4 memories" in run("proposals", "compact", "--list", *place).stdout


@pytest.mark.parametrize("words", [("--apply", "0123456789abcdef"), ("--undo", "nonsense")])
def test_a_plan_that_does_not_fit_is_exit_code_3(
    run: Run, run_json: RunJson, store: Store, words: tuple[str, ...]
) -> None:
    place = ("--store", str(store.root))
    failed = run("proposals", "compact", *words, *place)
    assert (failed.exit_code, failed.stdout) == (3, "")
    assert words[1] in failed.stderr
    assert run_json("proposals", "compact", *words, *place, code=3)["error"] == "PlanRefusedError"
    assert not store.paths.archive.exists()


def test_a_running_night_is_exit_code_4(run: Run, store: Store) -> None:
    with hold_lock(store.paths.lock):
        assert run("proposals", "compact", "--apply", "--store", str(store.root)).exit_code == 4
        assert run("proposals", "compact", "--store", str(store.root)).exit_code == 0
    assert not store.paths.archive.exists()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("compact", "--apply", "--list"), 2), (("compact", "--apply", "x", "--undo", "y"), 2),
        (("compact", "--list", "--undo", "y"), 2), (("curate", "--apply", "--journal"), 2),
        (("compact",), 1), (("curate",), 1), (("promotions",), 1),
    ],
)  # fmt: skip
def test_one_thing_at_a_time_and_only_on_a_store(
    run: Run, run_json: RunJson, tmp_path: Path, home: Path, words: tuple[str, ...], code: int
) -> None:
    (tmp_path / "empty" / "work").mkdir(parents=True)
    call = ("proposals", *words, "--store", str(tmp_path / "empty"))
    refused = run(*call)
    assert refused.exit_code == code
    if code == 1:
        assert "night" in refused.stderr
        assert run_json(*call, code=1)["error"]


def test_the_profile_decides(run: Run, run_json: RunJson, store: Store, home: Path) -> None:
    (home / "noctuary.toml").write_text(
        "[profiles.default]\ncompaction_age_days = 370\n"
        "[profiles.eager]\ncompaction_age_days = 0\ndecay_enabled = true\n"
    )
    place = ("--store", str(store.root))
    plan = run_json("proposals", "compact", *place)
    assert [c["memory_id"] for c in plan["candidates"]] == ["101", "105"]
    assert plan["rules"]["decay_lambda"] == 0
    eager = run_json("proposals", "compact", "--profile", "eager", *place)
    assert eager["would_archive"] == 4
    assert eager["rules"]["decay_lambda"] == 0.01
    unknown = run("proposals", "compact", "--profile", "nobody", *place)
    assert unknown.exit_code == 0
    assert "! unknown_profile" in unknown.stderr


def test_a_damaged_ledger_is_told(run: Run, store: Store) -> None:
    store.paths.archive.write_bytes(b"x" * 4096)
    assert (
        "archive.sqlite cannot be read"
        in run("proposals", "compact", "--store", str(store.root)).stdout
    )
    for words in (("--apply",), ("--undo", "x"), ("--list",)):
        failed = run("proposals", "compact", *words, "--store", str(store.root))
        assert failed.exit_code == 1, words
        assert "archive.sqlite" in failed.stderr


@pytest.fixture
def nights(tmp_path: Path, home: Path) -> Nights:
    return Nights(tmp_path)


@pytest.fixture
def curated(nights: Nights) -> str:
    nights.run()
    return str(nights.paths.root)


def test_the_list_shows_who_stays_and_who_goes(
    run: Run, run_json: RunJson, curated: str, nights: Nights
) -> None:
    shown = run("proposals", "curate", "--store", curated)
    assert shown.exit_code == 0
    assert f"updated    [2] {TEXT}" in shown.stdout
    assert "new row    Tides: high at six. low at noon." in shown.stdout
    assert "contradiction" not in shown.stdout
    assert "3 of 4 proposals" in shown.stdout
    assert "contradiction" in run("proposals", "curate", "--all", "--store", curated).stdout
    found = run_json("proposals", "curate", "--store", curated, "--all")
    assert (found["enabled"], found["source"]) == (True, str(nights.source))
    assert found["counts"]["fragments ADD"] == 1
    added = [p["replacement_text"] for p in found["proposals"] if p["action"] == "ADD"]
    assert added == ["Tides: high at six.\nlow at noon."]
    start = found["proposals"][0]["proposal_id"][:8]
    (one,) = run_json("proposals", "curate", start, "--store", curated)["proposals"]
    assert one["kind"] == "exact_duplicate"


def test_apply_journal_and_undo(run: Run, run_json: RunJson, curated: str, nights: Nights) -> None:
    before = table_of(nights.source)
    assert (
        "nothing was ever applied"
        in run("proposals", "curate", "--journal", "--store", curated).stdout
    )
    assert table_of(nights.source) == before
    done = run("proposals", "curate", "--apply", "--store", curated)
    assert "3 proposals written" in done.stdout
    assert "4 rows marked, 1 filled up, 1 added" in done.stdout
    assert (
        "holds already (journal 1)"
        in run("proposals", "curate", "--apply", "--store", curated).stdout
    )
    (entry,) = run_json("proposals", "curate", "--journal", "--store", curated)["journal"]
    assert (entry["journal_id"], entry["rows"], entry["undoable"]) == (1, 6, True)
    assert run_json("proposals", "curate", "--undo", "1", "--store", curated)["taken_back"] == [9]
    assert table_of(nights.source) == before
    assert "undone" in run("proposals", "curate", "--journal", "--store", curated).stdout


def test_one_proposal_or_the_surest_alone_are_applied(
    run_json: RunJson, curated: str, nights: Nights
) -> None:
    apply = ("proposals", "curate", "--store", curated, "--apply")
    sure = run_json(*apply, "--min-confidence", "0.99")
    assert (sure["tombstones"], sure["updated"]) == ([1], [2])
    found = run_json("proposals", "curate", "--store", curated)["proposals"]
    (joined,) = [p["proposal_id"] for p in found if p["action"] == "ADD"]
    applied = run_json(*apply, joined[:6])
    assert (applied["written"], applied["tombstones"]) == ([joined], [3, 4])
    with closing(sqlite3.connect(nights.source)) as db:
        sql = "SELECT count(*) FROM memories WHERE content LIKE '[SUPERSEDED]%'"
        assert db.execute(sql).fetchone() == (3,)


def test_a_changed_source_is_refused_with_exit_code_1(
    run_json: RunJson, curated: str, nights: Nights
) -> None:
    nights.edit("UPDATE memories SET content = 'Edited.' WHERE id = 4")
    before = table_of(nights.source)
    refused = run_json("proposals", "curate", "--apply", "--store", curated, code=1)
    assert refused["error"] == "CurationRefusedError"
    assert table_of(nights.source) == before


def test_another_source_may_be_named(
    run_json: RunJson, curated: str, nights: Nights, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.db"
    with closing(sqlite3.connect(nights.source)) as old, closing(sqlite3.connect(copy)) as new:
        old.backup(new)
    applied = run_json("proposals", "curate", "--apply", "--source", str(copy), "--store", curated)
    assert applied["source"] == str(copy)
    assert run_json("proposals", "curate", "--journal", "--store", curated)["journal"] == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--apply", "--source", "env:NO_SUCH"), "NO_SUCH"),
        (("--apply", "--source", "missing.db"), "no memory store"),
        (("--apply", "zzz"), "names 0 proposals"),
        (("--apply", "--min-confidence", "2"), "expected 0 to 1"),
        (("--undo", "5"), "no application 5"),
        (("--apply", "--source", "corpus.jsonl"), "only reads"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    run: Run, curated: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...], says: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus.jsonl").write_text(json.dumps({"id": 1, "content": TEXT}) + "\n")
    result = run("proposals", "curate", *arguments, "--store", curated)
    assert result.exit_code == 1
    assert says in result.stderr


@pytest.fixture
def promotion_nights(tmp_path: Path, home: Path) -> PromotionNights:
    found = PromotionNights(tmp_path)
    found.write(
        turn("User: I work at Initech, since 2019.", 1, wing="shop"),
        turn("User: I have two brothers.", 2),
        turn("User: ok", 3),
        turn("User: my sister Ana lives in Lyon since 2020", 4, user="ana"),
    )
    found.run()
    return found


@pytest.fixture
def promoted(promotion_nights: PromotionNights) -> str:
    return str(promotion_nights.paths.root)


def test_switched_off_they_say_how_to_switch_it_on(
    run: Run, nights: Nights, promotion_nights: PromotionNights
) -> None:
    nights.run(enabled=False)
    promotion_nights.run(enabled=False)
    for command, store in (("curate", nights), ("promotions", promotion_nights)):
        shown = run("proposals", command, "--store", str(store.paths.root))
        assert shown.exit_code == 0
        assert f"set {'curation' if command == 'curate' else 'promotion'}.enabled" in shown.stdout


def test_the_best_come_first_with_their_text_and_numbers(
    run: Run, run_json: RunJson, promoted: str
) -> None:
    found = run_json("proposals", "promotions", "--store", promoted)
    assert (found["enabled"], found["threshold"]) == (True, 0.35)
    first = found["promotions"][0]
    assert first["text"] == "User: I work at Initech, since 2019."
    assert first["g"] == first["gconv"] == 0.5
    assert (first["decision"], first["reason"]) == ("propose", "proposed")
    assert first["marks"] == ["date", "fact"]
    shown = run("proposals", "promotions", "--store", promoted)
    assert shown.exit_code == 0
    lines = shown.stdout.splitlines()
    assert lines[0] == "[1]  propose  G 0.50  2026-03-01  (shop)  date, fact"
    assert lines[1] == "    User: I work at Initech, since 2019."
    assert lines[2].startswith("    new to what you keep; technical 0.00; ")
    assert "novelty 1.00" in lines[2]
    assert lines[3].startswith("[2]  propose  G 0.47  2026-03-01  fact, quantity")
    assert lines[-1].startswith("2 of 3 turns are proposed (G of 0.35 and more); 2 shown.")
    assert "Nothing is written" in lines[-1]
    assert "Lyon" not in shown.stdout


def test_what_was_left_alone_and_how_many(run: Run, promoted: str) -> None:
    shown = run("proposals", "promotions", "--all", "--store", promoted).stdout
    assert "[3]  leave" in shown
    assert "says nothing that stands alone" in shown
    one = run("proposals", "promotions", "--all", "-n", "1", "--store", promoted).stdout
    assert "[1]" in one
    assert "[2]" not in one
    assert "1 shown" in one


def test_the_turns_of_a_user_are_only_shown_to_whoever_asks_for_them(
    run_json: RunJson, promoted: str
) -> None:
    plain = run_json("proposals", "promotions", "--all", "--store", promoted)
    assert {row["turn_id"] for row in plain["promotions"]} == {"1", "2", "3"}
    assert plain["counts"] == {"nothing_said": 1, "proposed": 2}
    own = run_json("proposals", "promotions", "--user", "ana", "--store", promoted)
    assert [row["turn_id"] for row in own["promotions"]] == ["4"]
    assert own["counts"] == {"proposed": 1}
    assert (
        run_json("proposals", "promotions", "--user", "zoe", "--store", promoted)["promotions"]
        == []
    )


def test_a_turn_that_changed_since_is_shown_without_text(
    run_json: RunJson, promoted: str, promotion_nights: PromotionNights
) -> None:
    from noctuary_assets.ingest import export_memories
    from noctuary_assets.night import Night

    promotion_nights.write(turn("User: I left Initech."))
    export_memories(Night(promotion_nights.paths, promotion_nights.source))
    assert run_json("proposals", "promotions", "--store", promoted)["promotions"][0]["text"] is None
