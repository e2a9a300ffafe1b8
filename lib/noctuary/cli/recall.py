"""Commands that ask: recall, why, expand, replay, context, profile, sensitive."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from noctuary.cli.common import (
    EXIT_FAILED,
    FILTERS,
    arguments_of,
    beside_lines,
    candidate_lines,
    explain_lines,
    is_json,
    limit_threads,
    open_paths,
    print_json,
    profile_of,
    read_moment,
    recall_options,
    run_lines,
    step_lines,
    store_options,
    tell,
    trace_lines,
    warn,
)
from noctuary.core.errors import NoctuaryError, SnapshotCorruptError, SnapshotMissingError
from noctuary.core.store import StorePaths, find_home
from noctuary.text.marks import visible_line

if TYPE_CHECKING:
    from noctuary.recall.expand import Expansion
    from noctuary.recall.profile import Layers, ResolvedProfile
    from noctuary.recall.result import RecallWarning
    from noctuary.recall.why import Why


# `noctuary recall`: ask the serving snapshot.


# Warnings after which there was nothing to answer from; everything else still answered.
_FATAL = frozenset({"no_snapshot", "store_unreadable", "snapshot_damaged"})
_SHOWN_CHARS = 400
_DAY_CHARS = len("2026-03-01")


@click.command()
@click.argument("query")
@recall_options
@click.option("--deadline-ms", type=float, help="Answer with what there is after this long.")
@click.option(
    "--explain",
    is_flag=True,
    help="Show what each step made of every score, the phases and the times.",
)
@click.option("--candidate-trace", is_flag=True, help="Show what was dropped, where and why.")
@click.option(
    "--all-candidates",
    is_flag=True,
    help="Show the parts of every candidate's score; means --explain and --dry-run.",
)
@click.option(
    "--dry-run", is_flag=True, help="Write nothing: no access log, query log or replay log."
)
@click.option(
    "--inject",
    "for_prompt",
    is_flag=True,
    help="Print the block for a prompt, of 3 memories unless -k says more, and record hashes of it "
    "so that it is not stored again.",
)
@click.option("--no-server", is_flag=True, help="Recall in this process even if a server runs.")
@store_options
def recall(
    query: str,
    deadline_ms: float | None,
    explain: bool,
    candidate_trace: bool,
    all_candidates: bool,
    dry_run: bool,
    for_prompt: bool,
    no_server: bool,
    store: str | None,
    **options: Any,
) -> None:
    """Return the memories that answer QUERY, best first.

    Exit code 0 when the store could answer (even with nothing), 1 when it could not.
    """
    asked: dict[str, Any] = {
        "query": query,
        **arguments_of({**options, "for_prompt": for_prompt}),
        "deadline_ms": deadline_ms,
        "explain": explain or all_candidates,
        "candidate_trace": candidate_trace,
        "dry_run": dry_run or all_candidates,
        "store": store,
    }
    name, flags = profile_of(options)
    result = None if no_server else _ask_server(asked, name, flags)
    served_by = "process" if result is None else "server"
    if result is None:
        result = _recall_here(asked, name, flags)
    if for_prompt:
        result = {**result, **_inject(result, on_record=not asked["dry_run"])}
    if is_json():
        print_json({**result, "served_by": served_by})
    elif for_prompt:
        _print_injection(result)
    else:
        _print(result, explain=explain, all_candidates=all_candidates)
    if any(w["code"] in _FATAL for w in result["warnings"]):
        sys.exit(EXIT_FAILED)


def _ask_server(
    asked: dict[str, Any], name: str | None, flags: dict[str, Any]
) -> dict[str, Any] | None:
    """Return what the store's warm server answers, or None where none does."""
    if name is not None and flags:
        return None  # `recall` takes a name or flags; both together are merged in this process
    from noctuary.agents.client import ask

    return ask(**asked, profile=flags or name)


def _recall_here(asked: dict[str, Any], name: str | None, flags: dict[str, Any]) -> dict[str, Any]:
    limit_threads()
    from noctuary.recall.api import recall as recall_memories

    try:
        if name is not None and flags:
            merged = _merge(asked["store"], name, flags)
            if merged is not None:
                result = recall_memories(**asked, profile=merged.profile).to_json()
                warnings = [w.to_json() for w in merged.warnings]
                result["warnings"] = [*warnings, *result["warnings"]]
                return {**result, "profile_used": merged.used}
        return recall_memories(**asked, profile=flags or name).to_json()
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _merge(store: str | None, name: str, flags: dict[str, Any]) -> ResolvedProfile | None:
    """Return a named profile with flags of this call on top; None without a store to ask."""
    from noctuary.recall.engine import find_serving
    from noctuary.recall.profile import (
        current_settings,
        read_store_profiles,
        resolve_for_recall,
    )

    try:
        serving, _ = find_serving(store)
    except (NoctuaryError, OSError):
        return None  # the recall says what is wrong
    recaller = serving.recaller
    stored = read_store_profiles(recaller.paths.profiles)
    return resolve_for_recall(
        current_settings()[0], recaller.reader.adopted, stored.tables, name, flags
    )


def _inject(result: dict[str, Any], *, on_record: bool) -> dict[str, Any]:
    """Return the block, and the warnings with what went wrong with its record."""
    from noctuary.context.inject import inject

    done = inject(result, on_record=on_record)
    warnings = list(result["warnings"])
    if done.warning is not None:
        warnings.append({"code": "injection_log", "message": done.warning})
    block = {"text": done.text, "memories": done.memories, "left_out": done.left_out}
    return {"injection": block, "warnings": warnings}


def _print_injection(result: dict[str, Any]) -> None:
    """Print the block and nothing else: a hook hands on what stands on stdout."""
    warn(*map(_coded, result["warnings"]))
    if result["injection"]["text"]:
        click.echo(result["injection"]["text"])
    else:
        click.echo(f"nothing is injected: {_why_nothing(result)}", err=True)


def _why_nothing(result: dict[str, Any]) -> str:
    judged = result.get("answerability")
    if not result["memories"] or judged is None:
        return "nothing was found"
    rather = "`noctuary recall` without --inject shows what there is"
    if judged["abstain"]:
        return (
            f"the store hardly holds an answer (score {judged['score']:.3f}, at least "
            f"{judged['threshold']:.3f} is needed); {rather}"
        )
    return f"no memory reaches {judged['bar']:.3f} by itself; {rather}"


def _print(result: dict[str, Any], *, explain: bool, all_candidates: bool) -> None:
    warn(*map(_coded, result["warnings"]))
    for place, memory in enumerate(result["memories"], start=1):
        click.echo(visible_line(_headline(place, memory)))
        text = " ".join(memory["content"].split())
        click.echo(f"    {text[:_SHOWN_CHARS]}{' ...' if len(text) > _SHOWN_CHARS else ''}")
        if explain:
            for line in explain_lines(memory):
                click.echo(visible_line(line))
    if not result["memories"] and not result["warnings"]:
        click.echo("nothing found")
    if all_candidates:
        _print_block(candidate_lines(result.get("candidates", ())))
    if "candidate_trace" in result:
        _print_block(trace_lines(result["candidate_trace"]))
    if explain or all_candidates:
        _print_block(run_lines(result))


def _coded(warning: Mapping[str, str]) -> str:
    return f"{warning['code']}: {warning['message']}"


def _print_block(lines: Iterable[str]) -> None:
    click.echo()
    for line in lines:
        click.echo(visible_line(line))


def _headline(place: int, memory: dict[str, Any]) -> str:
    day = memory["created_at"][:_DAY_CHARS] if memory["created_at"] else "undated"
    where = "/".join(part for part in (memory["wing"], memory["room"]) if part) or "-"
    score = f"{memory['final_score']:.3f}"
    return f"{place:>2}. {score}  [{memory['id']}]  {day}  {where}  {memory['category']}"


# `noctuary why`: what became of one memory in one recall.


@click.command()
@click.argument("query")
@click.argument("memory_id", metavar="ID")
@recall_options
@store_options
def why(query: str, memory_id: str, store: str | None, **options: Any) -> None:
    """Say why a recall of QUERY does not return memory ID, or why it does.

    The recall is made with the options given here, and nothing of it is logged. Exit code 0 when
    the store could answer, 1 when it could not.
    """
    limit_threads()
    arguments, (name, flags) = arguments_of(options), profile_of(options)
    found, said = _explain(query, memory_id, store, arguments, name, flags)
    warnings = [*said, *(w.to_json() for w in found.warnings)]
    if not is_json():
        warn(*map(_coded, warnings))
    tell({**found.to_json(), "warnings": warnings}, map(visible_line, _why_lines(found)))


def _why_lines(found: Why) -> Iterator[str]:
    yield from found.sentences
    if "last_returned" in found.facts:
        last = f"[{found.facts['last_returned']}]"
        yield from beside_lines(found.steps, f"[{found.memory_id}]", last)
    else:
        yield from step_lines(found.steps)


def _explain(
    query: str,
    memory_id: str,
    store: str | None,
    arguments: dict[str, Any],
    name: str | None,
    flags: dict[str, Any],
) -> tuple[Why, list[dict[str, str]]]:
    """Return the answer, and the warnings of settings and profile."""
    from noctuary.recall.engine import Recaller
    from noctuary.recall.profile import (
        current_settings,
        read_store_profiles,
        resolve_for_recall,
    )
    from noctuary.recall.query import Query, Scope
    from noctuary.recall.why import explain_memory

    recaller = Recaller.open(open_paths(store).root)
    settings, bad_settings = current_settings()
    stored = read_store_profiles(recaller.paths.profiles)
    resolved = resolve_for_recall(settings, recaller.reader.adopted, stored.tables, name, flags)
    scope = Scope(**{f: arguments[f] for f in FILTERS}, as_of=arguments["as_of"])
    asked = Query(
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
        inputs = recaller.inputs_now(scope.user).with_store(recaller.reader, settings)
        return explain_memory(recaller, asked, memory_id, inputs), said
    # As in `noctuary.recall`: damage below the reach of the quick check is no traceback.
    except Exception as error:
        message = f"{type(error).__name__} in {recaller.snapshot_id}: run `noctuary doctor`"
        raise SnapshotCorruptError(message) from error


# `noctuary expand`: everything that a summary stands for.


_DAY_AND_MINUTE = "%Y-%m-%d %H:%M"


@click.command()
@click.argument("summary_id", metavar="ID")
@click.option("--user", help="Whose memories; those of other named users are never shown.")
@store_options
def expand(summary_id: str, user: str | None, store: str | None) -> None:
    """Show every memory that summary ID stands for, in order of time.

    A recall with turn_view=summaries, or with consolidation_enabled, returns summaries; this shows
    what each was made of, how it was judged, and the plan that it belongs to, if any. Exit code 0
    when the summary was found, 1 when it was not.
    """
    limit_threads()
    from noctuary.recall.expand import expand as expand_summary

    found = expand_summary(summary_id, user=user, store=store)
    tell(found.to_json(), map(visible_line, _lines(found)))


def _lines(found: Expansion) -> Iterator[str]:
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
        moment = "undated" if at is None else f"{at:{_DAY_AND_MINUTE}}"
        where = "/".join(part for part in (source.wing, source.room) if part) or "-"
        yield f"  [{source.id}]  {moment}  {where}"
        yield f"    {' '.join(source.content.split())}"


# `noctuary replay`: list the recalls that were kept, and run one of them again.


_QUERY_CHARS = 48
_SECOND_CHARS = len("2026-03-01T08:00:00")


@click.command()
@click.argument("replay_id", metavar="[ID]", required=False)
@click.option(
    "--last",
    default=20,
    show_default=True,
    type=click.IntRange(min=1),
    help="Without ID: how many to list.",
)
@store_options
def replay(replay_id: str | None, last: int, store: str | None) -> None:
    """Run a kept recall again, against its own snapshot; without ID list the kept ones.

    ID may be shortened. A recall is kept where its profile says replay_log. Exit code 0 when the
    re-run is identical, 1 when it differs or cannot be run.
    """
    limit_threads()
    paths = open_paths(store)
    if not paths.root.is_dir():
        raise SnapshotMissingError(f"there is no store {paths.root}: run `noctuary nightly`")
    if replay_id is None:
        _list(paths, last)
        return
    identical = _run(paths, visible_line(replay_id))
    if not identical:
        sys.exit(EXIT_FAILED)


def _list(paths: StorePaths, last: int) -> None:
    from noctuary.recall.replay import list_packets

    found = list_packets(paths.replays, last)
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
    tell({"packets": rows, "unreadable": found.unreadable}, lines or [nothing])
    if found.unreadable and not is_json():
        warn(f"{found.unreadable} of the last lines cannot be read")


def _run(paths: StorePaths, replay_id: str) -> bool:
    from noctuary.recall.replay import find_packet
    from noctuary.recall.replay import replay as run_again

    packet = find_packet(paths.replays, replay_id)
    compared = run_again(paths, packet)
    if not is_json():
        warn(*compared.notes)
    same = f"identical: {compared.memories} memories, same order, same scores"
    lines = [*([same] if compared.identical else []), *compared.differences]
    tell({**_summary(packet), **compared.to_json()}, lines)
    return compared.identical


def _summary(packet: dict[str, Any]) -> dict[str, Any]:
    kept = {n: packet.get(n) for n in ("replay_id", "made_at", "query", "k", "snapshot_id")}
    return {**kept, "results": len(packet.get("results", ()))}


def _shortened(query: Any) -> str:
    text = visible_line(" ".join(str(query).split()))
    return text if len(text) <= _QUERY_CHARS else f"{text[: _QUERY_CHARS - 4]} ..."


# `noctuary context`: assemble a prompt's context under a token budget.


EXIT_DEGRADED = 3
"""What must be there exceeds the budget; it was printed whole."""


@click.command()
@click.argument("query")
@click.option(
    "--budget",
    "budget_tokens",
    required=True,
    type=click.IntRange(min=0),
    metavar="TOKENS",
    help="Tokens of the whole text, tags included.",
)
@click.option(
    "--document",
    "documents",
    multiple=True,
    metavar="FILE",
    help="Markdown for the agent (AGENTS.md); may be repeated, the order counts.",
)
@click.option(
    "--session",
    "session_file",
    metavar="FILE",
    help="JSON lines, one turn each, oldest first: role, text and, if known, id, at, bundle.",
)
@click.option(
    "--profile",
    default="default",
    show_default=True,
    metavar="NAME",
    help='Constants of the assembly: "default" or "reference".',
)
@click.option("--wing", help="Only memories of this wing.")
@click.option("--user", help="Whose memories; those of other named users are never shown.")
@click.option("--as-of", metavar="ISO", help="Only memories that existed at this moment.")
@click.option("--deadline-ms", type=float, help="Look up nothing more after this long.")
@click.option("--parts", is_flag=True, help="Show what each part costs and why it is there.")
@click.option("--dry-run", is_flag=True, help="Write nothing: no access log, no injection record.")
@store_options
def context(
    query: str,
    budget_tokens: int,
    documents: tuple[str, ...],
    session_file: str | None,
    as_of: str | None,
    parts: bool,
    **options: Any,
) -> None:
    """Print what belongs into a prompt about QUERY, within a budget of tokens.

    First the rules of the documents (list items, front matter) and the last four turns, whole; then
    guidance, more turns, and what QUERY finds in documents, earlier turns and memories.

    Exit code 0 when it fits, 3 when rules and last turns alone exceed the budget (they are printed
    uncut), 1 when a file cannot be read or there is no store and nothing else to print.
    """
    limit_threads()
    from noctuary.context.assemble import assemble
    from noctuary.context.prompt import read_session

    try:
        made = assemble(
            query,
            budget_tokens,
            session=() if session_file is None else read_session(Path(session_file)),
            documents=[Path(name) for name in documents],
            as_of=None if as_of is None else read_moment(as_of, "--as-of"),
            **options,
        )
    except NoctuaryError:
        raise
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    shown = made.to_json()
    if is_json():
        print_json(shown)
    else:
        _print_context(shown, parts=parts)
    if made.degraded:
        sys.exit(EXIT_DEGRADED)
    if not made.parts and any(warning.code in _FATAL for warning in made.warnings):
        sys.exit(EXIT_FAILED)


def _print_context(shown: dict[str, Any], *, parts: bool) -> None:
    """Print the text, or its parts; what was missing goes to stderr."""
    for reason in (*shown["degraded"], *shown["warnings"]):
        click.echo(visible_line(f"! {reason['code']}: {reason['message']}"), err=True)
    if not parts:
        # Without a line break of its own: this is what was counted.
        click.echo(shown["text"], nl=False)
        return
    for part in shown["parts"]:
        click.echo(visible_line(_part_line(part)))
    click.echo(
        f"{shown['tokens']} of {shown['budget_tokens']} tokens ({shown['frame_tokens']} for tags), "
        f"counted by {shown['token_counter']}"
    )


def _part_line(part: dict[str, Any]) -> str:
    score = "     " if part["score"] is None else f"{part['score']:.3f}"
    why = " ".join(f"{name}={value}" for name, value in part["why"].items())
    return f"{part['kind']:<7} {part['tokens']:>6} {score}  [{part['id']}]  {why}"


# `noctuary profile`: how recalls rank, and which layer says so.


CHANGED = "*"
"""Marks a value that is not the built-in one."""


@click.group()
def profile() -> None:
    """Show the profiles that a recall can rank with. Flags and layers: docs/profiles.md."""


@profile.command("show")
@click.argument("name", required=False)
@store_options
def show(name: str | None, store: str | None) -> None:
    """Show every value of the profile NAME and where it comes from [default: the configured one].

    Exit code 1 when there is no such profile; what a recall would then use is shown.
    """
    layers, said = _find_layers(store)
    from noctuary.recall.profile import resolve

    resolved = resolve(name, layers)
    warnings = (*said, *resolved.warnings)
    flags = _flags_of(resolved)
    found = {
        "requested": resolved.requested,
        "used": resolved.used,
        "flags": flags,
        "warnings": [w.to_json() for w in warnings],
    }
    _warn(warnings)
    tell(found, _profile_lines(resolved.used, flags))
    if any(w.code == "unknown_profile" for w in resolved.warnings):
        sys.exit(EXIT_FAILED)


def _flags_of(resolved: ResolvedProfile) -> dict[str, dict[str, Any]]:
    from noctuary.recall.profile import RetrievalProfile

    built_in = RetrievalProfile().to_json()
    return {
        flag: {"value": value, "built_in": built_in[flag], "source": resolved.sources[flag]}
        for flag, value in resolved.profile.to_json().items()
    }


def _profile_lines(used: str, flags: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    from noctuary.recall.profile import GROUPS

    name_width = max(len(flag) for flag in flags)
    value_width = max(len(_shown(row["value"])) for row in flags.values())
    yield f"profile {used}; {CHANGED} is not the built-in value"
    for heading, names in GROUPS.items():
        yield f"\n{heading}"
        for flag in names:
            row = flags[flag]
            mark = CHANGED if row["value"] != row["built_in"] else " "
            value = f"{_shown(row['value']):<{value_width}}"
            yield f"{mark} {flag:<{name_width}}  {value}  {row['source']}"


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if value != "" else "(none)"


@profile.command("list")
@store_options
def list_(store: str | None) -> None:
    """List every profile, where it is defined, and what is wrong with it."""
    layers, said = _find_layers(store)
    from noctuary.recall.profile import list_profiles

    entries = list_profiles(layers)
    _warn(said)
    lines: list[str] = []
    width = max(len(entry.name) for entry in entries)
    for entry in entries:
        parent = f", inherits {entry.inherits}" if entry.inherits else ""
        where = f"({', '.join(entry.defined)}{parent})"
        mark = CHANGED if entry.name == layers.chosen else " "
        lines.append(f"{mark} {entry.name:<{width}}  {entry.description}  {where}".rstrip())
    warnings = [w.to_json() for w in said]
    tell({"profiles": [e.to_json() for e in entries], "warnings": warnings}, lines)
    if not is_json():
        warn(*(f"bad_profile: {entry.name}, {f}" for entry in entries for f in entry.faults))


def _find_layers(store: str | None) -> tuple[Layers, tuple[RecallWarning, ...]]:
    """Return the layers of the settings and of the store, as far as there is one."""
    limit_threads()
    from noctuary.core.settings import Settings
    from noctuary.recall.profile import layers_of, read_store_profiles
    from noctuary.recall.result import RecallWarning

    settings = Settings.load(home=find_home())
    try:
        paths = open_paths(store)
    except SnapshotMissingError as error:
        warning = RecallWarning("no_snapshot", f"without the layers of a store: {error}")
        return layers_of(settings, {}, {}), (warning,)
    stored = read_store_profiles(paths.profiles)
    try:
        adopted, warnings = _read_adopted(paths), stored.warnings
    except SnapshotMissingError as error:
        if store is not None and not paths.root.is_dir():
            raise
        warning = RecallWarning("no_snapshot", f"nothing can be adopted yet: {error}")
        adopted, warnings = {}, (*stored.warnings, warning)
    return layers_of(settings, adopted, stored.tables), warnings


def _read_adopted(paths: StorePaths) -> Mapping[str, Any]:
    from noctuary.recall.reader import open_serving

    reader = open_serving(paths).reader
    try:
        return reader.adopted
    finally:
        reader.close()


def _warn(warnings: Iterable[RecallWarning]) -> None:
    if not is_json():
        warn(*(f"{warning.code}: {warning.message}" for warning in warnings))


# `noctuary sensitive`: rows that never leave the store, recalled in the store itself.


_FROM_STDIN = "-"


@click.command()
@click.argument("query")
@click.option(
    "-k", default=5, show_default=True, type=click.IntRange(min=0), help="At most so many."
)
@click.option("--user", metavar="NAME", help="Who asks; rows of other named users are never shown.")
@store_options
def sensitive(query: str, k: int, user: str | None, store: str | None) -> None:
    """Recall rows that are marked sensitive or hold a secret, by their words.

    Off unless `sensitive.recall` is true. The memory store is read at this moment; neither the
    QUERY nor what it finds is kept or logged by noctuary. Your shell may keep the command line:
    QUERY `-` reads the question from standard input. What is printed is yours to keep safe.

    Exit code 0 when the store could answer, 1 when it could not or sensitive recall is off.
    """
    limit_threads()
    if query == _FROM_STDIN:
        query = sys.stdin.readline()
    from noctuary.recall.sensitive import recall_sensitive

    answer = recall_sensitive(query, k, user=user, store=store)
    if is_json():
        print_json(answer.reveal())
        return
    for memory in answer.memories:
        vault = f"  vault {memory.vault_path}" if memory.vault_path else ""
        click.echo(visible_line(f"[{memory.memory_id}] {memory.score:.3f}  {memory.reason}{vault}"))
        click.echo(memory.content)
    if not answer.memories:
        click.echo(f"none of {answer.searched} sensitive rows of {answer.source} fits", err=True)
