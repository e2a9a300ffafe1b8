from __future__ import annotations

import json
import time

import pytest

from noctuary.core.errors import StoreError
from noctuary.graph.extract import (
    EXTRACTOR_VERSION,
    Extraction,
    decode_extraction,
    encode_extraction,
    extract,
)
from noctuary.graph.fold import fold_name
from noctuary.graph.tables import NO_SPAN


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
