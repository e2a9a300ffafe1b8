"""A clock that jumps a day at a time, also for processes that live all year; see clock.c."""

from __future__ import annotations

import struct
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

DAY_S = 86_400
MOST_DAYS = 4_000  # as in clock.c

_SOURCE = Path(__file__).with_name("clock.c")
_NUMBER = struct.Struct("=q")
_DAY = struct.Struct("=qq")


class Clock:
    """The clock of one year, kept in a folder: a year that was stopped goes on where it was."""

    def __init__(self, folder: Path) -> None:
        self._table, self._library = folder / "clock.table", folder / "clock.so"
        if not self._table.exists():
            command = ["cc", "-O2", "-shared", "-fPIC", "-o", str(self._library), str(_SOURCE)]
            subprocess.run(command, check=True)
            self._table.write_bytes(bytes(_NUMBER.size + MOST_DAYS * _DAY.size))

    @property
    def environ(self) -> dict[str, str]:
        """What a process needs to live by this clock."""
        return {"LD_PRELOAD": str(self._library), "CLOCK_TABLE": str(self._table)}

    @property
    def days(self) -> int:
        """How many days have begun."""
        return _NUMBER.unpack_from(self._table.read_bytes())[0]

    def begin_day(self) -> None:
        """Let the next day begin, to the second one day after the last one did."""
        days, now_s = self.days, int(time.time())
        begun_s, _ = self._day(days - 1) if days else (0, 0)
        while now_s <= begun_s:
            time.sleep(0.1)
            now_s = int(time.time())
        first_s = self._day(0)[0] if days else now_s
        entry = _DAY.pack(now_s, first_s + days * DAY_S - now_s)
        with self._table.open("r+b") as table:
            table.seek(_NUMBER.size + days * _DAY.size)
            table.write(entry)
            table.flush()
            table.seek(0)  # only now does anybody look at it
            table.write(_NUMBER.pack(days + 1))

    def now(self) -> datetime:
        """What this clock shows."""
        return datetime.fromtimestamp(time.time() + self._day(self.days - 1)[1], UTC)

    def _day(self, day: int) -> tuple[int, int]:
        return _DAY.unpack_from(self._table.read_bytes(), _NUMBER.size + day * _DAY.size)
