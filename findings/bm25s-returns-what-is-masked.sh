#!/usr/bin/env bash
# bm25s 0.3.16: `retrieve` fills up to k, also with what a mask excludes.
#
# Behaviour: (1) `weight_mask` sets the scores of excluded documents to zero, "to avoid returning them" in its docstring;
# where fewer than k others match, they are returned all the same. (2) So are documents that share no word with the
# question, and a k above the number of documents raises ValueError. (3) A corpus of lists, which the docstring allows,
# builds and saves, and then `retrieve` raises ValueError. Only the scores tell: keep those above zero.
# Good guess: a mask is a filter, k is a limit, and what can be saved can be asked.
# Source: bm25s 0.3.16 (PyPI), bm25s/__init__.py `retrieve`, bm25s/selection.py; run below.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check bm25s==0.3.16 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import sys
from importlib.metadata import version

import bm25s
import numpy as np

texts = ["Ada keeps the spare key", "Ben lost his key", "Cleo feeds the parrot", "Dan paints the shed"]
index = bm25s.BM25()
index.index(bm25s.tokenize(texts, show_progress=False), show_progress=False)


def ask(question, **options):
    try:
        found = index.retrieve(bm25s.tokenize(question, show_progress=False), show_progress=False, **options)
        return [(texts[at], round(float(score), 2)) for at, score in zip(found.documents[0], found.scores[0])]
    except ValueError as error:
        return f"ValueError: {str(error)[:70]}"


mask = np.array([1, 0, 1, 1], dtype="float32")
masked = ask("key", k=3, weight_mask=mask)
everything = ask("key", k=4, weight_mask=mask)
wordless = ask("zebra", k=2)
beyond = ask("key", k=10)
lists = bm25s.BM25(corpus=[[text, "wing"] for text in texts])
lists.index(bm25s.tokenize(texts, show_progress=False), show_progress=False)
try:
    of_lists = lists.retrieve(bm25s.tokenize("key", show_progress=False), k=2, show_progress=False)
except ValueError as error:
    of_lists = f"ValueError: {error}"
print("bm25s", version("bm25s"))
print("'key', Ben's excluded, k=4:", everything)
print("'zebra', which nobody said, k=2:", wordless)
print("'key', k=10 of 4:", beyond)
print("corpus of lists, k=2:", of_lists)
same = (
    (texts[1], 0.0) in everything and masked[0][0] == texts[0] and len(wordless) == 2
    and str(beyond).startswith("ValueError") and str(of_lists).startswith("ValueError")
)
print("as described" if same else "CHANGED")
sys.exit(not same)
PYTHON
