from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noctuary.core.types import MemoryRecord
from noctuary.evaluate.labels import Query
from noctuary.evaluate.queries import build_exact_queries
from tests.support.store import memory

WORDS = [f"{a}{b}{c}" for a in "bdklmnprst" for b in "aeiou" for c in ("n", "r", "ll", "st", "ck")]


def records(*contents: str) -> list[MemoryRecord]:
    return [memory(text, memory_id=f"m{i}", position=i) for i, text in enumerate(contents)]


def corpus(count: int, seed: int = 1, words: int = 20) -> list[MemoryRecord]:
    rng = random.Random(seed)
    return records(*(" ".join(rng.choices(WORDS, k=words)) + f" no{i}" for i in range(count)))


def asked(found: tuple[Query, ...]) -> dict[str, str]:
    return {query.relevant_ids[0]: query.text for query in found}


def test_each_query_stands_in_exactly_one_memory_as_it_is_written() -> None:
    memories = corpus(300)
    found = build_exact_queries(memories, 60)
    assert len(found) == 60
    for query in found:
        holders = [m.memory_id for m in memories if query.text.casefold() in m.content.casefold()]
        assert query.relevant_ids == tuple(holders)
        assert query.query_id == f"exact-{holders[0]}"
        assert query.stratum == "exact"
        assert 3 <= len(query.text.split()) <= 6
        (own,) = (m for m in memories if m.memory_id == holders[0])
        assert query.text in own.content


def test_a_phrase_that_another_memory_holds_in_other_case_is_not_asked() -> None:
    shared = "Copper Boiler Pressure Gauge Broke Yesterday"
    first = f"{shared}. We called the plumber about pipes"
    second = f"Nobody knew why the {shared.upper()} at the mill near Oslo harbour town"
    found = build_exact_queries(records(first, second), 10)
    assert all(text.casefold() not in shared.casefold() for text in asked(found).values())
    assert "m1" in asked(found)


def test_a_phrase_inside_of_longer_words_of_another_memory_is_not_unique() -> None:
    only = "art thou ranger. art thou ranger. kettle drum violin. a b"
    other = "heart thou rangers sing of many other things in many far away lands and seas"
    text = asked(build_exact_queries(records(only, other), 10))["m0"]
    assert text == "kettle drum violin"


def test_a_phrase_in_the_keywords_of_another_memory_is_not_unique() -> None:
    text = "granite quarry foreman. granite quarry foreman. we had soup and bread and tea and cake"
    first, second = records(text, "Completely different matters were discussed by seven people")
    without = asked(build_exact_queries([first, second], 5))
    taken = second._replace(expanded_keywords=without["m0"])
    assert asked(build_exact_queries([first, taken], 5)).get("m0") != without["m0"]


def test_the_choice_depends_neither_on_the_order_nor_on_the_ids() -> None:
    memories = corpus(300)
    shuffled = random.Random(2).sample(memories, len(memories))
    assert build_exact_queries(shuffled, 30) == build_exact_queries(memories, 30)
    renamed = [m._replace(memory_id=f"x{m.memory_id}") for m in memories]
    texts = sorted(query.text for query in build_exact_queries(renamed, 30))
    assert texts == sorted(query.text for query in build_exact_queries(memories, 30))


def test_an_added_memory_changes_few_choices() -> None:
    memories = corpus(1000)
    before = asked(build_exact_queries(memories, 60))
    for extra in corpus(10, seed=5):
        grown = [*memories, extra._replace(memory_id="new")]
        after = asked(build_exact_queries(grown, 60))
        assert len(set(after) - set(before)) <= 1
        assert len(set(after.items()) - set(before.items())) <= 6


def test_another_seed_asks_for_other_memories() -> None:
    memories = corpus(500)
    first, second = build_exact_queries(memories, 30), build_exact_queries(memories, 30, seed=9)
    assert len(set(asked(first)) & set(asked(second))) < 15


def test_near_duplicates_are_skipped() -> None:
    text = "Maria repaired the copper boiler in the old mill house near Oslo harbour last winter"
    memories = [*records(text, f"{text} again"), *corpus(20)]
    memories = [m._replace(memory_id=f"m{i}") for i, m in enumerate(memories)]
    found = build_exact_queries(memories, 60)
    assert not {"m0", "m1"} & set(asked(found))
    assert len(found) == 20


def test_short_memories_are_skipped() -> None:
    short = records("ok", "thanks a lot", "see you there", "yes yes yes yes")
    assert build_exact_queries(short) == ()


def test_memories_of_named_users_are_skipped_but_not_forgotten() -> None:
    text = "granite quarry foreman. granite quarry foreman. we had soup and bread and tea and cake"
    mine, private = records(text, f"Seven people argued about many matters and {text[:22]} said so")
    found = build_exact_queries([mine, private._replace(user="ada")], 5)
    assert set(asked(found)) == {"m0"}
    assert "granite quarry foreman" not in asked(found)["m0"]


@pytest.mark.parametrize("count", [0, 1, 200])
def test_a_corpus_of_copies_gives_no_query_but_the_only_memory_does(count: int) -> None:
    text = "Maria repaired the copper boiler in the old mill house near Oslo harbour last winter"
    found = build_exact_queries(records(*[text] * count), 60)
    assert len(found) == (1 if count == 1 else 0)


def test_no_query_wanted_is_no_query() -> None:
    assert build_exact_queries(corpus(5), 0) == ()


def test_chinese_memories_are_asked_for_by_characters() -> None:
    contents = [
        "我的侄子王小明住在浙江省宁波市，他是一名海洋生物学家，喜欢潜水。",
        "下周三下午三点在上海市人民广场参加同事李雷的婚礼，记得带红包。",
        "我的表妹韩梅梅在四川省成都市开了一家火锅餐厅，生意很好。",
    ]
    found = build_exact_queries(records(*contents), 10)
    assert len(found) == 3
    for query in found:
        assert sum(query.text in content for content in contents) == 1
        assert 4 <= len(query.text) <= 12


@given(
    st.lists(
        st.text(max_size=120) | st.text(alphabet="ab the 是不人\n.é\u0301", max_size=80),
        max_size=12,
    ),
    st.integers(0, 5),
)
@settings(max_examples=150)
def test_any_corpus_gives_unique_phrases_and_never_an_error(texts: list[str], n: int) -> None:
    memories = records(*texts)
    found = build_exact_queries(memories, n)
    assert len(found) <= n
    assert len({query.query_id for query in found}) == len(found)
    for query in found:
        holders = [m for m in memories if query.text.casefold() in m.content.casefold()]
        assert len(holders) <= 1
        assert query.text.encode()


def test_eleven_thousand_memories_take_seconds_and_not_minutes() -> None:
    memories = corpus(11_000, words=60)
    started = time.process_time()  # of this process: the machine may be busy with others
    found = build_exact_queries(memories, 60)
    assert time.process_time() - started < 15.0
    assert len(found) == 60


def test_a_corpus_that_repeats_itself_takes_no_longer() -> None:
    text = " ".join(WORDS[:120])
    memories = records(*(f"{text} item{i}" for i in range(5_000)))
    started = time.process_time()
    found = build_exact_queries(memories, 60)
    assert time.process_time() - started < 15.0
    assert found == ()
