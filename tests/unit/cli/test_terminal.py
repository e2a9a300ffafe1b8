"""No command lets a memory, an id or an argument steer the terminal."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from noctuary.cli.main import main
from noctuary.text.marks import visible
from tests.support.claude_memory import Row, make_sqlite
from tests.support.curation import Nights as CurationNights
from tests.support.promotions import Nights as PromotionNights
from tests.support.promotions import turn
from tests.support.secretive import PUBLIC, SENSITIVE, VAULT_COLUMNS, publish_source
from tests.support.store import household, memory, new_store, renumber
from tests.support.terminal import STEERS, H, on_terminals

ARGUMENT = H + os.fsdecode(b"\xff")
# Every command once with a store full of hostile memories; a new command must be added.
SHOWN: dict[str, list[list[str]]] = {
    "proposals compact": [["--texts"], ["--list"]],
    "context": [["key", "--budget", "2000"], ["key", "--budget", "2000", "--parts"],
                ["key", "--document", "AGENTS.md", "--session", "session.jsonl"]],
    "proposals curate": [["--store", "curated/store"],
                         ["--store", "curated/store", "--apply", "--all"],
                         ["--store", "curated/store", "--journal"]],
    "doctor": [[]],
    "evaluate check": [["set"]],
    "evaluate compare": [["runs/a.json", "runs/b.json"]],
    "evaluate holes": [["runs/a.json"]],
    "evaluate kappa": [["set/queries.jsonl", "set/queries.jsonl"]],
    "evaluate pool": [["runs/a.json"]],
    "evaluate run": [["set", "--retriever", "nothing:here"], ["set"]],
    "expand": [["nothing"]],
    "export": [["exported"]],
    "graph merges": [[]],
    "graph path": [["Nina", "Atlas"], ["Nina", "Atlas", "--mermaid"]],
    "graph show": [["Nina"], ["Atlas", "--mermaid"]],
    "graph top": [[]],
    "hook": [["--agent", "claude"]],
    "hooks install": [["--agent", "claude", "--project"]],
    "hooks plugin": [["plugin"]],
    "hooks status": [[]],
    "hooks uninstall": [["--agent", "claude", "--project"]],
    "import": [["exported", "--store", "imported"]],
    "mcp": [[]],
    "profile list": [[]],
    "profile show": [["wild"]],
    "proposals promotions": [["--store", "promoted/store"], ["--store", "promoted/store", "--all"]],
    "recall": [["key", "--explain", "--candidate-trace", "--all-candidates", "-k", "30"],
               ["key", "--inject"], ["key", "--set", "replay_log=true"]],
    "rollback": [[]],
    "sensitive": [["key", "--store", "secretive"]],
    "serve": [["--idle-minutes", "0.0001"]],
    "snapshots": [[]],
    "sql": [["select * from memories"], ["select * from memories", "--csv"], ["-"], ["--schema"]],
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
    elif path not in (("nightly",), ("ui",)):
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
    (store.root / "profiles.toml").write_text(
        f"[profiles.wild]\nextends = {json.dumps(H, ensure_ascii=True)}\n".replace(
            "\\udb40\\udc41", ""
        )
    )
    (tmp_path / "AGENTS.md").write_text(f"# Rules\n\n- {H}\n")
    (tmp_path / "session.jsonl").write_text(json.dumps({"content": H, "speaker": H}) + "\n")
    (tmp_path / "set").mkdir()
    query = {"query_id": H, "query": H, "relevant_ids": [H], "stratum": H}
    (tmp_path / "set" / "queries.jsonl").write_text(json.dumps(query) + "\n")
    _curated(tmp_path / "curated")
    _promoted(tmp_path / "promoted")
    secret: list[Row] = [{**row, "content": f"{row['content']} key {H}"} for row in SENSITIVE]
    publish_source(
        new_store(tmp_path / "secretive"),
        make_sqlite(tmp_path / "memory.db", (*PUBLIC, *secret), extra_columns=VAULT_COLUMNS),
    )
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
    environ = {**os.environ, "NOCTUARY_SENSITIVE_RECALL": "1", "PYTHONWARNINGS": "default"}
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
                 "proposals promotions --store promoted/store", "sensitive key --store secretive",
                 "sql select * from memories --csv", f"why key {H}1",
                 "hook --agent claude"):  # fmt: skip
        assert "\\u202e" in by_words[name], by_words[name]


@pytest.mark.slow
def test_no_option_and_no_json_steers_the_terminal(place: Path) -> None:
    unsteered(place, [[*w, *a] for w in leaves(main) for a in hostile_arguments(find(w))])
    spoken = [[*w, *a, "--json"] for w in leaves(main) for a in SHOWN[" ".join(w)]]
    unsteered(place, [words for words in spoken if words[0] not in ("hook", "serve")])


def unsteered(place: Path, commands: list[list[str]]) -> dict[str, str]:
    """Return what commands show, by their words, once nothing in it steers the terminal."""
    event = {"hook_event_name": "UserPromptSubmit", "prompt": f"where is the key {H}",
             "session_id": H, "cwd": str(place)}  # fmt: skip
    found = dict(
        zip(map(" ".join, commands), shown(place, commands, json.dumps(event)), strict=True)
    )
    steering = {
        name: text[max(0, match.start() - 800) : match.end() + 200]
        for name, text in found.items()
        if (match := STEERS.search(text))
    }
    assert not steering
    return found


def test_json_holds_the_texts_themselves(place: Path) -> None:
    (said,) = shown(place, [["recall", f"key {H}", "-k", "30", "--json"]])
    found = json.loads(said)
    assert found["query"] == f"key {H}"
    assert any(H in m["content"] and m["wing"] == H for m in found["memories"])


def test_csv_in_a_file_holds_the_texts_themselves(place: Path) -> None:
    import csv
    import subprocess
    import sys

    words = [
        sys.executable,
        "-m",
        "noctuary.cli.main",
        "sql",
        "--csv",
        "select content from memories",
    ]
    with (place / "out.csv").open("wb") as file:
        subprocess.run(words, stdout=file, check=True, cwd=place, timeout=60)
    text = (place / "out.csv").read_text("utf-8")
    assert sum(H in row[0] for row in csv.reader(io.StringIO(text)) if row) >= 3
    piped = subprocess.run(words, stdout=subprocess.PIPE, check=True, cwd=place, timeout=60).stdout
    assert piped.decode() == visible(text)
