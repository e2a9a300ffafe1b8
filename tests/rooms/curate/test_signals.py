"""The five signals of a text: their sums, caps and what they are read from."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noctuary.curate import signals
from noctuary.curate.signals import (
    BLANK,
    READ_CHARS,
    Signals,
    Weighed,
    actionability,
    conversational_structure,
    declared,
    gate,
    novelty,
    read_signals,
    repetition,
    said_something,
    specificity,
    structure,
    technical_density,
)

TEXTS = st.text(max_size=400) | st.lists(
    st.sampled_from(
        (
            "I prefer tabs", "```\n", "src/a.py", "ENOENT", "def f():", "on 2026-03-01", "3 years",
            "my boss Ana", "I work at Acme", "git push", "PR #4", "we decided to", "?", "\n", " ",
        )
    )
).map("".join)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "mark"),
    [
        ("It was 2026-03-01.", "date"),
        ("We meet on March 3", "date"),
        ("born 3 May 1980", "date"),
        ("in May we move", "date"),
        ("since 2019", "date"),
        ("every monday", "date"),
        ("two weeks ago", "date"),
        ("moves in 3 weeks", "date"),
        ("我于2024年4月3日出发。", "date"),
        ("231 invoices", "quantity"),
        ("it is 12.5 kg", "quantity"),
        ("takes 8000 ms", "quantity"),
        ("30% off", "quantity"),
        ("$40 a month", "quantity"),
        ("three kids", "quantity"),
        ("Dr. Weiss called", "person"),
        ("my manager Lorna agrees", "person"),
        ("My dog is called Rex.", "person"),
        ("our neighbour Ömer", "person"),
        ("I prefer tabs over spaces", "preference"),
        ("I don't like olives", "preference"),
        ("I'd rather walk", "preference"),
        ("my favourite tea", "preference"),
        ("Always run the linter first.", "preference"),
        ("Please never push to main", "preference"),
        ("I'm allergic to nuts", "preference"),
        ("Remember that the door sticks", "preference"),
        ("From now on use British spelling", "preference"),
        ("I work at Initech", "fact"),
        ("I've worked as a nurse", "fact"),
        ("I used to live in Lyon", "fact"),
        ("I grew up on a farm", "fact"),
        ("I'm a nurse", "fact"),
        ("I have two brothers", "fact"),
        ("my sister lives there", "fact"),
        ("our staging port is 5433", "fact"),
        ("we use Postgres", "fact"),
    ],
)
def test_what_is_stated_is_found(text: str, mark: str) -> None:
    assert mark in conversational_structure(text).names


@pytest.mark.parametrize(
    "text",
    [
        "I may go. March on! We might, may we? The august crowd. 24/7, 1/2, 3-4.",
        "I am going to do it. I'm sorry, I'm not sure. I am the one. I'm a bit tired.",
        "I have a question. I have to go. I have no idea. I've got a feeling. I have a good idea.",
        "I'd like to know. I like it! I love that. I love how it looks. I like your style.",
        "My point is this. My guess is no. My bad. My question is simple. Our plan is fine.",
        "Never mind. Always good to see you. Always up for it! We never know. Never been better.",
        "It looks like rain, it feels like home, likely so. Dr who? Mr. and Ms. and so on.",
        "Could you please help? Please don't worry. Thanks a lot! Bye! Ok. Yes, please.",
        "the file is 3 and the rest 4; version 2, step 1 of 9, chapter 12",
        "Never give up! See you tomorrow. It is great to be in our community work. Let's go on.",
        "I am so glad to have this outlet to share my stories and hopefully have a say in it.",
        # Questions and code.
        "Do I prefer tabs? Is my favourite tea green?",
        "我喜欢2024年4月吗？",
        "```\nI work at Initech\n```\nok",
    ],
)
def test_small_talk_questions_and_code_state_nothing(text: str) -> None:
    assert conversational_structure(text).names == ()


def test_what_is_declared_stands_between_questions_and_code() -> None:
    assert conversational_structure("I work at Initech. Do you?").names == ("fact",)
    assert declared("One. Two? Three!\n```\nFour\n```\nFive").split() == ["One.", "Three!", "Five"]
    assert declared("Dr. Weiss") == "Dr. Weiss"


EVERYTHING = "```\nTraceback (most recent call last)\n```\nmain() git push src/a.py 0xff GET /x"


@pytest.mark.parametrize(
    ("signal", "text", "total"),
    [
        # D adds each kind once and stops at one.
        (conversational_structure, "on Monday and Tuesday", 0.3),
        (conversational_structure, "on Monday, 3 kg", 0.5),
        (conversational_structure,
         "My manager Ana and I prefer Mondays; I work at Acme 40 hours.", 1.0),
        # T is the sum of its weights over one and a half.
        (technical_density, "see src/main.py", 0.4 / 1.5),
        (technical_density, "git push then see src/main.py", 0.8 / 1.5),
        (technical_density, "at src/a.py and src/b.py", 0.4 / 1.5),
        (technical_density, EVERYTHING, 1.0),
        (technical_density, "We went home early.", 0.0),
        # P counts every occurrence per hundred tokens; 400 characters are 100 tokens, and the
        # divisor starts to count beyond. Code points, not bytes: 799 // 4 = 199.
        (specificity, "src/a.py", 0.4),
        (specificity, "src/a.py src/b.py", 0.8),
        (specificity, "src/a.py src/b.py src/c.py", 1.0),
        (specificity, "src/a.py".ljust(400, " "), 0.4),
        (specificity, "src/a.py".ljust(800, " "), 0.2),
        (specificity, "src/a.py".ljust(799, "…"), 0.4 / 1.99),
        (specificity, "ENOENT at commit 9f3c2ab", 0.9),
        # A and DT add each kind once.
        (actionability, "We decided to use Postgres.", 0.5),
        (actionability, "The root cause was a lock; fixed it, set POOL_SIZE=20", 0.8),
        (actionability, "deployed and shipped", 0.3),
        (actionability, "ADR-14: decided; root cause found; deployed; RETRIES=3", 1.0),
        (actionability, "Every day we eat; how are things going with you?", 0.0),
        (structure, "def f(x):", 0.4),
        (structure, "import os\nclass Row(NamedTuple):", 0.6),
        (structure, "CREATE TABLE x(id)", 0.3),
        (structure, 'def test_a():\n    """Doc."""\n    assert a == 1', 0.8),
        (structure, "A class of its own: the test of time, a table for two.", 0.0),
    ],
)  # fmt: skip
def test_a_signal_is_the_sum_of_what_it_finds(
    signal: Callable[[str], Weighed], text: str, total: float
) -> None:
    assert signal(text).total == pytest.approx(total)


@pytest.mark.parametrize("text", ["", " ", "\n\t", "\u3000", "\u00a0"])
def test_a_blank_text_has_no_signal(text: str) -> None:
    assert read_signals(text) == BLANK


def test_only_the_beginning_of_a_long_text_is_read() -> None:
    assert read_signals(" " * READ_CHARS + "I work at Acme") == BLANK
    assert read_signals("I work at Acme " + "x" * 10 * READ_CHARS).marks == ("fact",)


@given(TEXTS)
def test_every_signal_lies_between_0_and_1(text: str) -> None:
    found = read_signals(text)
    for value in (found.t, found.d, found.p, found.a, found.dtech):
        assert 0.0 <= value <= 1.0
    assert list(found.marks) == sorted(set(found.marks))
    assert read_signals(text) == found


@given(TEXTS, TEXTS)
def test_saying_more_is_no_less_technical(one: str, other: str) -> None:
    """Presence only adds up: a text on lines of its own keeps what it had."""
    assert technical_density(f"{one}\n{other}").total >= technical_density(f"{one}\n").total


@pytest.mark.parametrize(
    "unit",
    ["a", "a.", "a/", "_", "(", "my ", "I ", "--", "0", "x ", "a_", "`", "never ", "\n", "é"],
)
def test_no_text_takes_long(unit: str) -> None:
    """A pattern with a repetition inside a repetition would take minutes here."""
    text = unit * (READ_CHARS // len(unit))
    started = time.process_time()
    read_signals(text)
    assert time.process_time() - started < 2.0


UNIT = st.floats(0, 1).map(lambda value: round(value, 6))
COSINES = st.lists(st.floats(-1, 1), max_size=10)
SIGNALS = st.builds(Signals, UNIT, UNIT, UNIT, UNIT, UNIT)


@pytest.mark.parametrize(
    ("signals", "h", "r", "g"),
    [
        # Cold start: novelty alone is .35 exactly, and any T lowers it.
        (Signals(0, 0, 0, 0, 0), 1.0, 0.0, 0.35),
        (Signals(0.5, 0, 0, 0, 0), 1.0, 0.0, 0.175),
        (Signals(0, 1, 0, 0, 0), 1.0, 1.0, 1.0),
        (Signals(1, 0, 1, 1, 1), 0.0, 0.0, 1.0),
        (Signals(0, 0.4, 0, 0, 0), 0.6, 0.2, 0.39),
        (Signals(1, 1, 0.5, 0.4, 0.2), 1.0, 1.0, 0.39),
        (Signals(0.4, 0.5, 0.5, 0.5, 0.5), 0.5, 0.5, 0.5),
        (Signals(0.25, 0.3, 0.8, 0.5, 0.0), 0.5, 0.0, 0.31125),
    ],
)
def test_g_is_the_document_s(signals: Signals, h: float, r: float, g: float) -> None:
    found = gate(signals, h, r)
    assert found.g == pytest.approx(g, abs=1e-9)
    assert gate(signals._replace(t=0.0), h, r).g == found.gconv
    assert gate(signals._replace(t=1.0), h, r).g == found.gtech
    assert gate(Signals(0.3, 0.5, 0.1, 0.2, 0.3), 0.5, 0.25)[1:] == (0.4, 0.185)


@settings(max_examples=50)
@given(SIGNALS, UNIT, UNIT)
def test_g_lies_between_its_branches_and_in_the_unit_interval(
    signals: Signals, h: float, r: float
) -> None:
    found = gate(signals, h, r)
    assert 0.0 <= min(found.gconv, found.gtech) <= found.g <= max(found.gconv, found.gtech) <= 1.0


@settings(max_examples=50)
@given(SIGNALS, UNIT, UNIT, UNIT, st.sampled_from(["d", "p", "a", "dtech", "h", "r"]))
def test_more_of_a_signal_is_never_less_of_g(
    signals: Signals, h: float, r: float, more: float, name: str
) -> None:
    before = gate(signals, h, r).g
    if name == "h":
        after = gate(signals, max(h, more), r).g
    elif name == "r":
        after = gate(signals, h, max(r, more)).g
    else:
        after = gate(signals._replace(**{name: max(getattr(signals, name), more)}), h, r).g
    assert after >= before


@given(COSINES, COSINES)
def test_h_and_r_lie_between_0_and_1(turns: list[float], durable: list[float]) -> None:
    assert 0.0 <= novelty(durable) <= 1.0
    assert 0.0 <= repetition(turns, durable) <= 1.0


@pytest.mark.parametrize(
    ("durable", "expected"),
    [([], 1.0), ([1.0], 0.0), ([0.5, -0.5], 0.75), ([-1.0, -1.0], 1.0), ([0.9, 0.6, 0.3], 0.4)],
)
def test_novelty_is_of_the_mean_of_the_nearest_and_not_of_the_negative(
    durable: list[float], expected: float
) -> None:
    assert novelty(durable) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("turns", "durable", "expected"),
    [
        ([], [], 0.0),
        # It counts from its threshold on, and is vetoed by what is kept.
        ([0.80], [], 0.2),
        ([0.799999], [], 0.0),
        ([0.9] * 5, [], 1.0),
        ([0.9] * 10, [], 1.0),
        ([0.9] * 5, [0.849999] * 5, 1.0),
        ([0.9] * 5, [0.85], 2 / 3),
        ([0.9] * 5, [0.85] * 3, 0.0),
        ([0.9] * 5, [0.99] * 5, 0.0),
    ],
)
def test_repetition_is_of_turns_alike(
    turns: list[float], durable: list[float], expected: float
) -> None:
    assert repetition(turns, durable) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("signals", "speaks"),
    [
        (BLANK, False),
        (Signals(0, 0.2, 0, 0, 0), True),
        (Signals(1, 0.2, 0, 0, 0), False),
        (Signals(0, 0, 1, 1, 1), False),
        (Signals(0.1, 0, 0.1, 0, 0), True),
        (Signals(0.1, 0, 0, 0.1, 0), True),
        (Signals(0.1, 0, 0, 0, 0.1), True),
        (Signals(0.5, 0, 0, 0, 0), False),
    ],
)
def test_only_the_branch_that_counts_says_something(signals: Signals, speaks: bool) -> None:
    assert said_something(signals) is speaks


@pytest.mark.parametrize(
    ("text", "stands"),
    [
        ("Nobody knows. 77 rows.", False),
        ("On Monday.", False),
        ("Ordered on 31 July, arrives 21 September.", True),
        ("I work at Initech.", True),
        ("I have two brothers.", True),
    ],
)
def test_a_date_or_an_amount_in_a_short_answer_says_nothing_alone(text: str, stands: bool) -> None:
    assert said_something(read_signals(text)) is stands


REAL: dict[str, tuple[str, ...]] = {
    "file path": (
        "see src/main.py", "in capture/client.go we", "~/notes/today.txt", "./run.sh", "../lib/x",
        "/etc/hosts", "/home/me/work", "the file settings.json", "edit `config.yaml`.",
        "open Dockerfile", "C:\\Users\\ann", ".gitignore is wrong", "/srv/app/current/log",
        "tests/unit/promote", "excess_small.csv", "my-report.final.pdf", "README.md,",
    ),
    "address": (
        "https://example.org/a?b=c", "postgres://db/x", "GET /users/{id}", "POST /",
        "the /api/v1/users route", "/healthz answers", "localhost:8080", "10.0.0.12:5432",
        "www.example.org",
    ),
    "function definition": (
        "def read(path):", "function read(path) {", "func (s *Server) Run() error",
        "func Map[T any](xs []T)", "fn read<T>(path: &str)", "const f = (a, b) => a",
        "public static void main(String[] args) {", "async def go_on(",
    ),
    "function call": (
        "main()", "call os.path.join(a, b)", "read_file(path)", "getUser(id)", "print(x)", "len(x)",
        'open("a")', "fit(rate=3)", "_private(x)", "self.run(job)",
    ),
    "shell command": (
        "$ ledgerctl status", "git push -f", "run git rebase main", "docker compose up",
        "kubectl get pods", "npm run build", "pip install numpy", "python3 -m venv x",
        "python train.py", "cargo test", "go test ./...", "go mod tidy", "`make test`", "make -j4",
        "curl -s x", "curl https://x", "ssh ann@host", "chmod +x run", "chmod 755 x", "rm -rf x",
        "mkdir -p a/b", "ls -la", "grep -r x", "cd ..", "export PATH=", "terraform plan",
        "`ledgerctl refund --dry`", "--from-file excess.csv", "--retries=3", "apt-get install jq",
        "uv sync", "systemctl restart x", "sudo reboot", "go get github.com/x/y",
    ),
    "stack trace": (
        "Traceback (most recent call last)", '  File "a.py", line 3', "    at app.run(app.js:3:9)",
        "  at com.acme.Main.run(Main.java:12)", "TypeError: x is not a function",
        "java.lang.NullPointerException: null", "goroutine 12 [running]:",
        "Caused by: java.io.IOException", "thread 'main' panicked at src/main.rs:2",
        'Exception in thread "main"',
    ),
    "hash": (
        "0xDEADbeef", "commit 9f3c2ab", "d41d8cd98f00b204e9800998ecf8427e",
        "123e4567-e89b-12d3-a456-426614174000", "sha256:9f3c2ab01",
    ),
    "error code": (
        "ENOENT", "ECONNREFUSED from redis", "E0502", "E501", "TS2345", "ORA-00942",
        "CVE-2024-1234", "ERR_CONNECTION_RESET", "HTTP 503", "HTTP/2 404", "status 404",
        "exit code 137", "boiler error F22", "Error 500", "SIGSEGV", "0x80070005", "errno 13",
    ),
    "git reference": (
        "commit 9f3c2ab", "reverted `9f3c2ab`", "PR 812", "PR #812", "issue #7",
        "acme/shop#12", "HEAD~2", "HEAD^", "detached HEAD", "origin/main", "feature/retry-queue",
        "release/2.4", "branch `main`", "pull request #4",
    ),
    "code fence": ("```python\nx\n```", "text\n~~~\nx", "   ```"),
}  # fmt: skip

ENGLISH = (
    "Every day I eat early, even in Europe, and every error is mine. EVERYONE knows. E-mail me.",
    "I eat eggs; either way, enough. Ed ends each essay elegantly, eh?",
    "We go home, then we go test the cake, go run along, go get some milk and go build a fort.",
    "Make sure to make dinner, make it nice; let's make time to find a cat and kill time.",
    "Bring bread and/or butter, yes/no, he/she, 24/7, w/o sugar, client/server, TCP/IP, km/h.",
    "I love music (loud), food (spicy) and my friend(s), item(s), bus(es), berry(ies), turn(ed).",
    "It works (most of the time). About 10/12 of it, 1/2 cup, 3 : 1, at 5.pm or so.",
    "He said Node.js and Vue.js are fine. We e.g. (often) use it, i.e. (rarely), etc. (never).",
    "I'm in. He's out.So we went. Mr. Smith (he) waits. The show(s) must go on.",
    "Cat food and head lice: the class is cool. Sort it out, kill it, tail it, echo it.",
    "The branch of the tree fell. Merge ahead. At 1234567 people, issue seven, PR people.",
    "An error occurred. Status quo. Exit here. Return home. It's my fault, at least 20 times.",
    "- go on\n- make it\n# title\n> quote\n1. first\n$50 is $ 50 and a $ sign",
    "Defaced facades decade-old beaded, deadbeef cafe. 2026 12345678 07700900123",
    "fix/feature and release/deploy are words, so is feature/bug; yes/no/maybe; his/her/their.",
    "Please import goods, require help, include me, use it. My class: Monday. A function (music).",
    "public opinion on the matter is private (mostly). Thanks! :) (: <3 ;-) ... -- dash --ok",
    "Wir gehen nach Hause. Me gusta el café (mucho). 我喜欢音乐(很多)。Я иду домой.",
)
"""No pattern above finds anything here. The peer's own patterns did (research/peers.md 1.2)."""

FINDERS = {name: signals.finders()[name] for name in REAL}
CASES = [(name, text) for name, texts in REAL.items() for text in texts]


def test_every_pattern_has_its_list() -> None:
    of_marks = {*signals.TECHNICAL, *signals.SPECIFIC} - {"function"}
    assert set(REAL) == of_marks | {"function definition", "function call"}


@pytest.mark.parametrize(("name", "text"), CASES)
def test_the_real_thing_is_found(name: str, text: str) -> None:
    assert FINDERS[name].is_in(text)
    assert FINDERS[name].count(text) >= 1


@pytest.mark.parametrize("name", sorted(REAL))
@pytest.mark.parametrize("text", ENGLISH)
def test_english_is_not(name: str, text: str) -> None:
    found = FINDERS[name].pattern.search(text)
    assert found is None, found


@pytest.mark.parametrize(("name", "text"), CASES)
def test_a_hint_is_in_everything_that_its_pattern_finds(name: str, text: str) -> None:
    finder = FINDERS[name]
    for _, other in CASES:
        if (match := finder.pattern.search(other)) is not None:
            assert finder.hint.search(match[0]), (name, match[0])
    assert finder.hint.search(text)


@pytest.mark.parametrize(
    ("finders", "texts"),
    [
        # The peer's pattern took any word of three letters from "e" on, in any case.
        (["error code"], ["every", "Every", "EVERY", "eat", "EAT", "error", "e2e", "E2E"]),
        (["shell command"], ["go", "make", "go ahead", "make it so", "Go to bed.", "make test"]),
        (["file path", "address"], ["and/or", "either and/or both", "/or", "n/a"]),
        (["function call", "function definition"],
         ["music (", "music (loud)", "music(s)", "I like music(loud)"]),
    ],
)  # fmt: skip
def test_plain_words_are_none_of_it(finders: list[str], texts: list[str]) -> None:
    found = [(name, text) for name in finders for text in texts if FINDERS[name].is_in(text)]
    assert found == []


def test_the_path_of_an_address_is_no_file() -> None:
    text = "see https://example.org/?open=src/main.py and http://x.y/etc/hosts"
    assert FINDERS["file path"].is_in(text)
    for reader in (signals.technical_density, signals.specificity):
        assert "file path" not in reader(text).names
        assert "file path" in reader(f"{text} or src/main.py").names
