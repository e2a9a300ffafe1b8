"""Which names are like another, and from names to canonical names, every decision kept."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from noctuary.core.errors import FAULTS_SHOWN, ConfigError
from noctuary.core.settings import nearest_hint
from noctuary.graph.fold import fold_name
from noctuary.graph.guards import (
    NameStats,
    Stage,
    Traits,
    joined,
    rank,
    ranked,
    read_traits,
    refusal,
    spelling_key,
    unlike_words,
    without_article,
)
from noctuary.graph.tables import Merge

# Character trigrams of names: as sets for two names, as hashes for many. No opinion on likeness.
#
# Hashes depend on the name alone and are the same on every machine.

GRAM = 3  # characters of a gram; shorter names have none

# Odd, with the bits of the golden ratio: multiples of it lie evenly in 64 bits.
GOLDEN = 0x9E3779B97F4A7C15
_SETS_KEPT = 1 << 13  # some 20 MB; a name is compared with several others
_CODE_BITS = 21  # Unicode ends below 2 ** 21, so three code points fit 63 bits


@lru_cache(maxsize=_SETS_KEPT)
def trigrams(name: str) -> frozenset[str]:
    """Return the sets of three neighbouring characters; empty for shorter names."""
    return frozenset(name[start : start + GRAM] for start in range(len(name) - GRAM + 1))


def jaccard(left: str, right: str) -> float:
    """Return the share of trigrams two names have in common, in [0, 1]; 0 where both have none."""
    ours, theirs = trigrams(left), trigrams(right)
    both = len(ours & theirs)
    either = len(ours) + len(theirs) - both
    return both / either if either else 0.0


def gram_hashes(names: Sequence[str]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return the hashed trigrams of all names on end, repeats included, and where each begins."""
    lengths = np.fromiter(map(len, names), np.int64, len(names))
    if lengths.min() < GRAM:
        short = names[int(lengths.argmin())]
        raise ValueError(f"found the name {short!r}, expected at least {GRAM} characters")
    raw = "".join(names).encode("utf-32-le", "surrogatepass")
    codes = np.frombuffer(raw, np.uint32).astype(np.uint64)
    shift = np.uint64(_CODE_BITS)
    grams = (codes[:-2] << (shift + shift)) | (codes[1:-1] << shift) | codes[2:]
    ends = np.cumsum(lengths)
    inside = np.ones(len(codes), bool)
    inside[ends - 1] = inside[ends - 2] = False  # trigrams that would begin there cross into others
    counts = lengths - (GRAM - 1)
    return mixed(grams[inside[: len(grams)]]), np.cumsum(counts) - counts


def mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return splitmix64 of each value: neighbouring numbers end far apart; no two become one."""
    spread = values + np.uint64(GOLDEN)
    spread = (spread ^ (spread >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    spread = (spread ^ (spread >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return spread ^ (spread >> np.uint64(31))


# Which names can be as like another as MinHash asks: few, found without comparing pairs.
#
# Two sets whose Jaccard is J or more differ in at most (1 - J) x union members. Dealt by a hash
# into one more parts than that, they agree in a whole part, and in its sum. So a name none of whose
# parts occurs in another name has no twin, and needs no signature. Nothing is missed.

_CHUNK_BITS = 13
_CHUNK_NAMES = 1 << _CHUNK_BITS  # names whose grams are held at once: bounds memory
_SLACK = 1e-9  # of products with a likeness, which is no exact binary number


def may_have_twin(names: Sequence[str], jaccard_min: float) -> NDArray[np.bool_]:
    """Return, per distinct name of 3 or more characters, whether a similar one may exist."""
    if not names:
        return np.zeros(0, np.bool_)
    starts = range(0, len(names), _CHUNK_NAMES)
    chunks = [_part_keys(names[start : start + _CHUNK_NAMES], jaccard_min) for start in starts]
    keys = np.concatenate([keys for _, keys in chunks])
    owners = np.concatenate([s + rows for s, (rows, _) in zip(starts, chunks, strict=True)])
    order = np.argsort(keys)
    equal = keys[order][1:] == keys[order][:-1]
    found = np.zeros(len(names), np.bool_)
    found[owners[order[1:][equal]]] = True
    found[owners[order[:-1][equal]]] = True
    return found


def _part_keys(
    names: Sequence[str], jaccard_min: float
) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Return rows of names, each once per part, and the key of that part."""
    hashes, sizes = _distinct(names)
    # The union of a name of n grams with a twin has n to n / J members, and how many is not known
    # yet: a name is dealt into every number of parts that this allows.
    apart = 1.0 - jaccard_min
    fewest = np.floor(sizes * apart + _SLACK).astype(np.int64) + 1
    most = np.floor(sizes / jaccard_min * apart + _SLACK).astype(np.int64) + 1
    rows: list[NDArray[np.int64]] = []
    keys: list[NDArray[np.uint64]] = []
    for parts in range(int(fewest.min()), int(most.max()) + 1):
        chosen = (fewest <= parts) & (parts <= most)
        if not chosen.any():
            continue
        taken = np.repeat(chosen, sizes)
        members, counts = hashes[taken], sizes[chosen]
        begins = np.cumsum(counts) - counts
        dealt = members % np.uint64(parts)
        for part in range(parts):
            sums = np.add.reduceat(np.where(dealt == part, members, np.uint64(0)), begins)
            keys.append(mixed(sums ^ np.uint64(((parts << 32 | part) * GOLDEN) & (2**64 - 1))))
            rows.append(np.flatnonzero(chosen))
    return np.concatenate(rows), np.concatenate(keys)


def _distinct(names: Sequence[str]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return the hashes of the distinct grams of all names on end, and their number by name."""
    hashes, starts = gram_hashes(names)
    counts = np.diff(starts, append=len(hashes))
    owners = np.repeat(np.arange(len(names), dtype=np.uint64), counts)
    shift = np.uint64(64 - _CHUNK_BITS)
    tagged = np.sort((owners << shift) | (hashes >> np.uint64(_CHUNK_BITS)))
    tagged = tagged[np.concatenate([[True], tagged[1:] != tagged[:-1]])]
    sizes = np.bincount((tagged >> shift).astype(np.int64), minlength=len(names))
    return mixed(tagged & np.uint64((1 << (64 - _CHUNK_BITS)) - 1)), sizes


# Names that share nearly all their character trigrams, found by MinHash and banding: candidates
# share a bucket in any band, and each is verified by exact Jaccard.

# Share of trigrams that two names must have in common; lower finds more misspellings and more names
# that only look alike.
JACCARD_MIN = 0.9
# Hash values in a band: a pair of likeness j shares a band with odds j ** BAND_ROWS. More rows
# verify fewer pairs in vain and miss more.
BAND_ROWS = 6
# Bands: a pair at JACCARD_MIN is missed with odds (1 - 0.9 ** 6) ** 16 = 5e-6. More bands miss less
# and cost time and memory in proportion.
BANDS = 16
# Least entropy of a name's characters: at least four of them in equal use. Below, trigrams are
# repetitive (hahaha, hahahaha).
ENTROPY_MIN_BITS = 2.0
FUZZY_MIN_CHARS = 8  # shortest name compared by trigrams: below, one letter is a tenth of the name

# Names of a bucket compared with all others of it. A larger bucket is split by the digits of its
# names; what is still larger compares each name with the 64 best-ranked ones, and is counted.
# Bounds a corpus of near-equal names (log lines); raising it finds more twins in such a corpus,
# slower.
BUCKET_MAX_NAMES = 64
CROWDED = "crowded_bucket"  # reason under which names of larger buckets are counted

_DIGITS = re.compile(r"\d+")
_SHAPES_KEPT = 1 << 14  # pairs of length and number of characters: every one that occurs
_MASK = (1 << 64) - 1

# A key of 64 bits per band, shape (names, BANDS): names that agree in a band are compared.
Signatures = NDArray[np.uint64]


def may_compare(name: str) -> bool:
    """Return whether a folded name is long and varied enough to compare its trigrams."""
    plain = name.replace(" ", "")
    if len(plain) < FUZZY_MIN_CHARS:
        return False
    # Nearly all names are varied enough whatever the counts of their characters are.
    if _least_entropy_bits(len(plain), len(set(plain))) >= ENTROPY_MIN_BITS:
        return True
    return entropy_bits(plain) >= ENTROPY_MIN_BITS


def entropy_bits(text: str) -> float:
    """Return the Shannon entropy of a text's characters, in bits; 0 for the empty text."""
    # Summed in the order of the counts, so that equal texts give the same float anywhere.
    shares = (count / len(text) for count in sorted(Counter(text).values()))
    return sum(-share * math.log2(share) for share in shares)


@lru_cache(maxsize=_SHAPES_KEPT)
def _least_entropy_bits(length: int, distinct: int) -> float:
    """Return the entropy of a text in which one character fills all repeated places."""
    often = (length - distinct + 1) / length
    return -often * math.log2(often) + (distinct - 1) / length * math.log2(length)


def signatures(names: Sequence[str]) -> Signatures:
    """Return the MinHash bands of every name; a row depends on its name alone."""
    starts = range(0, len(names), _CHUNK_NAMES)
    chunks = [_bands_of(names[start : start + _CHUNK_NAMES]) for start in starts]
    return np.concatenate(chunks) if chunks else np.empty((0, BANDS), np.uint64)


def candidates(
    names: Sequence[str], rows: Signatures, refused: Counter[str]
) -> Iterator[tuple[int, int]]:
    """Yield pairs (better rank, lower rank) of indices that share a band, each once."""
    seen: set[tuple[int, int]] = set()
    crowded: set[int] = set()
    for bucket in _split(names, _buckets(rows)):
        crowded.update(bucket[BUCKET_MAX_NAMES:])
        for place, low in enumerate(bucket):
            for pair in ((high, low) for high in bucket[: min(place, BUCKET_MAX_NAMES)]):
                if pair not in seen:
                    seen.add(pair)
                    yield pair
    if crowded:
        refused[CROWDED] += len(crowded)


def similar_pairs(names: Sequence[str], refused: Counter[str]) -> list[tuple[int, int, float]]:
    """Return pairs with Jaccard of JACCARD_MIN or more."""
    # Of those that may be compared, some tenth can have a twin and need a signature.
    long_enough = [index for index, name in enumerate(names) if may_compare(name)]
    likely = may_have_twin([names[index] for index in long_enough], JACCARD_MIN).tolist()
    chosen = [index for index, is_likely in zip(long_enough, likely, strict=True) if is_likely]
    texts = [names[index] for index in chosen]
    pairs: list[tuple[int, int, float]] = []
    for high, low in candidates(texts, signatures(texts), refused):
        score = jaccard(texts[high], texts[low])
        if score >= JACCARD_MIN:
            pairs.append((chosen[high], chosen[low], score))
    return sorted(pairs)


def _buckets(rows: Signatures) -> Iterator[list[int]]:
    """Yield the indices of every bucket with two names or more, in order of rank."""
    for keys in rows.T:
        order = np.argsort(keys, kind="stable")  # stable: equal keys stay in order of rank
        edges = [0, *(np.flatnonzero(np.diff(keys[order])) + 1).tolist(), len(order)]
        yield from (order[a:b].tolist() for a, b in pairwise(edges) if b - a > 1)


def _split(names: Sequence[str], buckets: Iterator[list[int]]) -> Iterator[list[int]]:
    """Part the names of larger buckets by their digits: such names never merge anyway."""
    for bucket in buckets:
        if len(bucket) <= BUCKET_MAX_NAMES:
            yield bucket
            continue
        parts: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
        for index in bucket:
            parts[tuple(_DIGITS.findall(names[index]))].append(index)
        yield from (part for part in parts.values() if len(part) > 1)


def _bands_of(names: Sequence[str]) -> Signatures:
    grams, starts = gram_hashes(names)
    # Multiplier (odd) and addend of every hash, the same on every machine.
    places = range(1, 2 * BANDS * BAND_ROWS + 1)
    drawn = mixed(np.array([(place * GOLDEN) & _MASK for place in places], np.uint64))
    bands, hashes = np.zeros((len(names), BANDS), np.uint64), np.empty_like(grams)
    for place, (multiplier, addend) in enumerate(zip(drawn[::2] | 1, drawn[1::2], strict=True)):
        # The high half of the product is the well-mixed one.
        np.multiply(grams, multiplier, out=hashes)
        hashes += addend
        hashes >>= np.uint64(32)
        least = np.minimum.reduceat(hashes, starts)
        bands[:, place // BAND_ROWS] = mixed(bands[:, place // BAND_ROWS] ^ least)
    return bands


# Names whose vectors are each other's nearest, by blocks of rows: the one step that sees all pairs,
# under a second for as many names as are given a vector. Cosines are exact to 1e-9 and ties go to
# the smaller name, so that blocks make no difference.

# Least cosine of two names that may be one; lower finds more synonyms and more mere relatives.
COSINE_MIN = 0.8
_BLOCK_VALUES = 1 << 22  # cosines held at once: 32 MB
_COSINE_DIGITS = 9  # sums of any order agree to this


def mutual_pairs(vectors: Mapping[str, NDArray[np.float32]]) -> list[tuple[str, str, float]]:
    """Return pairs (smaller name, larger name, cosine) that are each other's nearest, sorted."""
    names = sorted(vectors)
    if not names:
        return []
    units = _unit_rows([vectors[name] for name in names])
    nearest, cosines = np.empty(len(names), np.int64), np.empty(len(names))
    size = max(1, _BLOCK_VALUES // len(names))
    for start in range(0, len(names), size):
        block = units[start : start + size] @ units.T
        rows = np.arange(len(block))
        block[rows, start + rows] = -1.0
        highest = np.round(block.max(axis=1), _COSINE_DIGITS)
        # Of equal ones the first, which is the smaller name.
        nearest[start + rows] = (block >= highest[:, None] - 0.5 * 0.1**_COSINE_DIGITS).argmax(
            axis=1
        )
        cosines[start + rows] = np.minimum(highest, 1.0)
    rows = np.arange(len(names))
    chosen = (nearest[nearest] == rows) & (rows < nearest) & (cosines >= COSINE_MIN)
    return [(names[r], names[nearest[r]], float(cosines[r])) for r in np.flatnonzero(chosen)]


def _unit_rows(vectors: Sequence[NDArray[np.float32]]) -> NDArray[np.float64]:
    shapes = set(map(np.shape, vectors))
    if len(shapes) != 1:
        raise ValueError(f"found vectors of shapes {sorted(shapes)}, expected one: embed anew")
    rows = np.stack(vectors).astype(np.float32)
    if not np.isfinite(rows).all():
        raise ValueError("found vectors with values that are not finite: embed these names anew")
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    units = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0).astype(np.float64)
    # Rows of float32 are off by 1e-7.
    lengths = np.linalg.norm(units, axis=1, keepdims=True)
    return np.divide(units, lengths, out=units, where=lengths > 0)


# Names that are one but for their spelling. Candidates share a key; linear in the names.


class Link(NamedTuple):
    """Two names that a stage holds for one."""

    name: str
    other: str
    reason: str
    score: float  # in [0, 1]
    detail: str


def spelling_links(
    stats: Mapping[str, NameStats], read: Callable[[str], Traits], refused: Counter[str]
) -> list[Link]:
    """Link every name to the best name of its spelling that the guards allow."""
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
    stats: Mapping[str, NameStats], read: Callable[[str], Traits], refused: Counter[str]
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


# Groups of names that are one concept, grown link by link. No opinion on which links are right.


class Groups:
    """Names in groups, each with its best-ranked name as the canonical one; `never` is kept."""

    def __init__(self, names: Sequence[str], never: Iterable[tuple[str, str]]) -> None:
        self.rank = {name: place for place, name in enumerate(names)}
        # Only of names in company: nearly all stay alone.
        self._canonical: dict[str, str] = {}
        self._members: dict[str, list[str]] = {}
        self._apart: defaultdict[str, set[str]] = defaultdict(set)
        for left, right in never:
            self._apart[left].add(right)
            self._apart[right].add(left)

    def __contains__(self, name: str) -> bool:
        return name in self.rank

    def canonical(self, name: str) -> str:
        """Return the canonical name of a known name's group."""
        return self._canonical.get(name, name)

    def leaders(self) -> list[str]:
        """Return the canonical names, best rank first."""
        return [name for name in self.rank if self.canonical(name) == name]

    def better_first(self, left: str, right: str) -> tuple[str, str]:
        """Return two known names, the better ranked one first."""
        return (left, right) if self.rank[left] < self.rank[right] else (right, left)

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

    def moved(self) -> dict[str, str]:
        """Return the canonical name of every name that is not its own, best rank first."""
        return {n: self._canonical[n] for n in sorted(self._canonical, key=self.rank.__getitem__)}

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
    """Return the link, and the name it hangs on, for each name that the links reach."""
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


# Which runs of plain words are concepts: document frequency limits and C-value (Frantzi, Ananiadou
# and Mima 2000), which asks whether a run occurs outside of longer ones: log2(words) x (frequency -
# mean frequency of the longer runs that hold it). A single word scores 0 and is no concept.

# Runs must score above this. Higher keeps fewer and longer runs; 0 drops single words and runs
# that occur only inside one longer run.
C_VALUE_MIN = 0.0
DF_MIN = 2  # fewest memories that hold a run; in one memory it connects nothing

# Largest share of the memories that hold a run; beyond it is vocabulary and would be a hub.
DF_MAX_SHARE = 0.02
RUN_MAX_WORDS = 8  # longest run that is looked into; bounds the work per run to 28 parts


def keep_runs(counts: Mapping[str, int], memories: int) -> tuple[str, ...]:
    """Return the runs that become concepts, sorted."""
    df_max = max(DF_MIN, math.floor(DF_MAX_SHARE * memories))
    asked = {run: n for run, n in counts.items() if DF_MIN <= n <= df_max and " " in run}
    values = c_values(asked, counts)
    return tuple(sorted(run for run, value in values.items() if value > C_VALUE_MIN))


def c_values(asked: Mapping[str, int], counts: Mapping[str, int]) -> dict[str, float]:
    """Return log2(words) x (count - mean count of the longer runs that hold it) of some runs."""
    hosts: defaultdict[str, list[int]] = defaultdict(list)
    for run, count in counts.items():
        for part in set(_parts(run.split())):
            if part in asked:
                hosts[part].append(count)
    return {
        run: math.log2(len(run.split())) * (count - sum(hosts[run]) / (len(hosts[run]) or 1))
        for run, count in asked.items()
    }


def _parts(tokens: Sequence[str]) -> Iterator[str]:
    """Yield the shorter runs of two consecutive words or more inside a run."""
    if len(tokens) > RUN_MAX_WORDS:
        return
    for length in range(2, len(tokens)):
        for start in range(len(tokens) - length + 1):
            yield " ".join(tokens[start : start + length])


# Merges forced or forbidden by people: `<store>/merges.toml`, names folded; stored nowhere else.
#
#     never = [["Mercury", "Quicksilver"]]   # never one concept, however similar
#     same = [["k8s", "Kubernetes"]]         # always one concept

_KEYS = ("never", "same")

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class MergeRules:
    """Rules over folded names; a ConfigError where two are forced to be one and kept apart."""

    never: tuple[Pair, ...] = ()
    same: tuple[Pair, ...] = ()

    def __post_init__(self) -> None:
        _refuse("the merge rules", _conflicts(self.never, self.same))

    @classmethod
    def read(cls, path: Path) -> MergeRules:
        """Read a rule file, none being no rules; a ConfigError lists up to ten faults."""
        raw = _read_toml(path)
        unknown = (key for key in raw if key not in _KEYS)
        faults = [f"unknown key {key!r}{nearest_hint(key, _KEYS)}" for key in unknown]
        never, same = (_read_pairs(key, raw.get(key, []), faults) for key in _KEYS)
        _refuse(str(path), [*faults, *_conflicts(never, same)])
        return cls(never, same)

    def names(self) -> frozenset[str]:
        """Return every folded name that a rule speaks of."""
        return frozenset(name for pair in (*self.never, *self.same) for name in pair)


def _conflicts(never: Iterable[Pair], same: Iterable[Pair]) -> list[str]:
    groups = Groups(sorted({name for pair in (*never, *same) for name in pair}), ())
    for left, right in same:
        groups.join(left, right)
    return [
        f"{left!r} and {right!r} stand under never, but the pairs under same make them one: "
        "take one of these rules out"
        for left, right in never
        if groups.canonical(left) == groups.canonical(right)
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
        where = f"{key}, entry {number} is {entry!r}"
        names = cast("list[Any]", entry) if isinstance(entry, list) else []
        if len(names) != 2 or not all(isinstance(name, str) for name in names):
            faults.append(f'{where}, expected two names: ["k8s", "Kubernetes"]')
            continue
        left, right = sorted(fold_name(name) for name in names)
        if not left:
            faults.append(f"{where}: a name without letters or digits names nothing")
        elif left == right:
            faults.append(
                f"{where}: both read {left!r}, which is one name already; "
                "case, punctuation and possessives make no difference"
            )
        else:
            pairs.add((left, right))
    return tuple(sorted(pairs))


def _refuse(where: str, faults: list[str]) -> None:
    if not faults:
        return
    rest = len(faults) - FAULTS_SHOWN
    more = [f"... and {rest} more"] if rest > 0 else []
    shown = "\n".join(f"  {line}" for line in (*faults[:FAULTS_SHOWN], *more))
    raise ConfigError(f"{where} cannot be used:\n{shown}")


# From names to canonical names, stage by stage. Strong links (rules, given aliases, one spelling)
# chain. Likeness does not: a name joins a canonical name only by a link to that very name, so that
# no concept creeps through a row of near misses.

_NO_RULES = MergeRules()


@dataclass(frozen=True, slots=True)
class Canonical:
    """The canonical names."""

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
    run = _Run(ranked(names), rules)
    run.join_strong(aliases)
    run.join_minhash()
    run.join_embedding(vectors or {})
    return run.result()


class _Run:
    def __init__(self, order: Sequence[NameStats], rules: MergeRules) -> None:
        self._rules = rules
        self._stats = {stats.name: stats for stats in order}
        self._traits: dict[str, Traits] = {}
        self._groups = Groups([stats.name for stats in order], rules.never)
        self._refused: Counter[str] = Counter()
        self._links: list[Link] = []

    def join_strong(self, aliases: Sequence[tuple[str, str, str]]) -> None:
        for left, right in sorted((min(pair), max(pair)) for pair in self._rules.same):
            self._take(Link(left, right, "rule", 1.0, "same in merges.toml"))
        for link in self._declared(aliases):
            self._take(link)
        for link in spelling_links(self._stats, self._of, self._refused):
            self._take(link)

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

    def result(self) -> Canonical:
        moved = self._groups.moved()
        unknown = sorted(name for name in self._rules.names() if name not in self._groups)
        refused = dict(sorted(self._refused.items()))
        return Canonical(moved, tuple(self._explain(moved)), refused, tuple(unknown))

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

    def _take(self, link: Link) -> None:
        if link.name not in self._groups or link.other not in self._groups:
            self._refused["unknown_name"] += link.reason == "alias"
        elif self._groups.join(link.name, link.other):
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
        place = self._groups.rank.__getitem__
        for name in sorted(choices, key=place):
            for link in sorted(choices[name], key=lambda link: (-link.score, place(link.other))):
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
