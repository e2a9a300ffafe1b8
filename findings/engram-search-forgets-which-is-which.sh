#!/usr/bin/env bash
# Engram 0.1.7: after a deletion its store answers with other memories than those it found.
#
# Behaviour: (1) `FaissBackend.delete()` leaves the vector in its index. Once the store is opened again, rows of the
# index are counted off against the ids that are left, so that every memory behind the deleted one is answered by its
# neighbour's text, with the score of the right one. (2) Adding an id again does the same: the old vector stays.
# (3) `query(metadata_filter=...)` filters the nearest 5 * top_k only: it can return nothing where matches exist.
# Nothing warns.
# Good guess: a store with `delete` and "INSERT OR REPLACE" answers with the texts that its vectors were made of, and a
# filter is applied to all.
# Source: engram-search 0.1.7 (PyPI), engram/backends/faiss_backend.py; run below.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
# Its other requirements, PyTorch among them, have no part in this.
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps \
  engram-search==0.1.7 faiss-cpu==1.15.1 numpy==2.4.6 packaging
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import sys
from importlib.metadata import version

import numpy as np
from engram.backends.base import Document
from engram.backends.faiss_backend import FaissBackend

unit = np.eye(64, dtype="float32")
names = ["apple", "bread", "cheese", "dates"]


def store(path):
    opened = FaissBackend(path, dimension=64)
    if not opened.count():
        opened.add([Document(n, f"text of {n}", unit[i].tolist(), {"wing": "a"}) for i, n in enumerate(names)])
    return opened


def ask(opened, at):
    return [(hit.id, round(hit.score, 2)) for hit in opened.query(unit[at].tolist(), top_k=1)]


store("deleted").delete(["apple"])
store("added").add([Document("apple", "another text of apple", unit[4].tolist(), {"wing": "a"})])
deleted, added, intact = store("deleted"), store("added"), store("intact")
seen = {which: [ask(opened, at) for at in (1, 2, 3)] for which, opened in (("intact", intact), ("deleted", deleted), ("added", added))}
many = FaissBackend("many", dimension=64)
near = [Document(f"b{i}", "near", unit[0].tolist(), {"wing": "b"}) for i in range(50)]
many.add([*near, Document("far", "the only one of wing a", (unit[0] + unit[1]).tolist(), {"wing": "a"})])
filtered = many.query(unit[0].tolist(), top_k=10, metadata_filter={"wing": "a"})
print("engram-search", version("engram-search"))
print("asked for bread, cheese and dates, each by its own vector")
for which, answers in seen.items():
    print(f"  {which}, opened again:", answers)
print("filter for a wing of one memory behind 50 of another, top_k=10:", [hit.id for hit in filtered])
right = [[(name, 1.0)] for name in names[1:]]
same = seen["intact"] == right and seen["deleted"][:2] == [[("cheese", 1.0)], [("dates", 1.0)]] and seen["added"] != right and not filtered
print("as described" if same else "CHANGED")
sys.exit(not same)
PYTHON
