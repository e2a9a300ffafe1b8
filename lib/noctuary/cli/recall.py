"""Commands that ask: recall and context; and remember. Loads little: hooks may wait."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from noctuary.cli import main as cli
from noctuary.core.errors import MemoryRefusedError, NoctuaryError
from noctuary.core.settings import FUSIONS, Settings
from noctuary.core.types import Origin
from noctuary.text.marks import visible_line

if TYPE_CHECKING:
    from noctuary.recall.engine import Recaller
    from noctuary.recall.profile import ResolvedProfile
    from noctuary.recall.result import RecallWarning


# The options of a recall, shared with `noctuary why`: filters, order, profile.

FILTERS = ("wing", "room", "category", "user")

SHOWN, INJECTED = 10, 3  # memories where -k is not given; with --inject as few as a hook injects

_WORDS = {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False}

person_option = cli.flag("--person", "With --wing: also what holds for you in every project.")
recall_options = cli.add_options(
    cli.option("-k", "How many memories.  [default: 10]", type=cli.AT_LEAST_0),
    *(cli.option(f"--{name}", f"Only this {name}.") for name in FILTERS[:3]),
    person_option,
    cli.user_option,
    click.option(
        "--sort-by", type=click.Choice(["relevance", "importance", "recency"]), default="relevance"
    ),
    cli.option("--as-of ISO", "Only memories that existed then, e.g. 2026-03-01."),
    cli.option("--session ID", "session_id", "The current conversation."),
    cli.option("--profile NAME", "profile_name", "Rank by this profile [configured]."),
    cli.option(
        "--set FLAG=VALUE",
        "flags",
        "Change one flag of the profile for this call; may be repeated.",
        multiple=True,
    ),
    cli.option(
        "--fusion",
        "How to fuse the legs; same as --set fusion=... [default: configured].",
        type=click.Choice(FUSIONS),
    ),
)


def arguments_of(options: Mapping[str, Any], most: int = SHOWN) -> dict[str, Any]:
    """Return the options as arguments of `noctuary.recall`, the profile left out."""
    return {
        "k": most if options["k"] is None else options["k"],
        **{name: options[name] for name in (*FILTERS, "person", "sort_by", "session_id")},
        "as_of": _moment(options["as_of"]),
    }


def _moment(text: str | None) -> datetime | None:
    return None if text is None else cli.read_moment(text, "--as-of")


def profile_of(options: Mapping[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """Return the name of the profile asked for, or None, and the flags changed for this call."""
    flags: dict[str, Any] = {} if options["fusion"] is None else {"fusion": options["fusion"]}
    if not options["flags"]:
        return options["profile_name"], flags
    from noctuary.recall.profile import FIELD_TYPES, flag_faults

    for assignment in options["flags"]:
        flag, equals, text = map(str.strip, assignment.partition("="))
        if not equals:
            raise click.BadParameter(
                f"expected FLAG=VALUE, found {assignment!r}", param_hint="--set"
            )
        flags[flag] = _read_value(FIELD_TYPES.get(flag, str), text)
    faults = flag_faults(flags)
    if faults:
        raise click.BadParameter("; ".join(faults), param_hint="--set")
    return options["profile_name"], flags


def _read_value(kind: type, text: str) -> Any:
    """Read a value of a type; what cannot be read stays a text, and is a fault later."""
    if kind is bool:
        return _WORDS.get(text.casefold(), text)
    try:
        return kind(text)
    except ValueError:
        return text


# `noctuary recall`: ask the serving snapshot.

Row = Mapping[str, Any]

# Warnings after which there was nothing to answer from; everything else still answered.
_FATAL = frozenset({"no_snapshot", "store_unreadable", "snapshot_damaged"})
_SHOWN_CHARS = 400
_DAY_CHARS = len("2026-03-01")


@click.command()
@click.argument("query")
@recall_options
@cli.option("--deadline-ms", "Stop searching and answer after this long.", type=float)
@cli.flag("--explain", "Show each step of every score, the phases and the times.")
@cli.flag("--candidate-trace", "Show dropped memories, where and why.")
@cli.flag(
    "--all-candidates",
    "Show the score parts of every candidate; implies --explain and --dry-run.",
)
@cli.flag("--dry-run", "Write nothing: no access log, query log or replay log.")
@cli.flag(
    "--inject",
    "for_prompt",
    "Print a block for a prompt (3 memories unless you pass -k), and record its hashes so that it "
    "is not stored again.",
)
@cli.flag("--no-server", "Recall in this process even if a server runs.")
@cli.store_options
def recall(
    query: str, explain: bool, all_candidates: bool, for_prompt: bool, no_server: bool, **given: Any
) -> None:
    """Find the memories relevant to QUERY, best first.

    Exit code 0 if the store could answer (even with nothing), else 1.
    """
    name, flags = profile_of(given)
    asked: dict[str, Any] = {
        "query": query,
        **arguments_of(given, INJECTED if for_prompt else SHOWN),
        **{option: given[option] for option in ("deadline_ms", "candidate_trace", "store")},
        "explain": explain or all_candidates,
        "dry_run": given["dry_run"] or all_candidates,
    }
    from noctuary.agents.client import ask

    # A call takes a name or flags; both together are merged in this process.
    is_own = no_server or (name is not None and bool(flags))
    served = None if is_own else ask(**asked, profile=flags or name)
    result = _recall_here(asked, name, flags) if served is None else served
    if for_prompt:
        from noctuary.context.inject import inject
        from noctuary.recall.profile import current_settings

        origins = current_settings()[0].hook.origins
        done = inject(result, on_record=not asked["dry_run"], origins=origins)
        result["injection"] = {
            "text": done.text, "memories": done.memories, "left_out": done.left_out,
            "held_back": done.held_back,
        }  # fmt: skip
        if done.warning is not None:
            result["warnings"].append({"code": "injection_log", "message": done.warning})
    lines = (
        _injection_lines(result) if for_prompt else _result_lines(result, explain, all_candidates)
    )
    served_by = "process" if served is None else "server"
    cli.tell({**result, "served_by": served_by}, lines, cli.coded(result["warnings"]))
    if any(w["code"] in _FATAL for w in result["warnings"]):
        sys.exit(cli.EXIT_FAILED)


def _recall_here(asked: dict[str, Any], name: str | None, flags: dict[str, Any]) -> dict[str, Any]:
    from noctuary.recall.api import find_serving
    from noctuary.recall.api import recall as recall_memories

    profile, merged = flags or name, None
    try:
        if name is not None and flags:
            with suppress(NoctuaryError, OSError):  # the recall reports the fault
                merged = resolve_profile(find_serving(asked["store"])[0], name, flags)[1]
        made = recall_memories(**asked, profile=profile if merged is None else merged.profile)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    result = made.to_json()
    if merged is None:
        return result
    warnings = [*(w.to_json() for w in merged.warnings), *result["warnings"]]
    return {**result, "warnings": warnings, "profile_used": merged.used}


def resolve_profile(
    recaller: Recaller, name: str | None, flags: Mapping[str, Any]
) -> tuple[Settings, ResolvedProfile, tuple[RecallWarning, ...]]:
    """Return the settings, what a call ranks with, and every warning of its layers."""
    from noctuary.recall.profile import current_settings, resolve_for_recall

    settings, said = current_settings()
    resolved = resolve_for_recall(settings, recaller.reader.adopted, name, flags)
    return settings, resolved, (*said, *resolved.warnings)


def _injection_lines(result: dict[str, Any]) -> Iterator[str]:
    """Yield the block and nothing else: a hook passes stdout on."""
    judged = result.get("answerability")
    rather = "`noctuary recall` without --inject shows what there is"
    if result["injection"]["text"]:
        yield result["injection"]["text"]
        return
    if result["injection"]["held_back"]:
        why = f"what was found is not trusted (docs/trust.md); {rather}"
    elif not result["memories"] or judged is None:
        why = "nothing was found"
    elif judged["abstain"]:
        needed = f"score {judged['score']:.3f}, at least {judged['threshold']:.3f} is needed"
        why = f"the store hardly holds an answer ({needed}); {rather}"
    else:
        why = f"no memory reaches {judged['bar']:.3f} by itself; {rather}"
    click.echo(f"nothing is injected: {why}", err=True)


def _result_lines(result: Row, explain: bool, all_candidates: bool) -> Iterator[str]:
    for place, memory in enumerate(result["memories"], start=1):
        yield visible_line(_headline(place, memory))
        text = " ".join(memory["content"].split())
        yield f"    {text[:_SHOWN_CHARS]}{' ...' if len(text) > _SHOWN_CHARS else ''}"
        yield from map(visible_line, _explain_lines(memory) if explain else ())
    if not result["memories"] and not result["warnings"]:
        yield "nothing found"
    blocks = [
        (all_candidates, _candidate_lines(result.get("candidates", ()))),
        ("candidate_trace" in result, _trace_lines(result.get("candidate_trace", ()))),
        (explain or all_candidates, _run_lines(result)),
    ]
    for is_wanted, lines in blocks:
        yield from map(visible_line, ("", *lines) if is_wanted else ())


def _headline(place: int, memory: Row) -> str:
    day = memory["created_at"][:_DAY_CHARS] if memory["created_at"] else "undated"
    where = "/".join(part for part in (memory["wing"], memory["room"]) if part) or "-"
    score = f"{memory['final_score']:.3f}"
    return f"{place:>2}. {score}  [{memory['id']}]  {day}  {where}  {memory['category']}"


# Explanations of a recall as a person reads them: running sums, legs, what was dropped.

SHOWN_PER_PHASE = 20  # dropped memories; the rest is counted, and --json has them all
_INDENT = "    "


def _explain_lines(memory: Row) -> Iterator[str]:
    """Yield how one returned memory came to its score."""
    legs = "; ".join(_legs(memory["legs"]))
    if legs:
        yield f"{_INDENT}{legs}"
    yield from step_lines(memory.get("score_events") or ())
    # Of an imported memory nobody knows who wrote it.
    origin = "" if memory["origin"] == Origin.IMPORT else f", origin {memory['origin']}"
    shown = f"importance {memory['importance']:.2f}{origin}"
    yield f"{_INDENT}= {memory['final_score']:.3f}  ({shown})"
    for name, value in memory.get("annotations", {}).items():
        yield f"{_INDENT}note: {name.replace('_', ' ')} {_short(value)}"


def step_lines(events: Sequence[Row]) -> Iterator[str]:
    """Yield one line per step: the sum so far, the change, the step, the reason."""
    sums = accumulate(event["delta"] for event in events)
    rows = [
        [f"{total:.3f}", f"{event['delta']:+.3f}", event["phase"], event["reason"]]
        for total, event in zip(sums, events, strict=True)
    ]
    if rows:
        yield from cli.columns([["score", "change", "step", "why"], *rows], indent=_INDENT)


def _trace_lines(trace: Sequence[Row]) -> Iterator[str]:
    """Yield what was dropped, by phase in order, each with its reason and its score."""
    groups: dict[str, list[Row]] = {}
    for row in trace:
        if "dropped_at" in row:
            groups.setdefault(row["dropped_at"], []).append(row)
        else:
            yield (
                f"model guard ({row['action']}): vectors by {row['ingest_model']}, queries by "
                f"{row['query_model']}"
            )
    if not groups:
        yield "dropped: nothing"
    for phase, rows in groups.items():
        yield f"dropped by {phase} ({len(rows)}):"
        for row in rows[:SHOWN_PER_PHASE]:
            yield f"{_INDENT}{row['score']:.3f}  [{row['memory_id']}]  {row['reason']}"
        if len(rows) > SHOWN_PER_PHASE:
            yield f"{_INDENT}... and {len(rows) - SHOWN_PER_PHASE} more (--json has them all)"


def _candidate_lines(candidates: Sequence[Row]) -> Iterator[str]:
    """Yield every candidate with its parts: the ranked ones, then the dropped ones."""
    yield f"candidates ({len(candidates)}):"
    for row in candidates:
        if "place" in row:
            parts, total = row["score_breakdown"], "final_score"
            head = f"{row['place']:>4}. {row['final_score']:.3f}  [{row['id']}]"
        else:
            parts, total = row["score_at_drop"], "partial_score"
            head = f"   -  {row['score']:.3f}  [{row['memory_id']}]"
            head += f"  dropped by {row['dropped_at']}:"
        told = ", ".join(f"{name} {part:+.3f}" for name, part in parts.items() if name != total)
        yield f"{head}  {told}".rstrip()


def _run_lines(result: Row) -> Iterator[str]:
    """Yield what is true of the recall as a whole."""
    pipeline = result["pipeline"]
    if pipeline:
        yield (
            f"profile {result['profile_used']}; model guard {pipeline['model_guard']}; "
            f"{pipeline['total_candidates_in']} candidates, "
            f"{pipeline['total_results_out']} returned"
        )
        if pipeline["phases_applied"]:
            yield f"phases applied: {', '.join(pipeline['phases_applied'])}"
        for phase, notes in pipeline["notes"].items():
            said = ", ".join(f"{name} {_short(value)}" for name, value in notes.items())
            yield f"{_INDENT}{phase}: {said}"
    times = ", ".join(f"{name} {ms:.1f}" for name, ms in result["phase_timing_ms"].items())
    yield f"snapshot {result['snapshot_id']}; ms: {times}"


def _legs(legs: Mapping[str, Row]) -> Iterator[str]:
    for name in ("lexical", "dense"):
        if name in legs:
            yield f"{name} rank {legs[name]['rank']} ({legs[name]['score']:.3f})"
    if "graph" in legs:
        hit = legs["graph"]
        origin = "the query" if hit["seed_id"] is None else f"[{hit['seed_id']}]"
        over = f" over {hit['concept']!r}" if hit["concept"] else ""
        yield f"graph {hit['score']:.3f} from {origin} by {hit['relation']}{over}"


def _short(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, Mapping):
        fields: Row = value
        return "{" + ", ".join(f"{k}: {_short(v)}" for k, v in fields.items()) + "}"
    if isinstance(value, list | tuple):
        items: Sequence[Any] = value
        return ", ".join(_short(item) for item in items) or "none"
    return str(value)


# `noctuary context`: assemble a prompt's context under a token budget.


@click.command()
@click.argument("query")
@cli.option(
    "--budget TOKENS",
    "budget_tokens",
    "Tokens of the whole text, including tags.",
    required=True,
    type=cli.AT_LEAST_0,
)
@cli.option(
    "--document FILE",
    "documents",
    "Markdown for the agent (AGENTS.md); may be repeated, the order counts.",
    multiple=True,
)
@cli.option(
    "--session FILE",
    "session_file",
    "JSON lines, one turn each, oldest first: role, text and, if known, id, at, bundle.",
)
@cli.option(
    "--profile NAME", 'Constants of the assembly: "default" or "reference".', default="default"
)
@cli.option("--wing", "Only memories of this wing.")
@person_option
@cli.user_option
@cli.option("--as-of ISO", "Only memories that existed at this moment.")
@cli.option("--deadline-ms", "Look up nothing more after this long.", type=float)
@cli.flag("--parts", "Show the cost of each part and its reason.")
@cli.flag("--dry-run", "Write nothing: no access log, no injection record.")
@cli.store_options
def context(
    query: str, budget_tokens: int, session_file: str | None, parts: bool, **given: Any
) -> None:
    """Print the context for a prompt about QUERY, within a budget of tokens.

    The rules of the documents (list items, front matter) and the last four turns come first, whole.
    Then come guidance, more turns, and relevant parts of documents, earlier turns and memories.

    Exit code 0 if it fits, 3 if rules and last turns alone exceed the budget (you get them uncut),
    1 if a file cannot be read, or if there is no store and nothing else to print.
    """
    from noctuary.context.assemble import assemble
    from noctuary.context.prompt import read_session

    session = () if session_file is None else read_session(Path(session_file))
    given["documents"] = [Path(name) for name in given["documents"]]
    given["as_of"] = _moment(given["as_of"])
    try:
        made = assemble(query, budget_tokens, session=session, **given)
    except NoctuaryError:
        raise
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    shown = made.to_json()
    said = map(visible_line, cli.coded((*shown["degraded"], *shown["warnings"])))
    cli.tell(shown, map(visible_line, _part_lines(shown)) if parts else (), said)
    if not parts and not cli.is_json():
        # Without a line break of its own: this is what was counted.
        click.echo(shown["text"], nl=False)
    if made.degraded:
        sys.exit(cli.EXIT_REFUSED)
    if not made.parts and any(warning.code in _FATAL for warning in made.warnings):
        sys.exit(cli.EXIT_FAILED)


def _part_lines(shown: Row) -> Iterator[str]:
    for part in shown["parts"]:
        score = "     " if part["score"] is None else f"{part['score']:.3f}"
        why = " ".join(f"{name}={value}" for name, value in part["why"].items())
        yield f"{part['kind']:<7} {part['tokens']:>6} {score}  [{part['id']}]  {why}"
    yield (
        f"{shown['tokens']} of {shown['budget_tokens']} tokens ({shown['frame_tokens']} for tags), "
        f"counted by {shown['token_counter']}"
    )


# `noctuary remember`: a memory for the own store.


@click.command()
@click.argument("text")
@cli.option("--wing", "The project or area that it belongs to.")
@cli.option("--room", "The topic inside the wing.")
@cli.option("--user", "Whose memory it is; other named users never see it.")
@cli.option("--tags A,B", "Words to find it by.", default="")
@cli.option(
    "--importance", "From 0 to 1; if not given 0.5, or that of what it replaces.", type=float
)
@cli.option("--supersedes ID", "The memory of the own store that it replaces.")
@cli.option("--until DATE", "The last day on which it holds; later only --as-of finds it.")
@cli.json_option
def remember(text: str, until: str | None, **given: Any) -> None:
    """Keep TEXT in noctuary's own store, memories.sqlite below its home.

    Recall finds it at once if a night has run on that store, everywhere else after the next night.
    With TEXT `-` it comes from standard input. Memories that say nearly the same are shown;
    --supersedes tells the next night that the new one replaces one of them.

    \b
    noctuary remember "The spare key hangs behind the blue door" --wing home
    noctuary remember "It hangs in the hall now" --supersedes 12
    noctuary remember "The lift is out of order" --until 2026-12-04

    Exit codes: 0 it is on disk; 1 the file cannot be written; 3 refused: it reads like a secret, is
    no text, or replaces no memory; 4 others wrote all the time: try again.
    """  # noqa: D301 (click wants the control character)
    from noctuary.sources.own_store import remember as remember_memory

    ends = None if until is None else cli.read_end(until)
    try:
        kept = remember_memory(sys.stdin.read() if text == "-" else text, valid_until=ends, **given)
    except MemoryRefusedError as error:
        cli.fail(error, cli.EXIT_REFUSED)
    night = f"noctuary nightly {shlex.quote(str(kept.source))}"
    lines = [f"remembered {kept.id}"]
    if kept.supersedes is not None:
        lines.append(f"it replaces {kept.supersedes} from the next night on: `{night}`")
    if not kept.is_live:
        lines.append(f"recall finds it after a night: `{night}`")
    similar = (
        f"{one.id} says {'the same' if one.similarity == 1 else 'nearly the same'}: "
        f"{' '.join(one.content.split())[:_SHOWN_CHARS]}"
        for one in kept.similar
    )
    warnings = map(visible_line, (*similar, *kept.warnings))
    cli.tell({**kept.to_json(), "night": night}, map(cli.as_called, lines), warnings)
