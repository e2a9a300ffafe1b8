"""The pages of docs/benchmarks: writes them, or compares them with their result files."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from bench.datasets import CHECKOUT
from bench.tables.commits import write_commits
from bench.tables.hooks import write_hooks
from bench.tables.live import write_live
from bench.tables.peers import write_peers
from bench.tables.quality import write_quality
from bench.tables.results import write_results
from bench.tables.scale import write_scale
from bench.tables.silence import write_silence
from noctuary.core.files import write_text

DOCS = CHECKOUT / "docs" / "benchmarks"

PAGES: Mapping[str, tuple[str, str, Callable[[Path], Iterable[str]]]] = {
    "results": ("Latency and speed", "make bench", write_results),
    "quality": ("Retrieval quality", "make bench-quality", write_quality),
    "peers": ("Other stores in the same table", "make bench-peers", write_peers),
    "silence": (
        "Silence without labels",
        "python -m bench.silence --stores DIR",
        write_silence,
    ),
    "hooks": (
        "Waiting time of hooks",
        "python -m bench.measure hooks --store STORE --queries FILE --keep",
        write_hooks,
    ),
    "commits": (
        "A commit beside an older one",
        "python -m bench.measure commits --against COMMIT",
        write_commits,
    ),
    "live": (
        "The live overlay and the next night",
        "python -m bench.measure live --keep",
        write_live,
    ),
    "scale": ("A night from ten thousand memories to a million", "make bench-scale", write_scale),
}
"""By name: the title, the command that measures again, and the blocks for a folder of results."""


def render(name: str, results: Path) -> str:
    """Return a page; without results it is only its title and where it comes from."""
    title, command, blocks = PAGES[name]
    source = (
        f"`python -m bench.tables` generates this page from `json/`; `{command}` measures again."
    )
    return "\n\n".join([f"# {title}", source, *blocks(results)]) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pages, or with --check compare them; 1 means that one differs."""
    parser = argparse.ArgumentParser(prog="python -m bench.tables", description=__doc__)
    parser.add_argument("--docs", type=Path, default=DOCS, help="holds json/ and the pages")
    parser.add_argument("--check", action="store_true", help="fail if a page differs")
    options = parser.parse_args(arguments)
    code = 0
    for name in PAGES:
        page, expected = options.docs / f"{name}.md", render(name, options.docs / "json")
        if not options.check:
            write_text(page, expected)
            print(f"wrote {page}")
            continue
        found = page.read_bytes().decode() if page.is_file() else ""
        if found != expected:
            lines = (found.splitlines(keepends=True), expected.splitlines(keepends=True))
            print(*difflib.unified_diff(*lines, page.name, "generated from the JSON"), sep="")
            print(f"{page} is not what its JSON files say: run `python -m bench.tables`")
            code = 1
    return code
