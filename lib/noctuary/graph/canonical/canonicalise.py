"""From names to canonical names, stage by stage, every merge with its reason.

Strong links (rules, given aliases, one spelling) chain: they say that two names are the same.
Likeness (MinHash, embeddings) does not: a name joins a canonical name only by a link to that very
name, so that no concept creeps through a row of near misses. A second round over the result would
creep, and is not done.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from noctuary.graph.canonical.groups import Groups, paths_to
from noctuary.graph.canonical.guards import Stage, refusal, unlike_words
from noctuary.graph.canonical.minhash import similar_pairs
from noctuary.graph.canonical.nearest import Neighbour, mutual_pairs, nearest_neighbours
from noctuary.graph.canonical.rules import MergeRules
from noctuary.graph.canonical.spelling import Link, spelling_links
from noctuary.graph.canonical.stats import NameStats, ranked
from noctuary.graph.canonical.traits import Traits, read_traits
from noctuary.graph.model import Merge

_NO_RULES = MergeRules()


def _no_neighbours() -> dict[str, Neighbour | None]:
    return {}


@dataclass(frozen=True, slots=True)
class Memo:
    """What the next run need not compute again; the result never depends on it.

    Attributes:
        neighbours: Nearest names of exactly the names that took part in the embedding stage. Valid
            while the encoder is the same: drop the memo when its fingerprint changes.
    """

    neighbours: Mapping[str, Neighbour | None] = field(default_factory=_no_neighbours)


@dataclass(frozen=True, slots=True)
class Canonical:
    """Which names stand for which.

    Attributes:
        canonical_of: Canonical name of every name that moved; a canonical name never moves itself.
        merges: Why, sorted by canonical name and name.
        refused: Pairs (for "crowded_bucket": names) that were not merged, by the guard that bit.
        unknown_names: Names in rules that no memory holds, sorted.
        memo: For the next run.
    """

    canonical_of: Mapping[str, str]
    merges: tuple[Merge, ...]
    refused: Mapping[str, int]
    unknown_names: tuple[str, ...]
    memo: Memo


def canonicalise(
    names: Sequence[NameStats],
    aliases: Sequence[tuple[str, str, str]] = (),
    rules: MergeRules = _NO_RULES,
    vectors: Mapping[str, NDArray[np.float32]] | None = None,
    previous: Memo | None = None,
) -> Canonical:
    """Decide which names are one concept.

    Args:
        names: Every folded name once, in any order.
        aliases: (alias, canonical, detail), folded, as texts or authors declared them. The best
            ranked of the two becomes the canonical name all the same. An alias declared for two
            names counts for neither.
        rules: What people forced or forbade; they outweigh all else.
        vectors: By name, for the names that have one; None leaves the embedding stage out.
        previous: Memo of an earlier run.

    Raises:
        ValueError: A name stands twice, or vectors differ in shape or are not finite.
    """
    order = ranked(names)
    run = _Run(order, rules, previous or Memo())
    run.join_strong(aliases, rules)
    run.join_minhash()
    if vectors is not None:
        run.join_embedding(vectors)
    return run.result(rules)


class _Run:
    """One canonicalisation in the making."""

    def __init__(self, order: Sequence[NameStats], rules: MergeRules, previous: Memo) -> None:
        self._stats = {stats.name: stats for stats in order}
        self._traits: dict[str, Traits] = {}
        self._groups = Groups([stats.name for stats in order], rules.never)
        self._previous = previous
        self._refused: Counter[str] = Counter()
        self._links: list[Link] = []
        self._neighbours: Mapping[str, Neighbour | None] = {}

    def join_strong(self, aliases: Sequence[tuple[str, str, str]], rules: MergeRules) -> None:
        for left, right in sorted((min(pair), max(pair)) for pair in rules.same):
            self._take(left, right, Link(left, right, "rule", 1.0, "same in merges.toml"))
        for link in self._declared(aliases):
            self._take(link.name, link.other, link)
        for link in spelling_links(self._stats, self._of, self._refused):
            self._take(link.name, link.other, link)

    def join_minhash(self) -> None:
        leaders = self._groups.leaders()
        links = [
            Link(leaders[low], leaders[high], "minhash", score, f"trigrams {score:.3f}")
            for high, low, score in similar_pairs(leaders, self._refused)
        ]
        self._join_direct(links, "minhash")

    def join_embedding(self, vectors: Mapping[str, NDArray[np.float32]]) -> None:
        leaders = self._groups.leaders()
        taking_part = {name: vectors[name] for name in leaders if name in vectors}
        known = self._previous.neighbours or None
        self._neighbours = nearest_neighbours(taking_part, known)
        links: list[Link] = []
        for left, right, cosine in mutual_pairs(self._neighbours):
            if unlike_words(self._of(left), self._of(right), cosine):
                self._refused[unlike_words.__name__] += 1
                continue
            high, low = self._groups.better_first(left, right)
            links.append(Link(low, high, "embedding", cosine, f"cosine {cosine:.3f}"))
        self._join_direct(links, "embedding")

    def result(self, rules: MergeRules) -> Canonical:
        moved = dict(self._groups.moved())
        unknown = sorted(name for name in rules.names() if name not in self._groups)
        return Canonical(
            canonical_of=moved,
            merges=tuple(self._explain(moved)),
            refused=dict(sorted(self._refused.items())),
            unknown_names=tuple(unknown),
            memo=Memo(self._neighbours),
        )

    def _declared(self, aliases: Sequence[tuple[str, str, str]]) -> list[Link]:
        """Return given aliases between known names, without those declared for several names."""
        targets: defaultdict[str, set[str]] = defaultdict(set)
        for alias, canonical, _ in aliases:
            targets[alias].add(canonical)
        self._refused["ambiguous_alias"] += sum(len(found) > 1 for found in targets.values())
        return [
            Link(alias, canonical, "alias", 1.0, detail)
            for alias, canonical, detail in sorted(set(aliases))
            if alias != canonical and len(targets[alias]) == 1
        ]

    def _take(self, left: str, right: str, link: Link) -> None:
        if left not in self._groups or right not in self._groups:
            self._refused["unknown_name"] += link.reason == "alias"
        elif self._groups.join(left, right):
            self._links.append(link)
        else:
            self._refused["never"] += 1

    def _join_direct(self, links: Sequence[Link], stage: Stage) -> None:
        """Let each leader, best rank first, join the likest of the better ones that still lead."""
        choices: defaultdict[str, list[Link]] = defaultdict(list)
        for link in links:
            reason = refusal(self._of(link.name), self._of(link.other), stage)
            if reason:
                self._refused[reason] += 1
            else:
                choices[link.name].append(link)
        for name in sorted(choices, key=self._groups.place):
            by_likeness = sorted(
                choices[name], key=lambda link: (-link.score, self._groups.place(link.other))
            )
            for link in by_likeness:
                if self._groups.canonical(link.other) != link.other:
                    self._refused["chain"] += 1
                elif self._groups.join(name, link.other):
                    self._links.append(link)
                    break
                else:
                    self._refused["never"] += 1

    def _of(self, name: str) -> Traits:
        # Most names have no company and are never read.
        if name not in self._traits:
            self._traits[name] = read_traits(self._stats[name])
        return self._traits[name]

    def _explain(self, moved: Mapping[str, str]) -> list[Merge]:
        links: defaultdict[str, list[Link]] = defaultdict(list)
        for link in self._links:
            links[self._groups.canonical(link.name)].append(link)
        merges: list[Merge] = []
        for canonical in sorted(set(moved.values())):
            found = paths_to(canonical, links[canonical])
            for name, (link, through) in sorted(found.items()):
                via = "" if through == canonical else f", through {through}"
                merges.append(Merge(name, canonical, link.reason, link.score, link.detail + via))
        return merges
