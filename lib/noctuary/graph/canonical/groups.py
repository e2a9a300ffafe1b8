"""Groups of names that are one concept, grown link by link. No opinion on which links are right."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from noctuary.graph.canonical.spelling import Link


class Groups:
    """Names in groups, each with its best-ranked name as the canonical one; `never` is kept.

    Args:
        names: Best rank first.
        never: Pairs that must not end in one group.
    """

    def __init__(self, names: Sequence[str], never: Iterable[tuple[str, str]]) -> None:
        self._rank = {name: place for place, name in enumerate(names)}
        # Only of names in company: nearly all stay alone.
        self._canonical: dict[str, str] = {}
        self._members: dict[str, list[str]] = {}
        self._apart: defaultdict[str, set[str]] = defaultdict(set)
        for left, right in never:
            self._apart[left].add(right)
            self._apart[right].add(left)

    def __contains__(self, name: str) -> bool:
        return name in self._rank

    def canonical(self, name: str) -> str:
        """Return the name that stands for a known name's group."""
        return self._canonical.get(name, name)

    def leaders(self) -> list[str]:
        """Return the canonical names, best rank first."""
        return [name for name in self._rank if self.canonical(name) == name]

    def better_first(self, left: str, right: str) -> tuple[str, str]:
        """Return two known names, the better ranked one first."""
        return (left, right) if self._rank[left] < self._rank[right] else (right, left)

    def place(self, name: str) -> int:
        """Return the rank of a known name, 0 for the best."""
        return self._rank[name]

    def join(self, left: str, right: str) -> bool:
        """Make two known names one concept, unless `never` keeps any of their groups apart."""
        high, low = self.better_first(self.canonical(left), self.canonical(right))
        if high == low:
            return True
        if self._kept_apart(high, low):
            return False
        joining = self._members.pop(low, [low])
        self._canonical.update(dict.fromkeys(joining, high))
        self._members.setdefault(high, [high]).extend(joining)
        return True

    def moved(self) -> Iterator[tuple[str, str]]:
        """Yield (name, canonical name) of every name that is not its own, best rank first."""
        for name in sorted(self._canonical, key=self._rank.__getitem__):
            yield name, self._canonical[name]

    def _kept_apart(self, high: str, low: str) -> bool:
        if not self._apart:
            return False
        smaller, larger = sorted((high, low), key=lambda name: len(self._group(name)))
        return any(
            self.canonical(other) == larger
            for name in self._group(smaller)
            for other in self._apart.get(name, ())
        )

    def _group(self, leader: str) -> list[str]:
        return self._members.get(leader, [leader])


def paths_to(canonical: str, links: Iterable[Link]) -> dict[str, tuple[Link, str]]:
    """Return for each name that the links reach the link and the name it hangs on.

    Breadth first from the canonical name: each name is explained by the shortest way to it. Links
    earlier in the sequence win.
    """
    around: defaultdict[str, list[Link]] = defaultdict(list)
    for link in links:
        around[link.name].append(link)
        around[link.other].append(link)
    found: dict[str, tuple[Link, str]] = {}
    waiting = [canonical]
    for name in waiting:  # grows while it is read
        for link in around[name]:
            other = link.other if link.name == name else link.name
            if other != canonical and other not in found:
                found[other] = (link, name)
                waiting.append(other)
    return found
