"""`noctuary schedule`: nights by the machine's own timer, a systemd user timer or a launchd agent.

It writes files that these read and starts nothing: what switches a night on or off is printed.
"""

from __future__ import annotations

import os
import plistlib
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from noctuary.agents.install import find_program, require_utf8
from noctuary.cli import main as cli
from noctuary.core.errors import NoctuaryError
from noctuary.core.files import hash_text, make_directory, write_text
from noctuary.core.store import expand_user, find_home, names_postgres

UNIT = "noctuary-night"
LABEL = "noctuary.night"

_MARK = "Written by `noctuary schedule install`; sha256 of the rest: "
_MARKED = re.compile(rf"^.*{re.escape(_MARK)}([0-9a-f]{{64}}).*\n", re.MULTILINE)

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

ABSENT, INSTALLED, OUTDATED = "absent", "installed", "outdated"
CHANGED = "changed"  # somebody changed it since it was written
FOREIGN = "foreign"  # noctuary did not write it


class ScheduleError(NoctuaryError):
    """A schedule cannot be written or removed."""


class Timer(NamedTuple):
    """What one machine's timer reads, and the commands that make it do so."""

    kind: str  # "systemd" or "launchd"
    texts: Mapping[Path, str]  # by file
    switch_on: str
    switch_off: str
    link: Path | None = None  # there while it is on, where a file tells


@click.group(cls=cli.NamedGroup)
def schedule() -> None:
    """Run a night every day by this machine's own timer: systemd on Linux, launchd on macOS.

    \b
    noctuary schedule install SOURCE --at 03:30   write the timer's files
    noctuary schedule install --undo              remove them
    noctuary schedule status                      which files there are, and whether it is on

    It starts nothing: you run the command that it prints.
    """  # noqa: D301 (click wants the control character)


@schedule.command()
@click.argument("source", required=False)
@cli.option("--store", "Store to write, as for `noctuary nightly`.")
@cli.option("--at", "Local time of day, HH:MM.", default="03:00")
@cli.flag("--undo", "Remove the files again, those of `install` only.")
@cli.flag("--dry-run", "Show the files and write nothing.")
@cli.json_option
def install(source: str | None, store: str | None, at: str, undo: bool, dry_run: bool) -> None:
    """Write a timer that runs `noctuary nightly SOURCE` every day, or what is configured.

    A second call replaces the files of the first. It refuses to touch files that you wrote or
    changed.

    Exit code 1 if a file is not noctuary's own, or cannot be written.
    """
    timer = build_timer(_command(source, store), _read_time(at))
    states = {path: look_at_file(path, text) for path, text in timer.texts.items()}
    _refuse_others(states)
    if undo:
        _remove(timer, states, dry_run)
        return
    stale = {path: timer.texts[path] for path, state in states.items() if state != INSTALLED}
    if not dry_run:
        make_directory(find_home())  # where launchd writes a night's output
        for path, text in stale.items():
            write_text(path, text)
    would = "would be " if dry_run else ""
    lines = [f"{path}: {would}{'written' if path in stale else 'unchanged'}" for path in states]
    if dry_run:
        lines += [f"\n# {path}\n{text}" for path, text in stale.items()]
    lines += ["", f"switch it on with:  {timer.switch_on}"]
    _tell(timer, lines, {"written": [str(p) for p in stale], "dry_run": dry_run}, _notes(timer))


def _refuse_others(states: Mapping[Path, str]) -> None:
    for path, state in states.items():
        if state in (CHANGED, FOREIGN):
            whose = "was changed since" if state == CHANGED else "is not noctuary's"
            raise ScheduleError(
                f"{path} {whose}: move it away, then call this again. To change a timer of "
                "noctuary's, install it again, or use `systemctl --user edit`"
            )


def _remove(timer: Timer, states: Mapping[Path, str], dry_run: bool) -> None:
    found = [path for path, state in states.items() if state != ABSENT]
    if timer.link is not None and timer.link.is_symlink():  # of a file of this name, which is ours
        found.insert(0, timer.link)
    for path in [] if dry_run else found:
        path.unlink()
    would = "would be " if dry_run else ""
    lines = [f"{path}: {would}removed" for path in found] or ["nothing is installed"]
    if found:
        lines += ["", f"what still runs ends with:  {timer.switch_off}"]
    _tell(timer, lines, {"removed": [str(p) for p in found], "dry_run": dry_run})


def _notes(timer: Timer) -> list[str]:
    notes: list[str] = []
    if timer.kind == "systemd":
        runs = Path("/run/systemd/system").is_dir()
        lingers = "while you are logged out it only runs after `loginctl enable-linger`"
        notes.append(lingers if runs else "systemd does not run here: let cron start nights")
    unseen = sorted(n for n in os.environ if n.startswith("NOCTUARY_") and n not in _LOCATIONS)
    if unseen:
        told = f"{', '.join(unseen)} {'is' if len(unseen) == 1 else 'are'} set here only"
        notes.append(f"{told}: a timer's night reads noctuary.toml")
    return notes


def _tell(
    timer: Timer, lines: Sequence[str], told: Mapping[str, Any], notes: Sequence[str] = ()
) -> None:
    commands = {"switch_on": timer.switch_on, "switch_off": timer.switch_off}
    cli.tell({"kind": timer.kind, **told, **commands, "notes": list(notes)}, lines, notes)


@schedule.command()
@cli.json_option
def status() -> None:
    """Show the timer's files, what they run and when, and whether the timer is on.

    Dagster's own schedule is not shown here (`noctuary doctor`).
    """
    timer = build_timer((), (0, 0))
    files: list[dict[str, Any]] = []
    for path in timer.texts:
        state = look_at_file(path, None)
        text = path.read_text(encoding="utf-8", errors="replace") if state != ABSENT else ""
        says = re.findall(r"^(?:ExecStart|OnCalendar)=.*$", text, re.MULTILINE)
        if timer.kind == "launchd" and state == INSTALLED:
            found = plistlib.loads(text.encode())
            at = found["StartCalendarInterval"]
            says = [shlex.join(found["ProgramArguments"]), f"{at['Hour']:02}:{at['Minute']:02}"]
        files.append({"path": str(path), "state": state, "says": says})
    lines: list[str] = []
    for file in files:
        lines += [f"{file['state']:<11}{file['path']}", *(f"{'':<11}{s}" for s in file["says"])]
    if any(file["state"] != ABSENT for file in files):
        lines.append("it is on" if is_on() else f"it is off: {timer.switch_on}")
    cli.tell({"kind": timer.kind, "files": files, "on": is_on()}, lines)


def is_on() -> bool:
    """Say whether the machine's own timer runs nights; launchd takes an agent at the next login."""
    try:
        timer = build_timer((), (0, 0))
    except NoctuaryError:
        return False
    found = [path for path in timer.texts if look_at_file(path, None) != ABSENT]
    return bool(found) and (timer.link is None or timer.link.is_symlink())


# What the timer runs, and when.

_LOCATIONS = ("NOCTUARY_HOME", "NOCTUARY_CONFIG", "NOCTUARY_STORE", "NOCTUARY_SHARED")


def _command(source: str | None, store: str | None) -> tuple[str, ...]:
    """Return the words of a night, from whatever directory it is started in."""
    words = [*find_program(), "nightly"]
    if source is not None:
        words.append(source if names_postgres(source) else str(expand_user(source).absolute()))
    named = store or os.environ.get("NOCTUARY_STORE", "").strip()
    if named:
        path = expand_user(named)
        words += ["--store", str(path.absolute()) if len(path.parts) > 1 else named]
    return tuple(words)


def _read_time(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"([01]?[0-9]|2[0-3]):([0-5][0-9])", text, re.ASCII)
    if found is None:
        raise click.BadParameter(f"{text!r} is no time of day, e.g. 03:30", param_hint="--at")
    return int(found[1]), int(found[2])


def _environment() -> dict[str, str]:
    """Return where things are; other variables may hold what no file should."""
    config = os.environ.get("NOCTUARY_CONFIG", "").strip()
    told = {"NOCTUARY_HOME": str(find_home())}
    return {**told, "NOCTUARY_CONFIG": str(expand_user(config).absolute())} if config else told


# The files: each carries a hash of itself, so that what somebody changed is left alone.


def build_timer(words: Sequence[str], at: tuple[int, int]) -> Timer:
    """Return the files of a timer that runs some words once a day, for this platform."""
    environment = _environment()
    for word in (*words, *environment.values()):
        require_utf8(word)
        if _CONTROL.search(word):
            raise ScheduleError(f"{word!r} holds a control character, which no timer's file can")
    if sys.platform == "darwin":
        return _launchd(words, environment, at)
    if sys.platform.startswith("linux"):
        return _systemd(words, environment, at)
    raise ScheduleError("expected Linux or macOS: start `noctuary nightly` by another scheduler")


def look_at_file(path: Path, wanted: str | None) -> str:
    """Return the state of a file, as above; without a text that is wanted, any of ours will do."""
    if not path.exists() and not path.is_symlink():
        return ABSENT
    text = path.read_text(encoding="utf-8", errors="replace")
    found = _MARKED.search(text)
    if found is None:
        return FOREIGN
    if hash_text(text.replace(found[0], "", 1)) != found[1]:
        return CHANGED
    return INSTALLED if wanted in (None, text) else OUTDATED


def _systemd(words: Sequence[str], environment: Mapping[str, str], at: tuple[int, int]) -> Timer:
    base = os.environ.get("XDG_CONFIG_HOME", "").strip()
    folder = Path(base if base.startswith("/") else expand_user("~/.config")) / "systemd" / "user"
    if words and set(words[0]) & set("\"'\\"):
        raise ScheduleError(
            f"systemd starts no program whose path holds a quote or a backslash: {words[0]}"
        )
    program = [quote_systemd(word) for word in words[:1]]
    # The program itself may not be a variable; in every other word $ begins one.
    rest = [quote_systemd(word).replace("$", "$$") for word in words[1:]]
    told = [f"Environment={quote_systemd(f'{n}={value}')}\n" for n, value in environment.items()]
    service = (
        "[Unit]\nDescription=noctuary's nightly run\n\n[Service]\nType=oneshot\n"
        f"ExecStart={' '.join([*program, *rest])}\n{''.join(told)}"
        "# Another night holds the store.\nSuccessExitStatus=4\nNice=10\nIOSchedulingClass=idle\n"
    )
    timer = (
        "[Unit]\nDescription=noctuary's nightly run\n\n[Timer]\n"
        f"OnCalendar=*-*-* {at[0]:02}:{at[1]:02}:00\nPersistent=true\n\n"
        "[Install]\nWantedBy=timers.target\n"
    )
    named = {f"{UNIT}.service": service, f"{UNIT}.timer": timer}
    return Timer(
        "systemd",
        {folder / name: f"# {_MARK}{hash_text(text)}\n{text}" for name, text in named.items()},
        f"systemctl --user daemon-reload && systemctl --user enable --now {UNIT}.timer",
        f"systemctl --user stop {UNIT}.timer; systemctl --user daemon-reload",
        folder / "timers.target.wants" / f"{UNIT}.timer",
    )


def quote_systemd(word: str) -> str:
    """Return one item of a unit's list: systemd.syntax(7), and specifiers of systemd.unit(5)."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def _launchd(words: Sequence[str], environment: Mapping[str, str], at: tuple[int, int]) -> Timer:
    path = expand_user("~/Library/LaunchAgents") / f"{LABEL}.plist"
    log = str(find_home() / "night.log")
    text = plistlib.dumps(
        {
            "Label": LABEL,
            "ProgramArguments": list(words),
            "EnvironmentVariables": dict(environment),
            "StartCalendarInterval": {"Hour": at[0], "Minute": at[1]},
            "ProcessType": "Background",
            "LowPriorityIO": True,
            "StandardOutPath": log,
            "StandardErrorPath": log,
        }
    ).decode()
    # A comment, behind the declaration and the document's type.
    head, start, rest = text.partition("<plist ")
    signed = f"{head}<!-- {_MARK}{hash_text(text)} -->\n{start}{rest}"
    domain = f"gui/{os.getuid()}"
    return Timer(
        "launchd",
        {path: signed},
        f"launchctl bootstrap {domain} {shlex.quote(str(path))}",
        f"launchctl bootout {domain}/{LABEL}",
    )
