"""`noctuary init`: find the memories on this machine, read them, and connect the agents."""

from __future__ import annotations

import glob
import json
import os
import re
import shlex
import sqlite3
import stat
import subprocess
import sys
import tomllib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import click

from noctuary.agents import install, mcp_install
from noctuary.agents.client import AGENTS
from noctuary.agents.install import HookChange, SettingsPlace
from noctuary.agents.state import read_json, replace_json
from noctuary.cli import main as cli
from noctuary.core.errors import NoctuaryError
from noctuary.core.files import make_directory, private_umask, remove_tree
from noctuary.core.manifest import read_pointer
from noctuary.core.settings import CONFIG_FILE_NAME, Settings
from noctuary.core.store import (
    OWN_FILE,
    StorePaths,
    find_home,
    list_stores,
    require_moved,
    store_for_source,
)
from noctuary.core.tombstones import open_rows
from noctuary.recall.api import recall
from noctuary.recall.result import RecalledMemory
from noctuary.sources.finders import Found, find_places, look_into
from noctuary.sources.own_store import find_night_source
from noctuary.sources.transcripts import as_object
from noctuary.text.marks import visible_line
from noctuary.work.lock import hold_lock


class InitRefusedError(NoctuaryError):
    """What is there leaves no way to go on; nothing was changed."""


@click.command()
@cli.flag("--yes", "Do not ask.")
@cli.flag("--dry-run", "Show what was found, and write nothing.")
@cli.option(
    "--markdown DIR",
    "Also read a folder of Markdown notes, such as an Obsidian vault; may be repeated.",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
)
@cli.option("--without NAME", "Leave out a source or an agent; may be repeated.", multiple=True)
@cli.option("--home DIR", "noctuary's home [default: NOCTUARY_HOME, else the user's data folder].")
@cli.flag("--undo", "Take back what init wrote; memories stay.")
@cli.json_option
def init(
    yes: bool,
    dry_run: bool,
    markdown: tuple[Path, ...],
    without: tuple[str, ...],
    home: str | None,
    undo: bool,
) -> None:
    """Find the memories on this machine, read them, and connect your agents.

    Looks for sessions and notes of Claude Code and Codex, claude-mem, claude-memory and MemPalace,
    shows what there is and what is kept back, and asks. Then it lists the sources in noctuary.toml,
    runs the first night, adds memories to the prompts of the agents, and asks your memory a
    question. Before you answer, it writes nothing outside noctuary's home.

    \b
    noctuary init                          look, ask, and go
    noctuary init --dry-run                look only
    noctuary init --markdown ~/vault       with the notes of a vault
    noctuary init --undo                   take back what it wrote

    Running it again changes nothing, or adds what is new.

    Exit codes: 0 done; 1 failed; 2 the extra `pipelines` is missing; 3 refused: nobody could be
    asked, the answer was no, or the settings name one store; others are those of `noctuary
    nightly`.
    """  # noqa: D301 (click wants the control character)
    if home is not None:
        os.environ["NOCTUARY_HOME"] = os.path.abspath(home)  # noqa: PTH100 (the night reads it too)
    root = find_home()
    require_moved(root)
    if undo:
        _undo(root)
        return
    if not dry_run and not cli.is_installed("dagster"):
        cli.fail(cli.extra_missing("dagster"), cli.EXIT_NOT_INSTALLED)
    if not (yes or dry_run) and (cli.is_json() or not sys.stdin.isatty()):
        _refuse("there is no terminal to ask: say --yes, or look first with --dry-run")
    settings = Settings.load(home=root)
    _require_room(root, settings, markdown)
    with _scratch(root) as scratch:
        turns = scratch / TURNS
        survey = _look_around(root, settings, markdown, frozenset(without), turns)
        lines = map(visible_line, survey.lines())
        if dry_run:
            cli.tell({"dry_run": True, **survey.to_json()}, lines)
            return
        if not cli.is_json():
            click.echo("\n".join(lines))
        _require_something(survey)
        if not yes and not click.confirm("\nRead them, run the first night, connect the agents?"):
            _refuse("the answer was no")
        _carry_out(survey, turns)


def _refuse(why: str) -> NoReturn:
    cli.fail(InitRefusedError(f"{why}; nothing was changed"), cli.EXIT_REFUSED)


def _require_room(root: Path, settings: Settings, markdown: Sequence[Path]) -> None:
    real = root.resolve()
    for path in map(Path.resolve, markdown):
        if real.is_relative_to(path) or path.is_relative_to(real):
            _refuse(f"{path} is or holds noctuary's home, {root}: name another folder")
    if named := settings.source.path:
        where = settings.origins["source.path"]
        _refuse(f"source.path ({where}) names one store: remove it, and list {named} in [sources]")


def _require_something(survey: Survey) -> None:
    if not survey.sources and not (survey.root / OWN_FILE).is_file():
        _refuse(
            "there is no memory yet that noctuary reads: name a folder with --markdown, or begin "
            "with `noctuary remember`"
        )


@contextmanager
def _scratch(root: Path) -> Generator[Path]:
    """Yield an empty folder in noctuary's home, gone afterwards; for one init at a time."""
    scratch, lock = root / "init", root / "init.lock"
    missing = [path for path in (root, *root.parents) if not path.exists()]
    with private_umask(), hold_lock(lock, "`noctuary init` runs already (process {})".format):
        try:
            remove_tree(scratch)  # what a killed one left
            make_directory(scratch)
            yield scratch
        finally:
            remove_tree(scratch)
            lock.unlink(missing_ok=True)
            with suppress(OSError):  # it is a home by now
                for path in missing:
                    path.rmdir()


TURNS = "turns.sqlite"  # of the look: the first night need not read the sessions again


def _look_around(
    root: Path, settings: Settings, markdown: Sequence[Path], without: frozenset[str], turns: Path
) -> Survey:
    found = [one for one in find_places(os.environ, markdown) if one.name not in without]
    for one in found:
        if not one.fault:
            look_into(one, turns, settings, cli.ScanProgress())
    places = [
        (key, place)
        for key, kind in CONNECTIONS.items()
        for place in kind.find()
        if place.agent not in without
    ]
    return Survey(root, found, places, without)


class Survey(NamedTuple):
    """What was found: memories and agents."""

    root: Path
    found: Sequence[Found]
    places: Sequence[tuple[str, SettingsPlace]]  # With the kind of what goes there
    without: frozenset[str]  # Names that the user left out

    @property
    def sources(self) -> dict[str, str]:
        """Return what to list, by name."""
        return {one.name: one.said for one in self.found if not one.fault}

    def lines(self) -> Iterator[str]:
        """Yield it as a person reads it."""
        if self.sources:
            head = ("source", "what", "files", "size", "memories", "kept back")
            rows = [
                (o.name, o.what, f"{o.files:,}", _size(o.size_bytes), f"{o.memories:,}",
                 f"{o.secrets:,}")
                for o in self.found if not o.fault
            ]  # fmt: skip
            yield from cli.columns([head, *rows], "<<>>>>")
            yield "Kept back: marked, or they read like a secret. They stay where they are."
        else:
            yield "No tool's memories were found that noctuary reads."
        for one in self.found:
            if one.fault:
                why = re.split(r": expected |\. ", one.fault)[0]  # whole in the JSON
                yield f"left out: {one.name} ({one.what}): {why}"
            elif one.set_aside:
                yield f"{one.name}: {one.set_aside:,} more are none (empty, deleted, damaged)"
        if (self.root / OWN_FILE).is_file():
            yield f"own: what you remembered ({self.root / OWN_FILE}) is always read"
        for key, place in self.places:
            yield f"{place.agent}: {CONNECTIONS[key].what} into {place.path}"

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        agents = [
            {"agent": place.agent, "what": CONNECTIONS[key].what, "path": str(place.path)}
            for key, place in self.places
        ]
        return {
            "home": str(self.root), "sources": [asdict(one) for one in self.found],
            "agents": agents,
        }  # fmt: skip


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.1f} MB" if size_bytes >= 100_000 else f"{size_bytes:,} B"


def _carry_out(survey: Survey, turns: Path) -> None:
    root, warnings = survey.root, list[str]()
    file = _list_sources(survey, warnings)
    store = StorePaths(store_for_source(root, find_night_source(root, Settings.load(home=root))))
    if turns.is_file() and not store.turns.exists() and not Path(f"{turns}-wal").exists():
        make_directory(store.root)
        turns.replace(store.turns)
    night = _run_night(store.root)
    changes = list(_connect(survey, store.root, warnings))
    asked = _find_question(store)
    said = {
        **survey.to_json(), "file": str(file), "store": str(store.root), "night": night,
        "connections": changes, "warnings": warnings,
        "question": asked and asked[0], "answer": asked and asked[1].to_json(),
    }  # fmt: skip
    cli.tell(said, map(visible_line, _end_lines(changes, asked)), map(visible_line, warnings))


def _run_night(store: Path) -> dict[str, Any] | None:
    """Run the night in its own process, show its lines, and return its JSON report."""
    words = [sys.executable, "-P", "-m", "noctuary.cli.entry", "nightly", "--store", str(store)]
    as_json = cli.is_json()
    sys.stdout.flush()
    done = subprocess.run(
        [*words, *(["--json"] if as_json else [])],
        stdout=subprocess.PIPE if as_json else None,
        check=False,
    )
    told: dict[str, Any] = {}
    with suppress(ValueError):
        told = json.loads(done.stdout or b"{}")
    if done.returncode != 0:
        why = f" ({told['message']})" if "message" in told else ""
        again = "run `noctuary init` again when that is mended, or `noctuary init --undo`"
        error = InitRefusedError(f"the first night did not go through{why}: {again}")
        cli.fail(error, done.returncode if done.returncode > 0 else cli.EXIT_FAILED)
    return {name: told[name] for name in ("status", "message", "wall_s") if name in told} or None


def _end_lines(
    changes: Sequence[Mapping[str, Any]], asked: tuple[str, RecalledMemory] | None
) -> Iterator[str]:
    yield ""
    for change in changes:
        yield f"{change['agent']}: {change['what']} {change['action']} ({change['path']})"
    if asked is not None:
        question, memory = asked
        yield cli.as_called(f"`noctuary recall {shlex.quote(question)}`")[1:-1]
        yield f"    [{memory.id}] {' '.join(memory.content.split())[:_SHOWN_CHARS]}"
    yield "Every night:  noctuary nightly      Take back:  noctuary init --undo"


_SHOWN_CHARS = 300


# The list of sources: a part of the configuration file between two lines, and nothing else of it.

_BEGIN = "# Written by `noctuary init`; `noctuary init --undo` takes it out."
_END = "# End of what `noctuary init` wrote."
_PART = re.compile(
    rf"\n?^{re.escape(_BEGIN)}$.*?^{re.escape(_END)}(?:\n|\Z)", re.DOTALL | re.MULTILINE
)


def _list_sources(survey: Survey, warnings: list[str]) -> Path:
    """Write the sources into the configuration file; what was listed before stays listed."""
    wanted, file = survey.sources, _config_file(survey.root)
    text = _read(file)
    value = tomllib.loads(text or "")
    part = _PART.search(text or "")
    listed: dict[str, str] = value.get("sources", {})
    if listed and part is None:
        missing = [f"{name} = {json.dumps(said)}" for name, said in wanted.items()
                   if said not in listed.values()]  # fmt: skip
        if missing:
            warnings.append(f"{file} has a list of its own, without {'; '.join(missing)}")
        return file
    both = {n: s for n, s in sorted({**listed, **wanted}.items()) if n not in survey.without}
    if both:
        lines = "".join(
            f"{name} = {json.dumps(said, ensure_ascii=False)}\n" for name, said in both.items()
        )
        own = f"{_BEGIN}\n[sources]\n{lines}{_END}\n"
        if text is None:
            new = own
        elif part is None:
            new = f"{text}\n{own}"
        else:
            lead = "\n" if part[0].startswith("\n") else ""
            new = f"{text[: part.start()]}{lead}{own}{text[part.end() :]}"
        _replace(file, text, new, {**value, "sources": both})
    return file


def _config_file(root: Path) -> Path:
    """Return the configuration file in force, itself behind any links; it need not exist."""
    return (Settings.load(home=root).file or root / CONFIG_FILE_NAME).resolve()


def _unlist_sources(file: Path) -> bool:
    """Take the list out again; say whether there was one."""
    text = _read(file)
    part = _PART.search(text or "")
    if text is None or part is None:
        return False
    above, below = text[: part.start()], text[part.end() :]
    # A line that did not end must not go on with what was written below since.
    rest = above + ("\n" if above[-1:] not in ("", "\n") and below else "") + below
    if not rest and not part[0].startswith("\n"):
        file.unlink()
        return True
    value = tomllib.loads(text)
    value.pop("sources", None)
    _replace(file, text, rest, value)
    return True


def _read(file: Path) -> str | None:
    try:
        return file.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None


def _replace(file: Path, old: str | None, new: str, value: Mapping[str, Any]) -> None:
    """Replace a file, unless its new text does not parse to the wanted value."""
    if new == old:
        return
    found: object = None
    with suppress(ValueError):
        found = tomllib.loads(new)
    if found != value:
        raise InitRefusedError(
            f"{file} is written in a way that noctuary cannot edit: change [sources] yourself; it "
            "was left as it is"
        )
    mode = stat.S_IMODE(file.stat().st_mode) if file.exists() else 0o600
    install.replace_keeping(file, new.encode("utf-8"), mode)


# What agents get: entries in their settings. Those that were there before are their owner's.


class Connection(NamedTuple):
    """A kind of entry that init makes and takes back."""

    what: str
    find: Callable[[], list[SettingsPlace]]  # Of the agents that are used here
    why_not: Callable[[SettingsPlace], str]  # "" where nothing stands against it
    put_in: Callable[[SettingsPlace, Path, Path], HookChange]  # With noctuary's home, and the store
    take_out: Callable[..., HookChange]  # With the home, by its name


def _hook_places() -> list[SettingsPlace]:
    used = filter(install.is_used, AGENTS)
    return [install.find_place(agent, install.USER, Path.cwd()) for agent in used]


def _why_no_hooks(place: SettingsPlace) -> str:
    if (plugin := install.enabled_plugin(place.agent, Path.cwd())) is not None:
        return f"its plugin in {plugin} runs the hooks already"
    state = install.look_at_place(place)
    return state.message or ("" if state.state == install.ABSENT else "hooks stand there already")


def _put_hooks(place: SettingsPlace, home: Path, store: Path) -> HookChange:
    return install.install_hooks(place, install.find_program(), home=home, store=str(store))


def _server_places() -> list[SettingsPlace]:
    used = mcp_install.find_used()
    return [mcp_install.find_place(agent, install.USER, Path.cwd()) for agent in used]


def _why_no_server(place: SettingsPlace) -> str:
    if (fault := cli.find_sdk_fault()) is not None:
        return fault
    if (
        place.agent in AGENTS
        and (on := install.enabled_plugin(place.agent, Path.cwd())) is not None
    ):
        return f"its plugin in {on} starts the server already"
    return "it is there already" if mcp_install.is_installed(place) else ""


def _put_server(place: SettingsPlace, home: Path, store: Path) -> HookChange:
    words = [*install.find_program(), "mcp", "--store", str(store)]
    return mcp_install.install_server(place, words, home=home)


CONNECTIONS: Mapping[str, Connection] = {
    "hooks": Connection("hooks", _hook_places, _why_no_hooks, _put_hooks, install.uninstall_hooks),
    "servers": Connection(
        "MCP server", _server_places, _why_no_server, _put_server, mcp_install.uninstall_server
    ),
}
"""By their key in the receipt."""

_RECEIPT = "init.json"
_RECEIPT_BYTES = 100_000


def _connect(survey: Survey, store: Path, warnings: list[str]) -> Iterator[Mapping[str, Any]]:
    """Make every entry that nothing stands against; one that cannot be made is a warning."""
    root = survey.root
    for key, place in survey.places:
        kind, made = CONNECTIONS[key], _read_receipt(root)
        path, why, change = str(place.path), "", None
        try:
            why = "" if path in made[key] else kind.why_not(place)
            made[key][path] = place.agent
            # The note first: what is not noted would stay after an undo.
            if not why and replace_json(root / _RECEIPT, made):
                change = kind.put_in(place, root, store)
        except (install.HookInstallError, OSError) as error:
            why = str(error)
        if change is None:
            why = why or f"{root / _RECEIPT} cannot be written"
            warnings.append(f"{place.agent}, {kind.what}, {path}: {why}")
            continue
        warnings += change.notes
        yield {"what": kind.what, **change._asdict()}
    if survey.places:
        warnings += install.environment_notes()


def _read_receipt(root: Path) -> dict[str, dict[str, str]]:
    """Return the agents that init connected, by kind and by their settings file."""
    found, _ = read_json(root / _RECEIPT, _RECEIPT_BYTES)
    kept = {key: as_object(as_object(found).get(key)) for key in CONNECTIONS}
    return {
        key: {path: agent for path, agent in by_path.items() if isinstance(agent, str)}
        for key, by_path in kept.items()
    }


def _undo(root: Path) -> None:
    """Take back the entries and the list; report what fails, and go on with the rest."""
    faults: list[str] = []
    changes = list(_disconnect(root, faults))
    listed_in: Path | None = None
    try:
        file = _config_file(root)
        listed_in = file if _unlist_sources(file) else None
    except (NoctuaryError, OSError, ValueError) as error:
        faults.append(str(error))
    stores = [str(path) for path in list_stores(root)]
    lines = [f"{c['agent']}: {c['what']} {c['action']} ({c['path']})" for c in changes]
    lines += [f"the list of sources is taken out of {listed_in}"] if listed_in else []
    lines += [f"memories stay in {path}" for path in stores] if lines else []
    found = {
        "connections": changes, "listed_in": listed_in and str(listed_in), "stores": stores,
        "faults": faults,
    }  # fmt: skip
    told = lines or ([] if faults else ["nothing to take back"])
    cli.tell(found, map(visible_line, told), map(visible_line, faults))
    if faults:
        sys.exit(cli.EXIT_FAILED)


def _disconnect(root: Path, faults: list[str]) -> Iterator[Mapping[str, Any]]:
    left = _read_receipt(root)
    for key, kind in CONNECTIONS.items():
        for path, agent in list(left[key].items()):
            place = SettingsPlace(agent, install.USER, Path(path))
            try:
                change = kind.take_out(place, home=root)
                _drop_backups(place, root)
            except (install.HookInstallError, OSError, KeyError) as error:
                faults.append(f"{agent}, {kind.what}: {error}")
                continue
            del left[key][path]
            yield {"what": kind.what, **change._asdict()}
    if any(left.values()):
        replace_json(root / _RECEIPT, left)
    else:
        (root / _RECEIPT).unlink(missing_ok=True)


def _drop_backups(place: SettingsPlace, root: Path) -> None:
    """Remove the copies of a settings file that holds nothing of noctuary's any more."""
    path = str(place.path)
    if any(path in install.read_receipts(root, kind) for kind in install.RECEIPT_KINDS):
        return
    file = place.path.resolve()
    for copy in file.parent.glob(f"{glob.escape(file.name)}.noctuary-*.bak"):
        copy.unlink(missing_ok=True)


# A question that this memory can answer.

_NAMES_TRIED = 40
_NAMES = """
SELECT canonical_name FROM concepts
WHERE length(canonical_name) > 3 AND lower(canonical_name) NOT IN ('user', 'assistant')
ORDER BY df BETWEEN 2 AND 20 DESC, df DESC, ordinal LIMIT ?
"""
_TEXTS = """
SELECT content FROM memories WHERE user IS NULL ORDER BY is_turn, importance DESC, position DESC
LIMIT ?
"""


def _find_question(store: StorePaths) -> tuple[str, RecalledMemory] | None:
    """Return a question about what the snapshot names, and its first answer; None for none."""
    try:
        with closing(open_rows(store.snapshots / read_pointer(store).snapshot_id)) as db:
            names = [str(name) for (name,) in db.execute(_NAMES, (_NAMES_TRIED,))]
            texts = [str(text) for (text,) in db.execute(_TEXTS, (_NAMES_TRIED,))]
        asked = [(f"What do I know about {name}?", name) for name in names]
        asked += [(words, words) for text in texts if (words := " ".join(text.split()[:8]))]
        for question, expected in asked:
            for memory in recall(question, 1, store=store.root, dry_run=True).memories:
                if expected.casefold() in " ".join(memory.content.split()).casefold():
                    return question, memory
    except (NoctuaryError, OSError, sqlite3.Error):
        pass  # the night went through: an example is not worth an error
    return None
