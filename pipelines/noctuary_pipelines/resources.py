"""Resources: plain objects that know no Dagster, made once per run."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import dagster as dg

from noctuary.core.files import private_umask
from noctuary.work.ledger import begin_night, describe_healing, end_night
from noctuary.work.lock import hold_lock
from noctuary.work.stage import StageResult
from noctuary_assets.housekeeping import sweep
from noctuary_assets.night import Night
from noctuary_pipelines.dead_runs import close_dead_runs
from noctuary_pipelines.marks import mark_start
from noctuary_pipelines.progress import choose_progress
from noctuary_pipelines.site import Site, resolve_site

Report = Callable[[StageResult], None]
Say = Callable[[str], None]


def make_night_resource(
    resolve: Callable[[], Site] = resolve_site,
    report: Report | None = None,
    say: Say | None = None,
) -> dg.ResourceDefinition:
    """Return the resource `night`.

    Tonight's run on one store, holding the store's lock while it lasts.

    Args:
        resolve: Says where the run takes place; called when the run starts.
        report: Told of every finished stage; None logs to the run.
        say: Shown lines for a person, which are logged to the run as well.
    """

    @dg.resource(description="Tonight's run on one store; keeps other nights out while it lasts.")
    def night(context: dg.InitResourceContext) -> Iterator[Night]:
        site = resolve()
        log = context.log
        with private_umask(), hold_lock(site.paths.lock):
            sweep(site.paths)
            healed = describe_healing(*begin_night(site.paths))
            through = _last_night(site)
            if context.instance is not None and context.run is not None:
                close_dead_runs(context.instance, context.run.run_id)
            mark_start(site)
            tonight = Night(
                paths=site.paths,
                source=site.source,
                settings=site.settings,
                progress=choose_progress(log.info if log is not None and report is None else None),
                report=report or (lambda result: log.info(describe(result)) if log else None),
                say=lambda line: _say(line, log, say),
            )
            if healed:
                tonight.say(healed)
            try:
                yield tonight
            finally:
                tonight.close()
                end_night(site.paths, finished=_last_night(site) != through)

    return night


def _say(line: str, log: dg.DagsterLogManager | None, say: Say | None) -> None:
    """Log a line to the run, and show it where somebody looks on."""
    if log is not None:
        log.info(line)
    if say is not None:
        say(line)


def _last_night(site: Site) -> int | None:
    path = site.paths.last_night
    return path.stat().st_mtime_ns if path.exists() else None


_SENTENCES = ("note", "reason")
"""Facts that are sentences for a person; all other facts in the line are numbers."""


def describe(result: StageResult, *, counters: bool = True) -> str:
    """Return one line about a finished stage."""
    seconds = result.cost.get("wall_ms", 0.0) / 1000
    state = "unchanged" if result.reused else f"{seconds:7.1f} s"
    line = (
        f"{result.name:<22} {result.rows:>9,} {'row ' if result.rows == 1 else 'rows'}  {state:>9}"
    )
    if not counters:
        return line
    notes = {**result.facts, **result.notes}
    shown = ", ".join(
        f"{name.replace('_', ' ')} {value:,}" if isinstance(value, int) else f"{name} {value}"
        for name, value in notes.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    )
    said = "; ".join(str(notes[name]) for name in _SENTENCES if notes.get(name))
    told = " | ".join(part for part in (shown, said) if part)
    return f"{line}  {told}".rstrip()
