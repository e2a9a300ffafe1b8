"""What the commands share: options, moments, printing, failing."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NoReturn, TypeVar

import click

from noctuary.core.errors import NoctuaryError
from noctuary.core.settings import FUSIONS
from noctuary.core.store import StorePaths, find_home, find_store
from noctuary.text.marks import visible

# What the commands share: the two options, moments, printing JSON, failing with a sentence.


EXIT_FAILED = 1

F = TypeVar("F", bound=Callable[..., Any])


class ExtraMissingError(NoctuaryError):
    """An optional package that a command needs is not installed, or in another version."""


_BUILD = (
    "dagster", "dagster_webserver", "duckdb", "jinja2", "lance", "lancedb", "matplotlib", "onnx",
    "onnxruntime", "polars", "pyarrow", "rich", "sentence_transformers", "torch", "transformers",
)  # fmt: skip
EXTRAS = {
    **dict.fromkeys(_BUILD, "pipelines"),
    "httpx": "hosted", "mcp": "mcp", "psycopg": "postgres", "ray": "ray",
}  # fmt: skip
"""Which extra brings a module that a plain install leaves out."""


def extra_missing(module: str) -> ExtraMissingError:
    """Return the error that says what to install for one of `EXTRAS`."""
    install = f"pip install 'noctuary[{EXTRAS[module]}]'"
    return ExtraMissingError(f"this needs {module}, which is not installed: {install}")


_JSON = "noctuary.json"


def _remember_json(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    context.meta[_JSON] = value


json_option = click.option(
    "--json", is_flag=True, expose_value=False, callback=_remember_json,
    help="Print one JSON object.",
)  # fmt: skip


def is_json() -> bool:
    """Say whether the command that runs was given --json."""
    return bool(click.get_current_context().meta.get(_JSON))


def store_options(command: F) -> F:
    """Add --store and --json."""
    command = click.option(
        "--store",
        metavar="STORE",
        help="The store: its directory, the beginning of its name, or the source it was built "
        "from; `noctuary stores` lists them [default: NOCTUARY_STORE, else the only one].",
    )(command)
    return json_option(command)


def open_paths(store: str | None) -> StorePaths:
    """Return the paths of the store that is meant."""
    directory, guessed = find_store(store, home=find_home())
    if guessed:
        click.echo(
            f"! store_guessed: several stores exist; {directory.name} published last. "
            "Pass --store or set NOCTUARY_STORE",
            err=True,
        )
    return StorePaths(directory)


def read_moment(text: str, option: str | None = None) -> datetime:
    """Read an option's date or time; without a zone it is UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is no ISO-8601 date or time, e.g. 2026-03-01 or 2026-03-01T08:00:00Z",
            param_hint=option,
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def limit_threads() -> None:
    """Keep numpy's BLAS to one thread, unless the user decided; call before numpy is imported.

    One query is too little work to share: on a busy machine a second thread waits for the first
    and a recall takes up to five times as long (docs/decisions/0005).
    """
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")


def print_json(value: Any) -> None:
    """Print one JSON object; what a terminal would obey comes out escaped."""
    click.echo(visible(json.dumps(value, indent=1, ensure_ascii=False)))


def tell(found: Any, lines: Iterable[str]) -> None:
    """Print an answer: one JSON object where --json was given, else its lines."""
    if is_json():
        print_json(found)
        return
    for line in lines:
        click.echo(line)


def warn(*warnings: str) -> None:
    """Print what a person should know beside the answer."""
    for warning in warnings:
        click.echo(f"! {warning}", err=True)


class ScanProgress:
    """Tells how far a scan is, on a terminal only and on the standard error stream."""

    def update(self, task: str, done: int, total: int) -> None:
        """Overwrite the line of the last report."""
        if sys.stderr.isatty():
            # Past the marks: the carriage return is ours.
            click.echo(f"\r{task}: {done:,} of {total:,}", sys.__stderr__, nl=done >= total)


def fail(error: NoctuaryError | OSError, code: int = EXIT_FAILED) -> NoReturn:
    """Print what is wrong and leave with an exit code; a command that raises it fails so."""
    if isinstance(error, BrokenPipeError):
        raise error  # whoever read this has read enough; click leaves quietly
    if is_json():
        print_json({"error": type(error).__name__, "message": str(error)})
    else:
        click.echo(f"noctuary: {error}", err=True)
    sys.exit(code)


# The options of a recall, shared by the commands that make one: filters, order, profile.


FILTERS = ("wing", "room", "category", "user")

SHOWN, INJECTED = 10, 3
"""Memories where -k is not given; with --inject as few as a hook injects."""

_WORDS = {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False}

_OPTIONS = (
    click.option("-k", type=click.IntRange(min=0), help="How many memories.  [default: 10]"),
    click.option("--wing", help="Only this wing."),
    click.option("--room", help="Only this room."),
    click.option("--category", help="Only this category."),
    click.option("--user", help="Whose memories; those of other named users are never shown."),
    click.option(
        "--sort-by",
        type=click.Choice(["relevance", "importance", "recency"]),
        default="relevance",
        show_default=True,
    ),
    click.option(
        "--as-of", metavar="ISO", help="Only what existed at this moment, e.g. 2026-03-01."
    ),
    click.option("--session", "session_id", metavar="ID", help="The conversation that asks."),
    click.option(
        "--profile", "profile_name", metavar="NAME", help="Rank as this profile says [configured]."
    ),
    click.option(
        "--set",
        "flags",
        metavar="FLAG=VALUE",
        multiple=True,
        help="Change one flag of the profile for this call; may be repeated.",
    ),
    click.option(
        "--fusion",
        type=click.Choice(FUSIONS),
        help="How the legs are fused; the same as --set fusion=... [default: configured].",
    ),
)


def recall_options(command: F) -> F:
    """Add the options of a recall; the command takes them as keyword arguments."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def arguments_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options as arguments of `noctuary.recall`, the profile left out."""
    as_of: str | None = options["as_of"]
    k = INJECTED if options.get("for_prompt") else SHOWN
    return {
        "k": k if options["k"] is None else options["k"],
        **{name: options[name] for name in FILTERS},
        "sort_by": options["sort_by"],
        "as_of": None if as_of is None else read_moment(as_of, "--as-of"),
        "session_id": options["session_id"],
    }


def profile_of(options: Mapping[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """Return the name of the profile asked for, or None, and the flags changed for this call."""
    flags: dict[str, Any] = {} if options["fusion"] is None else {"fusion": options["fusion"]}
    for assignment in options["flags"]:
        flag, equals, text = assignment.partition("=")
        if not equals:
            raise click.BadParameter(
                f"expected FLAG=VALUE, found {assignment!r}", param_hint="--set"
            )
        flags[flag.strip()] = _value(flag.strip(), text.strip())
    if options["flags"]:
        from noctuary.recall.profile import flag_faults

        faults = flag_faults(flags)
        if faults:
            raise click.BadParameter("; ".join(faults), param_hint="--set")
    return options["profile_name"], flags


def _value(flag: str, text: str) -> Any:
    """Read a value as the flag's type; what cannot be read stays a text, and is a fault later."""
    from noctuary.recall.profile import FIELD_TYPES

    kind = FIELD_TYPES.get(flag, str)
    if kind is bool:
        return _WORDS.get(text.casefold(), text)
    try:
        return kind(text)
    except ValueError:
        return text


# Explanations of a recall as a person reads them: running sums, legs, what was dropped.


SHOWN_PER_PHASE = 20
"""Dropped memories shown per phase; the rest is counted, and --json has them all."""

_INDENT = "    "

Row = Mapping[str, Any]


def explain_lines(memory: Row) -> Iterator[str]:
    """Yield how one returned memory came to its score."""
    legs = "; ".join(_legs(memory["legs"]))
    if legs:
        yield f"{_INDENT}{legs}"
    yield from step_lines(memory.get("score_events") or ())
    yield f"{_INDENT}= {memory['final_score']:.3f}  (importance {memory['importance']:.2f})"
    for name, value in memory.get("annotations", {}).items():
        yield f"{_INDENT}note: {name.replace('_', ' ')} {_short(value)}"


def step_lines(events: Sequence[Row]) -> Iterator[str]:
    """Yield one line per step: the sum so far, the change, the step, the reason."""
    if not events:
        return
    width = max(len("step"), *(len(event["phase"]) for event in events))
    yield f"{_INDENT}score  change  {'step':<{width}}  why"
    total = 0.0
    for event in events:
        total += event["delta"]
        step = f"{event['phase']:<{width}}  {event['reason']}"
        yield f"{_INDENT}{total:.3f}  {event['delta']:+.3f}  {step}".rstrip()


def beside_lines(steps: Sequence[Row], own: str, other: str) -> Iterator[str]:
    """Yield one line per step: what it gave one memory and what it gave the other."""
    width = max((len(step["phase"]) for step in steps), default=0)
    columns = [max(len(own), len("+0.000")), max(len(other), len("+0.000"))]
    yield f"{_INDENT}{'':<{width}}  {own:>{columns[0]}}  {other:>{columns[1]}}"
    for step in steps:
        mine, theirs = f"{step['delta']:+.3f}", f"{step['delta_of_last_returned']:+.3f}"
        numbers = f"{mine:>{columns[0]}}  {theirs:>{columns[1]}}"
        yield f"{_INDENT}{step['phase']:<{width}}  {numbers}  {step['reason']}".rstrip()


def trace_lines(trace: Sequence[Row]) -> Iterator[str]:
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


def candidate_lines(candidates: Sequence[Row]) -> Iterator[str]:
    """Yield every candidate with its parts: the ranked ones, then the dropped ones."""
    yield f"candidates ({len(candidates)}):"
    for row in candidates:
        if "place" in row:
            parts = {k: v for k, v in row["score_breakdown"].items() if k != "final_score"}
            head = f"{row['place']:>4}. {row['final_score']:.3f}  [{row['id']}]"
        else:
            parts = {k: v for k, v in row["score_at_drop"].items() if k != "partial_score"}
            head = (
                f"   -  {row['score']:.3f}  [{row['memory_id']}]  dropped by {row['dropped_at']}:"
            )
        yield f"{head}  {', '.join(f'{name} {part:+.3f}' for name, part in parts.items())}".rstrip()


def run_lines(result: Row) -> Iterator[str]:
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
