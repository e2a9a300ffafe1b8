"""`noctuary graph`: looking at the concepts of the serving snapshot."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from noctuary.cli.common import (
    is_json,
    limit_threads,
    open_paths,
    print_json,
    read_moment,
    store_options,
    tell,
    warn,
)
from noctuary.core.errors import NoctuaryError, SnapshotCorruptError
from noctuary.core.types import to_micros
from noctuary.text.marks import visible_line

if TYPE_CHECKING:
    from noctuary.graph.view import GraphSource, NameBook
    from noctuary.recall.result import RecallWarning


EXIT_UNKNOWN = 3
"""No concept that the scope may see has this name."""

_SCOPE = ("user", "wing", "room", "category")

F = TypeVar("F", bound=Callable[..., Any])


def _moment_us(context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    """Read an option's moment as microseconds; naive times are UTC."""
    return None if text is None else to_micros(read_moment(text))


def _add(*options: Callable[[F], F]) -> Callable[[F], F]:
    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


_scope_options: Callable[[Any], Any] = _add(
    click.option("--user", help="Whose memories; those of other named users are never shown."),
    click.option("--wing", help="Only what memories of this wing say."),
    click.option("--room", help="Only what memories of this room say."),
    click.option("--category", help="Only what memories of this category say."),
    store_options,
)
_time_options: Callable[[Any], Any] = _add(
    click.option(
        "--as-of",
        metavar="ISO",
        callback=_moment_us,
        help="What held at this moment, e.g. 2026-03-01 [default: now].",
    ),
    click.option(
        "--known-at",
        metavar="ISO",
        callback=_moment_us,
        help="Only what the store had written by this moment [default: now].",
    ),
)
_limit_option: Callable[[Any], Any] = click.option(
    "--limit",
    default=10,
    show_default=True,
    type=click.IntRange(min=0),
    help="Longest list shown; totals are counted whole.",
)
_mermaid_option: Callable[[Any], Any] = click.option(
    "--mermaid", is_flag=True, help="Print a Mermaid flowchart instead of text."
)


def _refuse_two_formats(mermaid: bool) -> None:
    if mermaid and is_json():
        raise click.UsageError("--mermaid and --json exclude each other")


@click.group()
def graph() -> None:
    """Look at the concepts that memories are about, and at what connects them.

    \b
    noctuary graph top                        the most connected concepts
    noctuary graph show "spare key"           one concept: memories, relations, neighbours
    noctuary graph show Nina --mermaid        the same as a chart to paste into Markdown
    noctuary graph path Nina Lisbon           how two concepts are connected
    noctuary graph merges                     which names became one, and how to undo that
    """  # noqa: D301 (click wants the control character)


@graph.command()
@click.argument("concept")
@_time_options
@_limit_option
@_mermaid_option
@_scope_options
def show(concept: str, limit: int, mermaid: bool, store: str | None, **options: Any) -> None:
    """Show CONCEPT, found by its name or an alias, with everything around it.

    Memories that hold it, with the evidence marked; relations that memories state, with the time
    they hold and the memories that say so; concepts that the same memories hold; memories that it
    leads to. Upper case, punctuation and spacing of the name make no difference.

    \b
    noctuary graph show "atlas migration" --as-of 2026-03-01

    Exit code 3 when no concept has this name (similar names are listed), 1 when the store could
    not answer.
    """  # noqa: D301 (click wants the control character)
    from noctuary.graph.view import describe_concept
    from noctuary.graph.view_paths import concept_chart, concept_lines

    _refuse_two_formats(mermaid)
    with _look(store, options) as seen:
        view = describe_concept(seen.source, seen.book, seen.find(concept), limit)
        seen.tell(view.to_json(), concept_chart(view) if mermaid else concept_lines(view))


@graph.command()
@click.argument("start", metavar="A")
@click.argument("goal", metavar="B")
@click.option(
    "--max-hops",
    default=4,
    show_default=True,
    type=click.IntRange(1, 8),
    help="Longest path that is looked for.",
)
@_time_options
@_mermaid_option
@_scope_options
def path(
    start: str, goal: str, max_hops: int, mermaid: bool, store: str | None, **options: Any
) -> None:
    """Explain how the concepts A and B are connected.

    A hop is a relation that memories state, or memories that hold both ends; stated relations are
    cheap, memories that many concepts share are dear. Equally cheap paths are all found.

    \b
    noctuary graph path "Nina" "spare key"

    Exit code 0 with or without a path, 3 when there is no concept of either name, 1 when the store
    could not answer.
    """  # noqa: D301 (click wants the control character)
    from noctuary.graph.view_paths import bound_lines, find_paths, path_chart, path_lines

    _refuse_two_formats(mermaid)
    with _look(store, options) as seen:
        ends = (seen.find(start), seen.find(goal))
        view = find_paths(seen.source, seen.book, *ends, max_hops)
        seen.tell(view.to_json(), path_chart(view) if mermaid else path_lines(view))
        if mermaid:
            for line in bound_lines(view):
                click.echo(line, err=True)


@graph.command()
@click.option("--kind", help="Only concepts of this kind, e.g. tag or name.")
@_time_options
@_limit_option
@_scope_options
def top(kind: str | None, limit: int, store: str | None, **options: Any) -> None:
    """List the most connected concepts: memories, stated relations, steps between memories.

    \b
    noctuary graph top --kind title --limit 20
    """  # noqa: D301 (click wants the control character)
    from noctuary.graph.view import kinds_of, top_concepts
    from noctuary.graph.view_paths import top_lines

    with _look(store, options) as seen:
        views = top_concepts(seen.source, seen.book, limit, kind)
        kinds = kinds_of(seen.source)
        lines = list(top_lines(views))
        if not views:
            lines = [f"no such concept; kinds there are: {', '.join(kinds) or 'none'}"]
        found = {"concepts": [view.to_json() for view in views], "kinds": list(kinds)}
        seen.tell(found, lines)


@graph.command()
@_limit_option
@_scope_options
def merges(limit: int, store: str | None, **options: Any) -> None:
    """List which names were merged into one concept, why, and how to undo that.

    A merge is undone by a rule in STORE/merges.toml, which the next night follows:

    \b
    never = [["atlas", "project atlas"]]
    """  # noqa: D301 (click wants the control character)
    from noctuary.graph.view import list_merges, undo_line
    from noctuary.graph.view_paths import merge_lines

    with _look(store, options) as seen:
        found = list_merges(seen.source, seen.book)
        rows = [{**m.to_json(), "undo": undo_line(m)} for m in found[:limit]]
        said = {"merges": rows, "total": len(found), "rules_file": str(seen.rules_file)}
        seen.tell(said, merge_lines(found[:limit], len(found), str(seen.rules_file)))


class _Seen(NamedTuple):
    """An opened graph, and where answers about it go."""

    source: GraphSource
    book: NameBook
    snapshot_id: str
    rules_file: Path
    warnings: tuple[RecallWarning, ...]

    def find(self, name: str) -> int:
        """Return the concept of a name, or leave with EXIT_UNKNOWN and similar names."""
        ordinal = self.book.find(name)
        if ordinal is not None and self.source.holders(ordinal).size:
            return ordinal
        near = self.book.nearest(name) if ordinal is None else ()
        reason = "no concept has the name" if ordinal is None else "nothing held at that moment"
        message = f"{reason} {name!r}"
        if is_json():
            print_json({"error": "UnknownConcept", "message": message, "nearest": list(near)})
        else:
            self.warn()
            hint = f"; near: {', '.join(near)}" if near else ""
            click.echo(f"noctuary: {visible_line(message + hint)}", err=True)
        sys.exit(EXIT_UNKNOWN)

    def tell(self, found: dict[str, Any], lines: Iterable[str]) -> None:
        """Print an answer, with what a person should know beside it."""
        if not is_json():
            self.warn()
        warnings = [warning.to_json() for warning in self.warnings]
        tell({**found, "snapshot_id": self.snapshot_id, "warnings": warnings}, lines)

    def warn(self) -> None:
        """Print the warnings."""
        warn(*(f"{warning.code}: {visible_line(warning.message)}" for warning in self.warnings))


@contextmanager
def _look(store: str | None, options: dict[str, Any]) -> Generator[_Seen]:
    """Open the serving graph for a scope."""
    limit_threads()
    from noctuary.graph.view import NameBook, open_graph
    from noctuary.recall.query import Scope, build_mask
    from noctuary.recall.reader import open_serving

    paths = open_paths(store)
    opened = open_serving(paths)
    reader = opened.reader
    try:
        scope = Scope(**{name: options[name] for name in _SCOPE})
        mask, warnings = build_mask(scope, reader.facets, reader.created_at_us)
        with open_graph(
            reader.directory,
            mask,
            reader.created_at_us,
            reader.relations,
            ids_are_integers=reader.id_kind == "int",
            as_of_us=options.get("as_of"),
            known_at_us=options.get("known_at"),
        ) as source:
            yield _Seen(source, NameBook(source), opened.snapshot_id, paths.merges, warnings)
    except (NoctuaryError, OSError):
        raise
    # As in `noctuary why`: damage below the reach of the quick check is no traceback.
    except Exception as error:
        message = f"{type(error).__name__} in {opened.snapshot_id}: run `noctuary doctor`"
        raise SnapshotCorruptError(message) from error
    finally:
        reader.close()
