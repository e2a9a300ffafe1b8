"""When a turn was said: the line's stamp, put in the order of the file.

What belongs here: reading a stamp and what is done about clocks that are set back. Standard
library only.
"""

from __future__ import annotations

from datetime import UTC, datetime

from noctuary.types import to_micros

MAX_SKEW_US = 3_600_000_000
"""How far a stamp may lie before the one of an earlier line and still be read as a clock that was
corrected: it then takes its place behind that line. Wider keeps the order of files over larger
corrections, and puts more turns of a copied history behind what follows it."""


def parse_moment(value: object) -> int | None:
    """Return microseconds since the epoch of an ISO 8601 stamp (UTC without an offset), or None.

    Moments before 1970 and after 2200 are none: the export refuses them.
    """
    if not isinstance(value, str) or not 10 <= len(value) <= 40:
        return None
    try:
        moment = datetime.fromisoformat(value.strip())
    except ValueError:
        return None
    if not 1970 <= moment.year <= 2200:
        return None
    micros = to_micros(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    return micros if micros >= 0 else None


def place_after(stamp_us: int | None, last_us: int | None) -> int | None:
    """Return when a turn was said that follows one said at `last_us` in its file.

    Its stamp, if that is later. Without one, or with one that is at most `MAX_SKEW_US` earlier:
    one microsecond after the turn before it, so that turns sort as they lie in the file. A stamp
    that is earlier still is taken as it is.
    """
    if last_us is None:
        return stamp_us
    if stamp_us is None or last_us - MAX_SKEW_US <= stamp_us <= last_us:
        return last_us + 1
    return stamp_us
