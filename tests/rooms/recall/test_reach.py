"""What reaches a project from others: which memories, to whom, and that nothing else does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from noctuary import recall
from noctuary.core.settings import Settings
from noctuary.core.types import Origin
from noctuary.recall.engine import Recaller
from noctuary.recall.explain import explain_memory
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.query import Query, Scope
from noctuary.recall.words import WordRecaller
from noctuary.snapshot.pack import find_reach
from noctuary.sources.source import Share
from noctuary.text.reach import (
    BOUND,
    KEPT,
    KIND,
    NO_WING,
    PROJECT,
    REPEATED,
    TAGGED,
    WORDING,
    reach_of,
)
from tests.support.lean import write_encoder
from tests.support.live import Cache, make_cache, publish_from
from tests.support.store import Store, memory, new_store, renumber, turns

HOLDS = (
    "User prefers tabs over spaces.",
    "The user is a nurse and works night shifts.",
    "User's name is Mona.",
    "Mona never drinks coffee after noon.",
    "I always write the test first.",
    "We met on Monday. I'm allergic to nuts.",
    "From now on, I prefer French.",
    "Der Nutzer bevorzugt kurze Antworten.",
    "Ich nutze immer pnpm.",
    "L'utilisateur préfère le tutoiement.",
    "Je ne bois jamais de café.",
    "El usuario prefiere respuestas cortas.",
    "Siempre uso tabuladores.",
    "Пользователь предпочитает русский язык.",
    "用户喜欢简短的回答。",
    "我从不喝咖啡。",
)
BOUNDED = (
    "User prefers pnpm in this repo.",
    "Mona prefers tabs in mill.",
    "User prefers short names. The mill has many.",
    "Der Nutzer sieht immer eine leere Seite in diesem Projekt.",
)
STAYS = (
    "The user table has an index on the name.",
    "User likes the second option.",
    "I never got an answer from the vendor.",
    "I prefer this one.",
    "Do I always win?",
    "Never deploy on Fridays.",
    "From now on the service listens on port 9000.",
    "用户登录失败。",
    "User prefers tabs. " + "The rest is a long report. " * 20,
)


def test_words_about_the_person_reach_and_words_about_a_project_stay() -> None:
    def of(text: str, **fields: Any) -> int:
        return reach_of(memory(text, wing="mill", user="Mona", **fields))

    assert {text: of(text) for text in HOLDS} == dict.fromkeys(HOLDS, WORDING)
    assert {text: of(text) for text in STAYS} == dict.fromkeys(STAYS, PROJECT)
    assert {text: of(text) for text in BOUNDED} == dict.fromkeys(BOUNDED, BOUND)
    # An agent's "I" is the agent; a tool's result is nobody's wish.
    assert of(HOLDS[4], origin=Origin.ASSISTANT) == PROJECT
    assert of(HOLDS[0], origin=Origin.ASSISTANT) == WORDING
    assert of(HOLDS[0], origin=Origin.TOOL) == PROJECT


def test_a_tag_wins_over_the_kind_and_the_kind_over_words() -> None:
    def of(text: str, **fields: Any) -> int:
        return reach_of(memory(text, **{"wing": "mill", **fields}))

    assert of("Deploy at noon.", category="preference") == KIND
    assert of("Deploy at noon.", category="User Preferences") == KIND
    assert of("Deploy at noon.", tags="ops, preference") == KIND
    assert of("Deploy at noon.", tags="feedback, profile") == PROJECT, "a page may be about these"
    assert of("Deploy the mill at noon.", category="rule") == BOUND
    assert of("Deploy the mill at noon.", tags="ops, Reach:Everywhere") == TAGGED
    assert of(HOLDS[0], category="preference", tags="reach:project") == KEPT
    assert of("Deploy at noon.", wing=None) == NO_WING
    assert of("Deploy at noon.", wing=None, tags="reach:project") == KEPT


def test_of_a_conversation_only_what_its_user_typed_to_last_reaches() -> None:
    def of(text: str, origin: Origin, wing: str | None = "mill") -> int:
        (turn,) = turns("s", text, wing=wing or "")
        return reach_of(turn._replace(origin=origin, wing=wing))

    assert of("User: I always want conventional commits.", Origin.USER) == WORDING
    assert of("User: I prefer tabs.", Origin.USER) == PROJECT, "perhaps of this file"
    assert of("User: I always want tabs in this repo.", Origin.USER) == BOUND
    assert of("User: I always want tabs in the mill.", Origin.USER) == BOUND
    assert of("User: I always want conventional commits.", Origin.IMPORT) == PROJECT
    assert of("Assistant: I always want conventional commits.", Origin.ASSISTANT) == PROJECT
    assert of("User: hello", Origin.USER, None) == PROJECT


def test_what_several_projects_of_one_owner_say_reaches() -> None:
    same, said = "Run the linter first.", "Thank you!"
    records = renumber(
        [
            memory(same, wing="mill"),
            memory(f" {same.upper()}", wing="lark"),
            memory(same, wing="mill", user="ana"),
            memory("Run it twice.", wing="mill"),
            memory("Run it twice.", wing="mill"),
            memory(same, wing="fern", tags="reach:project"),
            memory("exit code 0", wing="mill", origin=Origin.TOOL),
            memory("exit code 0", wing="lark", origin=Origin.TOOL),
            *turns("s", said, wing="mill"),
            *turns("t", said, wing="lark"),
        ]
    )
    found = [REPEATED, REPEATED, PROJECT, PROJECT, PROJECT, KEPT]
    found += [PROJECT] * 4
    assert find_reach(records).tolist() == found
    assert find_reach([]).tolist() == []


# Three projects of one person that share words, and questions asked in one of them.

PROJECTS: dict[str, tuple[str, ...]] = {
    "mill": (
        "The payment service listens on port 8443.",
        "Deploy the service with cargo ship from the release branch.",
        "Database migrations run before the deploy, by sqlx.",
        "Tests of the ledger need a running Postgres.",
        "The release freeze is on the last Friday of the month.",
        "Retries of a failed payment back off up to an hour.",
        "Logs of the service go to the Loki cluster.",
        "The API token of the sandbox expires every ninety days.",
        "User prefers short commit messages in the imperative.",
        "User's time zone is Lisbon.",
    ),
    "lark": (
        "The web client's dev server listens on port 5173.",
        "Deploy the client by merging to main; Netlify builds it.",
        "The client keeps its database in IndexedDB.",
        "Tests of the checkout page run in Playwright.",
        "A release of the client is tagged by date.",
        "Failed requests are retried three times by the client.",
        "Logs of the client are sent to Sentry.",
        "The design tokens come from Figma every Monday.",
        "User likes the new sidebar.",
        "I never merge without a green build.",
    ),
    "fern": (
        "The pipeline's dashboard listens on port 3000.",
        "Deploy the pipeline by a pull request to the infra folder.",
        "The warehouse database is DuckDB on one machine.",
        "Tests of the loaders read a sample of ten thousand rows.",
        "A release of the schema needs the analysts' review.",
        "Failed loads are retried the next morning.",
        "Logs of the pipeline are kept for thirty days.",
        "The access token of the bucket lies in the vault.",
        "User prefers pandas in this repo.",
        "User is allergic to pop-up notifications.",
    ),
}
REACHING = frozenset({9, 10, 20, 30})
ASKED: tuple[tuple[str, str, int], ...] = (
    ("mill", "which port does it listen on?", 1),
    ("lark", "which port does it listen on?", 11),
    ("fern", "which port does it listen on?", 21),
    ("mill", "how do I deploy?", 2),
    ("lark", "how do I deploy?", 12),
    ("fern", "how do I deploy?", 22),
    ("lark", "what database is used?", 13),
    ("fern", "what database is used?", 23),
    ("mill", "what do the tests need?", 4),
    ("lark", "where do the logs go?", 17),
    ("fern", "how long are logs kept?", 27),
    ("mill", "when does the token expire?", 8),
    ("lark", "how should a commit message look?", 9),
    ("fern", "how should a commit message look?", 9),
    ("fern", "what is the user's time zone?", 10),
    ("mill", "may I merge before the build is green?", 20),
    ("lark", "should I show notifications?", 30),
    ("mill", "should I use pandas?", 0),
    ("fern", "is the sidebar liked?", 0),
    ("lark", "when is the release freeze?", 0),
)


@pytest.fixture(scope="module")
def projects(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Cache]:
    root = tmp_path_factory.mktemp("projects")
    rows = [
        {"content": text, "tags": f"wing:{wing}"} for wing in PROJECTS for text in PROJECTS[wing]
    ]
    cache = make_cache(root / "cache.sqlite", rows)
    store = new_store(root / "store", encoder=write_encoder(root / "store" / "encoders"))
    publish_from(cache, store)
    return store, cache


def asked(store: Store, question: str, wing: str | None, **how: Any) -> list[int]:
    """Return all ids that a recall finds, best first."""
    found = recall(question, 40, wing=wing, store=store.root, dry_run=True, **how)
    return [int(m.id) for m in found.memories]


def test_nothing_of_one_project_comes_up_in_another_unless_it_reaches(
    projects: tuple[Store, Cache],
) -> None:
    store, _ = projects
    words = WordRecaller(store.root, Settings())
    own = {wing: set(range(n, n + 10)) for wing, n in zip(PROJECTS, (1, 11, 21), strict=True)}
    first: dict[str, int] = dict.fromkeys(("project", "person", "words", "store"), 0)
    for wing, question, wanted in ASKED:
        by_words = words.recall(question, 40, wing=wing, person=True, dry_run=True)
        assert by_words is not None
        found = {
            "project": asked(store, question, wing),
            "person": asked(store, question, wing, person=True),
            "words": [int(m.id) for m in by_words.memories],
            "store": asked(store, question, None),
        }
        for name, ids in found.items():
            first[name] += ids[:3].count(wanted)
        assert set(found["project"]) <= own[wing]
        assert set(found["person"]) | set(found["words"]) <= own[wing] | REACHING
        assert set(found["person"]) <= set(found["store"])
    # Of 17 that have an answer: five lie in another project.
    assert first == {"project": 12, "person": 17, "words": 17, "store": 16}


def test_live_rows_reach_by_the_same_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOCTUARY_LIVE_DEADLINE_MS", "10000")
    cache = make_cache(tmp_path / "cache.sqlite", [{"content": "Old.", "tags": "wing:mill"}])
    store = new_store(tmp_path / "store")
    publish_from(cache, store)
    stays = cache.add("The lark listens on port 5173.", tags="wing:lark")
    tagged = cache.add("The lark's port is free at noon.", tags="wing:lark,reach:everywhere")
    said = cache.add("User prefers a port above 9000.", tags="wing:lark")
    kept = cache.add("User prefers port 5173.", tags="wing:lark,reach:project")
    of_ana = cache.add("User prefers port 80.", tags="wing:lark,user:ana")
    assert set(asked(store, "which port?", "mill", person=True)) == {tagged, said}
    assert set(asked(store, "which port?", "mill")) == set()
    assert set(asked(store, "which port?", "lark", person=True)) == {stays, tagged, said, kept}
    assert of_ana in asked(store, "which port?", "mill", person=True, user="ana")
    publish_from(cache, store)
    assert set(asked(store, "which port?", "mill", person=True)) == {tagged, said}, "as snapshot"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Ana and Ben share; each has wishes in a wing of their own."""
    root = tmp_path_factory.mktemp("shared")
    store = new_store(root / "store", encoder=write_encoder(root / "store" / "encoders"))
    records = renumber(
        [
            memory("The mill's port is open.", wing="mill"),
            memory("User prefers port 1.", wing="lark", user="ana"),
            memory("User prefers port 2.", wing="lark", user="ben"),
            memory("User prefers port 3.", wing="lark"),
            memory("The lark's port is open.", wing="lark"),
        ]
    )
    store.publish(records, shares=[Share("103", "ana")])
    return store


def test_what_others_share_holds_for_them_alone(shared: Store) -> None:
    seen = {"ana": {101, 102, 104}, "ben": {101, 103, 104}, None: {101, 104}}
    words = WordRecaller(shared.root, Settings())
    for user, ids in seen.items():
        how: dict[str, Any] = {"wing": "mill", "user": user, "person": True}
        assert set(asked(shared, "port", **how)) == ids
        found = words.recall("port", 40, **how, dry_run=True)
        assert found is not None
        assert {m.id for m in found.memories} == ids
    assert 103 in asked(shared, "port", None, user="ana"), "it is shared all the same"


def why(store: Store, memory_id: int, scope: Scope) -> Any:
    recaller = Recaller.open(store.root)
    query = Query("port", 10, RetrievalProfile(), scope=scope, dry_run=True)
    return explain_memory(recaller, query, str(memory_id), recaller.inputs_now(scope.user))


def test_it_is_told_why_a_memory_reaches_or_does_not(shared: Store) -> None:
    scope = Scope(wing="mill", user="ana", person=True)
    found = why(shared, 102, scope)
    said = "It reaches every project: it says what its person is, prefers, always or never does."
    assert said in found.sentences
    assert found.facts["reach"] == "everywhere"
    (step,) = [s for s in found.steps if s["phase"] == "own_wing"]
    assert step["delta"] < 0
    assert step["reason"].startswith("of another wing, here because it says what its person is")
    stays = "It does not reach every project: it says nothing that holds elsewhere."
    assert stays in why(shared, 105, scope).sentences
    lent = "It does not reach every project: what others share holds for them alone."
    assert lent in why(shared, 103, scope).sentences
    assert "own_wing" not in str(why(shared, 101, Scope(wing="mill")).steps)


def test_its_own_comes_first_of_two_that_fit_alike(tmp_path: Path) -> None:
    store = new_store(tmp_path / "store")
    text = "User prefers port 7."
    store.publish(renumber([memory(text, wing="lark"), memory(text, wing="mill")]))
    assert asked(store, "port", "mill", person=True) == [102, 101]
    assert asked(store, "port", "lark", person=True) == [101, 102]
    assert asked(store, "port", None, person=True) == asked(store, "port", None)
