"""Which pages there are, writing them and comparing them with what they should be."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bench.datasets import CHECKOUT
from bench.tables import (
    abstention_table,
    compaction_table,
    graph_table,
    hooks_table,
    live_table,
    phases_table,
    quality_page,
    results_page,
    scale_table,
)
from noctuary.core.files import write_text

DOCS = CHECKOUT / "docs" / "benchmarks"

PAGES: Mapping[str, Callable[[Path], str]] = {
    "results.md": results_page.render,
    "quality.md": quality_page.render,
    "phases.md": phases_table.render,
    "graph.md": graph_table.render,
    "compaction.md": compaction_table.render,
    "abstention.md": abstention_table.render,
    "hooks.md": hooks_table.render,
    "live.md": live_table.render,
    "scale.md": scale_table.render,
}
"""By file name, what makes it from a directory of result files."""


def check(page: Path, expected: str) -> str:
    """Return how a page differs from what it should be, as a diff; empty if it does not."""
    found = page.read_text(encoding="utf-8") if page.is_file() else ""
    lines = difflib.unified_diff(
        found.splitlines(), expected.splitlines(), page.name, "generated from the JSON", lineterm=""
    )
    difference = "\n".join(lines)
    if not difference and found != expected:
        return f"{page} differs in its line ends"
    return difference


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pages, or with --check compare them; 1 means that one differs."""
    parser = argparse.ArgumentParser(prog="python -m bench.tables", description=__doc__)
    parser.add_argument("--docs", type=Path, default=DOCS, help="holds json/ and the pages")
    parser.add_argument("--check", action="store_true", help="fail if a page differs")
    options = parser.parse_args(arguments)
    code = 0
    for name, render in PAGES.items():
        page, expected = options.docs / name, render(options.docs / "json")
        if not options.check:
            write_text(page, expected)
            print(f"wrote {page}")
        elif difference := check(page, expected):
            print(difference)
            print(f"{page} is not what its JSON files say: run `python -m bench.tables`")
            code = 1
    return code
