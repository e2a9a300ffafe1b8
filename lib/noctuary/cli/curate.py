"""`noctuary curate`: what could be tidied in the memory store itself, doing it, taking it back."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from noctuary.cli.common import fail, open_paths, print_json, store_options
from noctuary.errors import NoctuaryError
from noctuary.text.visible import visible_line

if TYPE_CHECKING:
    from noctuary.curate.apply import Applied
    from noctuary.curate.model import Proposal
    from noctuary.curate.proposed import Proposed
    from noctuary.curate.stores.base import WritableStore
    from noctuary.curate.undo import Undone

_SHOWN_CHARS = 100
"""Of a memory's text, in a list: about a line beside its id and role."""


@click.command()
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--list", "as_list", is_flag=True, help="Show the proposals. The default.")
@click.option("--all", "with_noop", is_flag=True, help="List what was left alone as well (NOOP).")
@click.option("--apply", "do_apply", is_flag=True, help="Write the named ones, or all, to SOURCE.")
@click.option("--undo", type=int, metavar="JOURNAL_ID", help="Take one application back, exactly.")
@click.option("--journal", is_flag=True, help="Show what was applied, and what was undone.")
@click.option(
    "--min-confidence", type=float, default=0.0, help="With --apply and no ID: at least this sure."
)
@click.option(
    "--source",
    metavar="SOURCE",
    help="SQLite file, postgresql://..., or env:NAME (a variable that holds that address, so that "
    "no password is on the command line) [default: what the night read].",
)
@store_options
def curate(
    ids: tuple[str, ...],
    as_list: bool,
    with_noop: bool,
    do_apply: bool,
    undo: int | None,
    journal: bool,
    min_confidence: float,
    source: str | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Show what the last night would tidy in the memory store, apply it, or undo that.

    \b
    noctuary curate                     duplicates, fragments, superseded facts, contradictions
    noctuary curate --apply 3f2a 91bc   write two of them
    noctuary curate --apply             write all that would change something
    noctuary curate --journal           what was written, by journal id
    noctuary curate --undo 1            every touched row as it was

    The night proposes where curation.enabled is set, and writes nothing. --apply marks rows with
    [SUPERSEDED] and importance 0.3, in one transaction; nothing is deleted. It refuses, as a whole,
    if a row changed since that night.
    """  # noqa: D301 (click wants the control character)
    asked = [do_apply, undo is not None, journal, as_list]
    try:
        if sum(asked) > 1:
            raise click.UsageError("--list, --apply, --undo and --journal exclude each other")
        work = open_paths(store).work
        if do_apply:
            _apply(work, ids, min_confidence, source, as_json)
        elif undo is not None:
            _undo(work, undo, source, as_json)
        elif journal:
            _journal(work, source, as_json)
        else:
            _list(work, ids, with_noop, as_json)
    except (NoctuaryError, OSError) as error:
        fail(error, as_json)


def _list(work: Path, ids: tuple[str, ...], with_noop: bool, as_json: bool) -> None:
    from noctuary.curate.proposed import chosen, read_proposed, replacement_text

    found = read_proposed(work)
    proposals = chosen(found.proposals, ids, 0.0) if ids or not with_noop else found.proposals
    if as_json:
        rows = [
            {**p.to_json(), "replacement_text": replacement_text(p, found.text_of)}
            for p in proposals
        ]
        counts = Counter(f"{p.kind} {p.action}" for p in found.proposals)
        by_kind = dict(sorted(counts.items()))
        print_json(
            {
                "enabled": found.is_on,
                "source": found.source,
                "counts": by_kind,
                "proposals": rows,
            }
        )
        return
    for proposal in proposals:
        _print_proposal(proposal, found)
    click.echo(_account(found, len(proposals)))


def _print_proposal(proposal: Proposal, found: Proposed) -> None:
    from noctuary.curate.proposed import replacement_text

    click.echo(
        f"{proposal.proposal_id}  {proposal.action:<9} {proposal.kind:<15} "
        f"{proposal.confidence:.2f}  {proposal.evidence.reason}"
    )
    for target in proposal.targets:
        text = " ".join(found.text_of.get(target.memory_id, "(changed since)").split())
        shown = text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 1] + "…"
        click.echo(visible_line(f"    {target.role:<10} [{target.memory_id}] {shown}"))
    added = replacement_text(proposal, found.text_of)
    if added is not None:
        click.echo(visible_line(f"    new row    {' '.join(added.split())}"))


def _account(found: Proposed, shown: int) -> str:
    if not found.is_on:
        return (
            "curation is off: set curation.enabled (NOCTUARY_CURATION_ENABLED=true), run the night"
        )
    left = sum(p.action == "NOOP" for p in found.proposals)
    return (
        f"{shown} of {len(found.proposals)} proposals for {found.source}; {left} looked at and "
        "left alone (--all). Nothing is written before --apply."
    )


def _apply(
    work: Path, ids: tuple[str, ...], least: float, source: str | None, as_json: bool
) -> None:
    from noctuary.curate.apply import apply_proposals
    from noctuary.curate.matching import Where
    from noctuary.curate.proposed import chosen, read_proposed

    found = read_proposed(work)
    proposals = chosen(found.proposals, ids, least)
    with closing(_open(source or found.source)) as opened:
        _tell_notes(opened)
        where = Where(_is_same(opened.display, found.source), found.text_of)
        applied = apply_proposals(opened, proposals, where)
    _print_applied(applied, opened.display, as_json)


def _print_applied(applied: Applied, display: str, as_json: bool) -> None:
    if as_json:
        print_json({"source": display, **applied._asdict()})
        return
    for proposal_id, journal_id in applied.held.items():
        click.echo(f"{proposal_id} holds already (journal {journal_id})")
    if applied.journal_id is None:
        click.echo("nothing to do")
        return
    click.echo(
        f"journal {applied.journal_id}: {len(applied.written)} proposals written to {display}: "
        f"{len(applied.tombstones)} rows marked, {len(applied.updated)} filled up, "
        f"{len(applied.added)} added. Take it back: noctuary curate --undo {applied.journal_id}"
    )


def _undo(work: Path, journal_id: int, source: str | None, as_json: bool) -> None:
    from noctuary.curate.undo import undo

    with closing(_open(source or _night_source(work))) as opened:
        undone: Undone = undo(opened, journal_id)
    if as_json:
        print_json({"source": opened.display, **undone._asdict()})
        return
    click.echo(
        f"journal {journal_id} is undone: {len(undone.restored)} rows as they were, "
        f"{len(undone.taken_back)} added rows taken back"
    )


def _journal(work: Path, source: str | None, as_json: bool) -> None:
    from noctuary.curate.journal import applications

    with closing(_open(source or _night_source(work))) as opened:
        found = applications(opened) if opened.has_journal() else []
    if as_json:
        print_json({"source": opened.display, "journal": [a._asdict() for a in found]})
        return
    for a in found:
        state = f"undone {a.undone_at}" if a.undone_at else "holds"
        state += "" if a.undoable or a.undone_at else ", cannot be undone any more"
        click.echo(
            f"{a.journal_id:>4}  {a.applied_at}  {a.proposals} proposals, {a.rows} rows  {state}"
        )
    if not found:
        click.echo("nothing was ever applied to this source")


def _open(source: str) -> WritableStore:
    from noctuary.curate.stores.open import open_writable
    from noctuary.locate import find_home
    from noctuary.settings import Settings

    return open_writable(source, Settings.load(home=find_home()).corpus)


def _night_source(work: Path) -> str:
    from noctuary.corpus.report import read_report

    return read_report(work / "corpus").identity.location


def _is_same(display: str, source: str) -> bool:
    return Path(display).resolve() == Path(source).resolve()


def _tell_notes(opened: WritableStore) -> None:
    for note in opened.notes:
        click.echo(f"! {note}", err=True)
