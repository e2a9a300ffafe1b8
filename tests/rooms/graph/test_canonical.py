"""Which names are one: rules, aliases, twins, signatures, vectors."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from noctuary.core.errors import ConfigError
from noctuary.graph import canonical
from noctuary.graph.canonical import (
    BAND_ROWS,
    BANDS,
    BUCKET_MAX_NAMES,
    COSINE_MIN,
    CROWDED,
    ENTROPY_MIN_BITS,
    FUZZY_MIN_CHARS,
    JACCARD_MIN,
    MergeRules,
    c_values,
    candidates,
    canonicalise,
    entropy_bits,
    jaccard,
    keep_runs,
    may_compare,
    may_have_twin,
    mutual_pairs,
    signatures,
    similar_pairs,
)
from noctuary.graph.fold import fold_name
from noctuary.graph.guards import NameStats

Vectors = Mapping[str, NDArray[np.float32]]


def _stats(*surfaces: str, kind: str = "name", df: int = 1) -> NameStats:
    return NameStats(fold_name(surfaces[0]), kind, surfaces, df)


def _unit(*values: float) -> NDArray[np.float32]:
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("better", "other", "detail"),
    [
        (_stats("email", df=4), _stats("e-mail"), "spaces or hyphens"),
        (_stats("rule_registry", kind="identifier", df=4), _stats("RuleRegistry", kind="quoted"),
         "spaces or hyphens"),
        (_stats("Beyoncé", df=4), _stats("Beyonce"), "accents"),
        (_stats("The Hunger Games", kind="title", df=4), _stats("Hunger Games"), "the article"),
        (_stats("gotchas", kind="tag", df=4), _stats("gotcha", kind="tag"), "plural"),
        (_stats("API keys", df=4), _stats("API key"), "plural"),
        (_stats("dependencies", df=4), _stats("dependency"), "plural"),
        (_stats("Hardcase", df=1), _stats("Hardcase (1972 film)", df=1), "qualifier (1972 film)"),
    ],
)  # fmt: skip
def test_spellings_are_one_concept(better: NameStats, other: NameStats, detail: str) -> None:
    found = canonicalise([other, better])
    assert [(merge.reason, merge.score, merge.detail) for merge in found.merges] == [
        ("alias", 1.0, detail)
    ]
    ordered = sorted([better, other], key=lambda item: (-item.df, -len(item.name)))
    assert found.canonical_of == {ordered[1].name: ordered[0].name}


FIRST = "monthly counseling handbook for restructuring"
WALLS = [_stats("garden walls", df=3), _stats("yard fences", df=2), _stats("field hedges")]
PEOPLE = [_stats("Maria Anna of Bavaria"), _stats("Maria Leopoldine of Bavaria")]
SWAPPED = [_stats("error handling"), _stats("error ignorance")]


def _at(*angles: float) -> list[NDArray[np.float32]]:
    return [_unit(np.cos(angle), np.sin(angle)) for angle in angles]


def _vectors(names: list[NameStats], rows: list[NDArray[np.float32]]) -> Vectors:
    return {item.name: row for item, row in zip(names, rows, strict=True)}


# Names, what else is given, which name stands for which, and one reason to keep names apart.
CASES: dict[str, tuple[list[NameStats], dict[str, Any], dict[str, str], str]] = {
    "a proper plural": ([_stats("Alien", kind="title"), _stats("Aliens")], {}, {}, "proper_plural"),
    "a proper and a common noun": (
        [_stats("The Matrix"), _stats("matrix")], {}, {}, "proper_and_common",
    ),
    "several differences": (
        [_stats("The Front Line"), _stats("Frontline")], {}, {}, "several_differences",
    ),
    "a short name": ([_stats("IDs", "ids"), _stats("i.d.s.")], {}, {}, "short_name"),
    "sessions": (
        [_stats("sess-ion1", kind="session"), _stats("session1", kind="session")],
        {}, {}, "differing_kinds_spelled",
    ),
    "two qualifiers make the plain name ambiguous": (
        [_stats("Mercury"), _stats("Mercury (planet)"), _stats("Mercury (element)")],
        {}, {}, "ambiguous_qualifier",
    ),
    "an alias given for two names counts for neither": (
        [_stats("Jane Doe"), _stats("juris doctor"), _stats("JD")],
        {"aliases": [("jd", "jane doe", "#1"), ("jd", "juris doctor", "#2")]}, {},
        "ambiguous_alias",
    ),
    "an alias of an unknown name": (
        [_stats("Kubernetes")], {"aliases": [("k8s", "kubernetes", "#1")]}, {}, "unknown_name",
    ),
    # Each is like the next one, the ends are not alike.
    "trigrams do not chain": (
        [_stats(FIRST, df=3), _stats(FIRST + "wxy", df=2), _stats(FIRST + "wxyuvz")],
        {}, {FIRST + "wxy": FIRST}, "chain",
    ),
    # On the line a, d, c, b the best two are the ends; c goes to b before d could take it.
    "better names choose first": (
        [_stats(FIRST, df=9), _stats(FIRST + "wxyuvzklm", df=8), _stats(FIRST + "wxyuvz", df=7),
         _stats(FIRST + "wxy", df=6)],
        {}, {FIRST + "wxyuvz": FIRST + "wxyuvzklm", FIRST + "wxy": FIRST}, "",
    ),
    "only the nearest two vectors are mutual": (
        WALLS, {"vectors": _vectors(WALLS, _at(0.0, 0.3, 0.55))},
        {"field hedges": "yard fences"}, "",
    ),
    "a swapped word where vectors are only near": (
        SWAPPED, {"vectors": _vectors(SWAPPED, [_unit(1, 0), _unit(0.85, 0.5)])}, {},
        "unlike_words",
    ),
    "near names of people": (
        PEOPLE, {"vectors": _vectors(PEOPLE, _at(0.0, 0.0))}, {}, "differing_capitals",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("names", "given", "merged", "refused"),
    CASES.values(),
    ids=[name.replace(" ", "-") for name in CASES],
)
def test_names_merge_or_stay_apart_for_a_reason(
    names: list[NameStats], given: dict[str, Any], merged: dict[str, str], refused: str
) -> None:
    found = canonicalise(names, **given)
    assert found.canonical_of == merged
    twice = 2 if refused == "ambiguous_qualifier" else 1
    assert not refused or found.refused[refused] == twice


def test_given_aliases_merge_whatever_they_look_like_and_chain() -> None:
    names = [_stats("Kubernetes", df=9), _stats("k8s", df=3), _stats("kube"), _stats("eks")]
    aliases = [("k8s", "kubernetes", "tags of #12"), ("kube", "k8s", "tags of #13")]
    assert [(m.name, m.canonical, m.detail) for m in canonicalise(names, aliases).merges] == [
        ("k8s", "kubernetes", "tags of #12"),
        ("kube", "kubernetes", "tags of #13, through k8s"),
    ]
    never = MergeRules(never=(("k8s", "kube"),))
    assert len(canonicalise(names, [aliases[0], ("kube", "kubernetes", "#1")], never).merges) == 1


def test_trigrams_join_long_names_in_common_case() -> None:
    names = [
        _stats("cognitive restructuring and suggestions, emotional counseling and listening", df=3),
        _stats("emotional counseling and listening; cognitive restructuring and suggestions"),
        _stats("emotional counseling and budgeting; cognitive restructuring and suggestions"),
    ]
    (merge,) = canonicalise(names).merges
    assert (merge.name, merge.canonical) == (names[1].name, names[0].name)
    assert merge.reason == "minhash"
    assert 0.9 <= merge.score < 1
    assert merge.detail == f"trigrams {merge.score:.3f}"


def test_mutually_nearest_vectors_join() -> None:
    names = [_stats("error handling", df=3), _stats("handling of errors"), _stats("gardens")]
    vectors = _vectors(names, [_unit(1, 0), _unit(0.9, 0.3), _unit(0, 1)])
    (merge,) = canonicalise(names, vectors=vectors).merges
    assert (merge.name, merge.canonical) == ("handling of errors", "error handling")
    assert merge.reason == "embedding"
    assert merge.score == pytest.approx(0.9 / np.hypot(0.9, 0.3))


def test_rules_undo_and_force() -> None:
    names = [_stats("email", df=2), _stats("e mail"), _stats("Danube"), _stats("river project")]
    rules = MergeRules(never=(("e mail", "email"),), same=(("danube", "river project"),))
    found = canonicalise(names, rules=rules)
    assert [(merge.name, merge.reason) for merge in found.merges] == [("danube", "rule")]
    assert found.refused["never"] == 1
    assert canonicalise(names[:3], rules=rules).unknown_names == ("river project",)
    with pytest.raises(ValueError, match="two NameStats for 'email'"):
        canonicalise([names[0], names[0]])


def test_how_a_rule_is_written_does_not_show() -> None:
    names = [
        _stats(name, df=9 if name == "amber" else 1) for name in ("amber", "bee", "cat", "dog")
    ]
    ring = [("amber", "bee"), ("amber", "cat"), ("bee", "dog"), ("cat", "dog")]
    turned = [("cat", "amber"), ("dog", "bee"), ("bee", "amber"), ("cat", "dog")]
    ways = [canonicalise(names, rules=MergeRules(same=tuple(pairs))) for pairs in (ring, turned)]
    assert ways[0].merges == ways[1].merges
    assert ways[0].merges[-1].detail == "same in merges.toml, through bee"


@pytest.mark.parametrize(
    ("names", "stands"),
    [
        ((_stats("kube", df=5), _stats("kubernetes", df=4)), "kube"),
        ((_stats("kube"), _stats("kubernetes")), "kubernetes"),
        ((_stats("beta"), _stats("alfa")), "alfa"),
    ],
)
def test_the_canonical_name_is_frequent_then_long_then_first(
    names: tuple[NameStats, NameStats], stands: str
) -> None:
    rules = MergeRules(same=((names[0].name, names[1].name),))
    assert set(canonicalise(names, rules=rules).canonical_of.values()) == {stands}


def _twins(names: list[str], least: float) -> set[str]:
    pairs = [pair for pair in combinations(names, 2) if jaccard(*pair) >= least]
    return {name for pair in pairs for name in pair}


@pytest.mark.parametrize("least", [0.5, 0.9, 1.0])
def test_no_name_with_a_twin_is_left_out(least: float) -> None:
    drawn = random.Random(7)
    names: set[str] = set()
    for _ in range(120):
        name = "".join(drawn.choice("abcde ") for _ in range(drawn.randint(6, 60)))
        place = drawn.randrange(len(name))
        names |= {name, name + "s", name[:place] + "x" + name[place:], name[1:]}
    ordered = sorted(names)
    likely = {n for n, is_likely in zip(ordered, may_have_twin(ordered, least), strict=True)
              if is_likely}  # fmt: skip
    wanted = _twins(ordered, least)
    assert wanted
    assert wanted <= likely


@pytest.mark.parametrize("chunk", [2, 1_000])
def test_a_name_like_no_other_is_left_out(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canonical, "_CHUNK_NAMES", chunk)
    names = ["kubernetes cluster", "red fox", "garden party in the rain", "kubernetes clusters"]
    assert may_have_twin(names, 0.9).tolist() == [True, False, False, True]
    repeated = ["abcabcabc", "abcabcabcabcabc"]
    assert may_have_twin(repeated, 0.9).tolist() == [True, True], "of the same three trigrams"
    assert may_have_twin([], 0.9).dtype == np.bool_


def _read(tmp_path: Path, text: str) -> MergeRules:
    path = tmp_path / "merges.toml"
    path.write_text(text, encoding="utf-8")
    return MergeRules.read(path)


def test_names_are_folded_and_pairs_put_in_order(tmp_path: Path) -> None:
    assert MergeRules.read(tmp_path / "merges.toml") == MergeRules(), "no file, no rules"
    rules = _read(tmp_path, 'never = [["Quick-Silver", "Mercury"]]\nsame = [["k8s","Kube\'s"]]\n')
    assert rules == MergeRules(never=(("mercury", "quick silver"),), same=(("k8s", "kube"),))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("never = [", "is no TOML"),
        ("nevr = []", "unknown key 'nevr'; the nearest known one is never"),
        ('never = "a"', "never is 'a', expected a list of pairs"),
        ('same = [["a"]]', r"same, entry 1 is \['a'\], expected two names"),
        ('same = [["a", 3]]', "expected two names"),
        ('same = [["a", "b", "c"]]', "expected two names"),
        ('same = [["a", "..."]]', "without letters or digits"),
        ('never = [["E-mail", "e mail"]]', "both read 'e mail'"),
        ('never = [["a", "c"]]\nsame = [["a", "b"], ["b", "c"]]', "take one of these rules out"),
        ("never = [1]\nsame = [2]\nsome = 3\n", r"(?s).*\n.*\n.*\n"),  # all at once
    ],
)
def test_a_bad_file_says_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        _read(tmp_path, text)
    assert "merges.toml" in str(caught.value)


def test_a_file_that_is_no_text_and_rules_made_in_code_are_refused_as_well(tmp_path: Path) -> None:
    path = tmp_path / "merges.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is no TOML"):
        MergeRules.read(path)
    with pytest.raises(ConfigError, match="cannot read"):
        MergeRules.read(tmp_path)
    with pytest.raises(ConfigError, match="take one of these rules out"):
        MergeRules(never=(("a", "b"),), same=(("a", "b"),))


# Worked by hand. Hosts of "cell carcinoma": "basal cell carcinoma" 5, "adenoid cystic basal cell
# carcinoma" 2, "cystic basal cell carcinoma" 2 -> mean 3; of "basal cell": the same three.
_GOLDEN = [
    ("adenoid cystic basal cell carcinoma", 2, math.log2(5) * 2),
    ("cystic basal cell carcinoma", 2, 2.0 * (2 - 2)),
    ("basal cell carcinoma", 5, math.log2(3) * (5 - (2 + 2) / 2)),
    ("cell carcinoma", 6, 1.0 * (6 - (5 + 2 + 2) / 3)),
    ("basal cell", 5, 1.0 * (5 - 3)),
    ("carcinoma", 9, 0.0),
    ("retina", 1, 0.0),
    ("contact lens", 4, 1.0 * 4),
]


def test_golden_table() -> None:
    counts = {run: count for run, count, _ in _GOLDEN}
    found = c_values(counts, counts)
    assert list(found) == [run for run, _, _ in _GOLDEN]
    assert found == pytest.approx({run: expected for run, _, expected in _GOLDEN})


@pytest.mark.parametrize(
    ("counts", "run", "value"),
    [
        # A run counts once in a host that repeats it; words inside words are no hosts.
        ({"side by side by": 2, "side by road": 5, "side by": 9}, "side by", 9 - (2 + 5) / 2),
        ({"art form": 2, "smart former": 2}, "art form", 2),
    ],
)
def test_hosts_are_counted_once_by_whole_words(
    counts: dict[str, int], run: str, value: float
) -> None:
    assert c_values(counts, counts)[run] == value


@pytest.mark.parametrize(
    ("counts", "memories", "kept"),
    [
        ({"contact lens": 4, "rare disease": 1, "young patient": 21, "limit case": 20,
          "carcinoma": 9, "cystic cell carcinoma": 3, "cystic cell": 3},
         1000, ("contact lens", "cystic cell carcinoma", "limit case")),
        # A run of one memory is a host all the same.
        ({"contact lens": 2, "hard contact lens": 1, "soft contact lens fluid": 3}, 1000,
         ("soft contact lens fluid",)),
        ({"contact lens": 2, "hard contact lens": 1}, 1000, ("contact lens",)),
        ({"contact lens": 2, "eye test": 3}, 35, ("contact lens",)),
    ],
)  # fmt: skip
def test_kept_runs_stand_in_enough_and_not_too_many_memories(
    counts: dict[str, int], memories: int, kept: tuple[str, ...]
) -> None:
    assert keep_runs(counts, memories) == kept


def test_likeness_and_variety_by_hand() -> None:
    assert jaccard("abcd", "bcde") == pytest.approx(1 / 3)  # abc bcd | bcd cde
    assert (jaccard("abcd", "abcd"), jaccard("ab", "ab")) == (1.0, 0.0)
    assert [entropy_bits(name) for name in ("abcd", "aabb", "")] == [2.0, 1.0, 0.0]
    assert jaccard("hahahahahaha", "hahahahaha") == 1.0
    assert similar_pairs(["hahahahahaha", "hahahahaha"], Counter()) == [], "too little variety"
    judged = {"kubernetes": True, "hahahahaha": False, "aabbaabbaabb": False, "kube": False}
    assert {name: may_compare(name) for name in judged} == judged


def test_variety_is_judged_alike_by_the_quick_and_the_full_way() -> None:
    for name in ("aabbccdd", "aaaabcde", "abcdefgh", "aaaaaaaaaaabcdefgh", "ab ab ab ab cd"):
        plain = name.replace(" ", "")
        expected = len(plain) >= FUZZY_MIN_CHARS and entropy_bits(plain) >= ENTROPY_MIN_BITS
        assert may_compare(name) is expected, name


def test_a_signature_depends_on_its_name_alone() -> None:
    names = ["emotional counseling", "東京都庁舎 の 展望室", "zażółć gęślą jaźń", "abc"]
    together = signatures(names)
    assert together.shape == (4, BANDS)
    for row, name in zip(together, names, strict=True):
        np.testing.assert_array_equal(signatures([name])[0], row)
    assert signatures([]).shape == (0, BANDS)
    # Kept signatures outlive a process: a changed hash must be a decision.
    row = signatures(["kubernetes cluster"])[0]
    assert row[:2].tolist() == [2092535897056492595, 17495618294894092064]
    with pytest.raises(ValueError, match="found the name 'ab'"):
        signatures(["abc", "ab"])


def test_bands_agree_as_often_as_the_likeness_says() -> None:
    names = [f"the {word} counseling handbook of {word}" for word in ("first", "second", "third")]
    pairs = [(name, "x" * n + name) for name in names for n in range(1, 9)]
    agreed = [np.mean(np.equal(*signatures(pair))) for pair in pairs]
    odds = np.array([jaccard(*pair) ** BAND_ROWS for pair in pairs])
    deviation = math.sqrt((odds * (1 - odds)).sum() / BANDS) / len(pairs)
    assert 0.1 < odds.mean() < 0.9
    assert abs(np.mean(agreed) - odds.mean()) < 4 * deviation


def test_names_that_are_nearly_alike_are_found_among_many() -> None:
    drawn = random.Random(7)
    names = ["".join(drawn.choice("abcdefgh ") for _ in range(30)) for _ in range(200)]
    names += [name + "s" for name in names]
    expected = [
        (one, other, jaccard(names[one], names[other]))
        for one, other in combinations(range(len(names)), 2)
        if jaccard(names[one], names[other]) >= JACCARD_MIN
    ]
    assert len(expected) > 150
    assert similar_pairs(names, Counter()) == expected


def _in_one_bucket(names: list[str]) -> tuple[list[tuple[int, int]], Counter[str]]:
    rows = np.tile(signatures(["request timed out in worker"]), (len(names), 1))
    refused: Counter[str] = Counter()
    return list(candidates(names, rows, refused)), refused


def test_a_crowded_bucket_is_parted_by_digits_and_stays_linear() -> None:
    count = 3 * BUCKET_MAX_NAMES
    letters = [f"name {chr(97 + i % 26)}{chr(97 + i // 26)}" for i in range(count)]
    found, refused = _in_one_bucket(letters)
    assert len(found) < count * BUCKET_MAX_NAMES
    assert refused[CROWDED] == count - BUCKET_MAX_NAMES
    digits = [f"request {index // 2}{'a' * (index % 2)} timed out" for index in range(count)]
    found, refused = _in_one_bucket(digits)
    assert sorted(found) == [(index, index + 1) for index in range(0, count, 2)]
    assert not refused


def test_nearest_by_hand() -> None:
    vectors = {"a": _unit(1, 0), "b": _unit(12, 5), "c": _unit(0, 2), "zero": _unit(0, 0)}
    assert mutual_pairs(vectors) == [("a", "b", pytest.approx(12 / 13))]
    assert mutual_pairs({name: _unit(1, 1) for name in "cab"}) == [("a", "b", 1.0)], "of equal ones"
    assert mutual_pairs({}) == []


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        ({"a": _unit(1, 0), "b": _unit(1)}, "of shapes"),
        ({"a": _unit(1, np.nan)}, "not finite"),
    ],
)
def test_bad_vectors_are_refused(vectors: dict[str, NDArray[np.float32]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mutual_pairs(vectors)


def _random_vectors(seed: int, count: int) -> dict[str, NDArray[np.float32]]:
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(count // 3, 6))
    rows = np.repeat(centres, 3, axis=0) + 0.4 * rng.normal(size=(count // 3 * 3, 6))
    return {f"name {index}": row.astype(np.float32) for index, row in enumerate(rows)}


def _plain(vectors: dict[str, NDArray[np.float32]]) -> list[tuple[str, str]]:
    """Pair by pair: who is nearest to whom, and whether that is mutual."""
    units = {name: v.astype(np.float64) / np.linalg.norm(v) for name, v in vectors.items()}
    nearest: dict[str, str] = {}
    for name in units:
        cosines = {o: round(float(units[name] @ units[o]), 9) for o in units if o != name}
        best = min(cosines, key=lambda o: (-cosines[o], o))
        if cosines[best] >= COSINE_MIN:
            nearest[name] = best
    return sorted((a, b) for a, b in nearest.items() if a < b and nearest.get(b) == a)


@pytest.mark.parametrize("seed", range(5))
def test_blocks_give_what_each_pair_gives(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = _random_vectors(seed, 90)
    whole = mutual_pairs(vectors)
    assert [pair[:2] for pair in whole] == _plain(vectors)
    assert whole
    monkeypatch.setattr(canonical, "_BLOCK_VALUES", 200)
    assert mutual_pairs(vectors) == whole
