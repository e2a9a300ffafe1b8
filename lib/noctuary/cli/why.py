"""`noctuary why`: what became of one memory in one recall."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from noctuary.cli.common import (
    fail,
    limit_threads,
    open_paths,
    print_json,
    store_options,
)
from noctuary.cli.explaining import beside_lines, step_lines
from noctuary.cli.recall_options import FILTERS, arguments_of, profile_of, recall_options
from noctuary.errors import NoctuaryError, SnapshotCorruptError
from noctuary.text.visible import visible_line

if TYPE_CHECKING:
    from noctuary.recall.why import Why


@click.command()
@click.argument("query")
@click.argument("memory_id", metavar="ID")
@recall_options
@store_options
def why(query: str, memory_id: str, store: str | None, as_json: bool, **options: Any) -> None:
    """Say why a recall of QUERY does not return memory ID, or why it does.

    The recall is made with the options given here, and nothing of it is logged. Exit code 0 when
    the store could answer, 1 when it could not.
    """
    limit_threads()
    arguments, (name, flags) = arguments_of(options), profile_of(options)
    try:
        found, said = _explain(query, memory_id, store, arguments, name, flags)
    except (NoctuaryError, OSError) as error:
        fail(error, as_json)
    warnings = [*said, *(w.to_json() for w in found.warnings)]
    if as_json:
        print_json({**found.to_json(), "warnings": warnings})
        return
    for warning in warnings:
        click.echo(f"! {warning['code']}: {warning['message']}", err=True)
    for sentence in found.sentences:
        click.echo(visible_line(sentence))
    if "last_returned" in found.facts:
        last = f"[{found.facts['last_returned']}]"
        lines = beside_lines(found.steps, f"[{found.memory_id}]", last)
    else:
        lines = step_lines(found.steps)
    for line in lines:
        click.echo(visible_line(line))


def _explain(
    query: str,
    memory_id: str,
    store: str | None,
    arguments: dict[str, Any],
    name: str | None,
    flags: dict[str, Any],
) -> tuple[Why, list[dict[str, str]]]:
    """Return the answer, and the warnings of settings and profile."""
    from noctuary.recall.asking import Request
    from noctuary.recall.current_settings import current_settings
    from noctuary.recall.engine import Recaller
    from noctuary.recall.profile import read_store_profiles, resolve_for_recall
    from noctuary.recall.scope import Scope
    from noctuary.recall.store_look import world_with_store
    from noctuary.recall.why import explain_memory

    recaller = Recaller.open(open_paths(store).root)
    settings, bad_settings = current_settings()
    stored = read_store_profiles(recaller.paths.profiles)
    resolved = resolve_for_recall(settings, recaller.reader.adopted, stored.tables, name, flags)
    scope = Scope(**{f: arguments[f] for f in FILTERS}, as_of=arguments["as_of"])
    request = Request(
        query,
        arguments["k"],
        resolved.profile,
        resolved.used,
        scope,
        arguments["sort_by"],
        arguments["session_id"],
        dry_run=True,
    )
    said = [w.to_json() for w in (*bad_settings, *stored.warnings, *resolved.warnings)]
    try:
        world = world_with_store(recaller, settings, scope.user)
        return explain_memory(recaller, request, memory_id, world), said
    # As in `noctuary.recall`: damage below the reach of the quick check is no traceback.
    except Exception as error:
        message = f"{type(error).__name__} in {recaller.snapshot_id}: run `noctuary doctor`"
        raise SnapshotCorruptError(message) from error
