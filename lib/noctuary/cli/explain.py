"""Commands that explain: why (and the replay of kept recalls), expand, profile, graph."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import click
from click.core import ParameterSource

from noctuary.cli import main as cli
from noctuary.cli import recall as asking
from noctuary.core.errors import SnapshotMissingError, StoreError
from noctuary.core.settings import Settings
from noctuary.core.store import StorePaths, find_home
from noctuary.core.types import to_micros
from noctuary.graph import view, view_paths
from noctuary.recall import api, explain, replay
from noctuary.recall import profile as profiles
from noctuary.recall.engine import Recaller
from noctuary.recall.query import Query, Scope, build_mask
from noctuary.recall.reader import open_serving, telling_damage
from noctuary.recall.result import RecallWarning
from noctuary.text.marks import visible_line

# `noctuary why`: what became of one memory in one recall; or a kept recall, run again.

_LIST = "\0list"  # stands for `--replay` without an id; no id holds it

_QUERY_CHARS = 48
_SECOND_CHARS = len("2026-03-01T08:00:00")


@click.command()
@click.argument("query", required=False)
@click.argument("memory_id", metavar="[ID]", required=False)
@cli.option(
    "--replay [REPLAY_ID]",
    "replay_id",
    "Repeat a kept recall against its own snapshot; without an id, list the kept recalls.",
    is_flag=False,
    flag_value=_LIST,
)
@cli.option("--last", "With --replay and no id: how many to list.", default=20, type=cli.AT_LEAST_1)
@asking.recall_options
@cli.store_options
def why(
    query: str | None,
    memory_id: str | None,
    replay_id: str | None,
    last: int,
    store: str | None,
    **options: Any,
) -> None:
    """Say why a recall of QUERY does not return memory ID, or why it does.

    The recall uses the options given here and is not logged.

    With --replay, noctuary repeats a kept recall. It keeps recalls if the profile sets replay_log.
    You may shorten their ids.

    \b
    noctuary why "spare key" 17         about one memory
    noctuary why --replay               which recalls were kept
    noctuary why --replay 40ab          does it still get the same answer?

    Exit code 0 if the store could answer. Exit code 1 if it could not, or if a replay differs or is
    impossible.
    """  # noqa: D301 (click wants the control character)
    if replay_id is not None:
        source = click.get_current_context().get_parameter_source
        if any(source(name) is ParameterSource.COMMANDLINE for name in (*options, "query")):
            raise click.UsageError("--replay takes no QUERY and no option of a recall")
        paths = cli.open_paths(store)
        if not paths.root.is_dir():
            raise SnapshotMissingError(f"there is no store {paths.root}: run `noctuary nightly`")
        if replay_id == _LIST:
            _list_kept(paths, last)
        else:
            _replay(paths, visible_line(replay_id))
        return
    if query is None or memory_id is None:
        raise click.UsageError("give QUERY and ID, or --replay")
    told, (name, flags) = asking.arguments_of(options), asking.profile_of(options)
    recaller = Recaller.open(cli.open_paths(store).root)
    settings, used, said = asking.resolve_profile(recaller, name, flags)
    scope = Scope(**{name: told[name] for name in (*asking.FILTERS, "as_of", "person")})
    order, session = told["sort_by"], told["session_id"]
    asked = Query(query, told["k"], used.profile, used.used, scope, order, session, dry_run=True)
    with telling_damage(recaller.snapshot_id):
        inputs = recaller.inputs_now(scope.user).with_store(settings)
        found = explain.explain_memory(recaller, asked, memory_id, inputs)
    warnings = [w.to_json() for w in (*said, *found.warnings)]
    shown = {**found.to_json(), "warnings": warnings}
    cli.tell(shown, map(visible_line, _why_lines(found)), cli.coded(warnings))


def _why_lines(found: explain.Why) -> Iterator[str]:
    yield from found.sentences
    if "last_returned" not in found.facts:
        yield from asking.step_lines(found.steps)
        return
    # The score of each step for this memory, and for the last one that was returned.
    rows = [["", f"[{found.memory_id}]", f"[{found.facts['last_returned']}]", ""]]
    rows += [
        [s["phase"], f"{s['delta']:+.3f}", f"{s['delta_of_last_returned']:+.3f}", s["reason"]]
        for s in found.steps
    ]
    yield from cli.columns(rows, "<>><", indent="    ")


def _list_kept(paths: StorePaths, last: int) -> None:
    found = replay.list_packets(paths.replays, last)
    rows = [_summary(packet) for packet in found.packets]
    lines = [
        f"{row['replay_id']}  {str(row['made_at'])[:_SECOND_CHARS]}  k {row['k']:<3}  "
        f"{row['results']:>3} found  {row['snapshot_id']}  {_shortened(row['query'])}"
        for row in rows
    ]
    nothing = (
        "no recall was kept: set replay_log in a profile, or pass --set replay_log=true to "
        "`noctuary recall`"
    )
    damaged = [f"{found.unreadable} of the last packets cannot be read"] if found.unreadable else ()
    cli.tell({"packets": rows, "unreadable": found.unreadable}, lines or [nothing], damaged)


def _replay(paths: StorePaths, replay_id: str) -> None:
    packet = replay.find_packet(paths.replays, replay_id)
    compared = replay.replay(paths, packet)
    same = f"identical: {compared.memories} memories, same order, same scores"
    lines = [*([same] if compared.identical else []), *compared.differences]
    cli.tell({**_summary(packet), **compared.to_json()}, lines, compared.notes)
    if not compared.identical:
        sys.exit(cli.EXIT_FAILED)


def _summary(packet: Mapping[str, Any]) -> dict[str, Any]:
    kept = {n: packet.get(n) for n in ("replay_id", "made_at", "query", "k", "snapshot_id")}
    return {**kept, "results": len(packet.get("results", ()))}


def _shortened(query: Any) -> str:
    text = visible_line(" ".join(str(query).split()))
    return text if len(text) <= _QUERY_CHARS else f"{text[: _QUERY_CHARS - 4]} ..."


# `noctuary expand`: everything that a summary stands for.


@click.command()
@click.argument("summary_id", metavar="ID")
@cli.user_option
@cli.store_options
def expand(summary_id: str, user: str | None, store: str | None) -> None:
    """Show every memory behind the summary ID, in order of time.

    Recalls with turn_view=summaries or consolidation_enabled return summaries. This shows the
    sources of one, how it was judged, and the compaction plan it belongs to, if any.

    Exit code 0 if the summary was found, else 1.
    """
    found = api.expand(summary_id, user=user, store=store)
    cli.tell(found.to_json(), map(visible_line, _expansion_lines(found)))


def _expansion_lines(found: explain.Expansion) -> Iterator[str]:
    confidence = "not judged" if found.confidence is None else f"confidence {found.confidence:.3f}"
    origin = f", compaction plan {found.plan_id}" if found.plan_id else ""
    tokens = f"{found.gate['summary_tokens']:,} of {found.gate['source_tokens']:,} tokens"
    yield f"summary [{found.summary_id}]  {found.method}, {confidence}, {tokens}{origin}"
    yield f"    {found.text}"
    for parent in found.parents:
        yield f"written after [{parent.id}]"
    yield f"stands for {len(found.sources)}:"
    for source in found.sources:
        at = source.created_at
        moment = "undated" if at is None else f"{at:%Y-%m-%d %H:%M}"
        where = "/".join(part for part in (source.wing, source.room) if part) or "-"
        yield f"  [{source.id}]  {moment}  {where}"
        yield f"    {' '.join(source.content.split())}"


# `noctuary profile`: how recalls rank, the meaning of each flag, and the layer that set it.

CHANGED = "*"  # marks a value that is not the built-in one


@click.group(cls=cli.NamedGroup)
def profile() -> None:
    """Show the profiles that a recall can use. Flags and layers: docs/profiles.md."""


@profile.command("show")
@click.argument("name", required=False)
@cli.store_options
def show_profile(name: str | None, store: str | None) -> None:
    """Show every value of the profile NAME and where it comes from [default: the configured one].

    Below each flag you see its meaning and range.

    Exit code 1 if there is no such profile; you then see what a recall would use.
    """
    settings = Settings.load(home=find_home())
    adopted, said = _find_adopted(store)
    resolved = profiles.resolve_for_recall(settings, adopted, name)
    built_in = profiles.RetrievalProfile().to_json()
    flags = {
        flag: {"value": value, "built_in": built_in[flag], "source": resolved.sources[flag]}
        for flag, value in resolved.profile.to_json().items()
    }
    warnings = [w.to_json() for w in (*said, *resolved.warnings)]
    names = {"requested": resolved.requested, "used": resolved.used}
    found = {**names, "flags": flags, "warnings": warnings}
    cli.tell(found, _profile_lines(resolved.used, flags), cli.coded(warnings))
    if any(w.code == "unknown_profile" for w in resolved.warnings):
        sys.exit(cli.EXIT_FAILED)


def _profile_lines(used: str, flags: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    meanings = {name: flag.meaning for name, flag in profiles.FLAGS.items()}
    rows = [
        [_marked(flag, row["value"] != row["built_in"]), _flag_text(row["value"]), row["source"]]
        for flag, row in flags.items()
    ]
    lines = dict(zip(flags, cli.columns(rows), strict=True))
    yield f"profile {used}; {CHANGED} is not the built-in value"
    for heading, names in profiles.GROUPS.items():
        yield f"\n{heading}"
        for flag in names:
            yield lines[flag]
            yield f"      {meanings[flag]}{_values_text(flag)}"


def _marked(name: str, is_marked: bool) -> str:
    return f"{CHANGED if is_marked else ' '} {name}"


def _flag_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if value != "" else "(none)"


def _values_text(flag: str) -> str:
    """Return which values a flag takes; nothing for a switch or a free text."""
    if flag in profiles.CHOICES:
        return f" One of {', '.join(profiles.CHOICES[flag])}."
    if flag not in profiles.RANGES:
        return ""
    low, high = profiles.RANGES[flag].low, profiles.RANGES[flag].high
    low, high = (f"{end:,}" if isinstance(end, int) else f"{end:g}" for end in (low, high))
    return f" From {low} to {high}."


@profile.command("list")
@cli.store_options
def list_(store: str | None) -> None:
    """List every profile, where it is defined, and its faults."""
    settings = Settings.load(home=find_home())
    entries = profiles.list_profiles(settings)
    rows: list[list[str]] = []
    for entry in entries:
        told = f"{entry.description}  ({', '.join(entry.defined)})"
        rows.append([_marked(entry.name, entry.name == settings.recall.profile), told])
    faults = [f"bad_profile: {entry.name}, {f}" for entry in entries for f in entry.faults]
    warnings = [w.to_json() for w in _find_adopted(store)[1]]
    found = {"profiles": [e._asdict() for e in entries], "warnings": warnings}
    cli.tell(found, cli.columns(rows), [*cli.coded(warnings), *faults])


def _find_adopted(store: str | None) -> tuple[Mapping[str, Any], tuple[RecallWarning, ...]]:
    """Return what the serving snapshot of a store adopted, as far as there is one."""
    try:
        paths = cli.open_paths(store)
        if store is not None and not paths.root.is_dir():
            raise StoreError(f"there is no store {paths.root}: `noctuary stores` lists them")
        reader = open_serving(paths).reader
    except SnapshotMissingError as error:
        return {}, (RecallWarning("no_snapshot", f"nothing can be adopted yet: {error}"),)
    try:
        return reader.adopted, ()
    finally:
        reader.close()


# `noctuary graph`: the concepts of the serving snapshot.


def _moment_us(context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    """Read an option's moment as microseconds; naive times are UTC."""
    return None if text is None else to_micros(cli.read_moment(text))


_scope_options = cli.add_options(
    cli.user_option,
    *(cli.option(f"--{n}", f"Only memories of this {n}.") for n in asking.FILTERS[:3]),
    cli.store_options,
)
_time_options = cli.add_options(
    cli.option(
        "--as-of ISO",
        "Show what held then, e.g. 2026-03-01 [default: now].",
        callback=_moment_us,
    ),
    cli.option(
        "--known-at ISO",
        "Use only what the store had written by then [default: now].",
        callback=_moment_us,
    ),
)
_limit_option = cli.option(
    "--limit", "Entries per list; totals still count everything.", default=10, type=cli.AT_LEAST_0
)


@click.group(cls=cli.NamedGroup)
def graph() -> None:
    """Look at the concepts in your memories, and at their connections.

    \b
    noctuary graph top                        the most connected concepts
    noctuary graph show "spare key"           one concept: memories, relations, neighbours
    noctuary graph path Nina Lisbon           how two concepts are connected
    noctuary graph merges                     which names became one, and how to undo that
    """  # noqa: D301 (click wants the control character)


@graph.command("show")
@click.argument("concept")
@_time_options
@_limit_option
@_scope_options
def show_concept(concept: str, limit: int, store: str | None, **options: Any) -> None:
    """Show CONCEPT, found by its name or an alias, with everything around it.

    You see the memories that hold it, with the evidence marked; its stated relations, with their
    dates and memories; concepts in the same memories; and memories that it leads to. Case,
    punctuation and spacing of the name make no difference.

    \b
    noctuary graph show "atlas migration" --as-of 2026-03-01

    Exit code 3 if no concept has this name (you see similar names), 1 if the store could not
    answer.
    """  # noqa: D301 (click wants the control character)
    with _look(store, options) as seen:
        found = view.describe_concept(seen.source, seen.book, seen.find(concept), limit)
        seen.tell(found, view_paths.concept_lines(found))


@graph.command()
@click.argument("start", metavar="A")
@click.argument("goal", metavar="B")
@cli.option("--max-hops", "Hops of a path at most.", default=4, type=click.IntRange(1, 8))
@_time_options
@_scope_options
def path(start: str, goal: str, max_hops: int, store: str | None, **options: Any) -> None:
    """Explain how the concepts A and B are connected.

    A hop is a relation that memories state, or memories that hold both ends. Stated relations are
    cheap; memories with common concepts are expensive. You see the cheapest path.

    \b
    noctuary graph path "Nina" "spare key"

    Exit code 0 with or without a path, 3 if either name has no concept, 1 if the store could not
    answer.
    """  # noqa: D301 (click wants the control character)
    with _look(store, options) as seen:
        ends = (seen.find(start), seen.find(goal))
        found = view_paths.find_paths(seen.source, seen.book, *ends, max_hops)
        seen.tell(found, view_paths.path_lines(found))


@graph.command()
@cli.option("--kind", "Only concepts of this kind, e.g. tag or name.")
@_time_options
@_limit_option
@_scope_options
def top(kind: str | None, limit: int, store: str | None, **options: Any) -> None:
    """List the most connected concepts: memories, stated relations, steps between memories.

    \b
    noctuary graph top --kind title --limit 20
    """  # noqa: D301 (click wants the control character)
    with _look(store, options) as seen:
        concepts = view.top_concepts(seen.source, seen.book, limit, kind)
        kinds = view.kinds_of(seen.source)
        nothing = f"no such concept; kinds there are: {', '.join(kinds) or 'none'}"
        found = {"concepts": concepts, "kinds": list(kinds)}
        seen.tell(found, view_paths.top_lines(concepts) if concepts else [nothing])


@graph.command()
@_limit_option
@_scope_options
def merges(limit: int, store: str | None, **options: Any) -> None:
    """List the names merged into one concept, why, and how to undo that.

    To undo a merge, add a rule to STORE/merges.toml; the next night follows it:

    \b
    never = [["atlas", "project atlas"]]
    """  # noqa: D301 (click wants the control character)
    with _look(store, options) as seen:
        found, rules = view.list_merges(seen.source, seen.book), str(seen.rules_file)
        said = {"merges": found[:limit], "total": len(found), "rules_file": rules}
        seen.tell(said, view_paths.merge_lines(found[:limit], len(found), rules))


class _Seen(NamedTuple):
    """An opened graph, and where answers about it go."""

    source: view.GraphSource
    book: view.NameBook
    snapshot_id: str
    rules_file: Path
    warnings: list[dict[str, str]]

    def find(self, name: str) -> int:
        """Return the concept of a name, or leave with exit code 3 and similar names."""
        ordinal = self.book.find(name)
        if ordinal is not None and self.source.holders(ordinal).size:
            return ordinal
        near = self.book.nearest(name) if ordinal is None else ()
        reason = "no concept has the name" if ordinal is None else "nothing held at that moment"
        message = f"{reason} {name!r}"
        if cli.is_json():
            cli.print_json({"error": "UnknownConcept", "message": message, "nearest": list(near)})
        else:
            cli.warn(*map(visible_line, cli.coded(self.warnings)))
            hint = f"; near: {', '.join(near)}" if near else ""
            click.echo(f"noctuary: {visible_line(message + hint)}", err=True)
        sys.exit(cli.EXIT_REFUSED)

    def tell(self, found: Mapping[str, Any], lines: Iterable[str]) -> None:
        """Print an answer and its warnings."""
        shown = {**found, "snapshot_id": self.snapshot_id, "warnings": self.warnings}
        cli.tell(shown, lines, map(visible_line, cli.coded(self.warnings)))


@contextmanager
def _look(store: str | None, options: dict[str, Any]) -> Generator[_Seen]:
    """Open the serving graph for a scope."""
    paths = cli.open_paths(store)
    opened = open_serving(paths)
    reader = opened.reader
    try:
        with telling_damage(opened.snapshot_id):
            scope = Scope(**{name: options[name] for name in asking.FILTERS})
            mask, said = build_mask(scope, reader.facets, reader.created_at_us)
            with view.open_graph(
                reader.directory,
                mask,
                reader.created_at_us,
                reader.relations,
                ids_are_integers=reader.id_kind == "int",
                as_of_us=options.get("as_of"),
                known_at_us=options.get("known_at"),
            ) as source:
                warnings = [warning.to_json() for warning in said]
                book = view.NameBook(source)
                yield _Seen(source, book, opened.snapshot_id, paths.merges, warnings)
    finally:
        reader.close()
