"""Decide whether a raw row is a memory that may leave its store, and normalise its fields."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple, cast

from noctuary.core.settings import CorpusSettings
from noctuary.core.types import DAY_US, UNDATED_US, MemoryRecord, Origin, content_hash, to_micros
from noctuary.sources.source import QuarantineReason, RawRow, true_names
from noctuary.text.flags import FLAGGED, find_mark
from noctuary.text.secrets import Scan, find_fields_sensitivity, find_text_sensitivity

# May a row leave its store: the owner's mark, redacted fields, the secret scan. Checked first; the
# result is a reason to count, never part of the row. When in doubt, a row is sensitive.

# The row itself is clean, but another row of the same id is sensitive: this may be an older text.
SHARES_ID = "shares_id_with_sensitive"
FORGOTTEN = "forgotten"  # removed by `noctuary forget`, but still in the source
# The lookahead includes the spaces: outside it, backtracking would give them back until it matches.
_FLAG_IN_TEXT = re.compile(
    r'"(?:is_)?sensitive"\s{0,20}:(?!\s{0,20}(?:0[\s,}.]|false|null|""|"0"|"false"))', re.IGNORECASE
)


def is_too_long(row: RawRow, max_bytes: int) -> bool:
    """Return whether a row's content is longer than `max_bytes` characters, so never exported."""
    content = row.fields.get("content")
    return isinstance(content, str) and len(content) > max_bytes


def find_sensitivity(
    row: RawRow, max_bytes: int | None = None, scan: Scan = find_text_sensitivity
) -> str | None:
    """Return why a row is sensitive and must stay in its store, or None; scans every text.

    With `max_bytes`, a row whose content `is_too_long` is judged by its sensitivity marks alone.
    """
    if row.withheld is not None:
        return row.withheld
    if max_bytes is not None and is_too_long(row, max_bytes):
        return find_mark(row.fields)
    if row.problem is None or not row.unread_text:
        return find_fields_sensitivity(row.fields, scan)
    if _FLAG_IN_TEXT.search(row.unread_text):
        return FLAGGED
    return scan(row.unread_text)


# Is a raw row a memory, and which fields does it have? The rules, in the order they are applied:
#
#     content       text, not blank, within the size limit, no NUL, no lone surrogate; kept verbatim
#     other texts   null means empty, a list of texts is joined, everything else is `bad_field`
#     importance    null means 0.5; must be a finite number, is clamped to [0, 1] with a warning
#     created_at    null means undated; ISO 8601, without an offset UTC, 1970 to 2200; later: warned
#     valid_until   as above, but unusable means that it does not end, with a warning
#     updated_at    as above, but unusable means undated, with a warning: nothing ranks by it alone
#     scope         own fields first, else the tags `wing:`, `room:`, `user:`, `session:` (and
#                   `project:` as a wing); the first tag of a kind that has a value wins

DEFAULT_IMPORTANCE = 0.5  # the store's own default for a memory without importance
# Longest tags, keywords, category or scope: the store allows 500 characters, so this is damage.
MAX_FIELD_BYTES = 64 * 1024
_END_US = to_micros(datetime(2201, 1, 1, tzinfo=UTC))
# Scope kind -> the fields that hold it, then the tag prefixes.
_SCOPES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "wing": (("wing",), ("wing", "project")),
    "room": (("room",), ("room",)),
    "user": (("user", "user_id"), ("user",)),
    "session": (("session_id", "session"), ("session",)),
}


class Accepted(NamedTuple):
    """A normalised memory, and the names of the warnings its row raised."""

    record: MemoryRecord
    warnings: tuple[str, ...]  # Names of the adjustments made; each is counted


@dataclass(eq=False)
class Rejected(Exception):
    """The first rule that a row breaks: reason, field, type and size, none of its text."""

    reason: QuarantineReason
    detail: str


def normalize(
    row: RawRow, *, position: int, now_us: int, settings: CorpusSettings
) -> Accepted | Rejected:
    """Normalise a raw row into a memory; return Rejected instead of raising it."""
    try:
        return accept(row, position=position, now_us=now_us, settings=settings)
    except Rejected as rejected:
        return rejected


def accept(row: RawRow, *, position: int, now_us: int, settings: CorpusSettings) -> Accepted:
    """Normalise a non-sensitive raw row into the memory at a position, or raise Rejected."""
    if row.problem is not None or row.key is None:
        raise Rejected(row.problem or QuarantineReason.BAD_ID, row.problem_detail)
    fields = row.fields
    if fields.get("deleted_at"):
        raise Rejected(QuarantineReason.DELETED, "deleted_at is set")
    content = _content(fields.get("content"), settings.max_content_bytes)
    # A text is no `Origin`: what a foreign row says of itself is not believed.
    origin = fields.get("origin")
    category = _text(fields, "category")
    tags = _text(fields, "tags", ",")
    keywords = _text(fields, "expanded_keywords", " ")
    said = [tag.partition(":")[::2] for tag in tags.split(",") if ":" in tag]
    pairs = [(name.strip().lower(), value.strip()) for name, value in said]
    scope = {kind: _scope(fields, pairs, *where) for kind, where in _SCOPES.items()}
    importance, is_clamped = _importance(fields.get("importance"))
    created_at_us = _date_us(fields.get("created_at"), "created_at")
    is_unusable = False
    try:
        updated_at_us = _date_us(fields.get("updated_at"), "updated_at")
    except Rejected:
        updated_at_us, is_unusable = UNDATED_US, True
    valid_until_us, is_end_unusable = read_end_us(fields.get("valid_until"))
    warnings = {
        "importance_clamped": is_clamped,
        "valid_until_unusable": is_end_unusable,
        "created_in_future": created_at_us > now_us,
        "updated_at_unusable": is_unusable,
        "updated_before_created": UNDATED_US != updated_at_us < created_at_us,
    }
    record = MemoryRecord(
        position=position,
        memory_id=str(row.key),
        content=content,
        category=category,
        tags=tags,
        expanded_keywords=keywords,
        importance=importance,
        created_at_us=created_at_us,
        updated_at_us=updated_at_us,
        session_id=scope["session"],
        wing=scope["wing"],
        room=scope["room"],
        user=scope["user"],
        is_turn=scope["session"] is not None and category in settings.turn_categories,
        content_hash="",
        origin=origin if isinstance(origin, Origin) else Origin.IMPORT,
        valid_until_us=valid_until_us,
    )
    record = record._replace(content_hash=content_hash(record))
    return Accepted(record, (*row.warnings, *true_names(warnings)))


def _content(value: object, max_bytes: int) -> str:
    if value is None:
        raise Rejected(QuarantineReason.MISSING_CONTENT, "content is null or absent")
    if not isinstance(value, str):
        raise Rejected(QuarantineReason.CONTENT_NOT_TEXT, f"content: {type(value).__name__}")
    if len(value) > max_bytes:  # first: the checks below visit every character
        size_bytes = len(value.encode("utf-8", "surrogatepass"))
        detail = f"content: {size_bytes} bytes, at most {max_bytes}"
        raise Rejected(QuarantineReason.CONTENT_TOO_LARGE, detail)
    # A content of spaces, control and invisible characters only counts as empty.
    if all(c.isspace() or unicodedata.category(c) in ("Cc", "Cf") for c in value):
        raise Rejected(QuarantineReason.EMPTY_CONTENT, f"content: {len(value)} characters")
    return _checked("content", value, max_bytes, QuarantineReason.CONTENT_TOO_LARGE)


def _text(fields: Mapping[str, object], name: str, joiner: str | None = None) -> str:
    value = fields.get(name)
    if value is None:
        return ""
    if joiner is not None and isinstance(value, list):
        parts = cast("list[object]", value)
        if all(isinstance(part, str) for part in parts):
            value = joiner.join(cast("list[str]", parts))
    if not isinstance(value, str):
        raise Rejected(QuarantineReason.BAD_FIELD, f"{name}: {type(value).__name__}")
    return _checked(name, value, MAX_FIELD_BYTES, QuarantineReason.FIELD_TOO_LARGE)


def _checked(name: str, value: str, max_bytes: int, too_large: QuarantineReason) -> str:
    try:
        size_bytes = len(value.encode("utf-8"))
    except UnicodeEncodeError:
        raise Rejected(QuarantineReason.BAD_UNICODE, f"{name}: lone surrogate") from None
    if size_bytes > max_bytes:
        raise Rejected(too_large, f"{name}: {size_bytes} bytes, at most {max_bytes}")
    if "\0" in value:
        raise Rejected(QuarantineReason.NUL_BYTES, f"{name}: {value.count(chr(0))} NUL")
    return value


def _scope(
    fields: Mapping[str, object],
    pairs: list[tuple[str, str]],
    names: tuple[str, ...],
    prefixes: tuple[str, ...],
) -> str | None:
    """Return the first field that is set, else the first tag `prefix:value`; earlier names win."""
    for name in names:
        value = fields.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        if text := _text(fields, name).strip():
            return text
    return next((v for prefix in prefixes for name, v in pairs if name == prefix and v), None)


def _importance(value: object) -> tuple[float, bool]:
    """Return an importance clamped to [0, 1], and whether it was out of range."""
    if value is None:
        return DEFAULT_IMPORTANCE, False
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Rejected(QuarantineReason.BAD_IMPORTANCE, f"importance: {type(value).__name__}")
    if isinstance(value, float) and not math.isfinite(value):
        raise Rejected(QuarantineReason.BAD_IMPORTANCE, "importance: not finite")
    # Compared before converting: an int may be too large for a float. Adding turns -0.0 into 0.0.
    return float(min(1, max(0, value))) + 0.0, not 0 <= value <= 1


def read_end_us(value: object) -> tuple[int | None, bool]:
    """Return when a memory ends (us), None for never, and whether what its row says is unusable.

    A day is whole: what holds until the first ends when the second begins.
    """
    try:
        moment_us = _date_us(value, "valid_until")
    except Rejected:
        return None, True
    if moment_us == UNDATED_US:
        return None, False
    is_day = len(str(value).strip()) == len("2026-03-01")
    return moment_us + (DAY_US if is_day else 0), False


def _date_us(value: object, name: str) -> int:
    """Return an ISO 8601 text as microseconds since the epoch; UNDATED_US for null or blank."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return UNDATED_US
    if not isinstance(value, str):
        raise Rejected(QuarantineReason.BAD_DATE, f"{name}: {type(value).__name__}")
    try:
        moment = datetime.fromisoformat(value.strip())
    except ValueError:
        detail = f"{name}: {len(value)} characters, not ISO 8601"
        raise Rejected(QuarantineReason.BAD_DATE, detail) from None
    micros = to_micros(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    if not 0 <= micros < _END_US:
        raise Rejected(QuarantineReason.DATE_OUT_OF_RANGE, f"{name}: not within 1970 to 2200")
    return micros
