"""`noctuary evaluate check`: does a labelled set load."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from noctuary.cli.common import EXIT_FAILED, print_json
from noctuary.cli.evaluate.common import PATH, json_option
from noctuary.errors import FileFaultsError, NoctuaryError

if TYPE_CHECKING:
    from noctuary.evaluate.labels.dataset import LabelledSet


@click.command()
@click.argument("sets", metavar="SET...", nargs=-1, required=True, type=PATH)
@json_option
def check(sets: tuple[Path, ...], as_json: bool) -> None:
    """Load every SET and say what it holds, or which lines are wrong.

    \b
    noctuary evaluate check data/locomo data/scifact
    locomo   ok    5,882 memories  745 queries in 4 strata  223 unanswerable
    scifact  FAIL  data/scifact/queries.jsonl has 1 fault:
                     line 17: query '42' names ids that the corpus lacks: ['9001']

    Exit code 1 if any of them does not load; the others are still checked.
    """  # noqa: D301 (click wants the control character)
    rows = [_describe(directory) for directory in sets]
    if as_json:
        print_json({"sets": rows})
    else:
        _print(rows)
    if any("error" in row for row in rows):
        sys.exit(EXIT_FAILED)


def _describe(directory: Path) -> dict[str, Any]:
    from noctuary.evaluate.labels.dataset import load_labelled_set

    try:
        return _describe_set(load_labelled_set(directory))
    except (NoctuaryError, OSError) as error:
        faults = error.faults if isinstance(error, FileFaultsError) else ()
        return {
            "name": directory.absolute().name,
            "error": type(error).__name__,
            "message": str(error),
            "faults": [{"line": f.line, "kind": f.kind, "message": f.message} for f in faults],
        }


def _describe_set(found: LabelledSet) -> dict[str, Any]:
    strata: dict[str, int] = {}
    for query in found.queries.ranked:
        strata[query.stratum] = strata.get(query.stratum, 0) + 1
    return {
        "name": found.name,
        "memories": len(found.corpus_ids),
        "queries": len(found.queries.ranked),
        "strata": dict(sorted(strata.items())),
        "unanswerable": len(found.unanswerable),
        "judgements": sum(len(judged) for judged in found.qrels.values()),
    }


def _print(rows: list[dict[str, Any]]) -> None:
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        name = row["name"].ljust(width)
        if "error" in row:
            margin = " " * (width + len("  FAIL  "))
            click.echo(f"{name}  FAIL  " + row["message"].replace("\n", f"\n{margin}"))
            continue
        strata = len(row["strata"])
        parts = [
            f"{row['memories']:>7,} memories",
            f"{row['queries']:,} queries in {strata} {'stratum' if strata == 1 else 'strata'}",
        ]
        parts += [f"{row[key]:,} {key}" for key in ("unanswerable", "judgements") if row[key]]
        click.echo(f"{name}  ok    " + "  ".join(parts))
