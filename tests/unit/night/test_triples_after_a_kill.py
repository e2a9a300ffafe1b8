"""A night that is killed between two batches asks the next time only for what was not answered."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.support.triple_server import TripleServer

TEXTS = [f"Ann{number} works at Acme{number}" for number in range(12)]
BATCH = 2
ANSWERED_BATCHES = 3

SCRIPT = """
import json, sys
from pathlib import Path
from noctuary.graph.extract import Extraction
from noctuary.graph.llm import TRIPLES_KIND, extend_extractions
from noctuary.work.content import ContentStore
from noctuary.core.settings import Settings
from noctuary.core.types import MemoryRecord

root, url, texts = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
settings = Settings.load(environ={
    "NOCTUARY_GRAPH_EXTRACTOR": "llm", "NOCTUARY_GRAPH_LLM_URL": url,
    "NOCTUARY_GRAPH_LLM_MODEL": "m", "NOCTUARY_GRAPH_LLM_BATCH_MEMORIES": "2",
})
store = ContentStore(Path(root), TRIPLES_KIND)
records = [
    MemoryRecord(n, str(n), t, "", "", "", 0.5, 0, 0, None, None, None, None, False, "h")
    for n, t in enumerate(texts)
]
base = [Extraction(()) for _ in records]
found = extend_extractions(settings.graph, store, records, base)
print(json.dumps([found.facts["answered"], sum(len(e.stated) for e in found.extractions)]))
"""


def start(root: Path, server: TripleServer) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(root), server.url, json.dumps(TEXTS)],
        stdout=subprocess.PIPE,
        text=True,
    )


def wait_for_requests(server: TripleServer, wanted: int, process: subprocess.Popen[str]) -> None:
    give_up = time.monotonic() + 60
    while len(server.asked) < wanted and process.poll() is None and time.monotonic() < give_up:
        time.sleep(0.01)
    assert len(server.asked) == wanted


def test_a_killed_night_goes_on_where_it_stopped(tmp_path: Path) -> None:
    with TripleServer(hang_after=ANSWERED_BATCHES) as server:
        process = start(tmp_path, server)
        # A fifth request is only sent after the third answer has been kept.
        wait_for_requests(server, ANSWERED_BATCHES + 2, process)
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        process.communicate()
        asked_before = [text for batch in server.texts for text in batch]
    with TripleServer() as server:
        out, _ = start(tmp_path, server).communicate(timeout=60)
        asked_after = [text for batch in server.texts for text in batch]
    assert json.loads(out) == [len(TEXTS), len(TEXTS)]
    again = set(asked_before) & set(asked_after)
    assert len(again) == 2 * BATCH, "only what hung is asked again"
    assert set(asked_before) | set(asked_after) == set(TEXTS)
    assert len(asked_after) == len(TEXTS) - ANSWERED_BATCHES * BATCH
