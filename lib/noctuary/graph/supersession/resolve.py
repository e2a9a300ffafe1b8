"""One direct successor per memory, without cycles, and the head of every chain.

What belongs here: choosing among links. What does not: finding them.

Links are chosen strongest source first (REASONS), then newest successor. A link gives way to the
next best of its older memory where it

- closes a cycle: the one that leads to the oldest memory of the cycle goes against time and is
  dropped, the others stay;
- leads, over a memory without a wing, to a head of another wing: what holds for pairs holds for
  chains.

Linear in the links, but for rounds: each drops at least one link, and few links are ever dropped.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from noctuary.graph.supersession.columns import MemoryColumns
from noctuary.graph.supersession.links import REASONS, Link
from noctuary.graph.supersession.memories import Moment, moment_of, wing_of, wings_agree

_RANK = {reason: rank for rank, reason in enumerate(REASONS)}


class Resolved(NamedTuple):
    """The links that count.

    Attributes:
        chosen: The direct successor's link, by older position.
        head_of: Last memory of the chain, by position of every older or newer memory.
        others: What else was stated about superseded memories: links to other successors, or about
            other subjects. Sorted.
    """

    chosen: Mapping[int, Link]
    head_of: Mapping[int, int]
    others: tuple[Link, ...]


def resolve(links: Iterable[Link], memories: MemoryColumns, rejected: Counter[str]) -> Resolved:
    """Choose one successor per memory; the order of the links makes no difference.

    Args:
        links: Candidates, repeats allowed.
        memories: Of the corpus.
        rejected: Counts dropped links by "cycle" and "chain_scope".
    """
    waiting = _by_older(set(links), memories)
    chosen = {older: candidates.pop() for older, candidates in waiting.items()}
    others: list[Link] = []
    while True:
        dropped, reason = _cycle_closers(chosen, memories), "cycle"
        if not dropped:
            dropped, reason = _scope_breakers(chosen, memories), "chain_scope"
        if not dropped:
            break
        rejected[reason] += len(dropped)
        for older in dropped:
            del chosen[older]
            if waiting[older]:
                chosen[older] = waiting[older].pop()
    for older, candidates in waiting.items():
        others += [link for link in candidates if _says_more(link, chosen[older])]
    return Resolved(chosen, _heads(chosen), tuple(sorted(others, key=_order)))


def _by_older(links: set[Link], memories: MemoryColumns) -> dict[int, list[Link]]:
    """Return the candidates of every older memory, the best one last."""
    found: dict[int, list[Link]] = defaultdict(list)
    for link in sorted(links, key=_order, reverse=True):
        found[link.older].append(link)
    for candidates in found.values():
        candidates.sort(key=lambda link: (-_RANK[link.reason], _moment(memories, link.newer)))
    return dict(sorted(found.items()))


def _says_more(link: Link, chosen: Link) -> bool:
    if link.reason == "near_duplicate":
        return False
    return (link.newer, link.concept_id) != (chosen.newer, chosen.concept_id)


def _order(link: Link) -> tuple[int, int, int, int, str, tuple[int, int, int]]:
    return (
        link.older, _RANK[link.reason], -link.confidence, link.newer, link.concept_id,
        (link.evidence.position, link.evidence.start, link.evidence.end),
    )  # fmt: skip


def _cycle_closers(chosen: Mapping[int, Link], memories: MemoryColumns) -> list[int]:
    """Return, per cycle, the older memory whose link leads to the cycle's oldest memory."""
    done: set[int] = set()
    closers: list[int] = []
    for start in chosen:
        path: dict[int, None] = {}
        here = start
        while here in chosen and here not in done and here not in path:
            path[here] = None
            here = chosen[here].newer
        if here in path:
            walked = list(path)
            cycle = walked[walked.index(here) :]
            closers.append(min(cycle, key=lambda p: _moment(memories, chosen[p].newer)))
        done.update(path)
    return closers


def _scope_breakers(chosen: Mapping[int, Link], memories: MemoryColumns) -> list[int]:
    """Return the memories whose wing differs from one that their chain leads through."""
    wing_ahead: dict[int, str] = {}
    breakers: list[int] = []
    for start in chosen:
        path: list[int] = []
        here = start
        while here in chosen and here not in wing_ahead:
            path.append(here)
            here = chosen[here].newer
        ahead = wing_ahead.setdefault(here, wing_of(memories.sighting(here)))
        for position in reversed(path):
            own = wing_of(memories.sighting(position))
            if not wings_agree(own, ahead):
                breakers.append(position)
                ahead = own
            ahead = wing_ahead[position] = own or ahead
    return breakers


def _heads(chosen: Mapping[int, Link]) -> dict[int, int]:
    heads: dict[int, int] = {}
    for start in chosen:
        path: list[int] = []
        here = start
        while here in chosen and here not in heads:
            path.append(here)
            here = chosen[here].newer
        head = heads.setdefault(here, here)
        heads.update((position, head) for position in path)
    return heads


def _moment(memories: MemoryColumns, position: int) -> Moment:
    return moment_of(memories.sighting(position))
