"""What the evaluation commands share: their options, one way to fail, and columns of text."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from noctuary.cli.common import fail
from noctuary.errors import NoctuaryError, SourceFormatError

if TYPE_CHECKING:
    from noctuary.evaluate.statistics.bootstrap import Interval

F = TypeVar("F", bound=Callable[..., Any])

PATH = click.Path(path_type=Path)
"""Whether a file is there is for its reader to say: its message tells what was expected."""


def json_option(command: F) -> F:
    """Add --json."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")(command)


def metric_option(command: F) -> F:
    """Add --metric."""
    return click.option(
        "--metric",
        "metrics",
        metavar="NAME",
        multiple=True,
        callback=_check_metrics,
        help="A metric, e.g. ndcg@10; may be repeated "
        "[default: recall@5, recall@10, all_relevant@10, precision@5, ndcg@10, mrr@50, map@50].",
    )(command)


def _check_metrics(
    _context: click.Context, _parameter: click.Parameter, names: Sequence[str]
) -> tuple[str, ...]:
    from noctuary.evaluate.scores import DEFAULT_METRICS, parse_metric

    for name in names:
        try:
            parse_metric(name)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
    return tuple(dict.fromkeys(names)) or DEFAULT_METRICS


@contextmanager
def exit_on_error(as_json: bool) -> Generator[None]:
    """Turn what the input is to blame for into a sentence and exit code 1.

    The library refuses input that does not fit together (runs over different queries, say) with a
    ValueError and a retriever's wrong answers with a TypeError; here both come from files and
    options.
    """
    try:
        yield
    except (NoctuaryError, OSError) as error:
        if isinstance(error, NoctuaryError) and isinstance(error.__cause__, Exception):
            cause = error.__cause__
            click.echo(f"! caused by {type(cause).__name__}: {cause}", err=True)
        fail(error, as_json)
    except (ValueError, TypeError) as error:
        fail(SourceFormatError(str(error)), as_json)


def show_interval(found: Interval | None) -> str:
    """Return an interval as text; a dash where there are too few queries for one."""
    return "-" if found is None else f"[{found.low:.3f}, {found.high:.3f}]"


def show_signed_interval(found: Interval | None) -> str:
    """Return the interval of a difference as text, with signs."""
    return "-" if found is None else f"[{found.low:+.3f}, {found.high:+.3f}]"


def print_columns(rows: Sequence[Sequence[str]], *, indent: str = "") -> None:
    """Print rows of equal length, the first column flush left and the others flush right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        first = row[0].ljust(widths[0])
        rest = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        click.echo((indent + "  ".join([first, *rest])).rstrip())
