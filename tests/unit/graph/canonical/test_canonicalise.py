from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from noctuary.graph.canonical import Canonical, MergeRules, canonicalise
from noctuary.graph.fold import fold_name
from noctuary.graph.guards import NameStats

Vectors = Mapping[str, NDArray[np.float32]]


def _stats(*surfaces: str, kind: str = "name", df: int = 1) -> NameStats:
    return NameStats(fold_name(surfaces[0]), kind, surfaces, df)


def _merged(found: Canonical) -> dict[str, tuple[str, str]]:
    return {merge.name: (merge.canonical, merge.detail) for merge in found.merges}


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


@pytest.mark.parametrize(
    ("left", "right", "reason"),
    [
        (_stats("Alien", kind="title"), _stats("Aliens"), "proper_plural"),
        (_stats("The Matrix"), _stats("matrix"), "proper_and_common"),
        (_stats("The Front Line"), _stats("Frontline"), "several_differences"),
        (_stats("IDs", "ids"), _stats("i.d.s."), "short_name"),
        (_stats("sess-ion1", kind="session"), _stats("session1", kind="session"),
         "differing_kinds_spelled"),
    ],
)  # fmt: skip
def test_what_only_looks_alike_stays_apart(left: NameStats, right: NameStats, reason: str) -> None:
    found = canonicalise([left, right])
    assert not found.merges
    assert found.refused[reason] == 1


def test_two_qualifiers_make_the_plain_name_ambiguous() -> None:
    names = [_stats("Mercury"), _stats("Mercury (planet)"), _stats("Mercury (element)")]
    found = canonicalise(names)
    assert not found.merges
    assert found.refused["ambiguous_qualifier"] == 2


def test_given_aliases_merge_whatever_they_look_like_and_chain() -> None:
    names = [_stats("Kubernetes", df=9), _stats("k8s", df=3), _stats("kube"), _stats("eks")]
    aliases = [("k8s", "kubernetes", "tags of #12"), ("kube", "k8s", "tags of #13")]
    assert _merged(canonicalise(names, aliases)) == {
        "k8s": ("kubernetes", "tags of #12"),
        "kube": ("kubernetes", "tags of #13, through k8s"),
    }


def test_an_alias_given_for_two_names_counts_for_neither() -> None:
    names = [_stats("Jane Doe"), _stats("juris doctor"), _stats("JD")]
    aliases = [("jd", "jane doe", "#1"), ("jd", "juris doctor", "#2")]
    found = canonicalise(names, aliases)
    assert not found.merges
    assert found.refused["ambiguous_alias"] == 1


def test_an_alias_of_an_unknown_name_is_counted() -> None:
    found = canonicalise([_stats("Kubernetes")], [("k8s", "kubernetes", "#1")])
    assert not found.merges
    assert found.refused["unknown_name"] == 1


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


def test_trigrams_do_not_chain() -> None:
    """Each is like the next one, the ends are not alike: the last may not join through b."""
    first = "monthly counseling handbook for restructuring"
    names = [_stats(first, df=3), _stats(first + "wxy", df=2), _stats(first + "wxyuvz")]
    found = canonicalise(names)
    assert found.canonical_of == {names[1].name: names[0].name}
    assert found.refused["chain"] == 1


def test_mutually_nearest_vectors_join() -> None:
    names = [_stats("error handling", df=3), _stats("handling of errors"), _stats("gardens")]
    vectors: Vectors = {
        "error handling": _unit(1, 0),
        "handling of errors": _unit(0.9, 0.3),
        "gardens": _unit(0, 1),
    }
    (merge,) = canonicalise(names, vectors=vectors).merges
    assert (merge.name, merge.canonical) == ("handling of errors", "error handling")
    assert merge.reason == "embedding"
    assert merge.score == pytest.approx(0.9 / np.hypot(0.9, 0.3))


def test_a_swapped_word_is_counted_where_vectors_are_only_near() -> None:
    names = [_stats("error handling"), _stats("error ignorance")]
    vectors: Vectors = {names[0].name: _unit(1, 0), names[1].name: _unit(0.85, 0.5)}
    found = canonicalise(names, vectors=vectors)
    assert not found.merges
    assert found.refused["unlike_words"] == 1


def test_near_names_of_people_stay_apart() -> None:
    names = [_stats("Maria Anna of Bavaria"), _stats("Maria Leopoldine of Bavaria")]
    vectors: Vectors = {item.name: _unit(1, 0) for item in names}
    found = canonicalise(names, vectors=vectors)
    assert not found.merges
    assert found.refused["differing_capitals"] == 1


def test_better_names_choose_first() -> None:
    """On the line a, d, c, b the best two are the ends; c goes to b before d could take it."""
    first = "monthly counseling handbook for restructuring"
    a, b = _stats(first, df=9), _stats(first + "wxyuvzklm", df=8)
    c, d = _stats(first + "wxyuvz", df=7), _stats(first + "wxy", df=6)
    assert canonicalise([a, b, c, d]).canonical_of == {c.name: b.name, d.name: a.name}


def test_vectors_do_not_chain() -> None:
    """Each is near the next one, the ends are far apart: only the nearest two are mutual."""
    names = [_stats("garden walls", df=3), _stats("yard fences", df=2), _stats("field hedges")]
    angles = (0.0, 0.3, 0.55)
    vectors: Vectors = {
        item.name: _unit(np.cos(angle), np.sin(angle))
        for item, angle in zip(names, angles, strict=True)
    }
    found = canonicalise(names, vectors=vectors)
    assert found.canonical_of == {names[2].name: names[1].name}


def test_rules_undo_and_force() -> None:
    names = [_stats("email", df=2), _stats("e mail"), _stats("Danube"), _stats("river project")]
    rules = MergeRules(never=(("e mail", "email"),), same=(("danube", "river project"),))
    found = canonicalise(names, rules=rules)
    assert [(merge.name, merge.reason) for merge in found.merges] == [("danube", "rule")]
    assert found.refused["never"] == 1


def test_how_a_rule_is_written_does_not_show() -> None:
    names = [
        _stats(name, df=9 if name == "amber" else 1) for name in ("amber", "bee", "cat", "dog")
    ]
    ring = [("amber", "bee"), ("amber", "cat"), ("bee", "dog"), ("cat", "dog")]
    turned = [("cat", "amber"), ("dog", "bee"), ("bee", "amber"), ("cat", "dog")]
    ways = [canonicalise(names, rules=MergeRules(same=tuple(pairs))) for pairs in (ring, turned)]
    assert ways[0].merges == ways[1].merges
    assert ways[0].merges[-1].detail == "same in merges.toml, through bee"


def test_never_also_holds_through_third_names() -> None:
    names = [_stats("hub", df=3), _stats("left"), _stats("right")]
    aliases = [("left", "hub", "#1"), ("right", "hub", "#2")]
    found = canonicalise(names, aliases, MergeRules(never=(("left", "right"),)))
    assert len(found.merges) == 1


def test_rules_on_unknown_names_are_reported() -> None:
    rules = MergeRules(same=(("danube", "river project"),))
    assert canonicalise([_stats("Danube")], rules=rules).unknown_names == ("river project",)


def test_the_canonical_name_is_frequent_then_long_then_first() -> None:
    def stands(*names: NameStats) -> str:
        pairs = [(names[0].name, other.name, "#1") for other in names[1:]]
        rules = MergeRules(same=tuple((left, right) for left, right, _ in pairs))
        return set(canonicalise(names, rules=rules).canonical_of.values()).pop()

    assert stands(_stats("kube", df=5), _stats("kubernetes", df=4)) == "kube"
    assert stands(_stats("kube"), _stats("kubernetes")) == "kubernetes"
    assert stands(_stats("beta"), _stats("alfa")) == "alfa"


def test_a_name_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="two NameStats for 'kube'"):
        canonicalise([_stats("kube"), _stats("kube", df=2)])
