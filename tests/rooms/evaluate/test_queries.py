"""What the exact stratum asks of a corpus, against reading every text again."""

from __future__ import annotations

import math
import random
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noctuary.core.types import UNDATED_US, MemoryRecord
from noctuary.evaluate.labels import Query
from noctuary.evaluate.queries import (
    MAX_PHRASE_CHARS,
    MAX_WORDS,
    MIN_UNITS,
    NEAR_DUPLICATE,
    ExactCorpus,
    build_exact_queries,
    fold_text,
    rank_phrases,
    read_keys,
)
from noctuary.text.tokens import STOP_WORDS
from tests.support.store import memory

WORDS = ["Zebra", "ＺＥＢＲＡ", "quay", "the", "of", "東京", "é", "naïve", "a\nb", "\ud800", "x.y"]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join)


def record(position: int, content: str, tags: str = "", keywords: str = "") -> MemoryRecord:
    return MemoryRecord(
        position, str(position), content, "facts", tags, keywords, 0.5, UNDATED_US, UNDATED_US,
        None, None, None, None, False, "",
    )  # fmt: skip


def keys(text: str) -> set[str]:
    return set(read_keys(text)) - STOP_WORDS


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(TEXTS, TEXTS, TEXTS), min_size=1, max_size=8), TEXTS.filter(fold_text))
def test_it_answers_as_a_reading_of_every_text(
    rows: list[tuple[str, str, str]], phrase: str
) -> None:
    records = [record(n, *row) for n, row in enumerate(rows)]
    corpus = ExactCorpus(records)
    folded = [fold_text("\n".join((c, k, t))) for c, t, k in rows]
    sets = [keys(content) for content, _, _ in rows]
    assert corpus.sizes.tolist() == [len(found) for found in sets]
    for word in {w for found in sets for w in found}:
        held = sum(word in found for found in sets)
        assert corpus.rarity(word) == math.log(len(rows) / held)
    assert corpus.rarity("no such word") == 0.0
    sought = fold_text(phrase)
    for place in range(len(rows)):
        holders = [n for n, text in enumerate(folded) if sought in text]
        assert corpus.is_unique(phrase, place) == (holders == [place])


@settings(max_examples=80, deadline=None)
@given(st.lists(TEXTS.filter(keys), min_size=1, max_size=8))
def test_a_near_duplicate_is_one_of_nearly_the_same_words(texts: list[str]) -> None:
    sets = [keys(text) for text in texts]
    corpus = ExactCorpus([record(n, text) for n, text in enumerate(texts)])
    for place, own in enumerate(sets):
        expected = any(
            len(own & other) / len(own | other) >= NEAR_DUPLICATE
            for n, other in enumerate(sets)
            if n != place
        )
        assert corpus.has_near_duplicate(place) == expected


SYLLABLES = [
    f"{a}{b}{c}" for a in "bdklmnprst" for b in "aeiou" for c in ("n", "r", "ll", "st", "ck")
]


def records(*contents: str) -> list[MemoryRecord]:
    return [memory(text, memory_id=f"m{i}", position=i) for i, text in enumerate(contents)]


def corpus(count: int, seed: int = 1, words: int = 20) -> list[MemoryRecord]:
    rng = random.Random(seed)
    return records(*(" ".join(rng.choices(SYLLABLES, k=words)) + f" no{i}" for i in range(count)))


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


def test_memories_of_named_users_are_skipped_but_not_forgotten() -> None:
    text = "granite quarry foreman. granite quarry foreman. we had soup and bread and tea and cake"
    mine, private = records(text, f"Seven people argued about many matters and {text[:22]} said so")
    found = build_exact_queries([mine, private._replace(user="ada")], 5)
    assert set(asked(found)) == {"m0"}
    assert "granite quarry foreman" not in asked(found)["m0"]


def test_short_memories_and_near_duplicates_are_skipped() -> None:
    short = records("ok", "thanks a lot", "see you there", "yes yes yes yes")
    assert build_exact_queries(short) == ()
    text = "Maria repaired the copper boiler in the old mill house near Oslo harbour last winter"
    memories = [*records(text, f"{text} again"), *corpus(20)]
    memories = [m._replace(memory_id=f"m{i}") for i, m in enumerate(memories)]
    found = build_exact_queries(memories, 60)
    assert set(asked(found)) == {f"m{i}" for i in range(2, 22)}


@pytest.mark.parametrize("count", [0, 1, 200])
def test_a_corpus_of_copies_gives_no_query_but_the_only_memory_does(count: int) -> None:
    text = "Maria repaired the copper boiler in the old mill house near Oslo harbour last winter"
    found = build_exact_queries(records(*[text] * count), 60)
    assert len(found) == (1 if count == 1 else 0)


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


def rare(*words: str) -> dict[str, float]:
    return dict.fromkeys(words, 1.0)


def phrases(text: str, rarity: dict[str, float]) -> list[str]:
    return list(rank_phrases(text, lambda key: rarity.get(key, 0.0)))


def test_the_window_with_the_rarest_words_comes_first() -> None:
    text = "we met at noon and then Zoltan Kovacs repaired the copper boiler in the old mill house"
    first = phrases(text, rare("zoltan", "kovacs", "repaired", "copper", "boiler"))[0]
    assert first == "Zoltan Kovacs repaired the copper boiler"


def test_stop_words_at_the_ends_are_cut_but_three_units_stay() -> None:
    text = "it was the Zoltan Kovacs boiler. repaired copper pipes then it was. so on and so on"
    found = phrases(text, rare("zoltan", "kovacs"))
    assert found == ["Zoltan Kovacs boiler", "repaired copper pipes"]
    short = "it was of the Zoltan Kovacs. and so on it was so on and then it was"
    assert phrases(short, rare("zoltan", "kovacs")) == ["the Zoltan Kovacs"]


def test_a_phrase_does_not_cross_a_sentence_or_a_line() -> None:
    text = "alpha beta gamma delta. epsilon zeta eta theta\niota kappa lambda mu; nu xi omicron pi"
    found = phrases(text, {})
    assert len(found) == 4
    assert not any(re.search(r"[.;\n]", phrase) for phrase in found)


def test_joined_words_are_one_unit_as_written() -> None:
    text = "Deploy billing-api to src/app/main.py before v1.2.3 lands on the staging cluster today"
    assert "billing-api" in read_keys(text)
    assert "src/app/main.py" in read_keys(text)
    assert phrases(text, rare("billing-api", "v1.2.3"))[0].startswith("Deploy billing-api to")


def test_a_phrase_is_at_most_half_of_the_text() -> None:
    text = "alpha beta gamma delta epsilon zeta eta theta"
    assert {len(phrase.split()) for phrase in phrases(text, {})} == {4}
    assert phrases("alpha beta gamma delta epsilon", {}) == []


def test_a_phrase_of_stop_words_or_of_encoded_data_is_none() -> None:
    assert phrases("it was what it was and so it is then as it was before and after", {}) == []
    blob = "x" * MAX_PHRASE_CHARS
    assert phrases(f"{blob} {blob} {blob} {blob} {blob} {blob}", {}) == []


def test_chinese_gives_character_windows_and_mixes_with_words() -> None:
    text = "我的侄子王小明住在浙江省宁波市，他是一名海洋生物学家。"
    best = phrases(text, rare("海洋", "洋生", "生物", "物学"))[0]
    assert "海洋生物学" in best
    assert 4 <= len(best) <= 12
    assert best in text
    mixed = "昨天我们用Python编写了一个新的数据库迁移工具"
    assert "python" in read_keys(mixed)
    assert any("Python编写" in phrase for phrase in phrases(mixed, rare("python", "编写")))


@pytest.mark.parametrize(
    "text",
    [
        "Вчера Мария починила старый медный самовар и отнесла его соседке по лестнице",
        "हिन्दी में लिखी गई यह पुरानी किताब मेरे दादाजी की अलमारी में मिली थी",
        "Ο γιατρός Παπαδόπουλος αγόρασε χθες ένα παλιό ξύλινο καΐκι στη Νάξο",
    ],
)
def test_other_alphabets_keep_whole_words(text: str) -> None:
    words = text.split()
    found = phrases(text, {})
    assert found
    assert all(set(phrase.split()) <= set(words) for phrase in found)
    assert all(MIN_UNITS <= len(phrase.split()) <= MAX_WORDS for phrase in found)


@given(st.text(max_size=300) | st.text(alphabet="abc the of.是不人我\n e\u0301", max_size=200))
def test_any_text_gives_phrases_that_stand_in_it_or_none(text: str) -> None:
    spaced = " ".join(text.split())
    for phrase in phrases(text, {}):
        assert phrase in spaced
        assert len(phrase) <= MAX_PHRASE_CHARS
        assert any(key not in STOP_WORDS for key in read_keys(phrase))
