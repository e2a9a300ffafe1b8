"""Reading and replacing an agent's settings file without harm to what its owner wrote.

What belongs here: strict reading, the backup, the atomic replacement. What does not: what is wanted
in the file (`merging`), how its text changes (`json_patch`). A file that is not understood is
refused with a sentence and stays as it is.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, cast

from noctuary.agents.install.errors import HookInstallError
from noctuary.agents.install.json_patch import is_same_json, patch_json
from noctuary.files import replace_with
from noctuary.foreign_json import parse_json

MAX_BYTES = 8_000_000
"""Settings are kilobytes; reading much more would be a wrong file, and takes long."""

_BOM = "\ufeff"


class SettingsText(NamedTuple):
    """A settings file as it was read.

    Attributes:
        path: The file itself, behind any links.
        raw: Its bytes; None where there is no file.
        text: Its text without a byte order mark; "{}" for a missing or an empty file.
        value: The object that the text reads as.
    """

    path: Path
    raw: bytes | None
    text: str
    value: dict[str, Any]


class Written(NamedTuple):
    """What writing did.

    Attributes:
        changed: Whether the file is another one now (or would be, in a dry run).
        text: Its new text; "" where the file goes.
        backup: Where the old bytes are, None where there was nothing to keep.
    """

    changed: bool
    text: str
    backup: Path | None


def read_settings(path: Path) -> SettingsText:
    """Read a settings file as strictly as its agent does.

    Args:
        path: The file; links are followed.

    Raises:
        HookInstallError: It is no regular file, cannot be read, is too large, or holds anything
            but one JSON object in UTF-8 without comments and repeated keys.
    """
    real = _behind_links(path)
    raw = _read(real)
    if raw is None:
        return SettingsText(real, None, "{}", {})
    try:
        text = raw.decode("utf-8").removeprefix(_BOM)
    except UnicodeDecodeError as error:
        raise HookInstallError(
            f"{path} is no UTF-8 from byte {error.start} on: save it as UTF-8; nothing was changed"
        ) from None
    if not text.strip():
        return SettingsText(real, raw, "{}", {})
    return SettingsText(real, raw, text, _parse(path, text))


def write_settings(before: SettingsText, value: dict[str, Any], *, dry_run: bool) -> Written:
    """Bring a settings file to a new value, changing as few bytes as that takes.

    The old bytes are kept beside it first, once for every content. Permissions stay; a new file is
    its user's alone.

    Args:
        before: The file as it was read.
        value: The new value.
        dry_run: Say what would be written and write nothing.

    Raises:
        HookInstallError: The file was changed in between, or the new text would not read as
            `value`; nothing was changed.
        OSError: It cannot be written.
    """
    if before.raw is not None and is_same_json(before.value, value):
        return Written(False, before.text, None)
    text = patch_json(before.text, value)
    if not is_same_json(_parse(before.path, text), value):
        raise HookInstallError(f"{before.path} would not read back as meant; nothing was changed")
    text = text if text.endswith("\n") or before.raw else f"{text}\n"
    raw = before.raw or b""
    data = (_BOM if raw.startswith(_BOM.encode()) else "").encode() + text.encode("utf-8")
    backup = None
    if not dry_run:
        _require_unchanged(before)
        backup = _keep(before)
        _replace(before.path, data)
    return Written(True, text, backup)


def remove_settings(before: SettingsText, *, with_folder: bool, dry_run: bool) -> Written:
    """Remove a settings file that noctuary made and nobody else wrote to.

    Args:
        before: The file as it was read.
        with_folder: Remove its folder as well, if nothing else is in it.
        dry_run: Remove nothing.

    Raises:
        HookInstallError: The file was changed in between.
        OSError: It cannot be removed.
    """
    if before.raw is None:
        return Written(False, "", None)
    if not dry_run:
        _require_unchanged(before)
        before.path.unlink()
        if with_folder:
            with suppress(OSError):  # something else is in it by now
                before.path.parent.rmdir()
    return Written(True, "", None)


def _behind_links(path: Path) -> Path:
    try:
        real = path.resolve()
        found = real.lstat()
    except FileNotFoundError:
        return path.resolve()
    except (OSError, RuntimeError) as error:
        raise HookInstallError(f"{path} cannot be reached: {error}; nothing was changed") from None
    if not stat.S_ISREG(found.st_mode):
        raise HookInstallError(f"{real} is no regular file; nothing was changed")
    return real


def _read(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise HookInstallError(f"{path} cannot be read: {error.strerror}") from None
    if len(raw) > MAX_BYTES:
        raise HookInstallError(
            f"{path} has more than {MAX_BYTES:,} bytes: that is no settings file"
        )
    return raw


def _parse(path: Path, text: str) -> dict[str, Any]:
    try:
        value: Any = parse_json(text, object_pairs_hook=_unique, parse_constant=_no_constant)
        json.dumps(value)
    except ValueError as error:
        comment = "//" in text or "/*" in text
        why = " (JSON has no comments)" if comment else ""
        raise HookInstallError(
            f"{path} is not valid JSON: {error}{why}. Correct it first; nothing was changed"
        ) from None
    if not isinstance(value, dict):
        raise HookInstallError(
            f"{path} holds {type(value).__name__} where a JSON object was expected; "
            "nothing was changed"
        )
    return cast("dict[str, Any]", value)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} stands twice in one object")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _require_unchanged(before: SettingsText) -> None:
    if _read(before.path) != before.raw:
        raise HookInstallError(
            f"{before.path} was changed by somebody else just now: run the command again"
        )


def _keep(before: SettingsText) -> Path | None:
    """Keep the old bytes beside the file; the same bytes are kept once."""
    if before.raw is None:
        return None
    path = before.path
    for kept in sorted(path.parent.glob(f"{_escaped(path.name)}.noctuary-*.bak")):
        if kept.is_file() and kept.read_bytes() == before.raw:
            return kept
    moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%fZ")
    backup = path.with_name(f"{path.name}.noctuary-{moment}.bak")
    replace_with(backup, _writer(before.raw, path.stat()))
    return backup


def _escaped(name: str) -> str:
    return name.translate({ord(c): f"[{c}]" for c in "[]*?"})


def _replace(path: Path, data: bytes) -> None:
    found = path.stat() if path.exists() else None
    replace_with(path, _writer(data, found))


def _writer(data: bytes, like: os.stat_result | None) -> Callable[[Path], None]:
    """Return a writer of a file that nobody may read before it has the other's permissions."""

    def write(target: Path) -> None:
        target.unlink(missing_ok=True)
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            if like is not None:
                os.fchmod(file.fileno(), stat.S_IMODE(like.st_mode))

    return write
