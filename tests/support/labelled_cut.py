"""A part of a labelled set: as many memories as a test can afford, and what they answer."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

SHARED = Path(os.environ.get("NOCTUARY_SHARED", Path(__file__).parents[3] / "shared")) / "data"


QUESTIONS = 40
"""Questions whose memories are taken first: in some sets they lie all over the corpus."""


def write_cut(name: str, memories: int, directory: Path) -> int:
    """Write memories of the first questions, filled up from the set's beginning; return questions.

    Args:
        name: Of the set in the shared data.
        memories: About how many.
        directory: Made; becomes a source folder.
    """
    directory.mkdir(parents=True)
    with gzip.open(SHARED / name / "corpus.jsonl.gz", "rt", encoding="utf-8") as file:
        lines = file.readlines()
    queries = (SHARED / name / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    labelled = [(line, set(json.loads(line)["relevant_ids"])) for line in queries]
    wanted = {one for _, relevant in labelled[:QUESTIONS] for one in relevant}
    ids = [json.loads(line)["id"] for line in lines]
    wanted |= set(ids[: max(memories - len(wanted), 0)])
    kept = [line for line, one in zip(lines, ids, strict=True) if one in wanted]
    asked = [line for line, relevant in labelled if relevant and relevant <= wanted]
    (directory / "corpus.jsonl").write_text("".join(kept), encoding="utf-8")
    (directory / "queries.jsonl").write_text("\n".join(asked) + "\n", encoding="utf-8")
    return len(asked)
