"""The known names nearest to a name that is unknown. Nothing else."""

from __future__ import annotations

from collections.abc import Iterable


def nearest_names(name: str, known: Iterable[str], most: int = 1) -> list[str]:
    """Return up to `most` known names, the nearest first; empty only if nothing is known."""
    import difflib  # only a slip of the finger needs it

    return difflib.get_close_matches(name, list(known), n=most, cutoff=0.0)


def nearest_hint(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence about an unknown name: the nearest known one, if there is one.

    Args:
        name: What was found.
        known: What could have been meant.
    """
    matches = nearest_names(name, known)
    return f"; the nearest known one is {matches[0]}" if matches else ""
