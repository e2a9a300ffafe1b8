"""`install_hooks` and `uninstall_hooks`: one settings file brought to what is wanted.

What belongs here: the order of reading, merging, writing and keeping the receipt, and what the user
should know about it. What does not: each of these steps (the modules beside this one).
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from noctuary.agents.install.errors import HookInstallError
from noctuary.agents.install.events import CODEX, hook_groups
from noctuary.agents.install.merging import add_hooks, created_places, list_hooks, remove_hooks
from noctuary.agents.install.receipts import FILE, FOLDER, Receipt, read_receipts, write_receipts
from noctuary.agents.install.settings_file import (
    SettingsText,
    Written,
    read_settings,
    remove_settings,
    write_settings,
)
from noctuary.agents.install.settings_places import PROJECT, SCOPES, SettingsPlace, find_place
from noctuary.values import dataclass


@dataclass(frozen=True, slots=True)
class HookChange:
    """What was done to one settings file, or would be.

    Attributes:
        agent: Whose settings.
        scope: "user" or "project".
        path: The settings file.
        action: "installed", "renewed", "unchanged", "removed" or "absent" (nothing to remove).
        dry_run: Nothing was written.
        backup: Where the old bytes are kept, or None.
        diff: The change as a unified diff, "" for none.
        notes: Sentences that the user should read.
    """

    agent: str
    scope: str
    path: str
    action: str
    dry_run: bool
    backup: str | None
    diff: str
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def install_hooks(
    place: SettingsPlace,
    program: Sequence[str],
    *,
    home: Path,
    store: str | None = None,
    dry_run: bool = False,
) -> HookChange:
    """Put noctuary's hooks into a settings file; a second time changes nothing.

    Args:
        place: The file (`settings_places.find_place`).
        program: The words that start noctuary (`program.find_program`).
        home: Noctuary's home; the receipt goes below it.
        store: Passed to the hooks as --store.
        dry_run: Return the change and write nothing.

    Raises:
        HookInstallError: The file is not understood; nothing was changed.
        OSError: It cannot be written.
    """
    before = read_settings(place.path)
    made = _files_to_make(before)
    had = list_hooks(before.value)
    wanted = add_hooks(before.value, hook_groups(place.agent, program, store))
    written = write_settings(before, wanted, dry_run=dry_run)
    notes = _notes(place, written, before)
    if not dry_run and written.changed:
        made |= created_places(before.value, wanted)
        receipts = read_receipts(home)
        known = receipts.get(place.path)
        receipts[place.path] = Receipt(place, made | (known.made if known and had else frozenset()))
        if not write_receipts(home, receipts):
            notes.append(f"no receipt could be written below {home}: uninstalling works without")
    action = ("renewed" if had else "installed") if written.changed else "unchanged"
    return _change(place, action, before, written, notes, dry_run=dry_run)


def uninstall_hooks(place: SettingsPlace, *, home: Path, dry_run: bool = False) -> HookChange:
    """Take noctuary's hooks out of a settings file; everything else stays as it is.

    Args:
        place: The file.
        home: Noctuary's home, where the receipt of the installation is.
        dry_run: Return the change and write nothing.

    Raises:
        HookInstallError: The file is not understood; nothing was changed.
        OSError: It cannot be written.
    """
    before = read_settings(place.path)
    receipts = read_receipts(home)
    receipt = receipts.pop(place.path, None)
    written = Written(False, before.text, None)
    if list_hooks(before.value):
        value = remove_hooks(before.value, receipt.made if receipt else None)
        if not value and receipt is not None and FILE in receipt.made:
            written = remove_settings(before, with_folder=FOLDER in receipt.made, dry_run=dry_run)
        else:
            written = write_settings(before, value, dry_run=dry_run)
    if receipt is not None and not dry_run:
        write_receipts(home, receipts)
    action = "removed" if written.changed else "absent"
    return _change(place, action, before, written, [], dry_run=dry_run)


def environment_notes(environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return what the environment makes worth saying about hooks that other programs start."""
    env = os.environ if environ is None else environ
    home = env.get("NOCTUARY_HOME", "").strip()
    if not home:
        return ()
    told = f"NOCTUARY_HOME is {home} here: start the agent with it too"
    return (f"{told}, or its hooks look for settings and stores in the default home",)


def _files_to_make(before: SettingsText) -> frozenset[str]:
    if before.raw is not None:
        return frozenset()
    return frozenset({FILE} if before.path.parent.is_dir() else {FILE, FOLDER})


def _notes(place: SettingsPlace, written: Written, before: SettingsText) -> list[str]:
    notes: list[str] = []
    if written.changed and place.agent == CODEX:
        notes.append(
            "Codex runs a hook only after you have trusted it: open /hooks in a new session"
        )
    if before.value.get("disableAllHooks") is True:
        notes.append(f'"disableAllHooks" is true in {place.path}: no hook runs')
    if written.changed and place.scope == PROJECT:
        notes.append(f"{place.path} names programs of this machine: do not commit it for others")
    twice = _other_place(place)
    if twice is not None:
        notes.append(f"hooks are also installed in {twice}: both run in this project; remove one")
    return notes


def _other_place(place: SettingsPlace) -> Path | None:
    """Return the file of the other scope if noctuary's hooks are in that one as well."""
    folder = place.path.parent.parent if place.scope == PROJECT else Path.cwd()
    other = next(scope for scope in SCOPES if scope != place.scope)
    try:
        found = find_place(place.agent, other, folder)
        is_other = found.path.resolve() != place.path.resolve()
        return found.path if is_other and list_hooks(read_settings(found.path).value) else None
    except (HookInstallError, OSError):
        return None


def _change(
    place: SettingsPlace,
    action: str,
    before: SettingsText,
    written: Written,
    notes: Sequence[str],
    *,
    dry_run: bool,
) -> HookChange:
    old = before.text.splitlines() if before.raw is not None else []
    new = written.text.splitlines() if written.changed else old
    name = str(place.path)
    diff = "\n".join(difflib.unified_diff(old, new, name, name, lineterm=""))
    backup = str(written.backup) if written.backup else None
    return HookChange(
        place.agent, place.scope, name, action, dry_run, backup, diff, tuple(notes)
    )  # fmt: skip
