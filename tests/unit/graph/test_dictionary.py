from __future__ import annotations

import pytest

from noctuary.graph.extract import Dictionary, find_matches
from noctuary.graph.fold import fold_name
from tests.support.naive_graph import build_dictionary


def _dictionary(*surfaces: str) -> Dictionary:
    return build_dictionary((fold_name(surface), surface) for surface in surfaces)


def _names(text: str, dictionary: Dictionary, own: tuple[str, ...] = ()) -> list[str]:
    return [match.name for match in find_matches(text, dictionary, own)]


def test_the_longest_name_wins_and_uses_up_its_words() -> None:
    names = _dictionary("Charlie Chaplin", "Charlie Chaplin 2")
    assert _names("charlie chaplin 2 and Charlie Chaplin", names) == [
        "charlie chaplin 2",
        "charlie chaplin",
    ]


def test_own_subjects_use_up_their_words_without_being_mentions() -> None:
    names = _dictionary("Charlie Chaplin", "Charlie Chaplin 2")
    assert _names("Charlie Chaplin 2 stars Charlie Chaplin", names, ("charlie chaplin 2",)) == [
        "charlie chaplin"
    ]


def test_a_name_matches_only_whole_words() -> None:
    assert _names("the blueridge rail and Blue Ridges", _dictionary("Blue Ridge")) == []


def test_spans_include_the_possessive_and_fold_to_the_name() -> None:
    text = "We fixed Blue Ridge's roof."
    (match,) = find_matches(text, _dictionary("Blue Ridge"))
    assert text[match.start : match.end] == "Blue Ridge's"


def test_a_single_capitalised_word_needs_a_capital_in_the_mention() -> None:
    names = _dictionary("Mercury")
    assert _names("mercury spills on Mercury", names) == ["mercury"]
    assert _names("mercury spills", names) == []


def test_a_word_authored_in_lower_case_once_needs_no_capital() -> None:
    assert _names("a redis cache", _dictionary("Redis", "redis")) == ["redis"]


@pytest.mark.parametrize("gap", ["\n", " ---- "])
def test_a_name_does_not_span_a_break(gap: str) -> None:
    assert _names(f"Blue{gap}Ridge", _dictionary("Blue Ridge")) == []


def test_a_shorter_name_at_the_end_of_a_text_is_found_beside_a_longer_one() -> None:
    assert _names("to Blue Ridge", _dictionary("Blue Ridge", "Blue Ridge Railway East")) == [
        "blue ridge"
    ]


def test_unusable_names_are_left_out() -> None:
    names = _dictionary(
        "It", "It", "The Who", "May", "1969", "a b c d e f g h i j k l m", "Blue Ridge"
    )
    assert list(names.cased) == ["blue ridge"]


def test_scripts_without_spaces_match_only_whole_runs() -> None:
    names = _dictionary("陈伟国", "Kubernetes")
    matches = find_matches("陈伟国、我的同事陈伟国用Kubernetes部署", names)
    assert [m.name for m in matches] == ["陈伟国", "kubernetes"]
