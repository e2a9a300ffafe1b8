#!/usr/bin/env bash
# Basic Memory 0.24.1: a metadata filter takes the ranking out of a word search.
#
# Behaviour: with `metadata_filters`, a text search finds the same notes and scores every one 0.0, so that their order
# says nothing. Without the filter the score is SQLite's bm25. Both notes here match the filter.
# Good guess: a filter narrows the results and leaves their order alone.
# Source: basic-memory 0.24.1 (PyPI), basic_memory/repository/sqlite_search_query.py; run below. Needs Python 3.12.1 or later.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for python in python3 python3.12 python3.13 python3.14 none; do
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 12, 1))' 2>/dev/null && break
done
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check basic-memory==0.24.1
cd "$folder"
export BASIC_MEMORY_HOME="$folder/notes" BASIC_MEMORY_CONFIG_DIR="$folder/index" LOGFIRE_IGNORE_NO_CONFIG=1
export BASIC_MEMORY_SEMANTIC_SEARCH_ENABLED=false
mkdir notes
printf -- '---\nwing: home\n---\nThe boiler was checked in May, and the kitchen window is to be painted blue.\n' > notes/a.md
printf -- '---\nwing: home\n---\nBoiler: the valve of the boiler.\n' > notes/b.md
"$folder/venv/bin/basic-memory" reindex --search > /dev/null
"$folder/venv/bin/python" - 2> log <<'PYTHON' || { tail -n 3 log; exit 1; }
import asyncio
import sys
from importlib.metadata import version

from basic_memory.mcp.tools import search_notes


async def ask(**more):
    found = await search_notes("boiler", search_type="text", output_format="json", **more)
    return [(hit["title"], hit["score"]) for hit in found["results"]]


async def both():
    return await ask(), await ask(metadata_filters={"wing": "home"})


plain, filtered = asyncio.run(both())
print("basic-memory", version("basic-memory"))
print("boiler:", plain)
print("boiler, wing home:", filtered)
same = [name for name, _ in plain] == ["b", "a"] and all(score for _, score in plain)
same = same and sorted(name for name, _ in filtered) == ["a", "b"] and not any(score for _, score in filtered)
print("as described" if same else "CHANGED")
sys.exit(not same)
PYTHON
