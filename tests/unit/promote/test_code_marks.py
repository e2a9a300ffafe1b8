"""What looks like code is found, and English is not: one list of both for every pattern."""

from __future__ import annotations

import pytest

from noctuary.curate import signals

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


def test_every_is_no_error_code_and_neither_is_eat() -> None:
    """The peer's pattern took any word of three letters from "e" on, in any case."""
    for word in ("every", "Every", "EVERY", "eat", "EAT", "error", "e2e", "E2E"):
        assert not FINDERS["error code"].is_in(word)


def test_go_and_make_are_no_commands() -> None:
    for text in ("go", "make", "go ahead", "make it so", "Go to bed.", "make test"):
        assert not FINDERS["shell command"].is_in(text)
    assert FINDERS["shell command"].is_in("`make test`")


def test_and_or_is_no_path_and_no_address() -> None:
    for text in ("and/or", "either and/or both", "/or", "n/a"):
        assert not FINDERS["file path"].is_in(text)
        assert not FINDERS["address"].is_in(text)


def test_a_word_before_a_bracket_is_no_function() -> None:
    for text in ("music (", "music (loud)", "music(s)", "I like music(loud)"):
        assert not FINDERS["function call"].is_in(text)
        assert not FINDERS["function definition"].is_in(text)


def test_the_path_of_an_address_is_no_file() -> None:
    text = "see https://example.org/?open=src/main.py and http://x.y/etc/hosts"
    assert FINDERS["file path"].is_in(text)
    for reader in (signals.technical_density, signals.specificity):
        assert "file path" not in reader(text).names
        assert "file path" in reader(f"{text} or src/main.py").names
