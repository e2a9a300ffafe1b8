from __future__ import annotations

import pytest

from noctuary.graph.view import NEAREST_SHOWN, NameBook
from tests.support.graph_look import Look, Publish
from tests.support.graph_snapshot import ConceptSpec, GraphSpec
from tests.support.store import memory, renumber


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("globx", "Globex"),
        ("lobex", "Globex"),
        ("migration", "Atlas migration"),
        ("Атлас Москва", "Москва"),
    ],
)
def test_an_unknown_name_has_similar_ones(look: Look, typed: str, expected: str) -> None:
    book = NameBook(look())
    assert book.find(typed) is None
    assert expected in book.nearest(typed)


@pytest.mark.parametrize("typed", ["", "!!!", "zzzzzzzzzzzz", "\ud800"])
def test_a_name_like_no_other_has_none(look: Look, typed: str) -> None:
    book = NameBook(look())
    assert book.find(typed) is None
    assert book.nearest(typed) == ()


def test_hidden_names_are_not_offered(look: Look) -> None:
    assert NameBook(look()).nearest("secret gardn") == ()
    assert NameBook(look()).nearest("ninotchk") == ("Initech",)
    assert NameBook(look(user="ana")).nearest("ninotchk")[0] == "Nina"
    assert NameBook(look(user="ana")).nearest("secret gardn") == ("Secret Garden",)
    assert NameBook(look()).find("ninotchka") is None
    assert NameBook(look(user="ana")).find("ninotchka") is not None


def test_of_two_concepts_the_one_of_that_name_comes_first(publish: Publish) -> None:
    """An alias of a large concept must not hide the small one that is called so."""
    records = renumber([memory("Mercury rises."), memory("Venus, or Mercury."), memory("Venus.")])
    spec = GraphSpec(
        records,
        [
            ConceptSpec("Venus", "name", ((1, "about", "Venus"), (2, "about", "Venus")),
                        ("mercury",)),
            ConceptSpec("Mercury", "name", ((0, "about", "Mercury"),)),
        ],
    )  # fmt: skip
    book = NameBook(publish(spec)())
    found = book.find("mercury")
    assert found is not None
    assert book.shown(found) == "Mercury"


def test_the_offer_is_short(publish: Publish) -> None:
    names = [f"alpha {i}" for i in range(20)]
    records = renumber([memory(f"{name}.") for name in names])
    spec = GraphSpec(
        records,
        [ConceptSpec(name, "name", ((i, "about", name),)) for i, name in enumerate(names)],
    )
    assert len(NameBook(publish(spec)()).nearest("alpha")) == NEAREST_SHOWN
