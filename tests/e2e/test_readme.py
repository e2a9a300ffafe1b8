"""Everything that README shows is run on the sample, and prints what README shows.

A line `...` stands for any lines and `...` at a line's end for the rest of it; times, ids of
snapshots and names of stores differ from run to run. A command without a way to be run here fails.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from noctuary.work.stage import StageResult
from noctuary_pipelines.resources import describe
from tests.e2e.conftest import FirstNight
from tests.e2e.driver import ROOT, environment

HOME = "/home/me/.local/share/noctuary"
"""Where README's store lies."""

_COMMAND = re.compile(r"^(?:\$ )?((?:make|noctuary|python|pip) .+?)(?:  +#.*)?$")
_CHANGING = (
    (re.compile(r"\d{8}T\d{12}-[0-9a-f]{12}"), "SNAPSHOT"),
    (re.compile(r"sample-memory-[0-9a-f]{6}"), "sample-memory-2e2e69"),
    (re.compile(r"\b[\d.,]+ s\b"), "T s"),
    (re.compile(r"\s+"), " "),
)

INSTEAD: dict[str, tuple[str, ...]] = {
    # The sample's night is compared by a test of its own; the others name stores of a reader.
    r"make nightly\b.*": ("make", "-n", "nightly"),
    r"noctuary nightly\b.*": ("noctuary", "nightly", "--help"),
    r"noctuary init": ("noctuary", "init", "--dry-run"),  # asks at a terminal
    r"pip install .*": ("noctuary", "--version"),  # tests/e2e/test_wheel.py installs
    r"make test": ("make", "-n", "test"),  # this is it
    r"make ui\b.*": ("make", "-n", "ui"),  # serves until it is stopped
    r"noctuary mcp": ("noctuary", "mcp", "--help"),  # serves until its client leaves
}
"""What is not run as it stands, and what is looked at in its place."""


def blocks() -> list[tuple[str, str]]:
    """Language and content of every fenced block, in order."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def commands(block: str) -> list[str]:
    return [found[1] for line in block.splitlines() if (found := _COMMAND.match(line))]


def bare(text: str) -> list[str]:
    """The lines of a text without what differs from run to run."""
    lines = text.splitlines()
    for pattern, replacement in _CHANGING:
        lines = [pattern.sub(replacement, line) for line in lines]
    return [line.strip() for line in lines]


def require_shown(shown: str, printed: str) -> None:
    """Compare what README shows with what is printed now."""
    parts: list[str] = []
    for line in bare(shown):
        if line == "...":
            parts.append(r"(?:.*\n)*?")
        else:
            head, rest = (line[:-3], ".*") if line.endswith("...") else (line, "")
            parts.append(re.escape(head) + rest + r"\n")
    found = "".join(f"{line}\n" for line in bare(printed))
    assert re.fullmatch("".join(parts), found), f"README is stale; this is printed now:\n{printed}"


def run(words: tuple[str, ...] | list[str], where: Path, store: Path) -> str:
    """Run a command as README's reader would, with the sample's store as the only one."""
    first = {"python": [sys.executable], "make": ["make", "-C", str(ROOT), "-o", ".venv/.ready"],
             "noctuary": [str(Path(sys.executable).with_name("noctuary"))]}  # fmt: skip
    mine = {"CLAUDE_CONFIG_DIR": str(where / "claude"), "CODEX_HOME": str(where / "codex"),
            "HOME": str(where), "NOCTUARY_STORE": str(store), "COLUMNS": "200"}  # fmt: skip
    done = subprocess.run(
        [*first[words[0]], *words[1:]], cwd=where, env=environment(where, mine),
        capture_output=True, encoding="utf-8", check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, f"{words}: {done.stderr}{done.stdout}"
    return done.stdout


@pytest.fixture
def store(full_night: FirstNight, tmp_path: Path) -> Path:
    """A copy of the sample's store by the name it has at a reader's."""
    return full_night.bench.twin(tmp_path / "twin").store.rename(tmp_path / "sample-memory-2e2e69")


def test_the_night_prints_what_readme_shows(full_night: FirstNight) -> None:
    (shown,) = [block for _, block in blocks() if block.startswith("home ")]
    report: dict[str, Any] = full_night.ran.report
    known = {"digest": ""}
    lines = [f"home    {HOME}", f"source  {HOME}/sample/memory.db"]
    lines += [f"store   {HOME}/sample-memory-2e2e69", ""]
    lines += [describe(StageResult(**known, **s), counters=False) for s in report["stages"]]
    (page,) = [s["facts"]["page"] for s in report["stages"] if "page" in s["facts"]]
    page = page.replace(str(full_night.bench.store), f"{HOME}/sample-memory-2e2e69")
    lines += ["", report["message"], f"in {report['wall_s']} s", ""]
    lines += [*(f"- {line}" for line in report["note"]), "", f"report  {page}"]
    require_shown(shown, "\n".join([*lines, "", *shown.splitlines()[-1:]]))
    assert shown.splitlines()[-1].split()[2:3] == ["/home/me/noctuary/.venv/bin/noctuary"]


def test_every_command_runs_and_prints_what_readme_shows(store: Path, tmp_path: Path) -> None:
    ran: list[str] = []
    for _, block in blocks():
        for command in commands(block):
            ran.append(command)
            instead = next((i for p, i in INSTEAD.items() if re.fullmatch(p, command)), None)
            if instead is not None:
                assert run(instead, tmp_path, store).strip(), command
                continue
            words = [
                f"STORE={store}" if w.startswith("STORE=") else w for w in shlex.split(command)
            ]
            printed = run(words, tmp_path, store)
            if block.startswith("$ "):
                require_shown(block.partition("\n")[2], printed)
    assert {"make nightly", "make test"} <= set(ran)
    assert len(ran) >= 10


def test_every_snippet_runs_and_prints_what_readme_shows(store: Path, tmp_path: Path) -> None:
    found = blocks()
    shutil.copy(ROOT / "README.md", tmp_path / "AGENTS.md")
    snippets = [number for number, (language, _) in enumerate(found) if language == "python"]
    assert len(snippets) == 2
    asked: Callable[[int], str] = lambda i: run(("python", "-c", found[i][1]), tmp_path, store)  # noqa: E731
    recalled, assembled = map(asked, snippets)
    require_shown(found[snippets[0] + 1][1], recalled)
    assert "I report to Dana Whitfield" in recalled.splitlines()[0]
    assert "I report to Dana Whitfield" in assembled
