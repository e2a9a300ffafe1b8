"""Names that are one but for their spelling: spaces, accents, an article, a plural, a qualifier.

Candidates come out of buckets by a key that is a pure function of the name; linear in the names.
Possessives need no rule here: folding takes them off (`noctuary.graph.fold`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from noctuary.graph.canonical.guards import Stage, refusal
from noctuary.graph.canonical.keys import joined, spelling_key, without_article
from noctuary.graph.canonical.stats import NameStats, rank
from noctuary.graph.canonical.traits import Traits

Reader = Callable[[str], Traits]
"""Gives the traits of a known name."""


class Link(NamedTuple):
    """Two names that a stage holds for one.

    Attributes:
        name: The one that ranks lower.
        other: The one that ranks higher.
        reason: As in `noctuary.graph.model.Merge.reason`.
        score: In [0, 1].
        detail: What was compared, in a few words.
    """

    name: str
    other: str
    reason: str
    score: float
    detail: str


def spelling_links(
    stats: Mapping[str, NameStats], read: Reader, refused: Counter[str]
) -> list[Link]:
    """Link every name to the best name of its spelling that the guards let stand.

    Args:
        stats: By name, best rank first.
        read: Gives the traits of a name; asked only for names that have company.
        refused: Guards that bit are counted here, once per pair compared.
    """
    keys = [spelling_key(name) for name in stats]
    shared = {key for key, names in Counter(keys).items() if names > 1}
    buckets: defaultdict[str, list[Traits]] = defaultdict(list)
    for name, key in zip(stats, keys, strict=True):
        if key in shared:
            buckets[key].append(read(name))
    links = [link for bucket in buckets.values() for link in _star_links(bucket, refused)]
    return links + _qualifier_links(stats, read, refused)


def _star_links(bucket: Sequence[Traits], refused: Counter[str]) -> list[Link]:
    leaders: list[Traits] = []
    links: list[Link] = []
    for item in bucket:
        for leader in leaders:
            stage, detail = _difference(item, leader)
            reason = refusal(item, leader, stage)
            if not reason:
                links.append(Link(item.stats.name, leader.stats.name, "alias", 1.0, detail))
                break
            refused[reason] += 1
        else:
            leaders.append(item)
    return links


def _difference(left: Traits, right: Traits) -> tuple[Stage, str]:
    """Return the one thing in which two names of a bucket differ."""
    ours, theirs = left.tokens, right.tokens
    if "".join(ours) == "".join(theirs):
        return "spacing", "spaces or hyphens"
    if joined(ours) == joined(theirs):
        return "spacing", "accents"
    if without_article(ours) == without_article(theirs):
        return "article", "the article"
    if ours[:-1] == theirs[:-1]:
        return "plural", "plural"
    return "several", ""


def _qualifier_links(
    stats: Mapping[str, NameStats], read: Reader, refused: Counter[str]
) -> list[Link]:
    """Link "X (q)" with "X" where no other qualifier of X is known."""
    qualified: defaultdict[str, list[Traits]] = defaultdict(list)
    for item in stats.values():
        if item.surfaces and item.surfaces[0].rstrip().endswith((")", "）")):
            traits = read(item.name)
            if traits.base in stats and traits.base != item.name:
                qualified[traits.base].append(traits)
    links: list[Link] = []
    for base, items in qualified.items():
        reason = "ambiguous_qualifier" if len(items) > 1 else ""
        reason = reason or refusal(items[0], read(base), "qualifier")
        if reason:
            refused[reason] += len(items)
            continue
        high, low = sorted((stats[base], items[0].stats), key=rank)
        links.append(Link(low.name, high.name, "alias", 1.0, f"qualifier ({items[0].qualifier})"))
    return links
