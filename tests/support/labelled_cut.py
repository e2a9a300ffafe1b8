"""The beginning of a labelled set: as many memories as a test can afford, and their questions."""

from __future__ import annotations

import gzip
import json
import os
from itertools import islice
from pathlib import Path

SHARED = Path(os.environ.get("MNEMON_SHARED", Path(__file__).parents[3] / "shared")) / "data"


def write_cut(name: str, memories: int, directory: Path) -> int:
    """Write the first memories of a set, and the questions that they answer; return how many.

    Args:
        name: Of the set in the shared data.
        memories: How many.
        directory: Made; becomes a source folder.
    """
    directory.mkdir(parents=True)
    with gzip.open(SHARED / name / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        kept = list(islice(lines, memories))
    ids = {json.loads(line)["id"] for line in kept}
    asked = [
        line
        for line in (SHARED / name / "queries.jsonl").read_text(encoding="utf-8").splitlines()
        if (relevant := json.loads(line).get("relevant_ids")) and ids.issuperset(relevant)
    ]
    (directory / "corpus.jsonl").write_text("".join(kept), encoding="utf-8")
    (directory / "queries.jsonl").write_text("\n".join(asked) + "\n", encoding="utf-8")
    return len(asked)
