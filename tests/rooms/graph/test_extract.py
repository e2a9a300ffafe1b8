"""What a memory says: concepts, statements, tags, in any script, told by patterns or by a store."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from itertools import pairwise, permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.core.errors import StoreError
from noctuary.core.types import MemoryRecord
from noctuary.graph.extract import (
    ALIASES_MAX,
    EXTRACTION_COLUMNS,
    EXTRACTION_KIND,
    EXTRACTOR_VERSION,
    Dictionary,
    Extraction,
    ExtractMemories,
    Found,
    Stated,
    add_keys,
    decode_extraction,
    encode_extraction,
    extract,
    extraction_key,
    find_matches,
)
from noctuary.graph.fold import SCRIPTS, fold_name, script_of, words
from noctuary.graph.llm import (
    LINK_RELATIONS,
    RELATION_NAMES,
    findings_told,
    merge_extractions,
)
from noctuary.graph.patterns import STATEMENTS_MAX
from noctuary.graph.tables import NO_SPAN, Role
from noctuary.sources.corpus import column_batches
from noctuary.sources.source import LINK_TYPES, KnownConcept, KnownEdge, KnownMention, MemoryLink
from noctuary.work.content import ContentStore, Filled, fill
from noctuary.work.runner import LocalRunner
from tests.support.naive_graph import build_dictionary
from tests.support.store import household, memory, renumber, turns


def _surfaces(extraction: Extraction, role: str, kind: str | None = None) -> list[str]:
    return [f.surface for f in extraction.found if f.role == role and kind in (None, f.kind)]


def _about(content: str, *, is_turn: bool = False) -> list[str]:
    return _surfaces(extract(content, is_turn=is_turn), "about")


@pytest.mark.parametrize(
    ("content", "subjects"),
    [
        ("Boot Hill (film)\nIt was shot in 1969.", ["Boot Hill", "Boot Hill (film)"]),
        ("Lothair II\nHe was a king.", ["Lothair II"]),
        ("# Release checklist\nTag, build, push.", ["Release checklist"]),
        ("intro\n\n## Roll back ##\ntext", ["Roll back"]),
        ("deploy script: run it twice", ["deploy script"]),
        ("【Training Schedule】 Runs on Monday.", ["Training Schedule"]),
        ("[payments] The retry queue is slow.", ["payments"]),
        ("Dana Whitfield moved to Lisbon.", ["Dana Whitfield"]),
        ("The Blue Ridge Railway is closed.", ["Blue Ridge Railway"]),
        ("PostgreSQL is the store.", ["PostgreSQL"]),
    ],
)
def test_the_start_of_a_memory_says_what_it_is_about(content: str, subjects: list[str]) -> None:
    assert _about(content) == subjects


@pytest.mark.parametrize(
    "content",
    [
        "Reads answers carefully and slowly.",
        "We met Dana Whitfield in Lisbon.",
        "Note: the queue is slow",
        "[x] buy milk",
        "one line without a break",
        "- first item\n- second item",
        "At noon we left: the bus was full",
        "x" * 130 + "\nbody",
        "A first line that goes on,\nand on",
    ],
)
def test_a_start_that_names_nothing_gives_no_subject(content: str) -> None:
    assert _about(content) == []


def test_a_single_word_that_is_also_used_in_lower_case_is_no_leading_subject() -> None:
    assert _about("Mercury rises. We saw Mercury today.") == ["Mercury"]
    assert _about("Mercury rises. We saw Mercury today, and mercury spills.") == []


def test_the_prefix_of_a_turn_is_its_speaker_and_not_its_subject() -> None:
    turn = extract("Caroline: Hey Melanie, Dana Whitfield called.", is_turn=True)
    assert _surfaces(turn, "speaker") == ["Caroline"]
    assert _surfaces(turn, "about") == []
    assert "Dana Whitfield" in _surfaces(turn, "mentions")


def test_the_same_text_outside_a_conversation_is_about_its_key() -> None:
    memory = extract("Caroline: likes pottery")
    assert (_surfaces(memory, "about"), _surfaces(memory, "speaker")) == (["Caroline"], [])


def test_a_role_speaks_wherever_it_stands() -> None:
    memory = extract("Assistant: done")
    assert (_surfaces(memory, "speaker"), _surfaces(memory, "about")) == (["Assistant"], [])


def test_author_fields_leave_scope_tags_out() -> None:
    memory = extract(
        "x", tags="k8s, wing:home,room:a,session:1,user:u, Blue_Ridge", expanded_keywords="pods vpn"
    )
    assert _surfaces(memory, "author", "tag") == ["Blue_Ridge", "k8s"]
    assert _surfaces(memory, "author", "keyword") == ["pods", "vpn"]
    assert {(f.start, f.end) for f in memory.found if f.role == "author"} == {(NO_SPAN, NO_SPAN)}
    assert "blue ridge" in {f.name for f in memory.found}


def test_identifiers_are_mentions_of_their_own_kind() -> None:
    memory = extract("patch OPS-412 in src/app/main.py on 2024-05-12")
    assert _surfaces(memory, "mentions", "ticket") == ["OPS-412"]
    assert _surfaces(memory, "mentions", "path") == ["src/app/main.py"]
    assert _surfaces(memory, "mentions", "date") == ["2024-05-12"]


def test_a_date_with_dots_is_no_version_too() -> None:
    memory = extract("due 12.05.2024 for 3.2.1")
    assert _surfaces(memory, "mentions", "date") == ["12.05.2024"]
    assert _surfaces(memory, "mentions", "version") == ["3.2.1"]


def test_runs_are_mentions_and_stop_at_names() -> None:
    memory = extract("Caroline: the retry queue of Dana Whitfield has slow payment providers")
    assert _surfaces(memory, "mentions", "run") == ["retry queue", "slow payment providers"]


def test_a_turn_states_things_of_its_speaker() -> None:
    memory = extract("Caroline: I moved to Lisbon.", is_turn=True)
    assert [(s.subject, s.relation, s.object) for s in memory.stated] == [
        ("caroline", "lives_in", "lisbon")
    ]


def test_both_sides_of_a_statement_are_findings() -> None:
    memory = extract("my favorite color is blue, and the api depends on redis")
    names = {item.name for item in memory.found}
    assert {s.subject for s in memory.stated} | {s.object for s in memory.stated} <= names
    assert {item.surface for item in memory.found if item.kind == "stated"} == {
        "user's favorite color", "blue", "api", "redis",
    }  # fmt: skip


def test_links_to_memories_are_no_findings() -> None:
    memory = extract("supersedes memory 12")
    assert [(s.subject, s.relation, s.object) for s in memory.stated] == [("", "supersedes", "#12")]
    assert memory.found == ()


def test_a_left_out_subject_is_what_the_memory_is_about() -> None:
    stated = extract("deploy script: depends on Docker").stated
    assert [(s.subject, s.object) for s in stated] == [("deploy script", "docker")]


def test_aliases_come_with_the_extraction() -> None:
    memory = extract("We run Kubernetes (aka K8s).")
    assert memory.aliases == (("k8s", "kubernetes", "aka"),)


def test_quoted_strings_are_found_without_their_marks() -> None:
    memory = extract('we read "The Long Way" and “Small Gods”, «Le Monde», then `make all`')
    assert _surfaces(memory, "mentions", "quoted") == [
        "The Long Way",
        "Small Gods",
        "Le Monde",
        "make all",
    ]


def test_single_marks_quote_only_where_no_word_touches_them_from_outside() -> None:
    memory = extract("the boys' and girls' 'Rule Engine' isn't 'so bad' as ‘Small Gods’")
    assert _surfaces(memory, "mentions", "quoted") == ["Rule Engine", "so bad", "Small Gods"]


def test_capitalised_runs_pass_the_sentence_start_guard() -> None:
    memory = extract(
        "we met Dana Whitfield of Bank of Lisbon. Yesterday was fine. Tomorrow Ann Lee joins. "
        "Pottery is fun. On Monday NASA called. J. R. R. Tolkien took Vitamin C and plan B."
    )
    assert _surfaces(memory, "mentions", "name") == [
        "Dana Whitfield of Bank of Lisbon",
        "Ann Lee",
        "NASA",
        "J. R. R. Tolkien",
        "Vitamin C",
    ]


def test_every_span_is_the_surface_and_folds_to_the_name() -> None:
    content = 'Boot Hill (film)\nDirected by Ann Lee\'s brother; see OPS-412 and "Small Gods".'
    for found in extract(content, tags="a_b").found:
        assert fold_name(found.surface) == found.name
        assert found.role == "author" or content[found.start : found.end] == found.surface


def test_an_extraction_survives_json() -> None:
    memory = extract(
        "Boot Hill (film)\nBy Ann Lee, also known as Al. The den depends on Redis.",
        tags="west",
        expanded_keywords="movie",
    )
    assert memory.stated
    assert memory.aliases
    again = decode_extraction(encode_extraction(memory))
    assert again == memory
    assert len(memory.found) > 3


@pytest.mark.parametrize(
    "value",
    [
        {"version": EXTRACTOR_VERSION + 1, "found": []},
        {"found": []},
        {"version": EXTRACTOR_VERSION},
        {"version": EXTRACTOR_VERSION, "found": [["about", "title", "x"]]},
        {"version": EXTRACTOR_VERSION, "found": [], "stated": []},
        {"version": EXTRACTOR_VERSION, "found": [], "stated": [], "aliases": [["a", "b"]]},
        {"version": EXTRACTOR_VERSION, "found": [["boss", "title", "x", 0, 1, "x"]]},
        {"version": EXTRACTOR_VERSION, "found": [["about", "vibe", "x", 0, 1, "x"]]},
    ],
)
def test_a_foreign_or_damaged_extraction_is_refused(value: dict[str, object]) -> None:
    with pytest.raises(StoreError, match="extract again"):
        decode_extraction(json.dumps(value).encode())


@pytest.mark.parametrize(
    "unit", ["a.", "a/", "/a", "a-b.", "a_", "a.b@", "# x   ", "# x #", "aA", "1.", "[", '"', "Ab "]
)
def test_reading_time_grows_with_the_text_and_not_with_its_square(unit: str) -> None:
    # Eight times the text: a linear pattern takes 8 times as long, a quadratic one 64 times. Both
    # are measured here and now, best of three, so that a busy machine slows both.
    def seconds(repeats: int) -> float:
        best = float("inf")
        for _ in range(3):
            start = time.process_time()
            extract(unit * repeats)
            extract("# x" + unit[-1] * repeats + "y")
            extract("the api depends on see is now" + unit[-1] * repeats + "y")
            best = min(best, time.process_time() - start)
        return best

    assert seconds(8_000) < 25 * max(seconds(1_000), 0.001)


Triple = tuple[str, str, str]


def _stated(content: str, *, is_turn: bool = False) -> list[Triple]:
    return [(s.subject, s.relation, s.object) for s in extract(content, is_turn=is_turn).stated]


@pytest.mark.parametrize(
    ("content", "triples"),
    [
        ("Vitest replaces Jest.", [("vitest", "supersedes", "jest")]),
        ("plan B supersedes plan C", [("plan b", "supersedes", "plan c")]),
        ("Jest was replaced by Vitest.", [("vitest", "supersedes", "jest")]),
        ("We replaced Jest with Vitest.", [("vitest", "supersedes", "jest")]),
        ("We switched from Jest to Vitest.", [("vitest", "supersedes", "jest")]),
        ("We switched to Vitest from Jest.", [("vitest", "supersedes", "jest")]),
        ("the api moved from MySQL to Postgres", [("postgres", "supersedes", "mysql")]),
        ("We no longer use Jest, now Vitest.", [("vitest", "supersedes", "jest")]),
        ("it is no longer Heroku, it's now Fly", [("fly", "supersedes", "heroku")]),
        ("The lead is now Ann Lee.", [("lead", "is_now", "ann lee")]),
        ("my manager is now Ann Lee", [("user manager", "is_now", "ann lee")]),
        ("the price is now $1,500", [("price", "is_now", "1 500")]),
        ("the api depends on Redis", [("api", "depends_on", "redis")]),
        ("the api heavily relies on `vault`", [("api", "depends_on", "vault")]),
        ("the api requires a token", [("api", "depends_on", "token")]),
        ("the gateway is part of the payments area", [("gateway", "part_of", "payments area")]),
        ("the gateway belongs to payments", [("gateway", "part_of", "payments")]),
        ("Ann Lee is a data engineer", [("ann lee", "is_a", "data engineer")]),
        ("I'm a nurse", [("user", "is_a", "nurse")]),
        ("I prefer tea over coffee", [("user", "prefers", "tea")]),
        ("Prefers short answers.", [("user", "prefers", "short answers")]),
        ("Dana likes tea better than coffee", [("dana", "prefers", "tea")]),
        ("Dana works at Acme", [("dana", "works_at", "acme")]),
        ("I work for General Hospital", [("user", "works_at", "general hospital")]),
        ("Dana is living in New York", [("dana", "lives_in", "new york")]),
        ("I moved to Lisbon", [("user", "lives_in", "lisbon")]),
        ("I moved from Porto to Lisbon", [("user", "lives_in", "lisbon")]),
        ("my manager Dana Lee", [("user manager", "has", "dana lee")]),
        ("Dana's brother is Tom", [("dana brother", "has", "tom")]),
        ("User's name: Ken Ito", [("user name", "has", "ken ito")]),
        ("my favorite color is blue", [("user favorite color", "has", "blue")]),
        ("the repo is owned by Platform Team", [("repo", "owned_by", "platform team")]),
        ("Dana owns the retry queue", [("retry queue", "owned_by", "dana")]),
        ("OPS-412 was fixed by Ann Lee", [("ops 412", "resolved_by", "ann lee")]),
        ("the patch resolves OPS-412", [("ops 412", "resolved_by", "patch")]),
    ],
)
def test_each_construction_states_its_relation(content: str, triples: list[Triple]) -> None:
    assert _stated(content) == triples


@pytest.mark.parametrize(
    ("content", "triple"),
    [
        ("supersedes #12", ("", "supersedes", "#12")),
        ("This plan replaces memory 12.", ("", "supersedes", "#12")),
        ("superseded by [[m-7]]", ("#m-7", "supersedes", "#")),
        ("Resolves #12.", ("#12", "resolved_by", "#")),
        ("see also [[12]]", ("", "has", "#12")),
        ("the flaky test was fixed by #12", ("flaky test", "resolved_by", "#12")),
    ],
)
def test_a_link_means_a_memory(content: str, triple: Triple) -> None:
    assert _stated(content) == [triple]


@pytest.mark.parametrize(
    "content",
    [
        "the gateway is not part of payments",
        "the api doesn't depend on Redis",
        "the api never depends on Redis",
        "I don't think the api depends on Redis",
        "Does the api depend on Redis?",
        "the api depends on Redis?",
        "so the api depends on Redis?!",
        "does the api still requires tokens",
        "If the api depends on Redis, restart it",
        "I would prefer tea",
        "maybe Dana works at Acme",
        "I want to live in Lisbon",
        "```\nthe api depends on Redis\n```",
        "```\nthe api depends on Redis",
        "he works at Acme",
        "it replaced Jest",
        "They moved from Porto to Lisbon",
        "Maria's volunteer work at Acme",
        "Dana began working at Acme",
        "the meeting moved to Thursday",
        "We moved to Kubernetes",
        "living in a Japanese house",
        "I work for hours",
        "Ann Lee is a lot of fun",
        "Ann Lee is a part of it",
        "pottery is a joy",
        "my kids are excited",
        "my kids are running",
        "I love my job, Caroline!",
        "the car is now going strong",
        "the texts are now housed in Rome",
        "see the queue",
        "this replaces the previous plan",
        "the api depends on it",
    ],
)
def test_what_is_not_said_as_a_fact_states_nothing(content: str) -> None:
    assert _stated(content) == []


def test_a_negation_ends_with_its_clause() -> None:
    assert _stated("I don't like tea, I prefer coffee") == [("user", "prefers", "coffee")]


def test_fenced_code_is_passed_over_and_what_stands_between_is_read() -> None:
    content = (
        "```\nthe api depends on A1\n```\nthe api depends on B1\n```\nthe api depends on C1\n```"
    )
    assert _stated(content) == [("api", "depends_on", "b1")]


def test_a_list_states_each_of_its_members_and_no_verb_after_it() -> None:
    listed = [t[2] for t in _stated("the api depends on Redis, Kafka and object storage.")]
    assert sorted(listed) == ["kafka", "object storage", "redis"]
    assert _stated("the api depends on Redis and works well at night") == [
        ("api", "depends_on", "redis")
    ]


@pytest.mark.parametrize(
    ("content", "is_turn", "subject"),
    [
        ("Caroline: I moved to Lisbon", True, "caroline"),
        ("Caroline: We live in Lisbon", True, "caroline"),
        ("User: I moved to Lisbon", False, "user"),
        ("Human: I moved to Lisbon", False, "user"),
        ("I moved to Lisbon", False, "user"),
    ],
)
def test_the_first_person_is_who_speaks(content: str, is_turn: bool, subject: str) -> None:
    assert [s for s, _, _ in _stated(content, is_turn=is_turn)] == [subject]


def test_what_is_the_speakers_bears_the_speakers_name() -> None:
    content = "Caroline: my manager Dana Lee works at Acme"
    memory = extract(content, is_turn=True)
    assert [(s.subject, s.relation, s.object, s.subject_surface) for s in memory.stated] == [
        ("caroline manager", "has", "dana lee", "Caroline's manager"),
        ("dana lee", "works_at", "acme", "Dana Lee"),
    ]


def test_the_evidence_is_the_whole_statement() -> None:
    content = "By the way, my manager Dana Lee works at Acme now. The api depends on Redis."
    spans = [content[s.start : s.end] for s in extract(content).stated]
    assert spans == [
        "my manager Dana Lee",
        "Dana Lee works at Acme",
        "api depends on Redis",
    ]


def test_sides_fold_to_their_names() -> None:
    memory = extract("Vitest replaced Jest. my dog Rex likes Ann better. see [[12]]")
    for item in memory.stated:
        if not item.object.startswith("#"):
            assert fold_name(item.subject_surface) == item.subject
            assert fold_name(item.object_surface) == item.object


def test_the_number_of_statements_is_bounded() -> None:
    text = ". ".join(f"service q{i} depends on Redis" for i in range(STATEMENTS_MAX + 9))
    assert len(_stated(text)) == STATEMENTS_MAX


_SAMPLES = {
    "latin": ("we met Émilie Dupont there", "Émilie Dupont"),
    "greek": ("είδαμε την Μαρία Παππά εκεί", "Μαρία Παππά"),
    "cyrillic": ("мы видели Анну Петрову там", "Анну Петрову"),
    "hebrew": ("ראינו את דנה כהן שם", "דנה כהן"),
    "arabic": ("قابلنا ليلى حداد هناك", "ليلى حداد"),
    "indic": ("हमने अनीता शर्मा को देखा", "अनीता शर्मा"),
    "hangul": ("어제 김민수 선생님 만났다", "김민수 선생님"),
    "thai": ("ฉันพบสมชาย แล้ว", "สมชาย"),
    "lao": ("ຂ້ອຍພົບສົມໄຊ ແລ້ວ", "ສົມໄຊ"),
    "tibetan": ("བཀྲཤིས མཐོང", "བཀྲ"),
    "myanmar": ("ကျွန်တော်မောင်မောင် တွေ့", "မောင်မောင်"),
    "khmer": ("ខ្ញុំជួបសុខា ហើយ", "សុខា"),
    "kana": ("きのうサクラさん", "サクラ"),
    "han": ("我昨天见到李明杰。", "李明杰"),
}


def test_every_script_of_the_table_has_a_sample() -> None:
    assert set(_SAMPLES) == {script.name for script in SCRIPTS}


def test_no_character_belongs_to_two_scripts() -> None:
    ranges = sorted(block for script in SCRIPTS for block in script.ranges)
    assert all(low <= high for low, high in ranges)
    assert all(left[1] < right[0] for left, right in pairwise(ranges))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_the_dictionary_matches_words_and_no_part_of_a_run(script: object) -> None:
    assert script in SCRIPTS
    entry = next(s for s in SCRIPTS if s is script)
    text, name = _SAMPLES[entry.name]
    matches = find_matches(text, build_dictionary([(fold_name(name), name)]))
    assert [text[m.start : m.end] for m in matches] == ([name] if entry.spaced else [])


@pytest.mark.parametrize("script", [s for s in SCRIPTS if not s.spaced], ids=str)
def test_a_run_that_is_the_whole_name_is_matched(script: object) -> None:
    entry = next(s for s in SCRIPTS if s is script)
    name = _SAMPLES[entry.name][1] * 3
    matches = find_matches(f"({name})", build_dictionary([(fold_name(name), name)]))
    assert [m.name for m in matches] == [fold_name(name)]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_capitalised_runs_are_names_where_the_script_has_case(script: object) -> None:
    entry = next(s for s in SCRIPTS if s is script)
    text, name = _SAMPLES[entry.name]
    named = [f.surface for f in extract(text).found if f.kind == "name"]
    assert named == ([name] if name[0].isupper() else [])


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_titles_labels_quotes_and_keys_are_found_in_every_script(script: object) -> None:
    name = _SAMPLES[next(s for s in SCRIPTS if s is script).name][1]
    kinds = {
        (f.role, f.kind)
        for content in (f"{name}\nx", f"【{name}】 x", f"{name}: x", f'x "{name}"', f"# {name}")
        for f in extract(content).found
        if f.surface == name
    }
    assert kinds >= {
        ("about", "title"), ("about", "label"), ("about", "key"), ("about", "heading"),
        ("mentions", "quoted"),
    }  # fmt: skip


def test_points_and_vowel_signs_make_no_difference() -> None:
    assert fold_name("שָׁלוֹם") == fold_name("שלום")
    assert fold_name("مُحَمَّد") == fold_name("محمد")
    assert fold_name("محـــمد") == fold_name("محمد")
    assert len(words("مُحَمَّد")) == 1


def test_a_script_outside_the_table_has_no_entry() -> None:
    assert script_of("א") is not None
    assert script_of("ა") is None
    assert script_of("7") is None


def _aliases(content: str) -> list[tuple[str, str]]:
    return [(alias, canonical) for alias, canonical, _ in extract(content).aliases]


@pytest.mark.parametrize(
    ("content", "pairs"),
    [
        ("Kubernetes (aka K8s) runs.", [("k8s", "kubernetes")]),
        ("Kubernetes, a.k.a. K8s, runs.", [("k8s", "kubernetes")]),
        ("Ann Lee, also known as Al, left.", [("al", "ann lee")]),
        ("Ann Lee (born 1981), better known as Al, left.", [("al", "ann lee")]),
        ("the Retry Queue, also called “slow lane”, is off", [("slow lane", "retry queue")]),
        (
            "International Business Machines (IBM) sells it",
            [("ibm", "international business machines")],
        ),
        ("the Bank of New Lisbon (BNL) is closed", [("bnl", "bank of new lisbon")]),
        ("a first in first out (FIFO) queue", [("fifo", "first in first out")]),
        ("my manager Dana called. Then Dana Whitfield wrote.", [("dana", "dana whitfield")]),
        ("Ann Lee\nShe is here. They asked Ann for it.", [("ann", "ann lee")]),
        ("due on 12 May 2024", [("12 may 2024", "2024 05 12")]),
    ],
)
def test_another_name_is_read_from_the_text(content: str, pairs: list[tuple[str, str]]) -> None:
    assert _aliases(content) == pairs


@pytest.mark.parametrize(
    "content",
    [
        "International Business Machines (XYZ) sells it",
        "Big Blue (IBM) sells it",
        "it is known as fun",
        "my manager Dana called. Dana Whitfield wrote, Dana Lee too.",
        "we asked Interview panels and read Interview Notes",
        "my manager Dana Whitfield",
        "due on 2024-05-12",
        "User Preferences: the User prefers tea",
        "the slow one, also known as Al",
    ],
)
def test_what_is_no_alias_gives_none(content: str) -> None:
    assert _aliases(content) == []


def test_every_alias_says_why() -> None:
    details = {detail for _, _, detail in extract("Ann Lee (AL) aka Al on 1 May 2024").aliases}
    assert "initials (AL)" in details
    assert "same date" in details


def test_the_number_of_aliases_is_bounded() -> None:
    text = " ".join(f"{day} May {year}," for year in (2023, 2024) for day in range(1, 20))
    assert len(extract(text).aliases) == ALIASES_MAX


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


def at(start: int, name: str, role: Role = "mentions", kind: str = "name") -> Found:
    return Found(role, kind, name, start, start + len(name), name)


def says(start: int, subject: str, thing: str) -> Stated:
    return Stated(subject, "is_a", thing, start, start + 9, subject, thing)


def test_nothing_added_is_what_the_rules_found() -> None:
    base = extract("Atlas: Maria moved the backup to Hetzner", tags="ops", is_turn=False)
    assert base.found
    assert merge_extractions(base, Extraction(())) == base
    assert merge_extractions(base, base) == base


def test_the_union_is_in_order_whatever_the_order_of_the_proposals() -> None:
    base = Extraction((at(5, "b"),), (says(5, "b", "c"),))
    more = (at(9, "c"), at(0, "a"), at(20, "b"))
    statements = (says(50, "b", "c"), says(0, "a", "c"))
    results = {
        merge_extractions(base, Extraction(order, tuple(two)))
        for order in permutations(more)
        for two in permutations(statements)
    }
    (merged,) = results
    assert [f.start for f in merged.found] == [0, 5, 9, 20]
    assert [s.start for s in merged.stated] == [0, 5, 50]


def test_where_the_rules_found_the_same_theirs_stays() -> None:
    own = at(5, "acme", kind="identifier")
    wider = Found("mentions", "name", "acme", 5, 11, "acme's")
    base = Extraction((own,), (says(5, "b", "c"),))
    merged = merge_extractions(base, Extraction((wider,), (says(7, "b", "c"),)))
    assert merged == base


def test_what_the_memory_is_about_is_not_also_mentioned() -> None:
    about, speaker = at(0, "atlas", "about", "title"), at(10, "ann", "speaker", "speaker")
    base = Extraction((about, speaker))
    assert merge_extractions(base, Extraction((at(30, "atlas"), at(40, "ann")))) == base
    turned = merge_extractions(base, Extraction((at(30, "atlas", "about"),)))
    assert turned.found[-1] == at(30, "atlas", "about")


def test_a_tag_does_not_stand_for_a_place_in_the_text() -> None:
    tag = Found("author", "tag", "acme", NO_SPAN, NO_SPAN, "acme")
    merged = merge_extractions(Extraction((tag,)), Extraction((at(0, "acme"),)))
    assert merged.found == (tag, at(0, "acme"))


def told(**given: object) -> dict[str, Extraction]:
    parts = [given.get(name, ()) for name in ("links", "concepts", "mentions", "edges")]
    return findings_told(*parts)  # pyright: ignore[reportArgumentType]


def said(subject: str, relation: str, thing: str, *surfaces: str) -> Stated:
    ends = surfaces or (subject, thing)
    return Stated(subject, relation, thing, NO_SPAN, NO_SPAN, *ends)  # pyright: ignore[reportArgumentType, reportCallIssue]


@pytest.mark.parametrize(
    ("link_type", "relation"),
    [("supersedes", "supersedes"), ("part-of", "part_of"), ("see-also", "has"),
     ("resolved-by", "resolved_by")],
)  # fmt: skip
def test_a_link_is_a_statement_of_the_memory_that_points(link_type: str, relation: str) -> None:
    found = told(links=[MemoryLink("7", "3", link_type, 0, None)])
    assert found == {"7": Extraction((), (said("", relation, "#3"),))}
    assert set(LINK_RELATIONS) == set(LINK_TYPES)


def test_a_mention_is_a_tag_with_the_concepts_aliases() -> None:
    found = told(
        concepts=[KnownConcept("Kubernetes", ("K8s", "kubernetes", " "), "tool"),
                  KnownConcept("Unused", ("U",), "")],
        mentions=[KnownMention("7", "Kubernetes", "about"), KnownMention("7", "--", "about")],
    )  # fmt: skip
    names = ("k8s", "K8s"), ("kubernetes", "Kubernetes"), ("kubernetes", "kubernetes")
    tags = tuple(Found("author", "tag", name, NO_SPAN, NO_SPAN, as_is) for name, as_is in names)
    aliases = (("k8s", "kubernetes", "the store's own alias"),)
    assert found == {"7": Extraction(tags, (), aliases)}


@pytest.mark.parametrize(
    ("relation", "expected"),
    [
        ("depends_on", ("atlas", "depends_on", "redis")),
        ("Depends-On", ("atlas", "depends_on", "redis")),
        ("required_by", ("redis", "depends_on", "atlas")),
        ("orbits", ("atlas", "related_to", "redis")),
        ("", ("atlas", "related_to", "redis")),
    ],
)
def test_an_edge_is_a_statement_of_every_memory_behind_it(
    relation: str, expected: tuple[str, str, str]
) -> None:
    found = told(edges=[KnownEdge("Atlas", "Redis", relation, 5, ("3", "7"))])
    assert set(found) == {"3", "7"}
    assert [s[:3] for s in found["3"].stated] == [expected]
    assert found["3"] == found["7"]
    assert all(s.start == NO_SPAN for s in found["3"].stated)


@pytest.mark.parametrize("ends", [("Atlas", "atlas"), ("", "Redis"), ("Redis", "!!")])
def test_an_edge_without_two_names_says_nothing(ends: tuple[str, str]) -> None:
    assert told(edges=[KnownEdge(*ends, "has", 1, ("3",))]) == {}


def test_a_model_is_not_asked_for_what_only_stores_say() -> None:
    assert "related_to" not in RELATION_NAMES
    assert "resolved_by" in RELATION_NAMES


_NAMES = st.sampled_from(["Atlas", "Redis", "K8s", "atlas", "Große Stadt", "", "#3"])


_IDS = st.sampled_from(["1", "2", "drawer_ü"])


_LINKS = st.builds(
    MemoryLink, _IDS, _IDS, st.sampled_from(LINK_TYPES), st.just(0), st.none()
)  # fmt: skip


_CONCEPTS = st.builds(KnownConcept, _NAMES, st.lists(_NAMES, max_size=3).map(tuple), st.just(""))


_MENTIONS = st.builds(KnownMention, _IDS, _NAMES, st.just("about"))


_EDGES = st.builds(
    KnownEdge, _NAMES, _NAMES, st.sampled_from(["has", "uses"]), st.just(1),
    st.lists(_IDS, max_size=2).map(tuple),
)  # fmt: skip


@given(
    st.lists(_LINKS, max_size=4), st.lists(_CONCEPTS, max_size=4), st.lists(_MENTIONS, max_size=4),
    st.lists(_EDGES, max_size=4), st.randoms(),
)  # fmt: skip
def test_the_order_makes_no_difference_and_a_texts_own_findings_stay(
    links: list[MemoryLink],
    concepts: list[KnownConcept],
    mentions: list[KnownMention],
    edges: list[KnownEdge],
    random: object,
) -> None:
    concepts = list({concept.name: concept for concept in concepts}.values())
    found = findings_told(links, concepts, mentions, edges)
    for items in (links, concepts, mentions, edges):
        random.shuffle(items)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    assert findings_told(links, concepts, mentions, edges) == found
    base = extract("Atlas: depends on Redis; supersedes #2.", "K8s")
    base = replace(base, aliases=(("at", "atlas", "said by the text"),))
    for item in found.values():
        both = merge_extractions(base, item)
        assert set(base.found) <= set(both.found)
        assert set(base.stated) <= set(both.stated)
        assert set(base.aliases) <= set(both.aliases)
        assert [s for s in both.stated if s.start != NO_SPAN] == list(base.stated)
        assert decode_extraction(encode_extraction(both)) == both


_Fields = tuple[str, str, str, bool]


_WORD = st.sampled_from(["", "a", "ab", "b"])


_FIELDS = st.tuples(_WORD, _WORD, _WORD, st.booleans())


def _records() -> list[MemoryRecord]:
    same = "Dana Whitfield works at Globex. 我的公司"
    return renumber(
        [*household(), memory(same), memory(same), memory(same, is_turn=True), *turns("s", "A: hi")]
    )


def _key_of(r: MemoryRecord) -> bytes:
    return extraction_key(r.content, r.tags, r.expanded_keywords, r.is_turn)


def test_fragments_hold_what_one_memory_at_a_time_gives(tmp_path: Path) -> None:
    records = _records()
    store = ContentStore(tmp_path, EXTRACTION_KIND)

    def filled() -> Filled:
        keyed = map(add_keys, column_batches(records, EXTRACTION_COLUMNS, 4))
        return fill(
            store, keyed, ExtractMemories(), LocalRunner(1), tmp_path / "shards", shard_rows=5
        )

    keys = [_key_of(r) for r in records]
    assert filled() == Filled(len(set(keys)), 0)
    assert filled() == Filled(0, len(set(keys)))
    assert len(set(keys)) == len(records) - 1, "two memories are alike, a turn is another one"
    kept = store.take(store.find(keys)).to_pylist()
    for record, value in zip(records, kept, strict=True):
        found = extract(
            record.content, record.tags, record.expanded_keywords,
            is_turn=record.is_turn,
        )  # fmt: skip
        assert value == encode_extraction(found)
        assert decode_extraction(value) == found
    assert any(decode_extraction(value).stated for value in kept)


@given(_FIELDS, _FIELDS)
def test_equal_keys_are_equal_fields(one: _Fields, other: _Fields) -> None:
    assert (extraction_key(*one) == extraction_key(*other)) == (one == other)
    assert len(extraction_key(*one)) == 32


def test_findings_of_another_version_are_refused() -> None:
    kept = encode_extraction(extract("Blue Ridge\nHills."))
    with pytest.raises(StoreError, match="version"):
        decode_extraction(kept.replace(b'"version": ', b'"version": 9'))
