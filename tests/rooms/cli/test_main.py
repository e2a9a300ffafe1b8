"""Every command where the build libraries are missing, and where nobody reads what it prints."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import Result

from noctuary import __version__
from noctuary.agents import browse
from noctuary.agents.mcp_view import AskedWronglyError, UnknownItemError, View
from noctuary.cli.main import WANTED, find_sdk_fault, is_supported, main
from noctuary.cli.sql import TABLES
from noctuary.core.sqlite import connect_immutable
from noctuary.core.store import ROWS_FILE
from noctuary.core.tombstones import read_tombstones, write_tombstones
from noctuary.snapshot.publish import serving_id
from noctuary.text.marks import visible
from tests.support.curation import Nights as CurationNights
from tests.support.imports import ROOT
from tests.support.promotions import Nights as PromotionNights
from tests.support.promotions import turn
from tests.support.store import Store, household, memory, new_store, renumber, turns
from tests.support.terminal import STEERS, H, on_terminals

Run = Callable[..., Result]
COMMANDS = ("recall", "why", "serve", "browse", "status", "doctor", "snapshots", "rollback")
CONTEXT = click.Context(main)
ARGUMENTS = {"recall": ["key"], "why": ["key", "101"]}


def test_help_lists_every_command_and_every_option_has_a_text(run: Run) -> None:
    assert run("--version").output.strip() == f"noctuary, version {__version__}"
    for flag in ("--help", "-h"):
        result = run(flag)
        assert result.exit_code == 0
        assert "noctuary nightly" in result.output
        assert len(result.output.splitlines()) <= 45, "one screen"
        named = re.findall(r"(?:^ +(?:noctuary )?|, )([a-z]+)", result.output, re.MULTILINE)
        assert set(main.list_commands(CONTEXT)) - {"hook"} <= set(named)
    for name in _leaves(main):
        for option in find(tuple(name.split())).params:
            if isinstance(option, click.Option) and option.name != "sort_by":
                assert option.help, f"{name} {option.name}"


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("recall", "relevant to QUERY, best first"),
        ("why", "does not return memory ID, or why it does"),
        ("why", "against its own snapshot"),
        ("serve", "from a warm process, for this user only"),
        ("browse", "You can forget the memories that it shows"),
        ("status", "identity, age, source, encoder and counts"),
        ("doctor", "Exit code 1 if anything fails"),
        ("snapshots", "oldest first"),
        ("rollback", "Serve an older snapshot"),
    ],
)
def test_every_command_explains_itself_and_takes_store_and_json(
    run: Run, command: str, says: str
) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert says in " ".join(result.output.split())
    assert "--store STORE" in result.output
    assert "--json" in result.output


def test_a_command_loads_its_own_file_and_no_other() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from noctuary.cli.main import main; "
        "assert CliRunner().invoke(main, ['recall', '--help']).exit_code == 0; "
        "print(*(n for n in sys.modules if n.startswith('noctuary.cli.') or n == 'numpy'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {f"noctuary.cli.{name}" for name in ("main", "recall")}
    assert set(done.stdout.split()) == loaded


WRONG = {
    "recal key": "No such command",
    "recall": "Missing argument",
    "recall key --wings home": "No such option",
    "recall key -k many": "not a valid",
    "recall key -k -1": "range",
    "recall key --sort-by date": "not one of",
    "recall key --fusion sum": "not one of",
    "recall key --deadline-ms soon": "not a valid",
    "recall key --deadline-ms nan": "must be a number",
    "recall key --set depth": "expected FLAG=VALUE",
    "recall key --set depht=3": "nearest known one is depth",
    "recall key --set mmr_lambda=7": "must lie in [0, 1]",
    "recall key --set mmr_enabled=perhaps": "must be bool",
    "recall key --set depth=many": "must be int",
    **{
        f"recall key --as-of {moment}": "not an ISO-8601 date"
        for moment in ("yesterday", "2026-13-01", "''", "01.02.2026")
    },
    "why key": "",
    "why": "",
    "why key 101 --replay a": "",
    "why key 101 --set depth": "expected FLAG=VALUE",
    "why key 101 --set depht=3": "nearest known one is depth",
    "why key 101 --as-of x": "not an ISO-8601 date",
    "why --replay a b": "",
    "why --replay --last 0": "",
    "why --replay a --wing home": "",
    "status extra": "unexpected extra argument",
    "rollback a b": "unexpected extra argument",
    "graph show nina --as-of soon": "not an ISO-8601 date",
    "graph show nina --known-at x": "not an ISO-8601 date",
    "graph path a b --max-hops 0": "range",
    "graph top --limit -1": "range",
    "graph show": "Missing argument",
    "mcp --timeout-s 0": "range",
    "mcp --timeout-s soon": "not a valid",
    "mcp --k 3": "No such option",
    "mcp extra": "No such command",
    "mcp --port 80": "needs --http",
    "mcp --user ana install": "behind `install`",
    "mcp install vim": "is not one of",
    "evaluate check": "Missing argument",
    "evaluate run": "Missing argument",
    "evaluate run set -k 0": "range",
    "evaluate run set --limit 0": "range",
    "evaluate run set --metric recall": "needs a cutoff",
    "evaluate run set --metric accuracy@5": "unknown metric",
    "evaluate run set --retriever a:b --store house": "--store",
    "evaluate run set --retriever a:b --in-wing": "--in-wing",
    "evaluate compare a.json b.json": "--queries",
    "sql": "Missing argument",
    "sql x --csv --json": "one of --csv and --json",
}
"""What is wrong with a call, and what is said of it."""


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("recal key", "'recall'"),
        ("nigthly", "'nightly'"),
        ("Doctor", "'doctor'"),
        ("hooks instal", "'install'"),
        ("graph shwo Nina", "'show'"),
        ("profile lst", "'list'"),
        ("evaluate chek set", "'check'"),
        ("mcp instal", "'install'"),
        ("proposals promotion", "'promotions'"),
        ("schedule stat", "'status'"),
    ],
)
def test_a_mistyped_command_is_told_what_is_like_it(run: Run, call: str, said: str) -> None:
    done = run(*shlex.split(call))
    assert done.exit_code == 2
    assert "Did you mean" in done.output
    assert said in done.output


def test_what_is_like_no_command_is_told_of_none(run: Run) -> None:
    done = run("xylophone")
    assert done.exit_code == 2
    assert "No such command 'xylophone'." in done.output
    assert "Did you mean" not in done.output


@pytest.mark.parametrize("call", WRONG)
def test_a_wrong_call_is_exit_code_2_and_a_sentence(
    run: Run, dense_store: Store, call: str
) -> None:
    result = run(*shlex.split(call))
    assert result.exit_code == 2
    assert "Error: " in result.output
    assert WRONG[call] in " ".join(result.output.split())


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("store", [[], ["--store", "nowhere"], ["--store", "/no/such/store"]])
def test_without_a_store_every_command_says_what_to_run(
    run: Run, home: Path, command: str, store: list[str]
) -> None:
    result = run(command, *ARGUMENTS.get(command, []), *store)
    if command == "snapshots" and store:
        assert "noctuary nightly" in result.output
        return
    assert result.exit_code == 1
    assert "noctuary nightly" in result.output


@pytest.mark.parametrize("command", ["status", "doctor", "snapshots", "rollback"])
def test_a_home_that_leads_nowhere_is_a_sentence(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("NOCTUARY_HOME", "~nobody-of-that-name/x")
    result = run(command)
    assert result.exit_code == 1
    assert "in full" in result.output


EXTRA = (
    "dagster", "dagster_webserver", "duckdb", "lance", "lancedb", "mcp", "polars", "pyarrow",
    "pydantic",
)  # fmt: skip
SET = ["missing-set"]
CALLS: dict[str, list[str]] = {
    "backup": ["disk"],
    "browse": ["--no-open", "--store", "nowhere"],  # else it serves until it is stopped
    "context": ["spare key", "--budget", "400"],
    "doctor": [],
    "evaluate check": SET,
    "evaluate compare": ["a.json", "b.json", "--queries", "missing-set"],
    "evaluate run": SET,
    "expand": ["no-summary"],
    "export": ["export"],
    "forget": ["--pattern", "key"],
    "review": ["--list"],
    "graph merges": [],
    "graph top": [],
    "graph path": ["Atlas", "Ana"],
    "graph show": ["Atlas"],
    "hook": ["--agent", "claude"],
    "hooks install": ["--agent", "claude", "--dry-run"],
    "hooks plugin": ["plugin"],
    "hooks status": [],
    "hooks uninstall": ["--agent", "claude", "--dry-run"],
    "init": ["--dry-run"],
    "mcp": ["--json"],
    "merge": ["disk"],
    "mcp install": ["cursor", "--dry-run"],
    "nightly": ["env:NO_SUCH_VARIABLE"],
    "profile list": [],
    "profile show": [],
    "proposals compact": [],
    "proposals curate": [],
    "proposals promotions": [],
    "recall": ["spare key", "--explain"],
    "remember": ["The key hangs in the hall."],
    "restore": ["disk", "--dry-run"],
    "rollback": [],
    "schedule install": ["--dry-run"],
    "schedule status": [],
    "serve": ["--idle-minutes", "0.001"],
    "snapshots": [],
    "sql": ["select * from memories"],
    "status": [],
    "stores": [],
    "ui": ["env:NO_SUCH_VARIABLE"],
    "why": ["spare key", "101"],
}
NEED_BUILD = {
    "export", "nightly", "proposals curate", "proposals promotions", "sql", "ui",
}  # fmt: skip
CANNOT_BEGIN = {"nightly", "ui"}
"""Those that write a store, or serve one that is written: wrong to call without the extra."""

# One process that has the command line forks for every command: a fresh one each takes a minute.
DRIVER = """
import json, os, sys, tempfile
blocked, is_cut, calls = json.loads(sys.argv[1])
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
import noctuary.cli.recall, noctuary.recall.engine, noctuary.cli.store  # once, not per fork
from noctuary.cli.entry import main
found = {}
for name, words in calls.items():
    said = tempfile.TemporaryFile()
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.close(reader)
        os.dup2(writer if is_cut else os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(said.fileno(), 2)
        os.close(writer)
        sys.argv = ["noctuary", *words]
        sys.exit(main())
    os.close(reader)
    os.close(writer)
    status = os.waitpid(child, 0)[1]
    said.seek(0)
    found[name] = [os.waitstatus_to_exitcode(status), said.read().decode()]
print(json.dumps(found))
"""


def _leaves(command: click.Command, name: str = "") -> Iterator[str]:
    if isinstance(command, click.Group):
        for part in command.list_commands(context := click.Context(command)):
            below = command.get_command(context, part)
            assert below is not None
            yield from _leaves(below, f"{name} {part}".strip())
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield name


def _run_all(directory: Path, *, blocked: tuple[str, ...], cut: bool) -> Any:
    calls = {name: [*name.split(), *CALLS[name]] for name in _leaves(main)}
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, json.dumps([blocked, cut, calls])],
        cwd=directory,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.fixture
def nowhere(tmp_path: Path) -> Path:
    """A directory that holds none of the files that the arguments name."""
    directory = tmp_path / "nowhere"
    directory.mkdir()
    return directory


def test_without_the_build_libraries_a_command_answers_or_names_the_extra(
    plain_store: Store, nowhere: Path
) -> None:
    found = _run_all(nowhere, blocked=EXTRA, cut=False)
    assert {name: said for name, (_, said) in found.items() if "Traceback" in said} == {}
    told = {
        name for name, (_, said) in found.items() if "pip install 'noctuary[pipelines]'" in said
    }
    assert told >= NEED_BUILD
    assert {found[name][0] for name in told - CANNOT_BEGIN} == {1}
    for name in CANNOT_BEGIN:
        code, said = found[name]
        assert (code, said.count("\n")) == (2, 1), said
        assert "this needs dagster" in said
    assert found["browse"][0] == 1
    assert "pip install" not in found["browse"][1]
    assert found["recall"][0] == found["status"][0] == found["doctor"][0] == 0


def test_a_reader_that_has_enough_is_no_fault(plain_store: Store, nowhere: Path) -> None:
    """`noctuary ... | head`: nothing about a broken pipe."""
    found = _run_all(nowhere, blocked=(), cut=True)
    loud = ("Traceback", "ipe", "Errno 32")
    assert {name: s for name, (_, s) in found.items() if any(word in s for word in loud)} == {}


ARGUMENT = H + os.fsdecode(b"\xff")
# Every command once with a store full of hostile memories; a new command must be added.
SHOWN: dict[str, list[list[str]]] = {
    "backup": [["disk"], ["disk", "--keep", "1"]],
    "proposals compact": [["--texts"], ["--list"]],
    "context": [["key", "--budget", "2000"], ["key", "--budget", "2000", "--parts"],
                ["key", "--document", "AGENTS.md", "--session", "session.jsonl"]],
    "proposals curate": [["--store", "curated/store"],
                         ["--store", "curated/store", "--apply", "--all"],
                         ["--store", "curated/store", "--journal"]],
    "doctor": [[]],
    "evaluate check": [["set"]],
    "evaluate compare": [["runs/a.json", "runs/b.json"]],
    "evaluate run": [["set", "--retriever", "nothing:here"], ["set"]],
    "expand": [["nothing"]],
    "export": [["exported"]],
    "forget": [["--pattern", "."], ["--wing", H]],
    "review": [["--list"], ["--user", H, "--list"], ["1", "--until", H]],
    "graph merges": [[]],
    "graph path": [["Nina", "Atlas"]],
    "graph show": [["Nina"], ["Atlas"]],
    "graph top": [[]],
    "hook": [["--agent", "claude"]],
    "hooks install": [["--agent", "claude", "--project"]],
    "hooks plugin": [["plugin"]],
    "hooks status": [[]],
    "hooks uninstall": [["--agent", "claude", "--project"]],
    "mcp": [[]],
    "merge": [["disk", "--dry-run"], ["disk"]],
    "mcp install": [["vscode", "--dry-run", "--user", H, "--store", H, "--folder", H]],
    "profile list": [[]],
    "profile show": [["wild"]],
    "proposals promotions": [["--store", "promoted/store"], ["--store", "promoted/store", "--all"]],
    "recall": [["key", "--explain", "--candidate-trace", "--all-candidates", "-k", "30"],
               ["key", "--inject"], ["key", "--set", "replay_log=true"]],
    "remember": [[f"The {H} key hangs in the hall."], [f"the {H} key hangs in the hall"]],
    "restore": [["disk"], ["disk", "--dry-run"], ["disk", "--home", f"home {H}"]],
    "rollback": [[]],
    "serve": [["--idle-minutes", "0.0001"]],
    "browse": [["--store", H]],
    "init": [["--dry-run"]],
    "schedule install": [["--dry-run", H], ["--dry-run", "--store", H]],
    "schedule status": [[]],
    "snapshots": [[]],
    "sql": [["select * from memories"], ["select * from memories", "--csv"], ["-"]],
    "status": [[]],
    "stores": [[]],
    "why": [["key", "101"], ["key", f"{H}1"], ["--replay"]],
}  # fmt: skip


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the words of every command that only looks: a night and its UI show no memory."""
    if isinstance(command, click.Group):
        for name in sorted(command.list_commands(context := click.Context(command))):
            found = command.get_command(context, name)
            assert found is not None
            yield from leaves(found, (*path, name))
    is_group = isinstance(command, click.Group) and not command.invoke_without_command
    if not is_group and path not in (("nightly",), ("ui",)):
        yield path


def hostile_arguments(command: click.Command) -> Iterator[list[str]]:
    """Yield arguments of which one is hostile: all positional ones, then each option's value."""
    places = [p for p in command.params if isinstance(p, click.Argument)]
    fine = ["key"] * sum(place.required for place in places)
    if places:
        yield [ARGUMENT] * len(places)
    yield [*fine, f"--{ARGUMENT}"]
    for option in command.params:
        if isinstance(option, click.Option) and not option.is_flag:
            yield [*fine, option.opts[-1], ARGUMENT]


def find(words: tuple[str, ...]) -> click.Command:
    """Return the command of some words."""
    found: click.Command = main
    for word in words:
        assert isinstance(found, click.Group)
        below = found.get_command(click.Context(found), word)
        assert below is not None
        found = below
    return found


@pytest.fixture
def place(home: Path, tmp_path: Path) -> Path:
    """A directory with stores, sets, settings and documents full of hostile text."""
    hostile = [
        memory(f"Nina{H} moved the spare key of Atlas{n} {H}", wing=H, room=H, category=H,
               user=None, tags=f"a,{H}", memory_id=f"{H}{n}")
        for n in range(3)
    ]  # fmt: skip
    talk = [
        memory(f"Ana: {H} key {n}", category="turn", session_id=H, is_turn=True, wing=H)
        for n in range(8)
    ]
    store = new_store(home / "house")
    store.publish(renumber([*household(), *hostile, *talk]), id_kind="str")
    (tmp_path / "AGENTS.md").write_text(f"# Rules\n\n- {H}\n")
    (tmp_path / "session.jsonl").write_text(json.dumps({"content": H, "speaker": H}) + "\n")
    (tmp_path / "set").mkdir()
    query = {"query_id": H, "query": H, "relevant_ids": [H], "stratum": H}
    (tmp_path / "set" / "queries.jsonl").write_text(json.dumps(query) + "\n")
    _curated(tmp_path / "curated")
    _promoted(tmp_path / "promoted")
    return tmp_path


def _curated(root: Path) -> None:
    root.mkdir()
    nights = CurationNights(root)
    nights.edit(f"UPDATE memories SET content = content || '{H}'")
    nights.run()


def _promoted(root: Path) -> None:
    root.mkdir()
    nights = PromotionNights(root)
    nights.write(turn(f"User: I work at Initech {H}, since 2019.", 1, wing="shop"))
    nights.run()


def shown(place: Path, commands: list[list[str]], stdin: str = "") -> list[str]:
    """Return what the commands show on a terminal."""
    environ = {**os.environ, "PYTHONWARNINGS": "default"}
    return on_terminals(commands, cwd=place, environ=environ, stdin=stdin)


def test_no_command_lets_a_memory_or_an_argument_steer_the_terminal(place: Path) -> None:
    assert {" ".join(words) for words in leaves(main)} == set(SHOWN)
    commands = [
        [*words, *arguments]
        for words in leaves(main)
        for arguments in [*SHOWN[" ".join(words)], *list(hostile_arguments(find(words)))[:1]]
    ]
    by_words = unsteered(place, [*commands, [ARGUMENT], [f"--{ARGUMENT}"]])
    # The hostile memories were there to be shown.
    for name in ("recall key --inject", "proposals curate --store curated/store",
                 "context key --budget 2000",
                 f"remember the {H} key hangs in the hall",
                 "proposals promotions --store promoted/store",
                 "sql select * from memories --csv", f"why key {H}1",
                 "hook --agent claude"):  # fmt: skip
        assert "\\u202e" in by_words[name], by_words[name]


@pytest.mark.slow
def test_no_option_and_no_json_steers_the_terminal(place: Path) -> None:
    # Nothing but a signal ends a page.
    ends = {"browse": ["--store", "nowhere"], "init": ["--dry-run"]}
    called = [
        [*w, *ends.get(w[0], ()), *a] for w in leaves(main) for a in hostile_arguments(find(w))
    ]
    unsteered(place, called)
    spoken = [[*w, *a, "--json"] for w in leaves(main) for a in SHOWN[" ".join(w)]]
    unsteered(place, [words for words in spoken if words[0] not in ("hook", "serve")])


# One that is being forgotten, as every command sees it until the night has purged it.
FORGOTTEN = "Zanzibarova told Oxenholme where the ledger key is."
DAYS = ("morning", "Monday", "June", "evening", "Lisbon", "ninth")
UNSAID = re.compile("zanzibar|oxenholm|hushwing|ledger", re.IGNORECASE)
LOOKS: dict[str, list[list[str]]] = {  # besides those of SHOWN
    "context": [["key Zan", "--budget", "2000"]],
    "expand": [["{summary}"]],
    "export": [["{folder}/vault", "--markdown"]],
    "graph show": [["Oxen"], ["Lisbon"]],
    "recall": [["where is the Zan key", "-k", "40", "--explain", "--candidate-trace"]],
    "sql": [[f"select * from {name}", "--limit", "0", "--csv"] for name in TABLES],
    "why": [["key", "{id}"]],
}
ASKS_OR_WRITES = ("hook", "init", "browse", "serve", "mcp", "forget", "restore", "backup",
                   "rollback", "merge")  # fmt: skip


def test_no_command_shows_what_is_being_forgotten(
    dense_store: Store, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # some write into the project that they are called in
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "codex"))
    secret = memory(FORGOTTEN, wing="Hushwing", room="Hushwing", tags="Oxenholme, key")
    talk = turns("talk", *(f"Ana: Zanzibarova books the {day} flight." for day in DAYS))
    store, records = dense_store, renumber([*household(), secret, *talk])
    store.publish(records)
    gone = [record for record in records if UNSAID.search(record.content)]
    snapshot = store.paths.snapshots / str(serving_id(store.paths))
    with closing(connect_immutable(snapshot / ROWS_FILE)) as rows:
        ((summary,),) = rows.execute("SELECT summary_id FROM summaries WHERE session_id = 'talk'")
    known = {"summary": summary, "folder": str(tmp_path), "id": gone[0].memory_id}
    commands = [
        [*words.split(), *(argument.format_map(known) for argument in arguments)]
        for words in {" ".join(words): None for words in leaves(main)}
        if words.split()[0] not in ASKS_OR_WRITES
        for arguments in [*SHOWN[words], *LOOKS.get(words, [])]
        if H not in "".join(arguments) and not {"exported", "plugin"}.intersection(arguments)
    ]
    before = {" ".join(words): run(*words) for words in commands}
    told = [words for words, done in before.items() if UNSAID.search(_without(words, done))]
    assert {words.split()[0] for words in told} >= {"recall", "sql", "graph", "status", "expand"}
    assert [path for path in tmp_path.rglob("vault/*/*/*") if "Zanzibarova" in path.name]
    ids = frozenset(record.memory_id for record in gone)
    stones = read_tombstones(store.root)._replace(ids=ids, since="2026-03-01T00:00:00Z")
    write_tombstones(store.root, stones)
    shown = {" ".join(words): run(*words) for words in commands}
    assert [words for words, done in shown.items() if UNSAID.search(_without(words, done))] == []
    assert "spare key" in shown["recall key --inject"].output
    assert {shown[words].exit_code for words in ("graph show Lisbon", "graph top")} == {0}
    notes = [path for path in (tmp_path / "vault").rglob("*.md")]
    assert notes
    assert [path for path in notes if UNSAID.search(f"{path} {path.read_text()}")] == []
    view = View(store.root)
    for name, answer in browse.ANSWERS.items():
        for asked in ({"q": "where is the key", "id": known["id"]}, {"concept": "Lisbon"}):
            with suppress(UnknownItemError, AskedWronglyError):
                assert not UNSAID.search(json.dumps(answer(view, asked))), name


def _without(words: str, done: Result) -> str:
    """Return what a command printed, but for what it was called with."""
    return done.output.replace(words, "")


def unsteered(place: Path, commands: list[list[str]]) -> dict[str, str]:
    """Return what commands show, by their words, once nothing in it steers the terminal."""
    event = {"hook_event_name": "UserPromptSubmit", "prompt": f"where is the key {H}",
             "session_id": H, "cwd": str(place)}  # fmt: skip
    said = shown(place, commands, json.dumps(event))
    found = dict(zip(map(" ".join, commands), said, strict=True))
    steering = {
        name: text[max(0, match.start() - 800) : match.end() + 200]
        for name, text in found.items()
        if (match := STEERS.search(text))
    }
    assert not steering
    return found


def test_json_and_csv_in_a_file_hold_the_texts_themselves(place: Path) -> None:
    (said,) = shown(place, [["recall", f"key {H}", "-k", "30", "--json"]])
    found = json.loads(said)
    assert found["query"] == f"key {H}"
    assert any(H in m["content"] and m["wing"] == H for m in found["memories"])
    query = ["sql", "--csv", "select content from memories"]
    words = [sys.executable, "-m", "noctuary.cli.main", *query]
    with (place / "out.csv").open("wb") as file:
        subprocess.run(words, stdout=file, check=True, cwd=place, timeout=60)
    text = (place / "out.csv").read_text("utf-8")
    assert sum(H in row[0] for row in csv.reader(io.StringIO(text)) if row) >= 3
    piped = subprocess.run(words, stdout=subprocess.PIPE, check=True, cwd=place, timeout=60).stdout
    assert piped.decode() == visible(text)


@pytest.mark.parametrize(
    ("version", "supported"),
    [
        ("1.30.0", False),
        ("2.0.9", False),
        ("2.1.0", True),
        ("2.3.0", True),
        ("2.10.1", True),
        ("3.0.0", False),
        ("10.0", False),
        ("2.1.0rc1", True),
        ("local", True),
    ],
)
def test_versions_that_it_runs_on(version: str, supported: bool) -> None:
    assert is_supported(version) is supported


def test_a_missing_or_another_sdk_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(_: str) -> str:
        return "1.30.0"

    assert find_sdk_fault() is None
    monkeypatch.setattr(metadata, "version", version)
    assert f"{find_sdk_fault()}".find(WANTED) >= 0
    assert "found mcp 1.30.0" in f"{find_sdk_fault()}"
    monkeypatch.setitem(sys.modules, "mcp", None)
    assert "not installed: pip install 'noctuary[mcp]'" in f"{find_sdk_fault()}"


def test_the_wanted_version_is_the_one_of_the_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (extra,) = project["optional-dependencies"]["mcp"]
    assert re.sub(r"\s", "", extra) == WANTED
