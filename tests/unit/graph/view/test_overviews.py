from __future__ import annotations

import json
import tomllib

from noctuary.graph.view import (
    NameBook,
    Shown,
    kinds_of,
    list_merges,
    top_concepts,
    undo_line,
)
from noctuary.graph.view_paths import merge_lines, top_lines
from tests.support.graph_look import Look, Publish
from tests.support.graph_snapshot import GraphSpec
from tests.support.store import day_us, memory, renumber


def top(look: Look, limit: int = 3, kind: str | None = None, **scope: object) -> list[Shown]:
    source = look(**scope)
    return top_concepts(source, NameBook(source), limit, kind)


def connected(name: str, kind: str, memories: int, relations: int, steps: int) -> Shown:
    counts = {"memories": memories, "relations": relations, "steps": steps}
    return {"name": name, "kind": kind, **counts}


def test_the_most_connected_come_first(look: Look) -> None:
    assert top(look) == [
        connected("Nina", "name", memories=4, relations=1, steps=2),
        connected("Atlas migration", "heading", memories=2, relations=1, steps=1),
        connected("Globex", "name", memories=3, relations=1, steps=0),
    ]
    assert top(look, user="ana")[0] == connected("Nina", "name", memories=5, relations=2, steps=3)
    assert top(look, as_of_us=day_us(30))[0]["memories"] == 2


def test_a_kind_narrows_and_the_kinds_are_those_that_may_be_seen(look: Look) -> None:
    assert [one["name"] for one in top(look, kind="tag")] == ["Platform", "boiler"]
    assert top(look, kind="nothing") == []
    assert kinds_of(look()) == ("heading", "name", "tag")
    assert kinds_of(look(wing="home")) == ("tag",)


def test_the_table_is_aligned(look: Look) -> None:
    lines = list(top_lines(top(look, limit=10)))
    assert lines[0] == "concept          kind     memories  relations     steps"
    assert lines[1] == "Nina             name            4          1         2"
    assert "東京             name            1          0         0" in lines, "Han is two wide"


def test_merges_are_those_of_names_that_may_be_seen(look: Look) -> None:
    def names(**scope: object) -> list[str]:
        source = look(**scope)
        return [merge["name"] for merge in list_merges(source, NameBook(source))]

    assert names() == ["atlas"]
    assert names(user="ana") == ["atlas", "ninotchka"]
    assert names(wing="home") == []


def test_the_line_that_undoes_a_merge_is_toml() -> None:
    pair = ['a "quoted" \\ name', "имя"]
    assert tomllib.loads(undo_line(*pair)) == {"never": [pair]}


def test_merges_as_text() -> None:
    merge = {
        "name": "atlas", "canonical": "atlas migration", "reason": "alias", "score": 1.0,
        "detail": "Atlas migration (Atlas)", "undo": 'never = [["atlas", "atlas migration"]]',
    }  # fmt: skip
    assert list(merge_lines([merge], 3, "store/merges.toml")) == [
        '"atlas" is "atlas migration" (alias 1.00: Atlas migration (Atlas))',
        "... and 2 more (--limit)",
        "",
        "to undo one, add its pair to `never` in store/merges.toml; it holds from the next",
        'night on. For the first: never = [["atlas", "atlas migration"]]',
    ]
    assert list(merge_lines([], 0, "merges.toml")) == ["no names were merged"]


def test_a_graph_without_concepts(publish: Publish) -> None:
    source = publish(GraphSpec(renumber([memory("Nothing named.")])))()
    book = NameBook(source)
    assert top_concepts(source, book, 10) == []
    assert kinds_of(source) == ()
    assert list_merges(source, book) == []
    assert (book.find("x"), book.nearest("x")) == (None, ())


def test_views_are_plain_values(look: Look) -> None:
    source = look()
    book = NameBook(source)
    rows = [*top_concepts(source, book, 10), *list_merges(source, book)]
    assert json.loads(json.dumps(rows)) == rows
