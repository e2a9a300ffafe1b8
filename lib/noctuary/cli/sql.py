"""`noctuary sql`: one read-only query on what serves."""

from __future__ import annotations

import os
import signal
import stat
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from noctuary.cli.common import fail, limit_threads, open_paths, print_json, store_options
from noctuary.errors import NoctuaryError

if TYPE_CHECKING:
    from noctuary.snapshot.layout import StorePaths

EXIT_STOPPED = 130

_EVERY_ROW = 0


@click.command()
@click.argument("query", required=False)
@click.option("--schema", "is_schema", is_flag=True, help="List tables and columns, or QUERY's.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV; values are never shortened.")
@click.option(
    "--limit",
    default=1_000,
    show_default=True,
    type=click.IntRange(min=0),
    help="Most rows printed; 0 prints every row.",
)
@click.option(
    "--user",
    metavar="NAME",
    help="Only what this user may see: their own memories, nobody's, and what is shared with them.",
)
@store_options
def sql(
    query: str | None,
    is_schema: bool,
    as_csv: bool,
    limit: int,
    user: str | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Run one read-only SQL QUERY (DuckDB's dialect) on the snapshot that serves.

    A tool of the store's owner: without --user it shows everybody's memories. QUERY is read from
    standard input where it is "-". Nothing is written, neither to the store nor to a temporary
    file, and a query can reach no file and no network.

    \b
    noctuary sql --schema                                   tables, columns, types, meanings
    noctuary sql --schema edges                             of one table
    noctuary sql "select wing, count(*) from memories group by all"
    noctuary sql "from summaries select text" --csv > summaries.csv

    Text output shortens values and prints --limit rows. CSV in a file holds every value as it is;
    on a terminal or in a pipe, control and direction characters show as marks (\\u001b). Exit code
    1 when the query is wrong or the store cannot answer, 130 when it was stopped by Ctrl-C.
    """  # noqa: D301 (click wants the control character)
    if as_csv and as_json:
        raise click.UsageError("give one of --csv and --json")
    if is_schema:
        _show_schema(query, as_json)
        return
    if query is None:
        raise click.UsageError("give a query, or --schema")
    limit_threads()
    text = sys.stdin.read() if query == "-" else query
    try:
        paths, most = open_paths(store), None if limit == _EVERY_ROW else limit
        with _ctrl_c_ends_the_process():
            _run(paths, text, user, most, as_csv, as_json)
    except (NoctuaryError, OSError) as error:
        fail(error, as_json)
    except KeyboardInterrupt:
        click.echo("noctuary: the query was stopped", err=True)
        sys.exit(EXIT_STOPPED)


@contextmanager
def _ctrl_c_ends_the_process() -> Generator[None]:
    """Let Ctrl-C end the process at once: DuckDB looks for it too rarely, and nothing is written.

    A shell shows that as exit code 130.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _run(
    paths: StorePaths, query: str, user: str | None, limit: int | None, as_csv: bool, as_json: bool
) -> None:
    from noctuary.sql.database import run_query
    from noctuary.sql.printing import Printed, csv_lines, json_pieces, text_lines
    from noctuary.sql.view import SnapshotView

    view = SnapshotView(paths, user)
    try:
        answer = run_query(view, query)
    finally:
        view.close()
    printed = Printed(answer, limit)
    if as_json:
        for piece in json_pieces(answer, printed):
            click.echo(piece, nl=False)
        return
    # Bytes pass the marks: a file keeps what the store holds, a terminal or a pipe shows it.
    is_exact = as_csv and _goes_into_a_file()
    for line in (csv_lines if as_csv else text_lines)(answer, printed):
        click.echo(line.encode("utf-8", "surrogatepass") if is_exact else line)
    if printed.is_cut:
        click.echo(f"! only the first {printed.count:,} rows: --limit 0 prints all", err=True)


def _goes_into_a_file() -> bool:
    try:
        return stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)
    except (OSError, ValueError):
        return False


def _show_schema(name: str | None, as_json: bool) -> None:
    from noctuary.sql.schema import TABLE_NAMES, TABLES

    tables = [table for table in TABLES if name in (None, table.name)]
    if not tables:
        known = ", ".join(TABLE_NAMES)
        raise click.BadParameter(f"there is no table {name!r}; there are {known}")
    if as_json:
        shown = [
            {
                "table": table.name,
                "about": table.about,
                "columns": [
                    {"name": c.name, "type": c.type, "about": c.about} for c in table.columns
                ],
            }
            for table in tables
        ]
        print_json({"tables": shown})
        return
    for table in tables:
        click.echo(f"{table.name}: {table.about}")
        for column in table.columns:
            click.echo(f"  {column.name:<20} {column.type:<10} {column.about}")
