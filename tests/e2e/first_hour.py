"""The first hour with noctuary: what somebody with several memories types, and what they see.

`python -m tests.e2e.first_hour PAGE` builds the wheel, installs it as a stranger would, and writes
the transcript with the time that each command took.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.e2e.driver import DONE, NIGHT_TIMEOUT_S, ROOT
from tests.support.laptop import make_laptop

NOTES = {
    "Home/Heating.md": "---\ntags: [boiler]\n---\n# Pressure\nTop the boiler up to 1.4 bar.\n\n"
    "# Engineer\nPetersen services the [[Boiler]] every October.\n",
    "Work/Releases.md": "# Freeze\nNo release goes out on a Friday after noon.\n",
}


class Step(NamedTuple):
    """A command, and what must be in its answer and what must not."""

    words: tuple[str, ...]
    says: str
    not_says: str = ""


HOUR = (
    Step(("init", "--dry-run", "--markdown", "vault"), "Claude Code"),
    Step(("init", "--yes", "--markdown", "vault"), "published snapshot"),
    Step(("recall", "Which port does Redis use in staging?", "-k", "2"), "6380"),
    Step(("recall", "When was the cache Memcached?", "-k", "1"), "until March"),
    Step(("recall", "How much pressure does the boiler need?", "-k", "2"), "1.4 bar"),
    Step(("remember", "The attic key hangs behind the blue door.", "--wing", "Home"), "remembered"),
    Step(("recall", "Where is the attic key?", "-k", "1"), "blue door"),
    Step(("nightly",), "published snapshot"),
    Step(("forget", "own:1", "--apply", "--yes"), ""),
    Step(("recall", "Where is the attic key?", "-k", "1"), "", "attic key hangs"),
    Step(("export", "--markdown", "out"), "out"),
    Step(("backup", "copy"), ""),
    Step(("mcp", "install", "gemini", "--dry-run"), "settings.json"),
    Step(("doctor",), ""),
    Step(("init", "--undo"), ""),
)


def make_home(home: Path) -> Path:
    """Make the home directory of somebody who uses several memories and keeps notes."""
    for name, text in NOTES.items():
        (home / "vault" / name).parent.mkdir(parents=True, exist_ok=True)
        (home / "vault" / name).write_text(text, encoding="utf-8")
    return make_laptop(home)


def live(
    program: Path, home: Path
) -> Iterator[tuple[Step, float, subprocess.CompletedProcess[str]]]:
    """Type each command of the hour; yield it with the seconds it took and what came out."""
    told = {"HOME": str(home), "PATH": f"{program.parent}:{os.defpath}", "OMP_NUM_THREADS": "1"}
    for step in HOUR:
        begun_s = time.perf_counter()
        done = subprocess.run(
            [program, *step.words], cwd=home, env=told, capture_output=True, encoding="utf-8",
            timeout=NIGHT_TIMEOUT_S, check=False,
        )  # fmt: skip
        yield step, time.perf_counter() - begun_s, done


def main(page: Path) -> int:
    """Install the wheel in an empty environment, live the hour, and write the page."""
    with tempfile.TemporaryDirectory() as name:
        folder, begun_s = Path(name), time.perf_counter()
        python = folder / "env" / "bin" / "python"
        for words in (
            [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
            [sys.executable, "-m", "venv", str(folder / "env")],
        ):
            subprocess.run(words, cwd=ROOT, check=True, capture_output=True)
        (wheel,) = folder.glob("*.whl")
        pip = [python, "-m", "pip", "install", "--quiet", f"{wheel}[pipelines,mcp]"]
        subprocess.run(pip, cwd=folder, check=True, capture_output=True)
        size_mb = sum(f.stat().st_size for f in (folder / "env").rglob("*") if f.is_file()) / 1e6
        installed_s = time.perf_counter() - begun_s
        lines = [
            "# The first hour",
            "",
            "Somebody has sessions of two agents, two palaces, a claude-memory store and notes.",
            "`python -m tests.e2e.first_hour PAGE` typed these commands and wrote this page.",
            "",
            f"Installing `noctuary[pipelines,mcp]` took {installed_s:.0f} s and {size_mb:,.0f} MB.",
        ]
        failed = 0
        for step, took_s, done in live(python.with_name("noctuary"), make_home(folder / "home")):
            shown = " ".join(f'"{w}"' if " " in w else w for w in step.words)
            said = (done.stdout + done.stderr).replace(str(folder / "home"), "~").strip()
            said = said.replace(f"{python.parent}/", "")
            lines += ["", f"## noctuary {step.words[0]}, {took_s:.1f} s", ""]
            lines += ["```", f"$ noctuary {shown}", said, "```"]
            failed += done.returncode != DONE or step.says not in done.stdout
            failed += bool(step.not_says) and step.not_says in done.stdout
        page.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).absolute()))
