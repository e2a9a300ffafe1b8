#!/usr/bin/env bash
# mem0 2.2.1: `get_all()` is no export of all.
#
# Behaviour: (1) `get_all(filters=...)` returns 20 memories unless `top_k` is said, and nothing in the answer says that
# there are more. (2) A memory whose `expiration_date` is before today (of UTC) is left out unless `show_expired=True`
# is said; then it comes without any mark but its date. (3) Keys of `metadata` such as `is_sensitive` and `app_id` come
# back inside `metadata`, not beside the text.
# Good guess: a call named get_all, with no page or limit in its answer, returns all.
# Source: mem0ai 2.2.1 (PyPI), mem0/memory/main.py `get_all`, `_payload_is_expired`.
set -euo pipefail
version=2.2.1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "mem0ai==$version"
export HOME="$folder/home" MEM0_DIR="$folder/mem0" MEM0_TELEMETRY=False OPENAI_API_KEY=none
mkdir -p "$HOME"
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import hashlib, json, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version

class Vectors(BaseHTTPRequestHandler):
    """Vectors say nothing here: hashes from a server on loopback."""

    def do_POST(self):
        texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
        texts = [texts] if isinstance(texts, str) else texts
        digests = (hashlib.sha256(str(text).encode()).digest() for text in texts)
        data = [{"object": "embedding", "index": n, "embedding": [b / 255 for b in d]} for n, d in enumerate(digests)]
        body = json.dumps({"object": "list", "data": data, "model": "hash", "usage": {"prompt_tokens": 0, "total_tokens": 0}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

server = ThreadingHTTPServer(("127.0.0.1", 0), Vectors)
threading.Thread(target=server.serve_forever, daemon=True).start()
from mem0 import Memory

memory = Memory.from_config({
    "embedder": {"provider": "openai", "config": {"model": "hash", "embedding_dims": 32, "openai_base_url": f"http://127.0.0.1:{server.server_port}/v1"}},
    "vector_store": {"provider": "qdrant", "config": {"path": "qdrant", "embedding_model_dims": 32}},
    "history_db_path": "history.db",
})
for number in range(24):
    memory.add(f"The shed has {number} rakes", user_id="ada", infer=False)
memory.add("The gate code was changed", user_id="ada", infer=False, expiration_date="2020-01-01", metadata={"is_sensitive": True, "app_id": "shed"})
ask = {"filters": {"user_id": "ada"}}
default = memory.get_all(**ask)
all_of_them = memory.get_all(**ask, top_k=1000)
with_expired = memory.get_all(**ask, top_k=1000, show_expired=True)
over = [item for item in with_expired["results"] if item.get("expiration_date")]
print("mem0ai", version("mem0ai"))
print("added: 24, and 1 that has expired")
print("get_all():", len(default["results"]), "memories; keys of the answer:", sorted(default))
print("get_all(top_k=1000):", len(all_of_them["results"]), "| with show_expired=True:", len(with_expired["results"]))
print("the expired one:", {key: over[0].get(key) for key in ("memory", "expiration_date", "metadata")})
same = (
    len(default["results"]) == 20 and sorted(default) == ["results"] and len(all_of_them["results"]) == 24
    and len(with_expired["results"]) == 25 and len(over) == 1
    and over[0]["metadata"] == {"is_sensitive": True, "app_id": "shed"}
)
print("as described" if same else "CHANGED")
sys.exit(not same)
PYTHON
