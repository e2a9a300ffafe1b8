"""A unique text in every kind of sensitive row, in every kind of store, through everything.

Looked for in every byte below noctuary's home (the store, Dagster's event log,
reports), in the directory for temporary files and in all that a person sees, after crashes as well.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.byte_scan import find_texts
from tests.e2e.conftest import FirstNight
from tests.e2e.driver import DONE, Ran, environment, night_words
from tests.e2e.raise_at import SAYS
from tests.e2e.stores import Bench, give_encoder
from tests.support.claude_memory import fill_database, make_sqlite
from tests.support.palaces import drawer, make_palace
from tests.support.postgres import Cluster
from tests.support.secretive import CANARIES, PUBLIC, SENSITIVE, VAULT_COLUMNS, write_lines

HERE = Path(__file__).parent
VARIABLE = "CANARY_DATABASE"
ROWS = (*PUBLIC, *SENSITIVE)
JUDGING = "noctuary.sources.export.find_sensitivity"
ASKED = "where is the spare key and the alarm code of the house?"


@dataclass
class Watched:
    """A store under watch: all that its processes leave and say."""

    bench: Bench
    extra: Mapping[str, str] = field(default_factory=dict[str, str])
    said: list[str] = field(default_factory=list[str])

    @property
    def home(self) -> Path:
        """Where everything that is not the source lies."""
        return self.bench.store.parent

    def run(self, words: Sequence[str], stdin: str = "") -> Ran:
        """Run a command; its temporary files stay below the home."""
        temporary = self.home / "tmp"
        temporary.mkdir(exist_ok=True)
        told = environment(self.home, {"TMPDIR": str(temporary), **self.extra})
        done = subprocess.run(
            words, env=told, cwd=self.home, input=stdin, capture_output=True, encoding="utf-8",
            timeout=600, check=False,
        )  # fmt: skip
        self.said.append(done.stdout + done.stderr)
        return Ran(done.returncode, done.stdout, done.stderr)

    def night(self, *before: str) -> Ran:
        """Run a night, or with `before` a program that runs one."""
        words = night_words(self.bench.source, self.bench.store, "--json")
        return self.run([sys.executable, *before, *words[4:]] if before else words)

    def noctuary(self, *words: str, stdin: str = "") -> Ran:
        """Run a command of noctuary's on the store."""
        named = [*words, "--store", str(self.bench.store)]
        return self.run([sys.executable, "-m", "noctuary.cli.main", *named], stdin)

    def leaks(self) -> list[Any]:
        """Return where a canary is; the encoder's files are those of another store."""
        torn = self.bench.paths.work / "corpus" / ".export.tmp"  # no Parquet yet where one died
        skip = [self.bench.paths.encoders, torn]
        found: list[Any] = [*find_texts(self.home, CANARIES, skip=skip)]
        for path in torn.glob("*"):
            found += [(path, c) for c in CANARIES if c.encode() in path.read_bytes()]
        return found + [(c, text) for text in self.said for c in CANARIES if c in text]


def _sqlite(directory: Path) -> tuple[Path, dict[str, str]]:
    return make_sqlite(directory / "memory.db", ROWS, extra_columns=VAULT_COLUMNS), {}


def _lines(directory: Path) -> tuple[Path, dict[str, str]]:
    return write_lines(directory / "rows.jsonl", ROWS), {}


def _palace(directory: Path) -> tuple[Path, dict[str, str]]:
    # Chroma keeps no bytes.
    plain = [
        {k: v.decode("latin-1") if isinstance(v, bytes) else v for k, v in row.items()}
        for row in ROWS
    ]
    drawers = [
        drawer(f"drawer_{row['id']}", str(row["content"]),
               **{k: v for k, v in row.items() if k not in ("id", "content")})
        for row in plain
    ]  # fmt: skip
    make_palace(directory / "palace", drawers)
    return directory / "palace", {}


MAKERS: Mapping[str, Callable[[Path], tuple[Path, dict[str, str]]]] = {
    "sqlite": _sqlite, "jsonl": _lines, "palace": _palace,
}  # fmt: skip


@pytest.fixture(params=["sqlite", "jsonl", "palace", "postgres"])
def watched(request: pytest.FixtureRequest, tmp_path: Path, small_night: FirstNight) -> Watched:
    """A store of one kind, no night yet; the encoder is there already."""
    (tmp_path / "home").mkdir()
    if request.param == "postgres":
        server: Cluster = request.getfixturevalue("server")
        rows = [
            {**{k: v for k, v in row.items() if k != "sensitive"},
             **({"is_sensitive": True} if {"is_sensitive", "sensitive"} & row.keys() else {})}
            for row in ROWS
        ]  # fmt: skip
        dsn = fill_database(server.dsn("postgres"), rows)
        source, extra = Path(f"env:{VARIABLE}"), {VARIABLE: dsn}
    else:
        source, extra = MAKERS[request.param](tmp_path)
    bench = Bench(source, tmp_path / "home" / "store")
    give_encoder(bench.store, small_night.bench)
    return Watched(bench, extra)


@pytest.mark.slow
def test_no_canary_leaves_the_store(watched: Watched) -> None:
    ran = watched.night(str(HERE / "raise_at.py"), JUDGING, "11")
    assert ran.code != DONE
    assert SAYS in ran.says or find_texts(watched.home, [SAYS]), "the failure came to pass"
    assert watched.leaks() == []
    ran = watched.night(str(HERE / "die_at.py"), "before", JUDGING, "11")
    assert ran.code == -9
    assert watched.leaks() == []
    ran = watched.night()
    assert ran.code == DONE, ran.says
    assert ran.stage("corpus_export")["facts"]["sensitive"] >= len(SENSITIVE) - 1
    _ask_everything(watched)
    assert watched.leaks() == []
    assert find_texts(watched.home, ["Harbour Square"]), "a public row is found, so looking works"
    assert any("spare key hangs" in text for text in watched.said)


def _ask_everything(watched: Watched) -> None:
    """Recall with every log on, explain, replay, doctor, status, a prompt's context, a hook."""
    logged = ("--set", "replay_log=true", "--set", "query_expansion_enabled=true")
    for words in (
        ("recall", ASKED, "--json", "--explain", *logged),
        ("why", ASKED, "2", "--json"),
        ("context", ASKED, "--budget", "2000"),
        ("why", "--replay"), ("doctor",), ("status", "--json"), ("snapshots",),
    ):  # fmt: skip
        ran = watched.noctuary(*words)
        assert ran.code == DONE or words == ("doctor",), (words, ran.says)
    event = {
        "session_id": "s1", "transcript_path": str(watched.home / "none.jsonl"),
        "cwd": str(watched.home), "hook_event_name": "UserPromptSubmit", "prompt": ASKED,
    }  # fmt: skip
    assert watched.noctuary("hook", "--agent", "claude", stdin=json.dumps(event)).code == DONE
