"""Commands about a store: status, stores, doctor, snapshots, rollback, export, import, sql."""

from __future__ import annotations

import os
import signal
import stat
import sys
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from noctuary.cli.common import (
    EXIT_FAILED,
    is_json,
    json_option,
    limit_threads,
    open_paths,
    store_options,
    tell,
    warn,
)
from noctuary.core.store import find_home
from noctuary.snapshot.publish import rollback as roll_back

if TYPE_CHECKING:
    from noctuary.cli.exchange import Imported
    from noctuary.cli.sql import Table
    from noctuary.core.store import StorePaths


# `noctuary sql`: one read-only query on what serves.


EXIT_STOPPED = 130


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
    if as_csv and is_json():
        raise click.UsageError("give one of --csv and --json")
    if is_schema:
        _show_schema(query)
        return
    if query is None:
        raise click.UsageError("give a query, or --schema")
    limit_threads()
    text = sys.stdin.read() if query == "-" else query
    try:
        with _ctrl_c_ends_the_process():
            _run(open_paths(store), text, user, limit or None, as_csv)
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


def _run(paths: StorePaths, query: str, user: str | None, limit: int | None, as_csv: bool) -> None:
    from noctuary.cli.sql import SnapshotView, csv_lines, json_pieces, run_query, text_lines

    with closing(SnapshotView(paths, user)) as view:
        answer = run_query(view, query, limit)
    if is_json():
        for piece in json_pieces(answer):
            click.echo(piece, nl=False)
        return
    # Bytes pass the marks: a file keeps what the store holds, a terminal or a pipe shows it.
    is_exact = as_csv and _goes_into_a_file()
    for line in (csv_lines if as_csv else text_lines)(answer):
        click.echo(line.encode("utf-8", "surrogatepass") if is_exact else line)
    if answer.is_cut:
        warn(f"only the first {answer.count:,} rows: --limit 0 prints all")


def _goes_into_a_file() -> bool:
    try:
        return stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)
    except (OSError, ValueError):
        return False


def _show_schema(name: str | None) -> None:
    from noctuary.cli.sql import TABLE_NAMES, TABLES

    tables = [table for table in TABLES if name in (None, table.name)]
    if not tables:
        known = ", ".join(TABLE_NAMES)
        raise click.BadParameter(f"there is no table {name!r}; there are {known}")
    tell({"tables": [table.describe() for table in tables]}, _schema_lines(tables))


def _schema_lines(tables: Sequence[Table]) -> Iterator[str]:
    for table in tables:
        yield f"{table.name}: {table.about}"
        for column in table.columns:
            yield f"  {column.name:<20} {column.type:<10} {column.about}"


# `noctuary status` and `noctuary stores`: what serves, how old it is, what it holds; and where.


@click.command()
@store_options
def status(store: str | None) -> None:
    """Show the serving snapshot: identity, age, source, encoder and counts."""
    from noctuary.cli.doctor import read_status

    found = read_status(open_paths(store))
    tell(found, _status_lines(found))


def _status_lines(found: Mapping[str, Any]) -> Iterator[str]:
    yield f"home       {found['home']}"
    yield f"store      {found['store']}"
    yield f"snapshot   {found['snapshot_id']}  ({found['reason']}, {found['age_hours']:.1f} h ago)"
    yield f"source     {found['source']['location']}  ({found['source']['kind']})"
    encoder = found["encoder"]
    model = f"{encoder['model']}, {encoder['dimension']} dimensions" if encoder else ""
    yield f"encoder    {model or 'none: lexical and graph only'}"
    yield (
        f"on disk    {found['snapshot_bytes'] / 1e6:.1f} MB snapshot, "
        f"{found['store_bytes'] / 1e6:.1f} MB store"
    )
    yield f"holds      {', '.join(f'{count:,} {name}' for name, count in found['counts'].items())}"
    if found["archived"] is None:
        yield "archived   unknown: archive.sqlite cannot be read; run `noctuary doctor`"
    elif found["archived"]:
        yield f"archived   {found['archived']:,} of them, out of default recall"
    for wing, count in found["wings"].items():
        yield f"  {count:>8,}  {wing}"


@click.command()
@json_option
def stores() -> None:
    """List the stores of noctuary's home: source, size, what serves, how old, what is wrong.

    * marks the one that commands use by default. Pass such a name to --store; its beginning is
    enough if no other name begins like it. The home is NOCTUARY_HOME, else noctuary in your data
    directory (~/.local/share/noctuary).
    """
    from noctuary.cli.doctor import describe_stores

    home = find_home()
    found = describe_stores(home)
    tell({"home": str(home), "stores": found}, _store_lines(home, found))


def _store_lines(home: Path, found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield f"home  {home}"
    for row in found:
        held = ""
        if row["snapshot_id"] is not None:
            age = "never" if row["age_hours"] is None else f"{row['age_hours']:.1f} h ago"
            held = (
                f"  {row['memories']:,} memories of {row['source']}, serves {row['snapshot_id']}, "
                f"last night {age}"
            )
        mark = "*" if row["default"] else " "
        yield f"{mark} {row['name']}  {row['bytes'] / 1e6:,.1f} MB{held}"
        if row["fault"]:
            yield f"    ! {row['fault']}"
    if not found:
        yield f"no store below {home} has published yet: run `noctuary nightly`"


# `noctuary doctor`: what is wrong and what to do about it.


_MARKS = {"ok": "ok  ", "warn": "WARN", "fail": "FAIL"}


@click.command()
@click.option("--fix", is_flag=True, help="First make the store's files readable by you only.")
@store_options
def doctor(fix: bool, store: str | None) -> None:
    """Look for what is wrong and say what to do about it.

    Checks the settings, who may read the store, the pointer, every checksum of the serving
    snapshot, its age and vectors, the encoder, the source, the transcripts, the schedule, the last
    verdict, the indexes, the logs, the warm server, the hooks in agents' settings and how they
    fare, and the MCP server.

    Exit code 1 if anything fails; warnings alone are 0.
    """
    from noctuary.cli.doctor import examine, mend_privacy

    paths = open_paths(store)
    mended = mend_privacy(paths) if fix else 0
    findings = examine(paths)
    found = {
        "home": str(find_home()),
        "store": str(paths.root),
        "findings": [finding.to_json() for finding in findings],
        "mended": mended,
    }
    tell(found, _doctor_lines(found))
    if any(f.level == "fail" for f in findings):
        sys.exit(EXIT_FAILED)


def _doctor_lines(found: Mapping[str, Any]) -> Iterator[str]:
    yield f"home  {found['home']}\nstore {found['store']}"
    if found["mended"]:
        what = "file or directory" if found["mended"] == 1 else "files and directories"
        yield f"fixed the permissions of {found['mended']:,} {what}: only you can read them now"
    for finding in found["findings"]:
        yield f"{_MARKS[finding['level']]}  {finding['name']}: {finding['message']}"
        if finding["remedy"]:
            yield f"      -> {finding['remedy']}"


# `noctuary snapshots` and `noctuary rollback`.


@click.command()
@store_options
def snapshots(store: str | None) -> None:
    """List the published snapshots, oldest first; * marks the one that serves."""
    from noctuary.cli.doctor import describe_snapshots

    found = describe_snapshots(open_paths(store))
    lines = [
        f"{'*' if row['serving'] else ' '} {row['snapshot_id']}  {_state(row)}" for row in found
    ]
    tell({"snapshots": found}, lines or ["nothing has been published yet: run `noctuary nightly`"])


def _state(row: dict[str, Any]) -> str:
    if row["outdated"]:
        return "made by another version of noctuary: run the night (`noctuary nightly`)"
    if not row["intact"]:
        return "DAMAGED"
    size = f"{row['memories']:>9,} memories  {row['bytes'] / 1e6:8.1f} MB"
    return f"{size}  built {row['built_at']}"


@click.command()
@click.argument("snapshot_id", required=False)
@store_options
def rollback(snapshot_id: str | None, store: str | None) -> None:
    """Serve an older snapshot: SNAPSHOT_ID, or the newest one older than the serving one.

    Every byte of it is verified first. The next night publishes again if the source differs from
    it.
    """
    pointer = roll_back(open_paths(store), snapshot_id)
    said = f"serving {pointer.snapshot_id} (before: {pointer.previous_id or 'nothing'})"
    tell(asdict(pointer), [said])


# `noctuary export`: what serves, as files.


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "--encoder/--no-encoder",
    "with_encoder",
    default=True,
    show_default=True,
    help="Also what an imported store needs to answer by meaning (90 MB).",
)
@store_options
def export(directory: Path, with_encoder: bool, store: str | None) -> None:
    """Write the snapshot that serves into DIRECTORY, which must not exist or be empty.

    Everything is in formats that other programs read: memories.jsonl (also a source for `noctuary
    nightly`), graph/nodes.jsonl and graph/edges.jsonl, summaries.jsonl, and the snapshot's own
    SQLite file and arrays, of which `noctuary import` makes a store that answers alike. Equal
    snapshots give equal bytes. Sensitive memories are in no snapshot; if a text looks sensitive by
    the rules of today, nothing is exported.

    \b
    noctuary export ~/memories-2026-03
    noctuary import ~/memories-2026-03 --store copy

    Exit code 1 when nothing was written.
    """  # noqa: D301 (click wants the control character)
    limit_threads()
    from noctuary.cli.common import ScanProgress
    from noctuary.cli.exchange import export_snapshot

    found = export_snapshot(
        open_paths(store), directory, with_encoder=with_encoder, progress=ScanProgress()
    )
    said = (
        f"exported {found.memories:,} memories to {found.directory} ({found.files} files, "
        f"{found.bytes / 2**20:.1f} MiB)\ndigest {found.digest}"
    )
    tell({**found._asdict(), "directory": str(found.directory.absolute())}, [said])


# `noctuary import`: a new store that serves what an export holds.


@click.command("import")
@click.argument("export", type=click.Path(path_type=Path))
@click.option(
    "--store",
    metavar="STORE",
    required=True,
    help="The new store: a directory, or a name below noctuary's home. It must not exist yet.",
)
@json_option
def import_store(export: Path, store: str) -> None:
    """Make a new store that serves the snapshot in the directory EXPORT.

    Every byte of the export is checked first; a damaged or foreign one, or one of another version,
    is refused and nothing is left behind. What was built is judged as a night judges it, compared
    with the export's own lines, and answers as the exported store did.

    \b
    noctuary import ~/memories-2026-03 --store copy
    noctuary recall "spare key" --store copy

    Exit code 1 when no store was made.
    """  # noqa: D301 (click wants the control character)
    limit_threads()
    from noctuary.cli.common import ScanProgress
    from noctuary.cli.exchange import import_snapshot
    from noctuary.core.store import StorePaths, expand_user

    named = expand_user(store)
    root = find_home() / named if len(named.parts) == 1 else named.absolute()
    found = import_snapshot(export, StorePaths(root), ScanProgress())
    tell({**found._asdict(), "store": str(found.store)}, _import_lines(found, store))


def _import_lines(found: Imported, store: str) -> Iterator[str]:
    yield f"store {found.store} serves {found.memories:,} memories ({found.snapshot_id})"
    if not found.has_encoder:
        yield "! no encoder came with the export: recalls go by words until a night runs"
    yield f'\nask it:  noctuary recall "..." --store {store}'
