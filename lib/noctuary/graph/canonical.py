"""From names to canonical names, stage by stage, every decision kept."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from noctuary.core.errors import FAULTS_SHOWN, ConfigError
from noctuary.core.settings import nearest_hint
from noctuary.graph.fold import fold_name
from noctuary.graph.guards import (
    NameStats,
    Stage,
    Traits,
    ranked,
    read_traits,
    refusal,
    unlike_words,
)
from noctuary.graph.likeness import (
    Link,
    mutual_pairs,
    similar_pairs,
    spelling_links,
)
from noctuary.graph.tables import Merge

# Groups of names that are one concept, grown link by link. No opinion on which links are right.


class Groups:
    """Names in groups, each with its best-ranked name as the canonical one; `never` is kept."""

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


# Which runs of plain words are concepts: document frequency limits and C-value.
#
# C-value (Frantzi, Ananiadou and Mima 2000) asks whether a run of words lives a life of its own or
# only occurs inside longer ones: log2(words) x (frequency - mean frequency of the longer runs that
# hold it). The paper's form for runs of two words or more is used: a single word scores 0 and is
# never a concept by itself, since frequent single words are mostly vocabulary.


C_VALUE_MIN = 0.0
"""Runs must score above this. Higher keeps fewer and longer runs; 0 drops single words and what
only occurs inside one longer run."""

DF_MIN = 2
"""Fewest memories that hold a run; in one memory it connects nothing."""

DF_MAX_SHARE = 0.02
"""Largest share of the memories that hold a run; beyond it is vocabulary and would be a hub."""

RUN_MAX_WORDS = 8
"""Longest run that is looked into; bounds the work per run to 28 parts."""


def c_values(counts: Mapping[str, int]) -> dict[str, float]:
    """Return the C-value of every run, in the order given."""
    return _score(counts, counts, 1)


def keep_runs(counts: Mapping[str, int], memories: int) -> tuple[str, ...]:
    """Return the runs that become concepts, sorted."""
    df_max = max(DF_MIN, math.floor(DF_MAX_SHARE * memories))
    asked = {
        run: count for run, count in counts.items() if DF_MIN <= count <= df_max and " " in run
    }
    values = _score(asked, counts, 2)
    return tuple(sorted(run for run, value in values.items() if value > C_VALUE_MIN))


def _score(asked: Mapping[str, int], counts: Mapping[str, int], shortest: int) -> dict[str, float]:
    """Return the C-value of some of the runs, none of fewer words than `shortest`."""
    hosts: defaultdict[str, list[int]] = defaultdict(list)
    for run, count in counts.items():
        for part in set(_parts(run.split(), shortest)):
            if part in asked:
                hosts[part].append(count)
    return {run: _c_value(run, count, hosts.get(run, ())) for run, count in asked.items()}


def _parts(tokens: Sequence[str], shortest: int) -> Iterator[str]:
    """Yield the shorter runs of consecutive words inside a run, of `shortest` words or more."""
    if len(tokens) > RUN_MAX_WORDS:
        return
    for length in range(shortest, len(tokens)):
        for start in range(len(tokens) - length + 1):
            yield " ".join(tokens[start : start + length])


def _c_value(run: str, count: int, host_counts: Sequence[int]) -> float:
    mean = sum(host_counts) / len(host_counts) if host_counts else 0.0
    return math.log2(len(run.split())) * (count - mean)


# What people forced or forbade: `<store>/merges.toml`, read and checked.
#
#     never = [["Mercury", "Quicksilver"]]   # never one concept, whatever looks alike
#     same = [["k8s", "Kubernetes"]]         # always one concept
#
# Names may be written as anywhere; they are folded. A rule undoes or forces a merge at the next
# build; nothing else keeps a memory of merges.


_KEYS = ("never", "same")

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class MergeRules:
    """Rules over folded names.

    Raises:
        ConfigError: Two names are forced to be one and kept apart.
    """

    never: tuple[Pair, ...] = ()
    same: tuple[Pair, ...] = ()

    def __post_init__(self) -> None:
        faults = _conflicts(self.never, self.same)
        if faults:
            raise ConfigError(_message("the merge rules", faults))

    @classmethod
    def read(cls, path: Path) -> MergeRules:
        """Read a rule file; a store without one has no rules.

        Raises:
            ConfigError: It cannot be read, is no TOML, has other keys or entries than documented,
                or contradicts itself. The message lists up to ten faults.
        """
        raw = _read_toml(path)
        faults = [
            f"unknown key {key!r}{nearest_hint(key, _KEYS)}" for key in raw if key not in _KEYS
        ]
        never, same = (_read_pairs(key, raw.get(key, []), faults) for key in _KEYS)
        faults += _conflicts(never, same)
        if faults:
            raise ConfigError(_message(str(path), faults))
        return cls(never, same)

    def names(self) -> frozenset[str]:
        """Return every folded name that a rule speaks of."""
        return frozenset(name for pair in (*self.never, *self.same) for name in pair)


def components(pairs: Iterable[Pair]) -> dict[str, int]:
    """Return the number of the connected component of each name in the pairs."""
    neighbours: defaultdict[str, list[str]] = defaultdict(list)
    for left, right in pairs:
        neighbours[left].append(right)
        neighbours[right].append(left)
    component: dict[str, int] = {}
    for number, start in enumerate(sorted(neighbours)):
        waiting = [] if start in component else [start]
        while waiting:
            name = waiting.pop()
            if name not in component:
                component[name] = number
                waiting += neighbours[name]
    return component


def _conflicts(never: Iterable[Pair], same: Iterable[Pair]) -> list[str]:
    component = components(same)
    return [
        f"{left!r} and {right!r} stand under never, but the pairs under same make them one: "
        "take one of these rules out"
        for left, right in never
        if left in component and component[left] == component.get(right)
    ]


def _read_toml(path: Path) -> Mapping[str, Any]:
    import tomllib  # most stores have no such file

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(
            f"cannot read {path}, expected a file of merge rules: {error}; make it readable or "
            "move it away"
        ) from error
    except (ValueError, RecursionError) as error:  # also: no UTF-8
        raise ConfigError(
            f"{path} is no TOML ({error}), expected lines such as "
            'same = [["k8s", "Kubernetes"]]: correct it or move it away'
        ) from error


def _read_pairs(key: str, value: Any, faults: list[str]) -> tuple[Pair, ...]:
    if not isinstance(value, list):
        faults.append(f"{key} is {value!r}, expected a list of pairs of names")
        return ()
    pairs: set[Pair] = set()
    for number, entry in enumerate(cast("list[Any]", value), start=1):
        pair = _read_pair(f"{key}, entry {number}", entry, faults)
        if pair is not None:
            pairs.add(pair)
    return tuple(sorted(pairs))


def _read_pair(where: str, entry: Any, faults: list[str]) -> Pair | None:
    names = cast("list[Any]", entry) if isinstance(entry, list) else []
    if len(names) != 2 or not all(isinstance(name, str) for name in names):
        faults.append(f'{where} is {entry!r}, expected two names: ["k8s", "Kubernetes"]')
        return None
    left, right = sorted(fold_name(name) for name in names)
    if not left:
        faults.append(f"{where} is {entry!r}: a name without letters or digits names nothing")
        return None
    if left == right:
        faults.append(
            f"{where} is {entry!r}: both read {left!r}, which is one name already; "
            "case, punctuation and possessives make no difference"
        )
        return None
    return left, right


def _message(where: str, faults: list[str]) -> str:
    shown = "\n".join(f"  {fault}" for fault in faults[:FAULTS_SHOWN])
    rest = len(faults) - FAULTS_SHOWN
    more = f"\n  ... and {rest} more" if rest > 0 else ""
    return f"{where} cannot be used:\n{shown}{more}"


# From names to canonical names, stage by stage, every merge with its reason.
#
# Strong links (rules, given aliases, one spelling) chain: they say that two names are the same.
# Likeness (MinHash, embeddings) does not: a name joins a canonical name only by a link to that
# very name, so that no concept creeps through a row of near misses. A second round over the result
# would creep, and is not done.


_NO_RULES = MergeRules()


@dataclass(frozen=True, slots=True)
class Canonical:
    """Which names stand for which."""

    # canonical name of every name that moved; a canonical name never moves itself
    canonical_of: Mapping[str, str]
    merges: tuple[Merge, ...]  # why, sorted by canonical name and name
    # pairs (for "crowded_bucket": names) that were not merged, by the guard that bit
    refused: Mapping[str, int]
    unknown_names: tuple[str, ...]  # names in rules that no memory holds, sorted


def canonicalise(
    names: Sequence[NameStats],
    aliases: Sequence[tuple[str, str, str]] = (),
    rules: MergeRules = _NO_RULES,
    vectors: Mapping[str, NDArray[np.float32]] | None = None,
) -> Canonical:
    """Decide which names are one concept."""
    order = ranked(names)
    run = _Run(order, rules)
    run.join_strong(aliases, rules)
    run.join_minhash()
    if vectors is not None:
        run.join_embedding(vectors)
    return run.result(rules)


class _Run:
    """One canonicalisation in the making."""

    def __init__(self, order: Sequence[NameStats], rules: MergeRules) -> None:
        self._stats = {stats.name: stats for stats in order}
        self._traits: dict[str, Traits] = {}
        self._groups = Groups([stats.name for stats in order], rules.never)
        self._refused: Counter[str] = Counter()
        self._links: list[Link] = []

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
        links: list[Link] = []
        for left, right, cosine in mutual_pairs(taking_part):
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
