"""What `noctuary nightly` does: run the nightly job here and now, and say what came of it."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import sqlite3
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from noctuary.core.errors import NoctuaryError, PublishRefusedError, StoreError, StoreLockedError
from noctuary.core.files import remove_tree
from noctuary.core.manifest import read_manifest
from noctuary.core.store import StorePaths, find_home
from noctuary.snapshot.publish import find_damage, read_verdict, serving_id
from noctuary.text.marks import plural
from noctuary.work.ledger import LEDGER, record_dagster
from noctuary.work.lock import hold_lock
from noctuary.work.stage import StageResult, hash_settled
from noctuary_pipelines.notify import NIGHT_FAILED, notify
from noctuary_pipelines.quiet import look
from noctuary_pipelines.site import Site, export_environment, prepare_instance, resolve_site

if TYPE_CHECKING:
    from dagster import AssetCheckEvaluation

    from noctuary_assets.night import Night

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_GATE_FAILED = 3
EXIT_LOCKED = 4
EXIT_STOPPED = 130

_INTERRUPTIONS = frozenset({"KeyboardInterrupt", "DagsterExecutionInterruptedError"})
_DISK_ERRORS = frozenset({"OSError", "PermissionError", "OperationalError", "DatabaseError"})
_CHECK_DISK = "check the disk and its permissions, then run again; what serves is untouched"

# Dagster's own console log repeats what the stages report; everything is still in its event log.
_QUIET_CONSOLE = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a night came to."""

    exit_code: int
    status: str  # "published", "unchanged", "refused", "locked", "stopped" or "failed"
    message: str  # one sentence for a person
    stages: list[StageResult] = field(default_factory=list[StageResult])
    said: list[str] = field(default_factory=list[str])  # what was healed, what will cost money
    note: list[str] = field(default_factory=list[str])  # see `write_note`


def run(source: str | None, store: str | None, *, as_json: bool, verbose: bool) -> NoReturn:
    """Run the whole night and leave with its exit code, one of those above."""
    started = time.perf_counter()
    healed: list[str] = []
    try:
        site = resolve_site(source, store)
        is_new = not site.paths.root.exists()
        prepare_instance(site.paths, say=healed.append)
    except (NoctuaryError, OSError) as error:
        _finish(Outcome(EXIT_FAILED, "failed", str(error)), None, started, as_json)
    os.environ.update(export_environment(site))
    if not as_json:
        _echo(f"home    {site.home}\nsource  {site.source}\nstore   {site.paths.root}\n")
        for line in healed:
            _echo(line)
    outcome = _look(site) or _run_or_explain(site, echo=not as_json, verbose=verbose)
    if outcome.exit_code in (EXIT_FAILED, EXIT_GATE_FAILED):
        outcome.said.extend(notify(site, NIGHT_FAILED, status=outcome.status))
    if is_new and outcome.exit_code in (EXIT_FAILED, EXIT_STOPPED) and not outcome.stages:
        _remove_begun(site.paths)
    _finish(replace(outcome, said=[*healed, *outcome.said]), site, started, as_json)


def _look(site: Site) -> Outcome | None:
    """Return the outcome of a night that has nothing to do; None where there may be something."""
    with contextlib.suppress(StoreLockedError):  # the night itself says who holds it
        if whole_s := look(site):
            moment = f"{datetime.fromtimestamp(whole_s, UTC).astimezone():%Y-%m-%d %H:%M}"
            left = f"source, settings and files are as the whole night of {moment} left them"
            outcome = _success(site, serving_id(site.paths), [])
            return replace(outcome, note=[f"No stage ran: {left}."])
    return None


def _remove_begun(paths: StorePaths) -> None:
    """Remove a store that this night began and that holds nothing but what a night begins with."""
    begun = {paths.dagster_home, paths.work, paths.lock, paths.root / LEDGER, paths.hashes}
    # Another night may have the store by now, and a disk that failed may fail again.
    with contextlib.suppress(StoreError, OSError), hold_lock(paths.lock):
        if begun.issuperset(paths.root.iterdir()):
            remove_tree(paths.root)


def _run_or_explain(site: Site, *, echo: bool, verbose: bool) -> Outcome:
    """Run the night; where Dagster cannot keep its records (full disk), say so in one sentence."""
    from sqlalchemy.exc import SQLAlchemyError

    try:
        return run_night(site, echo=echo, verbose=verbose)
    except (SQLAlchemyError, OSError) as error:
        cause = str(getattr(error, "orig", None) or error).splitlines()[0]
        message = (
            f"the run cannot be recorded in {site.paths.dagster_home} ({cause}): {_CHECK_DISK}"
        )
        return Outcome(EXIT_FAILED, "failed", message)


def run_night(site: Site, *, echo: bool = False, verbose: bool = False) -> Outcome:
    """Execute the nightly job in this process, recorded in the store's own Dagster instance."""
    import dagster as dg

    from noctuary.evaluate.note import write_note
    from noctuary_pipelines.definitions import build_definitions
    from noctuary_pipelines.resources import describe, open_night

    stages: list[StageResult] = []
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        if echo:
            _echo(line)

    def report(result: StageResult) -> None:
        stages.append(result)
        if echo:
            _echo(describe(result, counters=verbose))

    @dg.resource
    def night(context: dg.InitResourceContext) -> Iterator[Night]:
        with open_night(site, context, report, say) as opened:
            yield opened

    before = serving_id(site.paths)
    if (damage := find_damage(site.paths, hash_settled)) is not None:
        say(f"this night makes a new snapshot in its place: {damage}")
    definitions = build_definitions({"night": night})
    home = str(site.paths.dagster_home)
    with records_at_leisure(), dg.DagsterInstance.from_config(home) as instance:
        job = definitions.resolve_job_def("nightly")
        run = job.execute_in_process(
            instance=instance, raise_on_error=False, run_config=_QUIET_CONSOLE
        )
    _record_instance(site)
    digests = [s.facts["digest"] for s in stages if s.name == "snapshot_candidate"]
    verdict = read_verdict(site.paths, digests[0]) if digests else None
    if run.success:
        outcome = _success(site, before, stages)
    else:
        errors = [_error_of(event) for event in run.all_events if event.is_failure]
        unmet = [c for c in run.get_asset_check_evaluations() if c.blocking and not c.passed]
        outcome = describe_failure(errors, stages, unmet)
    return replace(outcome, said=said, note=write_note(stages, verdict))


@contextlib.contextmanager
def records_at_leisure() -> Generator[None]:
    """Let Dagster's records reach the disk at the end of the night, not 2,000 times during it."""
    # Closing the last connection of a database writes its log back and waits for the disk, so those
    # of each stay open here. A power cut costs the last events, which no snapshot depends on.
    from dagster._core.storage.event_log.sqlite import sqlite_event_log
    from dagster._core.storage.runs.sqlite import sqlite_run_storage
    from dagster._core.storage.schedules.sqlite import sqlite_schedule_storage
    from sqlalchemy import Engine, QueuePool, create_engine, event

    storages: tuple[Any, ...] = (sqlite_event_log, sqlite_run_storage, sqlite_schedule_storage)
    engines: dict[str, Any] = {}

    def share(url: str, **options: Any) -> Any:
        # Dagster makes an engine for every write, 800, and each compiles the same statements.
        if url not in engines:
            threads = {**options.get("connect_args", {}), "check_same_thread": False}
            engine: Any = create_engine(url, poolclass=QueuePool, connect_args=threads)
            closing.callback(engine.dispose)
            engine.dispose = lambda: None
            engines[url] = engine
        return engines[url]

    def relax(connection: sqlite3.Connection, _: object) -> None:
        connection.execute("PRAGMA synchronous = NORMAL")

    with contextlib.ExitStack() as closing:
        event.listen(Engine, "connect", relax)
        closing.callback(event.remove, Engine, "connect", relax)
        for storage in storages:
            storage.create_engine = share
            closing.callback(setattr, storage, "create_engine", create_engine)
        yield


def _record_instance(site: Site) -> None:
    """Record what Dagster wrote last, unless another night has begun, which will do it."""
    # Nor may a full disk fail a night that is through: these files are then compared as SQLite.
    with contextlib.suppress(StoreError, OSError), hold_lock(site.paths.lock):
        record_dagster(site.paths)


def _success(site: Site, before: str | None, stages: list[StageResult]) -> Outcome:
    now = serving_id(site.paths)
    counts = read_manifest(site.paths.snapshots / str(now)).counts
    nouns = (("memory", "memories"), ("edge", "edges"), ("summary", "summaries"))
    held = ", ".join(plural(counts[many], one, many) for one, many in nouns)
    if now == before:
        message = f"nothing changed: snapshot {now} keeps serving ({held}); nothing was published"
        return Outcome(EXIT_DONE, "unchanged", message, stages)
    return Outcome(EXIT_DONE, "published", f"published snapshot {now} ({held})", stages)


def describe_failure(
    errors: list[tuple[str, str]],
    stages: list[StageResult],
    unmet: Sequence[AssetCheckEvaluation] = (),
) -> Outcome:
    """Turn what stopped a run into one sentence."""
    for name, message in errors:
        if name == StoreLockedError.__name__:
            return Outcome(EXIT_LOCKED, "locked", message, stages)
        if name == PublishRefusedError.__name__:
            return Outcome(EXIT_GATE_FAILED, "refused", message, stages)
        if name in _INTERRUPTIONS:
            message = "the night was stopped; the next one goes on where it was"
            return Outcome(EXIT_STOPPED, "stopped", message, stages)
    for check in unmet:
        if check.asset_key.path[-1] == "release":
            return Outcome(EXIT_GATE_FAILED, "refused", str(check.description), stages)
        found = ", ".join(f"{name} {entry.value}" for name, entry in check.metadata.items())
        message = f"{check.check_name} does not hold ({found}): {check.description}"
        return Outcome(EXIT_FAILED, "failed", message, stages)
    name, message = next((e for e in errors if e[0]), ("", "the run failed without a reason"))
    if name in _known_errors():
        return Outcome(EXIT_FAILED, "failed", message, stages)
    said = f"{name}: {message}"
    if name in _DISK_ERRORS:
        said = f"a file could not be read or written ({said}): {_CHECK_DISK}"
    return Outcome(EXIT_FAILED, "failed", said, stages)


def _known_errors() -> set[str]:
    found: set[str] = set()
    todo: list[type[NoctuaryError]] = [NoctuaryError]
    while todo:
        kind = todo.pop()
        found.add(kind.__name__)
        todo += kind.__subclasses__()
    return found


def _error_of(event: Any) -> tuple[str, str]:
    """Return class name and message of the error behind a failure event."""
    # Of a chain the first that noctuary raised, which says what to do; else the innermost.
    error = getattr(event.event_specific_data, "error", None)
    name = message = ""
    while error is not None and name not in _known_errors():
        name, message = str(error.cls_name or ""), error.message.strip()
        error = error.cause
    prefix, _, said = message.partition(":")
    return name, said.strip() if prefix.endswith(name) and name else message


def _echo(line: str, *, err: bool = False) -> None:
    """Show a line; where nobody reads any more (`| head`), the night goes on in silence."""
    try:
        click.echo(line, err=err)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2 if err else 1)


def how_to_ask(site: Site) -> tuple[str, str]:
    """Return the command and the store as a shell takes them, from any folder."""
    script, root = Path(sys.executable).absolute().with_name("noctuary"), site.paths.root
    named = shutil.which("noctuary")
    is_named = named is not None and script.exists() and Path(named).samefile(script)
    # A home that a variable moved is another one in the next shell.
    others = {name: value for name, value in os.environ.items() if name != "NOCTUARY_HOME"}
    is_usual = root.parent == site.home == find_home(others)
    command = "noctuary" if is_named else shlex.quote(str(script))
    return command, root.name if is_usual else shlex.quote(str(root.absolute()))


def _finish(outcome: Outcome, site: Site | None, started: float, as_json: bool) -> NoReturn:
    seconds = time.perf_counter() - started
    if as_json:
        _echo(json.dumps(_to_json(outcome, site, seconds), indent=1))
    elif site and outcome.exit_code == EXIT_DONE:
        _echo(f"\n{outcome.message}\nin {seconds:.1f} s")
        _echo_note(outcome)
        command, store = how_to_ask(site)
        _echo(f'\nask it:  {command} recall "..." --store {store}')
    else:
        _echo(f"\n{outcome.status}: {outcome.message}", err=True)
        _echo_note(outcome)
    sys.exit(outcome.exit_code)


def _echo_note(outcome: Outcome) -> None:
    """Show the note, and where the page about this night is, if it made one."""
    if outcome.note:
        _echo("")
    for line in outcome.note:
        _echo(f"- {line}")
    pages = [s.facts["page"] for s in outcome.stages if not s.reused and "page" in s.facts]
    for page in pages:
        _echo(f"\nreport  {page}")


_STAGE_KEYS = ("name", "rows", "reused", "facts", "notes", "cost")


def _to_json(outcome: Outcome, site: Site | None, seconds: float) -> dict[str, Any]:
    return {
        "status": outcome.status,
        "message": outcome.message,
        "source": str(site.source) if site else None,
        "store": str(site.paths.root) if site else None,
        "snapshot_id": serving_id(site.paths) if site else None,
        "wall_s": round(seconds, 2),
        "said": outcome.said,
        "note": outcome.note,
        "stages": [{key: getattr(stage, key) for key in _STAGE_KEYS} for stage in outcome.stages],
    }
