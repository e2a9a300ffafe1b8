"""Is a raw row a memory, what are its fields, and may it leave its store."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import cast

from noctuary.core.settings import CorpusSettings
from noctuary.core.types import UNDATED_US, MemoryRecord, content_hash, to_micros
from noctuary.sources.source import QuarantineReason, RawRow
from noctuary.text.secrets import FLAGGED, find_fields_sensitivity, find_text_sensitivity

# May a row leave its store: the owner's mark, what was already redacted, the secret scan.
#
# Judged before anything else about a row. The answer is a reason to count, never a part of the
# row; a sensitive row is written nowhere, not even into the quarantine. In doubt a row is
# sensitive.

SHARES_ID = "shares_id_with_sensitive"
"""The row itself is clean, but another row of the same id is sensitive: it may be an older text."""

# The look-ahead holds the spaces too: outside it they would be given back until it succeeds.
_FLAG_IN_TEXT = re.compile(
    r'"(?:is_)?sensitive"\s{0,20}:(?!\s{0,20}(?:0[\s,}.]|false|null|""|"0"|"false"))', re.IGNORECASE
)


def find_sensitivity(row: RawRow) -> str | None:
    """Return why a row must not leave its store, or None.

    Every text of the row is scanned, also of fields that would not be exported.
    """
    if row.withheld is not None:
        return row.withheld
    if row.problem is not None and row.unread_text:
        return _judge_unread(row.unread_text)
    return find_fields_sensitivity(row.fields)


def _judge_unread(text: str) -> str | None:
    if _FLAG_IN_TEXT.search(text):
        return FLAGGED
    return find_text_sensitivity(text)


# Is a raw row a memory, and what are its fields.
#
# Whether the row may leave its store at all was decided before (`noctuary.sources.normalize`). The
# rules, in the order in which they are tried:
#
#     content       text, not blank, within the size limit, no NUL, no lone surrogate; kept verbatim
#     other texts   null means empty, a list of texts is joined, everything else is `bad_field`
#     importance    null means 0.5; must be a finite number, is clamped to [0, 1] with a warning
#     created_at    null means undated; ISO 8601, without an offset UTC, 1970 to 2200; later: warned
#     updated_at    as above, but unusable means undated, with a warning: nothing ranks by it alone
#     scope         own fields first, else the tags `wing:`, `room:`, `user:`, `session:` (and
#                   `project:` as a wing); the first tag of a kind that has a value wins

DEFAULT_IMPORTANCE = 0.5
"""What the store itself gives a memory without an importance."""

MAX_FIELD_BYTES = 64 * 1024
"""Longest tags, keywords, category or scope: the store allows 500 characters, so this is damage."""

WARN_IMPORTANCE_CLAMPED = "importance_clamped"
WARN_CREATED_IN_FUTURE = "created_in_future"
WARN_UPDATED_UNUSABLE = "updated_at_unusable"
WARN_UPDATED_BEFORE_CREATED = "updated_before_created"

_MIN_US = 0
_END_US = to_micros(datetime(2201, 1, 1, tzinfo=UTC))

# Scope kind -> the fields that hold it, then the tags that do.
_SCOPES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "wing": (("wing",), ("wing", "project")),
    "room": (("room",), ("room",)),
    "user": (("user", "user_id"), ("user",)),
    "session": (("session_id", "session"), ("session",)),
}


@dataclass(frozen=True, slots=True)
class Accepted:
    """A row that is a memory."""

    record: MemoryRecord  # The memory
    warnings: tuple[str, ...]  # What had to be bent, by name; each is counted


@dataclass(frozen=True, slots=True)
class Rejected:
    """A row that is none."""

    reason: QuarantineReason  # The first rule that it breaks
    detail: str  # Field, type and size; no text of the row


class _RejectError(Exception):
    def __init__(self, reason: QuarantineReason, detail: str) -> None:
        super().__init__(reason)
        self.rejected = Rejected(reason, detail)


def normalize(
    row: RawRow, *, position: int, now_us: int, settings: CorpusSettings
) -> Accepted | Rejected:
    """Turn a raw row into a memory, or say why it is none.

    Args:
        row: A row that may leave its store.
        position: Rank that the memory gets if it is one.
        now_us: The moment after which a date is in the future, microseconds since the epoch.
        settings: Content limit and turn categories.
    """
    if row.problem is not None or row.key is None:
        return Rejected(row.problem or QuarantineReason.BAD_ID, row.problem_detail)
    try:
        return _accept(row.key, row.fields, position, now_us, settings)
    except _RejectError as error:
        return error.rejected


def _accept(
    key: int | str,
    fields: Mapping[str, object],
    position: int,
    now_us: int,
    settings: CorpusSettings,
) -> Accepted:
    if fields.get("deleted_at"):
        raise _RejectError(QuarantineReason.DELETED, "deleted_at is set")
    content = _content(fields, settings.max_content_bytes)
    category = _text(fields, "category")
    tags = _text(fields, "tags", ",")
    keywords = _text(fields, "expanded_keywords", " ")
    scope = {kind: _scope(fields, kind, tags) for kind in _SCOPES}
    warnings: list[str] = []
    importance = _importance(fields.get("importance"), warnings)
    created_at_us = _date_us(fields.get("created_at"), "created_at")
    if created_at_us > now_us:
        warnings.append(WARN_CREATED_IN_FUTURE)
    updated_at_us = _updated_at_us(fields.get("updated_at"), created_at_us, warnings)
    is_turn = scope["session"] is not None and category in settings.turn_categories
    record = MemoryRecord(
        position=position,
        memory_id=str(key),
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
        is_turn=is_turn,
        content_hash="",
    )
    return Accepted(replace(record, content_hash=content_hash(record)), tuple(warnings))


def _content(fields: Mapping[str, object], max_bytes: int) -> str:
    value = fields.get("content")
    if value is None:
        raise _RejectError(QuarantineReason.MISSING_CONTENT, "content is null or absent")
    if not isinstance(value, str):
        raise _RejectError(QuarantineReason.CONTENT_NOT_TEXT, f"content: {type(value).__name__}")
    if not _has_ink(value):
        raise _RejectError(QuarantineReason.EMPTY_CONTENT, f"content: {len(value)} characters")
    _check_text("content", value, max_bytes, QuarantineReason.CONTENT_TOO_LARGE)
    return value


def _has_ink(text: str) -> bool:
    """Tell whether a text holds anything but spaces, controls and invisible marks."""
    return any(not c.isspace() and unicodedata.category(c) not in ("Cc", "Cf") for c in text)


def _text(fields: Mapping[str, object], name: str, joiner: str | None = None) -> str:
    value = fields.get(name)
    if value is None:
        return ""
    if joiner is not None and isinstance(value, list):
        parts = cast("list[object]", value)
        if all(isinstance(part, str) for part in parts):
            value = joiner.join(cast("list[str]", parts))
    if not isinstance(value, str):
        raise _RejectError(QuarantineReason.BAD_FIELD, f"{name}: {type(value).__name__}")
    _check_text(name, value, MAX_FIELD_BYTES, QuarantineReason.FIELD_TOO_LARGE)
    return value


def _check_text(name: str, value: str, max_bytes: int, too_large: QuarantineReason) -> None:
    try:
        size_bytes = len(value.encode("utf-8"))
    except UnicodeEncodeError:
        raise _RejectError(QuarantineReason.BAD_UNICODE, f"{name}: lone surrogate") from None
    if size_bytes > max_bytes:
        raise _RejectError(too_large, f"{name}: {size_bytes} bytes, at most {max_bytes}")
    if "\0" in value:
        raise _RejectError(QuarantineReason.NUL_BYTES, f"{name}: {value.count(chr(0))} NUL")


def _scope(fields: Mapping[str, object], kind: str, tags: str) -> str | None:
    names, prefixes = _SCOPES[kind]
    for name in names:
        value = fields.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        if text := _text(fields, name).strip():
            return text
    return _tag_value(tags, prefixes)


def _tag_value(tags: str, prefixes: tuple[str, ...]) -> str | None:
    """Return the value of the first tag `prefix:value`, earlier prefixes first, or None."""
    if ":" not in tags:
        return None
    pairs = [tag.split(":", 1) for tag in tags.split(",") if ":" in tag]
    for prefix in prefixes:
        for name, value in pairs:
            if name.strip().lower() == prefix and value.strip():
                return value.strip()
    return None


def _importance(value: object, warnings: list[str]) -> float:
    if value is None:
        return DEFAULT_IMPORTANCE
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _RejectError(QuarantineReason.BAD_IMPORTANCE, f"importance: {type(value).__name__}")
    if isinstance(value, float) and not math.isfinite(value):
        raise _RejectError(QuarantineReason.BAD_IMPORTANCE, "importance: not finite")
    if not 0 <= value <= 1:
        warnings.append(WARN_IMPORTANCE_CLAMPED)
    # Compared before converted: an int may be too large for a float. The sum turns -0.0 into 0.0.
    return float(min(1, max(0, value))) + 0.0


def _updated_at_us(value: object, created_at_us: int, warnings: list[str]) -> int:
    try:
        updated_at_us = _date_us(value, "updated_at")
    except _RejectError:
        warnings.append(WARN_UPDATED_UNUSABLE)
        return UNDATED_US
    if updated_at_us != UNDATED_US and updated_at_us < created_at_us:
        warnings.append(WARN_UPDATED_BEFORE_CREATED)
    return updated_at_us


def _date_us(value: object, name: str) -> int:
    """Return microseconds since the epoch of an ISO 8601 text, UNDATED_US of null or blank."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return UNDATED_US
    if not isinstance(value, str):
        raise _RejectError(QuarantineReason.BAD_DATE, f"{name}: {type(value).__name__}")
    try:
        moment = datetime.fromisoformat(value.strip())
    except ValueError:
        detail = f"{name}: {len(value)} characters, not ISO 8601"
        raise _RejectError(QuarantineReason.BAD_DATE, detail) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    micros = to_micros(moment)
    if not _MIN_US <= micros < _END_US:
        raise _RejectError(QuarantineReason.DATE_OUT_OF_RANGE, f"{name}: not within 1970 to 2200")
    return micros
