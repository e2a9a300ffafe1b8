#!/usr/bin/env bash
# MemPalace 3.11.0: which of a drawer's times is the time of its text.
#
# Behaviour: (1) a fresh palace lies below $XDG_CONFIG_HOME/mempalace or ~/.config/mempalace, not in
# ~/.mempalace/palace as its `--help` says (~/.mempalace gets other files). (2) `filed_at` is the time of mining.
# (3) `mine --mode convos` gives every drawer of a transcript the same `authored_at`: the time of the last message of
# the file. `sweep` keeps each message's own `timestamp`. (4) `mine` takes `content_date` from the first lines of a
# text, and a deadline there becomes the date of the note.
# Good guess: `filed_at` or `authored_at` says when a drawer's text was written, and the palace is in ~/.mempalace.
# Source: mempalace 3.11.0 (PyPI), config.py `_default_config_dir`, convo_miner.py `_extract_authored_at`,
# miner.py `_extract_content_date_with_source`, sweeper.py.
set -euo pipefail
version=3.11.0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "mempalace==$version"
export HOME="$folder/home" PATH="$folder/venv/bin:$PATH"
unset XDG_CONFIG_HOME MEMPALACE_CONFIG_DIR MEMPALACE_PALACE_PATH MEMPALACE_PALACE MEMPAL_PALACE_PATH
mkdir -p "$HOME/notes" "$HOME/chats"
cd "$HOME"
printf '# Lease\n\nThe lease of the boat house ends on 2041-12-31; whoever reads this must renew it in time.\n' > notes/lease.md
cat > chats/session.jsonl <<'LINES'
{"type":"user","sessionId":"s1","uuid":"u1","timestamp":"2026-01-10T08:00:00.000Z","message":{"role":"user","content":"Who keeps the spare key of the boat house in winter?"}}
{"type":"assistant","sessionId":"s1","uuid":"a1","timestamp":"2026-01-10T08:00:05.000Z","message":{"role":"assistant","content":[{"type":"text","text":"The neighbour keeps the spare key of the boat house in winter."}]}}
{"type":"user","sessionId":"s1","uuid":"u2","timestamp":"2026-04-20T08:00:00.000Z","message":{"role":"user","content":"And who paints the boat house each spring?"}}
{"type":"assistant","sessionId":"s1","uuid":"a2","timestamp":"2026-04-20T08:00:05.000Z","message":{"role":"assistant","content":[{"type":"text","text":"The rowing club paints the boat house each spring, in May."}]}}
LINES
# Vectors say nothing here, and the real encoder would be a download: hashes from a server on loopback.
cat > vectors.py <<'PYTHON'
import hashlib, json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Vectors(BaseHTTPRequestHandler):
    def do_POST(self):
        texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
        texts = [texts] if isinstance(texts, str) else texts
        digests = (hashlib.sha256(text.encode()).digest() for text in texts)
        data = [{"index": n, "embedding": [byte / 255 for byte in d]} for n, d in enumerate(digests)]
        body = json.dumps({"data": data, "model": "hash"}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

server = ThreadingHTTPServer(("127.0.0.1", 0), Vectors)
print(server.server_port, flush=True)
server.serve_forever()
PYTHON
python vectors.py > port.txt &
trap 'kill '$!'; rm -rf "$folder"' EXIT
until [ -s port.txt ]; do sleep 0.1; done
export MEMPALACE_EMBEDDING_MODEL=openai-compat MEMPALACE_EMBEDDING_API_MODEL=hash
export MEMPALACE_EMBEDDING_API_URL="http://127.0.0.1:$(cat port.txt)"
{
    mempalace init --yes --no-llm notes < /dev/null
    mempalace mine --direct notes
    mempalace mine --direct --mode convos --wing talk chats
    mempalace sweep chats/session.jsonl
} > log.txt 2>&1 || { cat log.txt; exit 1; }
mempalace --version
python - <<'PYTHON'
import sqlite3, sys
from pathlib import Path

palace = Path(".config/mempalace/palace/chroma.sqlite3")
old = Path(".mempalace/palace")
print("palace:", palace, "exists" if palace.is_file() else "is missing", f"| ~/{old}:", "exists" if old.exists() else "is missing")
db = sqlite3.connect(f"file:{palace}?mode=ro", uri=True)
drawers = {}
sql = """SELECT e.embedding_id, m.key, coalesce(m.string_value, m.int_value, m.float_value) FROM embedding_metadata m
JOIN embeddings e ON e.id = m.id JOIN segments s ON s.id = e.segment_id JOIN collections c ON c.id = s.collection
WHERE c.name = 'mempalace_drawers'"""
for drawer, key, value in db.execute(sql):
    drawers.setdefault(drawer, {})[key] = value
for drawer, said in sorted(drawers.items()):
    keys = ("ingest_mode", "filed_at", "authored_at", "timestamp", "content_date", "content_date_source")
    print(drawer, {key: said[key] for key in keys if key in said})
convos = [d["authored_at"] for d in drawers.values() if d.get("ingest_mode") == "convos"]
swept = sorted(d["timestamp"] for d in drawers.values() if d.get("ingest_mode") == "sweep")
lease = [d for d in drawers.values() if str(d.get("source_file", "")).endswith("lease.md")]
same = (
    len(convos) == 2 and set(convos) == {"2026-04-20T08:00:05.000Z"}
    and swept[0] == "2026-01-10T08:00:00.000Z" and swept[-1] == "2026-04-20T08:00:05.000Z"
    and [(d["content_date"], d["content_date_source"]) for d in lease] == [("2041-12-31", "body")]
    and not old.exists()
)
print("as described" if same else "CHANGED")
sys.exit(not same)
PYTHON
