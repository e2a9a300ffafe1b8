"""What installing made, by file: so that uninstalling leaves no more and no less behind.

What belongs here: `installs.json` in the hooks' directory. What does not: the settings themselves.
The file also tells `noctuary doctor` in which projects hooks were installed. Without it
uninstalling still removes every entry of noctuary's, and takes what that empties for its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from noctuary.agents.install.settings_places import SettingsPlace
from noctuary.agents.places import HookPlaces
from noctuary.agents.small_files import make_private, read_json, replace_json

VERSION = 1
RECEIPTS_FILE = "installs.json"
FILE = "file"
FOLDER = "folder"
"""Among what was made: the settings file itself, and the folder that it lies in."""

_MAX_BYTES = 1_000_000


class Receipt(NamedTuple):
    """One file that hooks were installed into.

    Attributes:
        place: Whose file it is.
        made: What was not there before: `FOLDER`, `FILE`, "hooks", "hooks.<event>".
    """

    place: SettingsPlace
    made: frozenset[str]


def receipts_path(home: Path) -> Path:
    """Return the file of the receipts below noctuary's home."""
    return HookPlaces(home).directory / RECEIPTS_FILE


def read_receipts(home: Path) -> dict[Path, Receipt]:
    """Return what was installed where, by the settings file; what is damaged is left out."""
    found, _ = read_json(receipts_path(home), _MAX_BYTES)
    raw: Any = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    rows: Any = raw.get("installs") if raw.get("version") == VERSION else None
    receipts: dict[Path, Receipt] = {}
    for row in cast("list[Any]", rows) if isinstance(rows, list) else []:
        receipt = _receipt(row)
        if receipt is not None:
            receipts[receipt.place.path] = receipt
    return receipts


def write_receipts(home: Path, receipts: Mapping[Path, Receipt]) -> bool:
    """Replace the receipts and tell whether that worked; equal receipts give equal bytes."""
    path = receipts_path(home)
    rows = [
        {
            "path": str(r.place.path), "agent": r.place.agent, "scope": r.place.scope,
            "made": sorted(r.made),
        }
        for _, r in sorted(receipts.items(), key=lambda item: str(item[0]))
    ]  # fmt: skip
    return make_private(path.parent) and replace_json(path, {"version": VERSION, "installs": rows})


def _receipt(row: Any) -> Receipt | None:
    if not isinstance(row, dict):
        return None
    fields = cast("dict[str, Any]", row)
    texts = [fields.get(name) for name in ("agent", "scope", "path")]
    made: Any = fields.get("made")
    if not all(isinstance(text, str) for text in texts) or not isinstance(made, list):
        return None
    agent, scope, path = (str(text) for text in texts)
    names = frozenset(str(name) for name in cast("list[Any]", made))
    return Receipt(SettingsPlace(agent, scope, Path(path)), names)
