"""Make README's pictures from the sample: the lineage after a night, and an explained answer.

    python -m tests.e2e.pictures

Needs Chromium (a Debian package) and two minutes. Writes docs/lineage.png and docs/browse.png.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.e2e.browser import open_tab
from tests.e2e.driver import ROOT, kill
from tests.e2e.stores import Bench
from tests.e2e.ui import start_ui, wait_until_ready

QUESTION = "who is my manager"
SETTLE_S = 4.0  # the UI lays out its graph in a worker, and polls


def main() -> None:
    """Run a night of the sample in a home of its own, and look at what it made."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        os.environ["NOCTUARY_HOME"] = home
        night = json.loads(_noctuary("nightly", "--json"))
        picture_lineage(Bench(Path(night["source"]), Path(night["store"])))
        picture_answer(night["store"])


def picture_lineage(bench: Bench) -> None:
    """Take the Dagster UI's graph of all assets that a snapshot is made of."""
    process, ui = start_ui(bench)
    try:
        wait_until_ready(ui, process)
        with open_tab() as tab:
            tab.look(2000, 1400)
            scope = "view=lineage&lineageScope=upstream&lineageDepth=20"
            tab.open(f"{ui.url}/assets/snapshot?{scope}")
            tab.wait("document.querySelectorAll('foreignObject').length > 20")
            time.sleep(SETTLE_S)
            tab.picture(ROOT / "docs" / "lineage.png")
    finally:
        kill(process)


def picture_answer(store: str) -> None:
    """Take `noctuary browse` with the first answer to a question, and why it came back."""
    words = [sys.executable, "-m", "noctuary.cli.entry", "browse", "--store", store]
    with subprocess.Popen(
        [*words, "--no-open", "--json"], stdout=subprocess.PIPE, encoding="utf-8"
    ) as process:
        assert process.stdout is not None
        link = json.loads("".join(iter(process.stdout.readline, "}\n")) + "}")["link"]
        try:
            with open_tab() as tab:
                tab.look(1400, 900)
                tab.open(link)
                tab.wait("document.querySelectorAll('.hit').length > 5")
                tab.type(QUESTION)
                tab.wait("document.querySelector('.hit .steps')?.textContent.includes('lexical')")
                tab.press("ArrowDown")
                tab.press("Enter")
                tab.wait("document.querySelector('#detail h2')?.textContent === 'Why'")
                tab.picture(ROOT / "docs" / "browse.png")
        finally:
            process.terminate()


def _noctuary(*words: str) -> str:
    command = [sys.executable, "-m", "noctuary.cli.entry", *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout


if __name__ == "__main__":
    main()
