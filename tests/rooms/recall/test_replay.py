"""Recalls kept, run again and compared."""

from __future__ import annotations

import copy
import json
import math
import os
import resource
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from noctuary.core.errors import EncoderError, FingerprintMismatchError, StoreError
from noctuary.core.sqlite import append_rows
from noctuary.core.types import UNDATED_US, from_micros, register_hook
from noctuary.recall import replay as log
from noctuary.recall.engine import Recaller
from noctuary.recall.inputs import Inputs
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.query import SORT_ORDERS, Scope
from noctuary.recall.replay import (
    REPLAY_LOG,
    RecordedInputs,
    RecordingInputs,
    append_packet,
    find_packet,
    list_packets,
    log_format,
    replay,
    rerun,
)
from noctuary.recall.result import RecallWarning
from noctuary.usage.query_log import LoggedQuery
from noctuary.usage.reader import Usage
from tests.support.replays import EVERYTHING, KEPT, forget_users, keep, last_packet, use
from tests.support.store import Store, day_us, household, memory, renumber
from tests.support.usage import count_retrievals

PROFILES = {
    "default": KEPT,
    "everything": EVERYTHING,
    "off": RetrievalProfile.off().replaced(replay_log=True),
    "rrf": KEPT.replaced(fusion="rrf"),
    "hybrid": KEPT.replaced(scorer="hybrid"),
    "two_pass": KEPT.replaced(scorer="two_pass", coarse_threshold=0.0),
}


def change_the_world(store: Store) -> None:
    """A night with other memories, another use, another past query."""
    store.publish(renumber([memory("A spare key for Nina."), *household()[1:]]))
    count_retrievals(store, [["102", "104"]] * 5)
    use(store, "the blue door")


@pytest.mark.parametrize("name", PROFILES)
def test_a_kept_recall_is_identical_whatever_happens_to_the_store_afterwards(
    dense_store: Store, name: str
) -> None:
    use(dense_store)
    packets: list[dict[str, Any]] = []
    for query in ("Nina key", "morning flight", "door code", "zebra"):
        then = keep(dense_store, query, profile=PROFILES[name], scope=Scope(user="ana"))
        assert then.warnings == ()
        packets.append(last_packet(dense_store))
        assert len(packets[-1]["results"]) == len(then.memories)
    change_the_world(dense_store)
    assert Recaller.open(dense_store.root).snapshot_id != packets[0]["snapshot_id"]
    for packet in packets:
        compared = replay(dense_store.paths, packet)
        assert (compared.differences, compared.identical) == ((), True)
        assert compared.memories == len(packet["results"])


def test_the_same_recall_is_another_one_after_the_change(dense_store: Store) -> None:
    """What the test above would miss if replays looked at the world of today."""
    use(dense_store)
    keep(dense_store, "Nina key", profile=EVERYTHING)
    packet = last_packet(dense_store)
    count_retrievals(dense_store, [["102", "104"]] * 5)
    recaller = Recaller.open(dense_store.root)
    assert recaller.snapshot_id == packet["snapshot_id"]
    live = recaller.recall("Nina key", 5, profile=EVERYTHING)
    scores = [{"id": m.id, "final_score": m.final_score} for m in live.memories]
    assert scores != packet["results"]
    assert rerun(recaller, packet).identical


_flags = st.fixed_dictionaries(
    {},
    optional={
        name: st.booleans()
        for name in (
            "ltp_enabled", "time_decay_enabled", "association_enabled", "mmr_enabled",
            "pinned_memory_enabled", "query_expansion_enabled", "supersede_filter_enabled",
            "consolidation_enabled", "explain", "candidate_trace",
        )
    }
    | {"fusion": st.sampled_from(["cc", "rrf"]), "graph_weight": st.floats(0, 3)},
)  # fmt: skip


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    query=st.lists(
        st.sampled_from(["key", "cat", "Atlas", "flight", "door", "🔑\udcff"]), max_size=4
    ).map(" ".join),
    k=st.integers(0, 20),
    flags=_flags,
    sort_by=st.sampled_from(SORT_ORDERS),
    as_of=st.none() | st.integers(0, 60).map(lambda day: from_micros(day_us(day))),
)
def test_any_packet_survives_json_and_replays_identically(
    dense_store: Store, query: str, k: int, flags: dict[str, Any], sort_by: str,
    as_of: datetime | None,
) -> None:  # fmt: skip
    if not dense_store.paths.queries.exists():
        use(dense_store)
    how: dict[str, Any] = {"profile": KEPT.replaced(**flags), "scope": Scope(as_of=as_of)}
    result = keep(dense_store, query, k, **how, sort_by=sort_by, dry_run=True)
    packet = json.loads(json.dumps(result.replay_packet))
    assert packet == result.replay_packet
    assert rerun(Recaller.open(dense_store.root), packet).differences == ()


def test_a_packet_has_the_fields_of_the_rfc_and_no_text_of_a_memory(dense_store: Store) -> None:
    use(dense_store)
    result = keep(
        dense_store, "Nina key", 3, profile=EVERYTHING, session_id="s1",
        scope=Scope(user="ana", as_of=datetime(2026, 3, 1, tzinfo=UTC)),
    )  # fmt: skip
    packet = last_packet(dense_store)
    assert packet == result.replay_packet
    expected = {
        "format": 2, "query": "Nina key", "k": 3, "sort_by": "relevance", "session_id": "s1",
        "profile": EVERYTHING.to_json(), "profile_used": "p", "snapshot_id": result.snapshot_id,
        "scope": {"wing": None, "room": None, "category": None, "user": "ana",
                  "as_of": "2026-03-01T00:00:00+00:00"},
        "wing_counts_at_query_time": {"home": 9, "work": 2}, "model_guard_result": "MATCH",
        # Ben has another.
        "pagination_state": {"total": 13, "batches_processed": 0, "last_offset": 0,
                             "scan_depth_reached": False},
    }  # fmt: skip
    assert {name: packet[name] for name in expected} == expected
    assert len(packet["replay_id"]) == 12
    assert [row["id"] for row in packet["results"]] == [m.id for m in result.memories]
    for row in packet["results"]:
        events = packet["score_events"][str(row["id"])]
        assert sum(e["delta"] for e in events) == pytest.approx(row["final_score"], abs=1e-9)
    text = json.dumps(packet)
    assert not [m.content for m in household() if m.content in text]


def test_a_packet_holds_whatever_the_recall_asked_of_the_world(dense_store: Store) -> None:
    """So that the replays above replay something."""
    forget_users(dense_store)
    use(dense_store)
    keep(dense_store, "morning flight", profile=EVERYTHING, scope=Scope(user="ana"))
    world = last_packet(dense_store)["world"]
    (past,) = world["past_queries"].values()
    assert [row[0] for row in past["found"]] == ["flight to Lisbon"]
    assert len(world["vectors"]) > 1, "expansion asked further questions"
    assert world["usage"]["101"][0] == 3
    assert any(world["co_retrieved"].values())
    assert "101" in [i for ids in world["most_used"].values() for i in ids]
    assert world["encoder"]["dimension"] == 8


def test_a_packet_tells_how_far_the_scan_of_a_store_without_users_came(dense_store: Store) -> None:
    forget_users(dense_store)
    scanned = {"total": 14, "batches_processed": 1, "last_offset": 14, "scan_depth_reached": False}
    before = (keep(dense_store, "key").replay_packet or {})["pagination_state"]
    assert before == {**scanned, "batches_processed": 0, "last_offset": 0}, "no night has counted"
    use(dense_store)
    assert (keep(dense_store, "key").replay_packet or {})["pagination_state"] == scanned


def test_keeping_a_recall_changes_nothing_in_it_and_is_asked_for(dense_store: Store) -> None:
    use(dense_store)
    asked = Recaller.open(dense_store.root).recall("key", profile=RetrievalProfile())
    assert asked.replay_packet is None
    assert keep(dense_store, "key", dry_run=True).replay_packet is not None
    assert not dense_store.paths.replays.exists()
    quiet = EVERYTHING.replaced(replay_log=False)
    for query in ("Nina key", "morning flight", "", "door"):
        kept = keep(dense_store, query, profile=EVERYTHING)
        plain = keep(dense_store, query, profile=quiet)
        assert [m.id for m in kept.memories] == [m.id for m in plain.memories]
        assert kept.warnings == plain.warnings
        assert all(m.score_events is None for m in kept.memories)


@dataclass
class SmallInputs:
    """A world of plain values; its clock moves with every look at it."""

    ticks: int = 1_700_000_000_000_000
    fault: Exception | None = None
    reranked: NDArray[np.float64] | RecallWarning = field(
        default_factory=lambda: np.array([0.1 + 0.2, -1e-300])
    )

    def now_us(self) -> int:
        self.ticks += 1
        return self.ticks

    def encoder(self) -> dict[str, Any] | None:
        return {"model": "tiny", "dimension": 3}

    def query_vector(self, text: str, within_ms: float = math.inf) -> NDArray[np.float32]:
        if self.fault is not None:
            raise self.fault
        return np.array([len(text), 1 / 3, -np.float32(1e-40)], dtype=np.float32)

    def known_share(self, text: str) -> float:
        return 1 / (1 + len(text))

    def knows_usage(self) -> bool:
        return True

    def usage_of(self, memory_ids: Sequence[str]) -> Usage:
        used = np.array([m == "7" for m in memory_ids], dtype=np.int64)
        return Usage(used * 3, used * 2, np.where(used > 0, 99, UNDATED_US))

    def most_used(self, limit: int) -> list[str]:
        return ["7", "9"][:limit]

    def co_retrieved(self, memory_ids: Sequence[str]) -> NDArray[np.int64]:
        return np.array([len(memory_ids) if m == "7" else 0 for m in memory_ids], dtype=np.int64)

    def past_queries(
        self, text: str, *, since_us: int, limit: int, user: str | None
    ) -> tuple[list[LoggedQuery], str | None]:
        if self.fault is not None:
            raise self.fault
        return [("an earlier one", since_us, 0.1 + 0.2, ("7", "9"))], "half of it is damaged"

    def rerank(
        self, name: str, query: str, texts: Sequence[str], timeout_ms: float
    ) -> NDArray[np.float64] | RecallWarning:
        return self.reranked


def recording_of(inputs: SmallInputs) -> RecordingInputs:
    return RecordingInputs(cast("Inputs", inputs))


def again(recording: RecordingInputs) -> RecordedInputs:
    return RecordedInputs(json.loads(json.dumps(recording.record, allow_nan=False)))


def test_every_answer_comes_back_exactly() -> None:
    recording = recording_of(SmallInputs())
    ids = ["7", "8", "9"]

    def ask(world: Any) -> list[Any]:
        usage = world.usage_of(ids)
        arrays = [getattr(usage, name) for name in Usage._fields]
        arrays += [world.query_vector("a query"), world.co_retrieved(ids)]
        arrays.append(world.rerank("ce", "a query", ["one", "two"], 10.0))
        past = world.past_queries("a query", since_us=5, limit=2, user="ana")
        plain = [world.now_us(), world.encoder(), world.knows_usage(), world.most_used(1), past]
        plain += [world.known_share("a query"), world.known_share("猫")]
        return [*plain, *((array.dtype, array.tobytes()) for array in arrays)]

    first = ask(recording)
    assert ask(again(recording)) == first
    assert recording.now_us() == first[0], "one clock for one recall"


def test_what_was_not_asked_is_unknown() -> None:
    recording = recording_of(SmallInputs())
    recording.past_queries("a query", since_us=5, limit=2, user="ana")
    world = again(recording)
    assert (world.encoder(), world.knows_usage(), world.most_used(3)) == (None, False, [])
    found = world.usage_of(["7"])
    assert (found.recent.tolist(), found.last_us.tolist()) == ([0], [UNDATED_US])
    assert world.usage_of([]).recent.shape == (0,)
    assert world.co_retrieved(["7", "8"]).tolist() == [0, 0]
    assert world.known_share("猫") == 1.0
    for text, user in (("a query", None), ("another", "ana")):
        assert world.past_queries(text, since_us=5, limit=2, user=user) == ([], None)
    assert isinstance(world.rerank("ce", "a query", ["one"], 10.0), RecallWarning)
    with pytest.raises(EncoderError):
        world.query_vector("a query")


@pytest.mark.parametrize(
    "fault",
    [EncoderError("no model"), FingerprintMismatchError("another model"),
     FileNotFoundError("no file"), ValueError("bad")],
)  # fmt: skip
def test_a_fault_comes_back_as_the_same_fault(fault: Exception) -> None:
    recording = recording_of(SmallInputs(fault=fault))
    kind = OSError if isinstance(fault, OSError) else type(fault)
    asks: list[Callable[[Any], Any]] = [
        lambda world: world.query_vector("a query"),
        lambda world: world.past_queries("a query", since_us=5, limit=2, user=None),
    ]
    for ask in asks:
        with pytest.raises(type(fault)):
            ask(recording)
        with pytest.raises(kind) as raised:
            ask(again(recording))
        assert (type(raised.value), str(raised.value)) == (kind, str(fault))


def test_a_warning_of_the_reranker_comes_back_and_no_text_that_was_read() -> None:
    late = RecallWarning("reranker_timeout", "too slow")
    recording = recording_of(SmallInputs(reranked=late))
    recording.query_vector("a query pantry")
    assert recording.rerank("ce", "q", ["the secret of the pantry"], 1.0) == late
    assert again(recording).rerank("ce", "q", ["the secret of the pantry"], 1.0) == late
    assert "pantry" not in json.dumps(recording.record)


_APPENDER = """
import sys
from pathlib import Path
from noctuary.recall import replay
replay.REPLAY_LOG = replay.log_format(int(sys.argv[4]))
for number in range(int(sys.argv[3])):
    packet = {"format": 1, "replay_id": f"{sys.argv[2]}-{number}", "filler": "x" * 5000}
    while (fault := replay.append_packet(Path(sys.argv[1]), packet)) is not None:
        assert "busy" in fault or "locked" in fault or "unavailable" in fault, fault
"""


def packet(number: int, **fields: Any) -> dict[str, Any]:
    return {"format": 1, "replay_id": f"{number:012x}", **fields}


def numbers(path: Path) -> list[int]:
    return [int(p["replay_id"], 16) for p in list_packets(path, 10_000).packets]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "replays.sqlite"


@pytest.mark.usefixtures("open_umask")
def test_packets_are_appended_in_order_and_found_by_a_part_of_their_id(path: Path) -> None:
    for number in (1, 2, 0xABC << 36):
        assert append_packet(path, packet(number, query="zwölf \udcff \n")) is None
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in path.parent.iterdir()}
    assert path.name in modes
    assert set(modes.values()) == {0o600}, "its owner's alone whatever the umask says"
    assert numbers(path) == [1, 2, 0xABC << 36]
    assert list_packets(path, 2).packets == [
        packet(n, query="zwölf \udcff \n") for n in (2, 0xABC << 36)
    ]
    assert find_packet(path, "abc")["replay_id"] == "abc000000000"
    assert find_packet(path, f"{2:012x}") == packet(2, query="zwölf \udcff \n")


def test_an_id_that_fits_none_or_several_is_refused(path: Path) -> None:
    assert list_packets(path, 5) == ([], 0)
    with pytest.raises(StoreError, match="no packet 'abc'"):
        find_packet(path, "abc")
    values = [0.1 + 0.2, 5e-324, 1 / 3, -0.0, 2**63, 1.7976931348623157e308]
    for number in (1, 2):
        append_packet(path, packet(number, query='"replay_id":"abc', values=values))
    for wrong in ("abc", "", '"', "000000000001x", "ж", "\udcff", "%"):
        with pytest.raises(StoreError, match="no packet"):
            find_packet(path, wrong)
    with pytest.raises(StoreError, match="2 packets begin with '0000'"):
        find_packet(path, "0000")
    told = list_packets(path, 1).packets[0]["values"]
    assert json.dumps(told) == json.dumps(values), "numbers come back as they were"


def test_a_full_log_drops_its_oldest(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cap, kept = 4_000, list[int]()
    monkeypatch.setattr(log, "REPLAY_LOG", log_format(cap))
    for number in range(150):
        assert append_packet(path, packet(number, filler="x" * (number % 90))) is None
        kept = numbers(path)
        assert kept == list(range(kept[0], number + 1)), "the newest, without a gap"
    packets = list_packets(path, 10_000).packets
    sizes = [len(json.dumps(p, separators=(",", ":"))) for p in packets]
    assert sum(sizes) <= cap < sum(sizes) + 200
    assert path.stat().st_size < 50_000, "what was dropped makes room for what comes"


def test_a_packet_larger_than_the_log_is_refused_and_a_row_that_is_none_is_counted(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_packet(path, packet(1))
    for text in ("[1]", '{"no": 1}', "[" * 5000, '{"format":1,"replay_id":"0000000000'):
        append_rows(path, REPLAY_LOG, [("00", text, len(text))])
    append_packet(path, packet(2))
    for value in (float("nan"), object()):
        assert append_packet(path, packet(3, value=value)) is not None, "no JSON"
    monkeypatch.setattr(log, "MAX_LOG_BYTES", 400)
    assert "at most 400" in (append_packet(path, packet(3, filler="x" * 500)) or "")
    assert list_packets(path, 10) == ([packet(1), packet(2)], 4)
    assert find_packet(path, f"{2:012x}") == packet(2)


@pytest.mark.parametrize(("max_bytes", "least", "most"), [(64 << 20, 320, 320), (60_000, 5, 12)])
def test_eight_processes_lose_the_oldest(path: Path, max_bytes: int, least: int, most: int) -> None:
    words = [sys.executable, "-c", _APPENDER, str(path)]
    started = [
        subprocess.Popen([*words, str(name), "40", str(max_bytes)], stderr=subprocess.PIPE)
        for name in range(8)
    ]
    for process in started:
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
    found = list_packets(path, 10_000)
    assert found.unreadable == 0
    assert least <= len(found.packets) <= most
    ids = [p["replay_id"] for p in found.packets]
    assert len(set(ids)) == len(ids)
    assert set(ids) <= {f"{name}-{n}" for name in range(8) for n in range(40)}
    assert ids[-1].endswith("-39"), "the last packet of some process is the last row"


def test_a_full_disk_is_a_fault_and_leaves_the_packets_as_they_were(path: Path) -> None:
    """A limit on the size of files fails as a full disk does: in the middle."""
    for number in range(4):
        append_packet(path, packet(number, filler="x" * 100))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for size in (0, 4_096):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        try:
            fault = append_packet(path, packet(9, filler="x" * 100_000))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert fault is not None
        assert numbers(path) == [0, 1, 2, 3]
    assert append_packet(path, packet(9)) is None
    assert numbers(path) == [0, 1, 2, 3, 9]


def test_a_log_that_somebody_holds_is_a_fault_after_a_while(path: Path) -> None:
    append_packet(path, packet(1))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        fault = append_packet(path, packet(2))
        other.execute("ROLLBACK")
    assert fault is not None
    assert "this recall was not logged" in fault
    assert append_packet(path, packet(3)) is None
    assert numbers(path) == [1, 3], "a question that was not kept does not come back later"


@pytest.mark.parametrize("kind", ["directory", "fifo", "device", "missing", "file_above"])
def test_whatever_stands_in_the_place_of_the_log_is_a_fault(path: Path, kind: str) -> None:
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/full")
    else:
        if kind == "file_above":
            path.write_text("")
        path = path / "replays.sqlite"
    mode = Path("/dev/full").stat().st_mode
    assert "was not logged" in (append_packet(path, packet(1)) or "")
    assert Path("/dev/full").stat().st_mode == mode


Damage = Callable[[dict[str, Any]], Any]


def first_event(packet: dict[str, Any], phase: str) -> dict[str, Any]:
    events = packet["score_events"][str(packet["results"][0]["id"])]
    return next(e for e in events if e["phase"] == phase)


CHANGES: list[tuple[Damage, str]] = [
    (lambda p: p["results"].pop(0), "[101] is new, at place 1 (0.485)"),
    (lambda p: p["results"].insert(0, {"id": 999, "final_score": 0.75}),
     "[999] does not come back; it was at place 1 (0.75)"),
    (lambda p: p["results"].reverse(), "[101] moved from place 2 to place 1"),
    (lambda p: p["results"][0].update(final_score=0.25),
     "[101] has another score: 0.25 then, 0.485 now (changed by +0.235)"),
    (lambda p: first_event(p, "dense").update(delta=0.25),
     "[101] dense: 0.25 then, 0.5 now (changed by +0.25)"),
    (lambda p: first_event(p, "dense").update(phase="ltp"),
     "[101] ltp: 0.5 then, 0 now (changed by -0.5)"),
    (lambda p: first_event(p, "dense").update(reason="luck"),
     "[101] dense: the reason was 'luck', now it is 'dense rank 1'"),
    (lambda p: p["warnings"].append("dense_unavailable"),
     "the warning dense_unavailable came then and does not now"),
    (lambda p: p.update(warnings=[]), "the warning user_required comes now and did not then"),
    (lambda p: p.update(model_guard_result="UNKNOWN"),
     "the model guard said UNKNOWN, now it says MATCH"),
    (lambda p: p["world"].update(encoder=None),
     "the model guard said MATCH, now it says UNKNOWN"),
    (lambda p: p["world"].update(vectors={}),
     "the warning dense_unavailable comes now and did not then"),
    (lambda p: p.update(k=1), "[104] does not come back; it was at place 2 (0.196635)"),
]  # fmt: skip


def test_a_changed_packet_is_told_from_the_recall(dense_store: Store) -> None:
    keep(dense_store, "Nina key", 2)
    packet = last_packet(dense_store)
    assert replay(dense_store.paths, packet).identical
    for change, said in CHANGES:
        changed = copy.deepcopy(packet)
        change(changed)
        compared = replay(dense_store.paths, changed)
        assert not compared.identical
        assert said in compared.differences


def test_a_recorded_use_that_is_changed_is_a_difference(dense_store: Store) -> None:
    forget_users(dense_store)
    use(dense_store)
    keep(dense_store, "Nina key", 2, profile=KEPT.replaced(ltp_enabled=True))
    packet = last_packet(dense_store)
    assert "101" in packet["world"]["usage"]
    assert "102" not in packet["world"]["usage"], "memories never recalled are not kept"
    packet["world"]["usage"] = {}
    differences = replay(dense_store.paths, packet).differences
    assert any(d.startswith("[101] ltp: ") for d in differences)


def test_another_snapshot_is_a_difference_and_one_that_is_gone_is_named(dense_store: Store) -> None:
    keep(dense_store, "key")
    packet = last_packet(dense_store)
    dense_store.publish(renumber([memory("Another spare key.")]))
    recaller = Recaller.open(dense_store.root)
    said = rerun(recaller, packet).differences[0]
    assert said == f"run against snapshot {recaller.snapshot_id} instead of {packet['snapshot_id']}"
    shutil.rmtree(dense_store.snapshot(packet["snapshot_id"]))
    (said,) = replay(dense_store.paths, packet).differences
    assert packet["snapshot_id"] in said
    assert "snapshot.keep" in said
    escaping = {**packet, "snapshot_id": "../.."}
    assert "is gone" in replay(dense_store.paths, escaping).differences[0]


def test_a_deadline_is_not_replayed_and_that_is_said(dense_store: Store) -> None:
    result = keep(dense_store, "Nina key", deadline_ms=0.0)
    assert "deadline_dense" in {w.code for w in result.warnings}
    compared = replay(dense_store.paths, last_packet(dense_store))
    assert "the warning deadline_dense came then and does not now" in compared.differences
    assert any("deadlines are not replayed" in note for note in compared.notes)


def test_a_missing_encoder_replays_as_the_same_fault(dense_store: Store) -> None:
    (encoder,) = dense_store.paths.encoders.iterdir()
    hidden = encoder.rename(encoder.with_name("hidden"))
    then = keep(dense_store, "key")
    assert "dense_unavailable" in {w.code for w in then.warnings}
    hidden.rename(encoder)
    packet = last_packet(dense_store)
    assert packet["model_guard_result"] == "UNKNOWN"
    assert replay(dense_store.paths, packet).identical


def test_a_damaged_query_log_replays_with_its_warning_and_a_failing_hook_is_no_difference(
    dense_store: Store,
) -> None:
    dense_store.paths.queries.write_bytes(b"no database" * 100)
    then = keep(dense_store, "key", profile=EVERYTHING, scope=Scope(user="ana"))
    assert [w.code for w in then.warnings] == ["query_log"]
    dense_store.paths.queries.unlink()
    assert replay(dense_store.paths, last_packet(dense_store)).identical
    remove = register_hook("post_model_guard", lambda _: 1 // 0)
    try:
        assert "hook_failed" in {w.code for w in keep(dense_store, "key").warnings}
    finally:
        remove()
    assert replay(dense_store.paths, last_packet(dense_store)).identical


def test_a_store_without_vectors_replays(plain_store: Store) -> None:
    keep(plain_store, "morning flight")
    assert replay(plain_store.paths, last_packet(plain_store)).identical


DAMAGE: list[Damage] = [
    lambda p: p.update(format=3),
    lambda p: p.pop("world"),
    lambda p: p["world"].pop("vectors"),
    lambda p: p["profile"].update(depth="many"),
    lambda p: p.update(results=[7]),
    lambda p: p["scope"].update(as_of="yesterday"),
]


def test_a_damaged_packet_is_one_sentence_and_another_version_said(dense_store: Store) -> None:
    result = keep(dense_store, "Nina key")
    packet = last_packet(dense_store)
    kept = np.array([row["final_score"] for row in packet["results"]])
    assert kept.tobytes() == np.array([m.final_score for m in result.memories]).tobytes()
    for change in DAMAGE:
        damaged = copy.deepcopy(packet)
        change(damaged)
        with pytest.raises(StoreError, match=packet["replay_id"]):
            replay(dense_store.paths, damaged)
    packet["profile"]["flag_of_tomorrow"] = True
    packet["made_by"] = "99.0"
    compared = replay(dense_store.paths, packet)
    assert compared.identical
    for told in ("flag_of_tomorrow", "noctuary 99.0"):
        assert any(told in note for note in compared.notes)


def test_a_log_that_cannot_be_written_is_a_warning_and_no_more(dense_store: Store) -> None:
    dense_store.paths.replays.mkdir()
    result = keep(dense_store, "spare key", scope=Scope(user="ana"))
    assert [w.code for w in result.warnings] == ["replay_log"]
    assert result.memories[0].id == 101
