"""Parse a field's date, in the forms in which people and tools write it.

A date with two readings ("03/04/2026") is rejected: a guess could be wrong by months.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import cache

MAX_STAMP_CHARS = 80
_FIRST_YEAR, _LAST_YEAR = 1970, 2200
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LEAST_EPOCH = 10**8  # seconds: smaller numbers are years, days and counts
# Below each a number counts seconds, milliseconds, microseconds; beyond the last nanoseconds.
_UNITS = ((10**11, 1), (10**14, 10**3), (10**17, 10**6), (10**20, 10**9))

# By month, in English, German, French, Spanish, Italian, Portuguese and Dutch.
_MONTHS = (
    "january jan januar jänner janvier enero ene gennaio gen janeiro januari",
    "february feb februar février fevrier fév febrero febbraio fevereiro fev februari",
    "march mar märz maerz mär mrz mars marzo março marco maart mrt",
    "april apr avril avr abril abr aprile",
    "may mai mayo maggio mag maio mei",
    "june jun juni juin junio giugno giu junho",
    "july jul juli juillet juil julio luglio lug julho",
    "august aug août aout agosto ago augustus",
    "september sep sept septembre septiembre settembre set setembro",
    "october oct oktober okt octobre octubre ottobre ott outubro out",
    "november nov novembre noviembre novembro",
    "december dec dezember dez décembre decembre déc diciembre dic dicembre dezembro",
)
_WEEKDAYS = (
    "monday mon tuesday tues tue wednesday wed thursday thurs thu friday fri saturday sat sunday "
    "sun montag mo dienstag di mittwoch mi donnerstag do freitag fr samstag sa sonnabend sonntag "
    "so lundi mardi mercredi jeudi vendredi samedi dimanche lunes martes miércoles jueves viernes "
    "sábado domingo lunedì martedì mercoledì giovedì venerdì sabato domenica segunda terça quarta "
    "quinta sexta maandag dinsdag woensdag donderdag vrijdag zaterdag zondag"
)


def read_stamp(value: object) -> str | None:
    """Return a date as ISO 8601, None where it has not one meaning or none of 1970 to 2200.

    Read are ISO 8601, `28.11.2026`, `2026/11/28`, `11/28/2026`, names of months, each with a time
    behind it or not, and numbers of seconds, milliseconds and so on since 1970.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = repr(value)
    if not isinstance(value, str) or len(value) > MAX_STAMP_CHARS:
        return None
    text = " ".join(value.strip("[]\"' \t\r\n").partition("|")[0].split())
    try:
        moment = _of_digits(text) if re.fullmatch(r"[0-9]{8,19}(?:\.[0-9]*)?", text) else None
        moment = moment or _of_iso(text) or _of_words(text)
    except (ValueError, OverflowError):
        return None
    if moment is None or not _FIRST_YEAR <= moment.year <= _LAST_YEAR:
        return None
    is_day = moment.tzinfo is None and moment.timetuple()[3:6] == (0, 0, 0)
    return moment.date().isoformat() if is_day else moment.isoformat()


def _of_digits(text: str) -> datetime | None:
    """Parse `20261128`, `202611281405`, `20261128140500`, or a count since the epoch."""
    if form := {8: "%Y%m%d", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}.get(len(text)):
        try:
            moment = datetime.strptime(text, form)  # noqa: DTZ007 (it has no zone)
        except ValueError:
            moment = None
        if moment is not None and _FIRST_YEAR <= moment.year <= _LAST_YEAR:
            return moment
    number = float(text)
    if number < _LEAST_EPOCH:
        return None
    for bound, per_second in _UNITS:
        if number < bound:
            return _EPOCH + timedelta(seconds=number / per_second)
    return None


def _of_iso(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text) if len(text) >= len("20261128") else None
    except ValueError:
        return None


def _of_words(text: str) -> datetime | None:
    found = next(filter(None, (form.fullmatch(text) for form in _forms())), None)
    if found is None:
        return None
    said = found.groupdict()
    year, day = int(said["year"]), int(said["day"])
    if name := said.get("name"):
        month = _month_of().get(name.lower().rstrip("."), 0)
    else:
        month = int(said["month"])
    if said.get("either"):  # day and month in one of both orders
        if day > 12 >= month or day == month:
            pass
        elif month > 12 >= day:
            day, month = month, day
        else:
            return None
    if not said["hour"]:
        return datetime(year, month, day)  # noqa: DTZ001 (it has no zone)
    hour, half = int(said["hour"]), (said["half"] or "").lower()
    if half:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + 12 * half.startswith("p")
    zone = (said["zone"] or "").replace("UTC", "").replace("GMT", "").replace("Z", "")
    zone = zone or ("+00:00" if said["zone"] else "")
    clock = f"{hour:02}:{said['minute']}:{said['second'] or '00'}{zone}"
    return datetime.fromisoformat(f"{year:04}-{month:02}-{day:02}T{clock}")


@cache
def _month_of() -> dict[str, int]:
    return {word: n for n, words in enumerate(_MONTHS, start=1) for word in words.split()}


@cache
def _forms() -> tuple[re.Pattern[str], ...]:
    """Return the patterns of a whole value: a date, a time behind it, a weekday at either end."""
    weekday = rf"(?:{'|'.join(_WEEKDAYS.split())})\.?"
    time = (
        r"(?P<hour>\d{1,2})[:h.](?P<minute>\d{2})(?:[:.](?P<second>\d{2})(?:[.,]\d{1,9})?)?"
        r"(?: ?(?P<half>[ap]\.?m\.?))? ?(?P<zone>(?:UTC|GMT|Z)?(?:[+-]\d{2}:?\d{2})?)"
    )
    behind = rf"(?:(?:[T,]| at| um|,? à)? ?{time})?(?: ?\([^()]{{1,40}}\)|,? {weekday})?"
    year, month, day = r"(?P<year>\d{4})", r"(?P<month>\d{1,2})", r"(?P<day>\d{1,2})"
    nth, name = r"(?:st|nd|rd|th|er|\.|º|°)?", r"(?P<name>[^\W\d_]{3,10}\.?)"
    dates = (
        rf"{year}(?P<mark>[-/._] ?){month}(?P=mark){day}\.?",
        rf"{year} ?[年년] ?{month} ?[月월] ?{day} ?[日일号]?",
        rf"{day}\. ?{month}\. ?{year}",
        rf"(?P<either>{day}(?P<mark>[-/]){month}(?P=mark){year})",
        rf"{day}{nth}[ -]?(?:of |de )?{name}[ ,-]{{1,2}}(?:de |del )?{year}",
        rf"{name}[ -]?{day}{nth}[ ,-]{{1,2}}{year}",
        rf"{year}[ -]{name}[ -]{day}",
    )
    flags = re.IGNORECASE
    clock = rf"(?:{weekday} )?{name} {day} {time} {year}"  # as C's ctime writes it
    whole = (rf"(?:{weekday},? )?{date}{behind}" for date in dates)
    return tuple(re.compile(form, flags) for form in (*whole, clock))
