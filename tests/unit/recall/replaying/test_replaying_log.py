from __future__ import annotations

import fcntl
import json
import os
import resource
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from noctuary.core.errors import StoreError
from noctuary.recall import replay as log
from noctuary.recall.replay import append_packet, find_packet, list_packets

_APPENDER = """
import sys
from pathlib import Path
from noctuary.recall.replay import append_packet
for number in range(int(sys.argv[3])):
    packet = {"format": 1, "replay_id": f"{sys.argv[2]}-{number}", "filler": "x" * 5000}
    fault = append_packet(Path(sys.argv[1]), packet)
    assert fault is None, fault
"""


def packet(number: int, **fields: Any) -> dict[str, Any]:
    return {"format": 1, "replay_id": f"{number:012x}", **fields}


def numbers(path: Path) -> list[int]:
    return [int(p["replay_id"], 16) for p in list_packets(path, 10_000).packets]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "replays.jsonl"


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
    for wrong in ("abc", "", '"', "000000000001x", "ж"):
        with pytest.raises(StoreError, match="no packet"):
            find_packet(path, wrong)
    with pytest.raises(StoreError, match="2 packets begin with '0000'"):
        find_packet(path, "0000")


@pytest.mark.usefixtures("open_umask")
def test_the_log_is_its_owners_alone_whatever_the_umask_says(path: Path) -> None:
    append_packet(path, packet(1))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    append_packet(path, packet(2), max_bytes=10_000)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    size = path.stat().st_size
    append_packet(path, packet(3), max_bytes=size)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_full_log_drops_its_oldest_half_and_stays_whole(path: Path) -> None:
    cap, kept = 4_000, list[int]()
    for number in range(500):
        assert (
            append_packet(path, packet(number, filler="x" * (number % 90)), max_bytes=cap) is None
        )
        assert path.stat().st_size <= cap
        kept = numbers(path)
        assert kept == list(range(kept[0], number + 1)), "the newest, without a gap"
        assert list_packets(path, 10_000).unreadable == 0
    assert kept[0] > 400
    assert len(kept) > 10
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_packet_larger_than_the_log_is_refused(path: Path) -> None:
    append_packet(path, packet(1))
    fault = append_packet(path, packet(2, filler="x" * 500), max_bytes=400)
    assert fault is not None
    assert "at most 400" in fault
    assert numbers(path) == [1]


@pytest.mark.parametrize("max_bytes", [10_000, 150])
def test_a_half_written_line_is_counted_and_spoils_no_other(path: Path, max_bytes: int) -> None:
    append_packet(path, packet(1))
    append_packet(path, packet(2))
    with path.open("ab") as handle:
        handle.write(b'{"format":1,"replay_id":"0000000000')
    assert list_packets(path, 5) == ([packet(1), packet(2)], 1)
    assert append_packet(path, packet(3), max_bytes=max_bytes) is None
    found = list_packets(path, 5)
    assert found.packets[-1] == packet(3)
    assert found.unreadable == 1
    assert find_packet(path, f"{3:012x}") == packet(3)


def test_a_line_that_is_no_packet_is_counted(path: Path) -> None:
    path.write_bytes(b'[1]\n{"no": 1}\n\xff\xfe\n' + b"[" * 5000 + b"\n")
    append_packet(path, packet(1))
    assert list_packets(path, 10) == ([packet(1)], 4)


def test_eight_processes_lose_nothing(path: Path) -> None:
    words = [sys.executable, "-c", _APPENDER, str(path)]
    started = [
        subprocess.Popen([*words, str(name), "40"], stderr=subprocess.PIPE) for name in range(8)
    ]
    for process in started:
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
    ids = [p["replay_id"] for p in list_packets(path, 10_000).packets]
    assert sorted(ids) == sorted(f"{name}-{n}" for name in range(8) for n in range(40))
    assert list_packets(path, 10_000).unreadable == 0


def test_eight_processes_keep_a_full_log_whole(path: Path) -> None:
    """What is dropped is the oldest half, and whoever waited writes into the new file."""
    script = _APPENDER.replace("packet)", "packet, max_bytes=60_000)")
    words = [sys.executable, "-c", script, str(path)]
    started = [
        subprocess.Popen([*words, str(name), "40"], stderr=subprocess.PIPE) for name in range(8)
    ]
    for process in started:
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
    found = list_packets(path, 10_000)
    assert found.unreadable == 0
    assert 5 <= len(found.packets) <= 12
    last = found.packets[-1]["replay_id"]
    assert last.endswith("-39"), "the last packet of some process is the last line"


def _limited(call: Callable[[], str | None], size: int) -> str | None:
    """Call with a limit on the size of files, which fails as a full disk does: in the middle."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        return call()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_a_fault_and_leaves_the_log_as_it_was(path: Path) -> None:
    for number in range(4):
        append_packet(path, packet(number, filler="x" * 100))
    before = path.read_bytes()
    for size in (len(before), len(before) + 30):
        fault = _limited(lambda: append_packet(path, packet(9, filler="x" * 100)), size)
        assert fault is not None
        assert path.read_bytes() == before
    # The same while the oldest half is being dropped.
    fault = _limited(
        lambda: append_packet(path, packet(9, filler="x" * 100), max_bytes=len(before)), 150
    )
    assert fault is not None
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    assert append_packet(path, packet(9)) is None
    assert numbers(path) == [0, 1, 2, 3, 9]


def test_a_log_that_somebody_holds_is_a_fault_after_a_while(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_packet(path, packet(1))
    monkeypatch.setattr(log, "WAIT_AT_MOST_S", 0.01)
    with path.open("ab") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        fault = append_packet(path, packet(2))
    assert fault is not None
    assert "writing all the time" in fault
    assert append_packet(path, packet(3)) is None
    assert numbers(path) == [1, 3]


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
        path = path / "replays.jsonl"
    else:
        path = path.parent / "nowhere" / "replays.jsonl"
    mode = Path("/dev/full").stat().st_mode
    fault = append_packet(path, packet(1))
    assert fault is not None
    assert "was not written" in fault
    assert Path("/dev/full").stat().st_mode == mode


@pytest.mark.parametrize("value", [float("nan"), object()])
def test_what_is_no_json_is_a_fault(path: Path, value: Any) -> None:
    assert append_packet(path, packet(1, value=value)) is not None
    assert not path.exists()


def test_numbers_come_back_as_they_were(path: Path) -> None:
    values = [0.1 + 0.2, 5e-324, 1 / 3, -0.0, 2**63, 1.7976931348623157e308]
    append_packet(path, packet(1, values=values))
    assert json.dumps(list_packets(path, 1).packets[0]["values"]) == json.dumps(values)
