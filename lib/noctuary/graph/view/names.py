"""Names of concepts, as the memories that may be seen write them; finding a concept by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from noctuary.foreign_json import parse_json
from noctuary.graph.fold import fold_name
from noctuary.graph.view.source import GraphSource

SURFACES_READ = 2_000
"""Memories read for the spellings of a concept of which a part is hidden; more costs time, fewer
may miss a rare alias."""

NEAREST_SHOWN = 5
"""Names offered where none matches."""

_NEAREST_CUTOFF = 0.55
"""Least similarity (difflib ratio) of an offered name; lower offers chance resemblances."""

_NEAREST_TRIED = 40
"""Similar names looked up: those of hidden concepts among them are passed over."""

_PREFIX_CHARACTERS = 3
"""A shared beginning makes a candidate; fewer characters find typos earlier in a word."""

_PER_QUESTION = 300
"""Candidates per prefix or word: comparing them all stays below a tenth of a second."""

_MOST_HELD = 1_500
"""Most held concepts that are always compared: a typo at the beginning still finds them."""


class Names(NamedTuple):
    """How a concept may be called here.

    Attributes:
        shown: Its canonical name, or the most frequent spelling that may be seen.
        aliases: The other spellings that may be seen, sorted.
        folded: Folded forms of them all.
        complete: Whether every memory that holds the concept may be seen.
    """

    shown: str
    aliases: tuple[str, ...]
    folded: frozenset[str]
    complete: bool


class NameBook:
    """The names of one source's concepts, each worked out once."""

    def __init__(self, source: GraphSource) -> None:
        self._source = source
        self._known: dict[int, Names | None] = {}

    def names(self, ordinal: int) -> Names | None:
        """Return the names of a concept, or None where no memory that may be seen names it."""
        if ordinal not in self._known:
            self._known[ordinal] = self._read(ordinal)
        return self._known[ordinal]

    def shown(self, ordinal: int) -> str | None:
        """Return the one name to show, or None where there is none."""
        names = self.names(ordinal)
        return None if names is None else names.shown

    def find(self, text: str) -> int | None:
        """Return the concept that a text names, by folded name or alias; None where there is none.

        Of several, one whose canonical name matches comes first, then the most held one.
        """
        name = fold_name(text)
        rows = self._source.query("SELECT ordinal FROM concept_names WHERE name = ?", [name])
        best: tuple[bool, int, int] | None = None
        for (ordinal,) in rows:
            names = self.names(ordinal)
            if names is None or not (names.complete or name in names.folded):
                continue
            held = int(self._source.holders(ordinal).size)
            rank = (fold_name(names.shown) != name, -held, ordinal)
            best = rank if best is None else min(best, rank)
        return None if best is None else best[2]

    def nearest(self, text: str) -> tuple[str, ...]:
        """Return names of concepts that resemble a text, best first, at most NEAREST_SHOWN."""
        import difflib  # only where a name is unknown

        name = fold_name(text)
        candidates = sorted(set(self._candidates(name)))
        near = difflib.get_close_matches(name, candidates, _NEAREST_TRIED, _NEAREST_CUTOFF)
        words = set(name.split())
        near += [c for c in candidates if words & set(c.split()) and c not in near]
        found: dict[str, None] = {}
        for candidate in near[: 2 * _NEAREST_TRIED]:
            ordinal = self.find(candidate)
            names = None if ordinal is None else self.names(ordinal)
            if names is not None:
                found[names.shown] = None
            if len(found) == NEAREST_SHOWN:
                break
        return tuple(found)

    def _candidates(self, name: str) -> Iterator[str]:
        prefix = name[:_PREFIX_CHARACTERS]
        for (found,) in self._source.query(
            "SELECT DISTINCT name FROM concept_names WHERE name >= ? AND name < ? ORDER BY name "
            "LIMIT ?",
            [prefix, prefix + chr(0x10FFFF), _PER_QUESTION],
        ):
            yield found
        for word in name.split():
            for (found,) in self._source.query(
                "SELECT DISTINCT name FROM concept_names WHERE instr(' ' || name || ' ', ?) "
                "ORDER BY name LIMIT ?",
                [f" {word} ", _PER_QUESTION],
            ):
                yield found
        for (found,) in self._source.query(
            "SELECT canonical_name FROM concepts ORDER BY df DESC, ordinal LIMIT ?", [_MOST_HELD]
        ):
            yield fold_name(found)

    def _read(self, ordinal: int) -> Names | None:
        rows = self._source.query(
            "SELECT canonical_name, aliases FROM concepts WHERE ordinal = ?", [ordinal]
        )
        if not rows:
            return None
        canonical, aliases = str(rows[0][0]), [str(a) for a in parse_json(rows[0][1])]
        positions = self._source.mentions["positions"][self._source.rows_of(ordinal)]
        allowed = self._source.sight.allowed
        if not bool(allowed[positions].any()):
            return None
        if bool(allowed[positions].all()):
            return _names(canonical, aliases, complete=True)
        surfaces = self._visible_surfaces(ordinal, [canonical, *aliases])
        if not surfaces:
            return None
        shown = min(surfaces, key=lambda s: (s != canonical, -surfaces[s], s))
        return _names(shown, sorted(set(surfaces) - {shown}), complete=False)

    def _visible_surfaces(self, ordinal: int, known: list[str]) -> Counter[str]:
        """Return how often each spelling stands in a memory that may be seen."""
        rows, mentions = self._source.rows_of(ordinal), self._source.mentions
        places = [
            (position, start, end)
            for position, start, end in zip(
                mentions["positions"][rows].tolist(),
                mentions["starts"][rows].tolist(),
                mentions["ends"][rows].tolist(),
                strict=True,
            )
            if self._source.sight.allowed[position]
        ][:SURFACES_READ]
        contents = self._source.contents(p for p, start, _ in places if start >= 0)
        fields = self._source.author_fields(p for p, start, _ in places if start < 0)
        surfaces: Counter[str] = Counter()
        for position, start, end in places:
            if start >= 0:
                surfaces[contents[position][start:end]] += 1
            else:
                surfaces.update(_spelled_in(fields[position], known))
        return surfaces


def _names(shown: str, aliases: list[str], *, complete: bool) -> Names:
    folded = frozenset(map(fold_name, (shown, *aliases)))
    return Names(shown, tuple(aliases), folded, complete)


def _spelled_in(fields: str, known: list[str]) -> list[str]:
    """Return the first spelling of each folded form that stands in author fields."""
    text = f" {fold_name(fields)} "
    forms: dict[str, str] = {}
    for surface in known:
        forms.setdefault(fold_name(surface), surface)
    return [surface for form, surface in forms.items() if f" {form} " in text]
