from __future__ import annotations

import json
import os
import resource
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from noctuary.core.errors import StoreError
from noctuary.core.sqlite import append_rows
from noctuary.recall import replay as log
from noctuary.recall.replay import REPLAY_LOG, append_packet, find_packet, list_packets, log_format

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


def test_packets_are_appended_in_order_and_found_by_a_part_of_their_id(path: Path) -> None:
    for number in (1, 2, 0xABC << 36):
        assert append_packet(path, packet(number, query="zwölf \udcff \n")) is None
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
    for number in (1, 2):
        append_packet(path, packet(number, query='"replay_id":"abc'))
    for wrong in ("abc", "", '"', "000000000001x", "ж", "\udcff", "%"):
        with pytest.raises(StoreError, match="no packet"):
            find_packet(path, wrong)
    with pytest.raises(StoreError, match="2 packets begin with '0000'"):
        find_packet(path, "0000")


@pytest.mark.usefixtures("open_umask")
def test_the_log_is_its_owners_alone_whatever_the_umask_says(path: Path) -> None:
    append_packet(path, packet(1))
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in path.parent.iterdir()}
    assert path.name in modes
    assert set(modes.values()) == {0o600}


def test_a_full_log_drops_its_oldest_and_stays_whole(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cap, kept = 4_000, list[int]()
    monkeypatch.setattr(log, "REPLAY_LOG", log_format(cap))
    for number in range(500):
        assert append_packet(path, packet(number, filler="x" * (number % 90))) is None
        kept = numbers(path)
        assert kept == list(range(kept[0], number + 1)), "the newest, without a gap"
    packets = list_packets(path, 10_000).packets
    sizes = [len(json.dumps(p, separators=(",", ":"))) for p in packets]
    assert sum(sizes) <= cap < sum(sizes) + 200
    assert path.stat().st_size < 50_000, "what was dropped makes room for what comes"


def test_a_packet_larger_than_the_log_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_packet(path, packet(1))
    monkeypatch.setattr(log, "MAX_LOG_BYTES", 400)
    fault = append_packet(path, packet(2, filler="x" * 500))
    assert fault is not None
    assert "at most 400" in fault
    assert numbers(path) == [1]


def test_a_row_that_is_no_packet_is_counted(path: Path) -> None:
    append_packet(path, packet(1))
    for text in ("[1]", '{"no": 1}', "[" * 5000, '{"format":1,"replay_id":"0000000000'):
        append_rows(path, REPLAY_LOG, [("00", text, len(text))])
    append_packet(path, packet(2))
    assert list_packets(path, 10) == ([packet(1), packet(2)], 4)
    assert find_packet(path, f"{2:012x}") == packet(2)


@pytest.mark.parametrize(("max_bytes", "least", "most"), [(64 << 20, 320, 320), (60_000, 5, 12)])
def test_eight_processes_lose_nothing_but_the_oldest(
    path: Path, max_bytes: int, least: int, most: int
) -> None:
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


def _limited(call: Callable[[], str | None], size: int) -> str | None:
    """Call with a limit on the size of files, which fails as a full disk does: in the middle."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        return call()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_a_fault_and_leaves_the_packets_as_they_were(path: Path) -> None:
    for number in range(4):
        append_packet(path, packet(number, filler="x" * 100))
    for size in (0, 4_096):
        fault = _limited(lambda: append_packet(path, packet(9, filler="x" * 100_000)), size)
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
    elif kind == "file_above":
        path.write_text("")
        path = path / "replays.sqlite"
    else:
        path = path.parent / "nowhere" / "replays.sqlite"
    mode = Path("/dev/full").stat().st_mode
    fault = append_packet(path, packet(1))
    assert fault is not None
    assert "was not logged" in fault
    assert Path("/dev/full").stat().st_mode == mode


@pytest.mark.parametrize("value", [float("nan"), object()])
def test_what_is_no_json_is_a_fault(path: Path, value: Any) -> None:
    assert append_packet(path, packet(1, value=value)) is not None
    assert not path.exists()


def test_numbers_come_back_as_they_were(path: Path) -> None:
    values = [0.1 + 0.2, 5e-324, 1 / 3, -0.0, 2**63, 1.7976931348623157e308]
    append_packet(path, packet(1, values=values))
    assert json.dumps(list_packets(path, 1).packets[0]["values"]) == json.dumps(values)
