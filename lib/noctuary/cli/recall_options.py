"""The options of a recall, shared by the commands that make one: filters, order, profile.

What belongs here: the options and what they mean as arguments of `noctuary.recall`. What does not:
recalling, printing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from noctuary.cli.common import read_moment
from noctuary.settings import FUSIONS

FILTERS = ("wing", "room", "category", "user")

SHOWN, INJECTED = 10, 3
"""Memories where -k is not given; with --inject as few as a hook injects."""

F = TypeVar("F", bound=Callable[..., Any])

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
    """Return the options as arguments of `noctuary.recall`, the profile left out.

    Raises:
        click.BadParameter: If a value means nothing.
    """
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
    """Return the name of the profile asked for, or None, and the flags changed for this call.

    Raises:
        click.BadParameter: Listing every fault of the flags.
    """
    flags: dict[str, Any] = {} if options["fusion"] is None else {"fusion": options["fusion"]}
    for assignment in options["flags"]:
        flag, equals, text = assignment.partition("=")
        if not equals:
            raise click.BadParameter(
                f"expected FLAG=VALUE, found {assignment!r}", param_hint="--set"
            )
        flags[flag.strip()] = _value(flag.strip(), text.strip())
    if options["flags"]:
        from noctuary.recall.profile.layers import flag_faults

        faults = flag_faults(flags)
        if faults:
            raise click.BadParameter("; ".join(faults), param_hint="--set")
    return options["profile_name"], flags


def _value(flag: str, text: str) -> Any:
    """Read a value as the flag's type; what cannot be read stays a text, and is a fault later."""
    from noctuary.recall.profile.fields import FIELD_TYPES

    kind = FIELD_TYPES.get(flag, str)
    if kind is bool:
        return _WORDS.get(text.casefold(), text)
    try:
        return kind(text)
    except ValueError:
        return text
