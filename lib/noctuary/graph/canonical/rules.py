"""What people forced or forbade: `<store>/merges.toml`, read and checked.

    never = [["Mercury", "Quicksilver"]]   # never one concept, whatever looks alike
    same = [["k8s", "Kubernetes"]]         # always one concept

Names may be written as anywhere; they are folded. A rule undoes or forces a merge at the next
build; nothing else keeps a memory of merges.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from noctuary.errors import FAULTS_SHOWN, ConfigError
from noctuary.graph.fold import fold_name
from noctuary.settings.suggest import nearest_hint

_KEYS = ("never", "same")

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class MergeRules:
    """Rules over folded names.

    Attributes:
        never: Pairs that must not be one concept, directly or through others.
        same: Pairs that are one concept; they chain.

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
