"""`noctuary proposals`: show, apply and undo what the nights propose."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from noctuary.cli import main as cli
from noctuary.compact import archive_apply
from noctuary.compact.archive import ArchiveReader
from noctuary.compact.archive_plan import ArchiveRules, Plan, archive_rules, plan_store
from noctuary.core.errors import StoreError
from noctuary.core.settings import Settings
from noctuary.core.store import StorePaths, find_home
from noctuary.core.types import from_micros
from noctuary.curate import apply as curation
from noctuary.curate.promotions import NOTHING_SAID, list_promotions
from noctuary.curate.proposals import Proposal
from noctuary.curate.stores import Store, open_writable
from noctuary.recall.profile import current_settings, resolve_for_recall
from noctuary.sources.export import read_report
from noctuary.text.marks import clean, visible_line


@click.group(cls=cli.NamedGroup)
def proposals() -> None:
    """Show what the nights propose; apply it, or undo that.

    \b
    noctuary proposals compact       memories to archive: replaced, little used, long idle
    noctuary proposals curate        rows of your memory store to tidy: duplicates, fragments
    noctuary proposals promotions    turns of conversations to remember for good

    Each shows its proposals and writes nothing without --apply. Nothing is ever deleted.
    """  # noqa: D301 (click wants the control character)


# `noctuary proposals compact`: show, apply and undo plans of the archive.

_CURRENT = "\0current"  # stands for `--apply` without a plan id; no id holds it


@proposals.command()
@cli.option(
    "--apply [PLAN_ID]",
    "apply_id",
    "Archive the plan's memories; with an id, only if it is still the current plan.",
    is_flag=False,
    flag_value=_CURRENT,
)
@cli.option("--undo PLAN_ID", "undo_id", "Undo an applied plan.")
@cli.flag("--list", "is_list", "List the applied plans.")
@cli.option("--profile NAME", "Use the compaction flags of this profile.")
@cli.option(
    "--limit",
    "Memories to show per plan; totals count everything, --json shows all.",
    default=20,
    type=cli.AT_LEAST_0,
)
@cli.flag("--texts", "Also show the texts of the summaries.")
@cli.store_options
def compact(
    apply_id: str | None,
    undo_id: str | None,
    is_list: bool,
    profile: str | None,
    limit: int,
    texts: bool,
    store: str | None,
) -> None:
    """Archive memories that were replaced and are no longer used; nothing is ever deleted.

    A memory is a candidate if a newer one surely replaced it, its usage score is below
    compaction_threshold and no recall returned it for compaction_age_days. Recalls leave out an
    archived memory if they can see its successor; profiles with include_archived still find it.

    \b
    noctuary proposals compact                   the plan and its reasons; writes nothing
    noctuary proposals compact --apply 1f0c...   archive exactly that plan, or nothing if it changed
    noctuary proposals compact --list            plans that were applied, and when
    noctuary proposals compact --undo 1f0c...    as if it had never been applied

    Exit code 3 if a plan no longer fits or is not in force, 4 while a night is running, 1 if the
    store could not answer.
    """  # noqa: D301 (click wants the control character)
    if (apply_id is not None) + (undo_id is not None) + is_list > 1:
        raise click.UsageError("give one of --apply, --undo and --list")
    paths, now_us = cli.open_paths(store), time.time_ns() // 1000
    try:
        if is_list:
            ledger = ArchiveReader(paths.archive)
            if ledger.warning is not None:
                raise StoreError(ledger.warning)
            plans = ledger.list_plans()
            cli.tell({"plans": plans}, _history_lines(plans))
        elif undo_id is not None:
            at_us = archive_apply.undo_in_store(paths, undo_id, now_us=now_us)
            said = f"plan {undo_id} is undone: recalls find its memories again from now on"
            cli.tell({"plan_id": undo_id, "undone_at_us": at_us}, [said])
        elif apply_id is not None:
            named, rules = None if apply_id == _CURRENT else apply_id, _rules(paths, profile)
            plan, at_us = archive_apply.apply_in_store(
                paths, rules, named, now_us=now_us, progress=cli.ScanProgress()
            )
            cli.tell({**plan.to_json(), "applied_at_us": at_us}, _applied_lines(plan, at_us))
        else:
            plan = plan_store(paths, _rules(paths, profile), cli.ScanProgress())
            shown = {**plan.to_json(), "summaries": _summaries_json(plan, texts)}
            cli.tell(shown, _plan_lines(plan, limit, shown["summaries"]))
    except archive_apply.PlanRefusedError as error:
        cli.fail(error, cli.EXIT_REFUSED)


def _rules(paths: StorePaths, profile: str | None) -> ArchiveRules:
    """Return the rules of a profile; faulty values are left out with a warning, as in a recall."""
    settings, said = current_settings()
    resolved = resolve_for_recall(settings, {}, profile)
    cli.warn(*cli.coded((*said, *resolved.warnings)))
    return archive_rules(resolved.profile.to_json(), settings.compaction)


# Reasons why a superseded memory is no candidate, in the order of the checks.
_LEFT = {
    "archived": "archived already",
    "unsure": "whose successor is not sure enough",
    "pinned": "pinned",
    "used": "still used",
    "recent": "accessed too recently, or without a date",
    "tail": "turns of a protected tail",
}


def _plan_lines(plan: Plan, limit: int, summaries: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Describe a plan, with at most `limit` of its memories."""
    yield from _warning_lines(plan)
    if plan.archived:
        yield (
            f"plan {plan.plan_id}: {len(plan.archived):,} memories would be archived, "
            f"{len(summaries):,} summaries created (use counted {_moment(plan.as_of_us)})"
        )
    else:
        yield f"nothing to archive in {plan.snapshot_id}"
    traces = plan.traces()
    for trace in traces[:limit]:
        yield f"  {clean(trace['memory_id']):>8}  {trace['action']:<7}  {clean(trace['reason'])}"
    if len(traces) > limit:
        yield f"  ... and {len(traces) - limit:,} more; --json shows all"
    for summary in summaries:
        yield (
            f"  summary {summary['summary_id']} of "
            f"{', '.join(map(clean, summary['source_ids']))}: {summary['source_tokens']} -> "
            f"{summary['summary_tokens']} tokens, confidence {summary['confidence'] or 0.0:.2f}"
        )
        if "text" in summary:
            yield f"    {clean(summary['text'])}"
    scan = plan.scan
    left = [f"{scan.left[name]:,} {said}" for name, said in _LEFT.items() if scan.left[name]]
    others = f"; no candidates: {', '.join(left)}" if left else ""
    yield f"{scan.scanned:,} of {scan.total:,} superseded memories looked at{others}"
    if plan.archived:
        apply = f"noctuary proposals compact --apply {plan.plan_id}"
        yield f"nothing was written; `{apply}` archives this plan"


def _warning_lines(plan: Plan) -> Iterator[str]:
    if plan.warning is not None:
        yield f"! {plan.warning}"


def _summaries_json(plan: Plan, texts: bool) -> list[dict[str, Any]]:
    """Return the summaries of a plan, with their texts only where asked for."""
    names = ("summary_id", "method", "source_ids", "source_tokens", "summary_tokens")
    return [
        {
            **{name: getattr(summary, name) for name in names},
            "confidence": None if summary.report is None else summary.report.confidence,
            **({"text": summary.text} if texts else {}),
        }
        for summary in plan.summaries
    ]


def _applied_lines(plan: Plan, applied_at_us: int | None) -> Iterator[str]:
    """Describe what was archived, and how to undo it."""
    yield from _warning_lines(plan)
    if applied_at_us is None:
        yield "nothing to archive; nothing was written"
        return
    yield f"plan {plan.plan_id} archived {len(plan.archived):,} memories; nothing was deleted"
    if plan.summaries:
        yield f"its {len(plan.summaries):,} summaries are found after the next night"
    yield f"`noctuary proposals compact --undo {plan.plan_id}` takes it back"


def _history_lines(plans: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the plans that were applied, oldest first."""
    if not plans:
        yield "no plan was applied yet"
    for plan in plans:
        state = "in force" if plan["in_force"] else "undone"
        yield f"plan {plan['plan_id']}  {state}, {len(plan['memory_ids']):,} memories"
        for held in plan["applications"]:
            ended = held["undone_at_us"]
            until = "" if ended is None else f", undone {_moment(ended)}"
            yield f"  applied {_moment(held['applied_at_us'])}{until}"


def _moment(micros: int) -> str:
    moment = from_micros(micros) or datetime.fromtimestamp(0, UTC)
    return moment.isoformat(sep=" ", timespec="seconds")


# `noctuary proposals curate`: show, apply and undo changes to the source.

_SHOWN_CHARS = 100  # of a memory's text, in a list: about a line beside its id and role


@proposals.command()
@click.argument("ids", nargs=-1, metavar="[ID]...")
@cli.flag("--all", "with_noop", "Also list rows to leave alone (NOOP).")
@cli.flag("--apply", "do_apply", "Write the named proposals, or all, to SOURCE.")
@cli.option("--undo JOURNAL_ID", "Undo one application exactly.", type=int)
@cli.flag("--journal", "Show applications and undos.")
@cli.option(
    "--min-confidence",
    "With --apply and no ID: only proposals at least this sure.",
    type=float,
    default=0.0,
)
@cli.option(
    "--source SOURCE",
    "SQLite file, postgresql://..., or env:NAME (a variable with that address, which keeps the "
    "password off the command line) [default: the source of the night].",
)
@cli.store_options
def curate(
    ids: tuple[str, ...],
    with_noop: bool,
    do_apply: bool,
    undo: int | None,
    journal: bool,
    min_confidence: float,
    source: str | None,
    store: str | None,
) -> None:
    """Show the last night's proposals for tidying the memory store, apply them, or undo that.

    \b
    noctuary proposals curate                     duplicates, fragments, superseded memories
    noctuary proposals curate --apply 3f2a 91bc   write two of them
    noctuary proposals curate --apply             write all that would change something
    noctuary proposals curate --journal           applied changes, by journal id
    noctuary proposals curate --undo 1            restore every touched row

    With curation.enabled, the night proposes and writes nothing. --apply marks rows with
    [SUPERSEDED] and importance 0.3, in one transaction, and deletes nothing. If a row changed since
    that night, it refuses as a whole.
    """  # noqa: D301 (click wants the control character)
    if do_apply + (undo is not None) + journal > 1:
        raise click.UsageError("give one of --apply, --undo and --journal")
    work = cli.open_paths(store).work
    if do_apply:
        _apply(work, ids, min_confidence, source)
    elif undo is not None:
        with closing(_open(source, work)) as opened:
            undone = curation.undo(opened, undo)
        said = (
            f"journal {undo} is undone: {len(undone.restored)} rows as they were, "
            f"{len(undone.taken_back)} added rows taken back"
        )
        cli.tell({"source": opened.display, **undone._asdict()}, [said])
    elif journal:
        with closing(_open(source, work)) as opened:
            found = opened.applications()
        lines = [
            f"{one['journal_id']:>4}  {one['applied_at']}  {one['proposals']} proposals, "
            f"{one['rows']} rows  "
            + (f"undone {one['undone_at']}" if one["undone_at"] else "holds")
            + ("" if one["undoable"] or one["undone_at"] else ", cannot be undone any more")
            for one in found
        ] or ["nothing was ever applied to this source"]
        cli.tell({"source": opened.display, "journal": found}, lines)
    else:
        _list(work, ids, with_noop)


def _list(work: Path, ids: tuple[str, ...], with_noop: bool) -> None:
    found = curation.read_proposed(work)
    chosen = found.proposals
    if ids or not with_noop:
        chosen = curation.chosen(chosen, ids, 0.0)
    added = {p.proposal_id: curation.replacement_text(p, found.text_of) for p in chosen}
    counts = Counter(f"{p.kind} {p.action}" for p in found.proposals)
    shown = {
        "enabled": found.is_on,
        "source": found.source,
        "counts": dict(sorted(counts.items())),
        "proposals": [{**p.to_json(), "replacement_text": added[p.proposal_id]} for p in chosen],
    }
    cli.tell(shown, _proposal_lines(chosen, found, added))


def _proposal_lines(
    chosen: Sequence[Proposal], found: curation.ProposalTable, added: Mapping[str, str | None]
) -> Iterator[str]:
    for proposal in chosen:
        yield (
            f"{proposal.proposal_id}  {proposal.action:<9} {proposal.kind:<15} "
            f"{proposal.confidence:.2f}  {proposal.evidence.reason}"
        )
        for target in proposal.targets:
            text = _shorten(found.text_of.get(target.memory_id), _SHOWN_CHARS)
            yield visible_line(f"    {target.role:<10} [{target.memory_id}] {text}")
        if (new := added[proposal.proposal_id]) is not None:
            yield visible_line(f"    new row    {' '.join(new.split())}")
    if not found.is_on:
        yield (
            "curation is off: set curation.enabled (NOCTUARY_CURATION_ENABLED=true), run the night"
        )
        return
    left = sum(p.action == "NOOP" for p in found.proposals)
    yield (
        f"{len(chosen)} of {len(found.proposals)} proposals for {found.source}; {left} looked "
        "at and left alone (--all). Nothing is written before --apply."
    )


def _shorten(text: str | None, most: int) -> str:
    line = " ".join((text or "(changed since)").split())
    return line if len(line) <= most else line[: most - 1] + "…"


def _apply(work: Path, ids: tuple[str, ...], least: float, source: str | None) -> None:
    found = curation.read_proposed(work)
    chosen = curation.chosen(found.proposals, ids, least)
    with closing(_open(source or found.source, work)) as opened:
        cli.warn(*opened.notes)
        is_own = Path(opened.display).resolve() == Path(found.source).resolve()
        applied = curation.apply_proposals(opened, chosen, curation.Where(is_own, found.text_of))
    lines = [f"{name} holds already (journal {number})" for name, number in applied.held.items()]
    if applied.journal_id is None:
        lines.append("nothing to do")
    else:
        lines.append(
            f"journal {applied.journal_id}: {len(applied.written)} proposals written to "
            f"{opened.display}: {len(applied.tombstones)} rows marked, {len(applied.updated)} "
            f"filled up, {len(applied.added)} added. Take it back: "
            f"noctuary proposals curate --undo {applied.journal_id}"
        )
    cli.tell({"source": opened.display, **applied._asdict()}, lines)


def _open(source: str | None, work: Path) -> Store:
    """Open a source to write to, by default the one that the last night read."""
    named = source or read_report(work / "corpus").identity.location
    return open_writable(named, Settings.load(home=find_home()).corpus)


# `noctuary proposals promotions`: which turns the last night would remember for good.

_TURN_CHARS = 200  # of a turn's text, in the list: two lines of a terminal


@proposals.command()
@cli.option("-n", "limit", "Rows.", default=20, type=cli.AT_LEAST_0)
@cli.flag("--all", "with_left", "Also list turns it left alone.")
@cli.option("--user", "Whose turns [default: those without a user].")
@cli.store_options
def promotions(limit: int, with_left: bool, user: str | None, store: str | None) -> None:
    """Show which turns the last night proposes to remember for good, and why.

    \b
    noctuary proposals promotions                 the best proposals, highest score first
    noctuary proposals promotions -n 100 --all    also the others, and why they stayed below
    noctuary proposals promotions --json          every number of the gate, for a program

    The score G mixes two branches by how technical a turn is: novelty, repetition and statements
    (conversation), or how specific, actionable and structured it is (code). noctuary never writes
    them to the source: save the ones you want there. Exit code 1 only if there is no table.
    """  # noqa: D301 (click wants the control character)
    work = cli.open_paths(store).work
    found = list_promotions(work, user=user, with_left=with_left, limit=limit)
    cli.tell(found, _promotion_lines(found))


def _why(row: Mapping[str, Any]) -> str:
    """Return the reason for the decision about a turn."""
    if row["reason"] == NOTHING_SAID:
        return "says nothing that stands alone"
    alike = sum(near["kind"] == "repeated" for near in row["neighbours"])
    said = f", like {alike} earlier turns" if alike else ""
    return ("new" if row["h"] >= 0.5 else "close") + f" to what you keep{said}"


def _promotion_lines(found: Mapping[str, Any]) -> Iterator[str]:
    for row in found["promotions"]:
        moment = row["created_at_us"]
        day = "" if moment is None else f"{from_micros(moment):%Y-%m-%d}  "
        wing = f"({row['wing']})  " if row["wing"] else ""
        yield visible_line(
            f"[{row['turn_id']}]  {row['decision']}  G {row['g']:.2f}  {day}"
            f"{wing}{', '.join(row['marks']) or '-'}"
        )
        yield visible_line(f"    {_shorten(row['text'], _TURN_CHARS)}")
        yield (
            f"    {_why(row)}; technical {row['t']:.2f}; "
            f"conversation {row['gconv']:.2f} (novelty {row['h']:.2f}, "
            f"repetition {row['r']:.2f}, statements {row['d']:.2f}); "
            f"code {row['gtech']:.2f} (specific {row['p']:.2f}, "
            f"action {row['a']:.2f}, structure {row['dtech']:.2f})"
        )
    if not found["enabled"]:
        yield (
            "promotion is off: set promotion.enabled (NOCTUARY_PROMOTION_ENABLED=true), "
            "run the night"
        )
        return
    counts = found["counts"]
    yield (
        f"{counts.get('proposed', 0)} of {sum(counts.values())} turns are proposed (G "
        f"of {found['threshold']:g} and more); {len(found['promotions'])} shown. Nothing is "
        "written to your memory store."
    )
