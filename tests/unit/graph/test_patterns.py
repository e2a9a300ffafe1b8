from __future__ import annotations

import pytest

from noctuary.graph.extract import extract
from noctuary.graph.fold import fold_name
from noctuary.graph.patterns import STATEMENTS_MAX

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
