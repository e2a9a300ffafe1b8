"""`noctuary recall`: ask the serving snapshot."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from noctuary.cli.common import EXIT_FAILED, limit_threads, print_json, store_options
from noctuary.cli.explaining import (
    candidate_lines,
    explain_lines,
    run_lines,
    trace_lines,
)
from noctuary.cli.recall_options import arguments_of, profile_of, recall_options
from noctuary.errors import NoctuaryError
from noctuary.text.visible import visible_line

if TYPE_CHECKING:
    from noctuary.recall.profile import ResolvedProfile

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
    as_json: bool,
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
    if as_json:
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
    from noctuary.serve.client import ask

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
    from noctuary.recall.current_settings import current_settings
    from noctuary.recall.profile import read_store_profiles, resolve_for_recall
    from noctuary.recall.serving import find_serving

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
    from noctuary.injection.injecting import inject

    done = inject(result, on_record=on_record)
    warnings = list(result["warnings"])
    if done.warning is not None:
        warnings.append({"code": "injection_log", "message": done.warning})
    block = {"text": done.text, "memories": done.memories, "left_out": done.left_out}
    return {"injection": block, "warnings": warnings}


def _print_injection(result: dict[str, Any]) -> None:
    """Print the block and nothing else: a hook hands on what stands on stdout."""
    for warning in result["warnings"]:
        click.echo(f"! {warning['code']}: {warning['message']}", err=True)
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
    for warning in result["warnings"]:
        click.echo(f"! {warning['code']}: {warning['message']}", err=True)
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


def _print_block(lines: Iterable[str]) -> None:
    click.echo()
    for line in lines:
        click.echo(visible_line(line))


def _headline(place: int, memory: dict[str, Any]) -> str:
    day = memory["created_at"][:_DAY_CHARS] if memory["created_at"] else "undated"
    where = "/".join(part for part in (memory["wing"], memory["room"]) if part) or "-"
    score = f"{memory['final_score']:.3f}"
    return f"{place:>2}. {score}  [{memory['id']}]  {day}  {where}  {memory['category']}"
