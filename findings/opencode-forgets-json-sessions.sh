#!/usr/bin/env bash
# OpenCode 1.18.33 (opencode-ai) does not know the sessions that 1.1.65 kept.
#
# Behaviour: 1.1.65 keeps sessions, messages and parts as small JSON files below
# ~/.local/share/opencode/storage. 1.18.33 makes opencode.db beside them, takes nothing over, and
# says "Session not found"; the files stay. `opencode run` of both keeps a prompt with spaces in
# quotes that nobody typed.
# Source: a run against a scripted server on loopback.
# Good guess: the first start of a version with a database takes the old sessions over.
set -euo pipefail
OLD=1.1.65 NEW=1.18.33
work=$(mktemp -d)
trap 'kill "${server:-0}" 2>/dev/null || true; rm -rf "$work"' EXIT
home="$work/home"
mkdir -p "$home/src/fountain" "$home/.config/opencode"
for version in "$OLD" "$NEW"; do
    mkdir "$work/$version"
    echo '{"private": true}' > "$work/$version/package.json"
    (cd "$work/$version" && npm install --no-audit --no-fund --loglevel=error "opencode-ai@$version")
done
cat > "$work/server.py" <<'PY'
import http.server, json
class Model(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for choice in ({"delta": {"role": "assistant", "content": "V7."}, "finish_reason": None},
                       {"delta": {}, "finish_reason": "stop"}):
            chunk = {"id": "c", "object": "chat.completion.chunk", "model": "m1", "created": 1,
                     "choices": [{"index": 0, **choice}]}
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
print(server.server_port, flush=True)
server.serve_forever()
PY
python3 "$work/server.py" > "$work/port" &
server=$!
until [ -s "$work/port" ]; do sleep 0.1; done
cat > "$home/.config/opencode/opencode.json" <<JSON
{"autoupdate": false, "share": "disabled", "model": "s/m1", "small_model": "s/m1", "provider": {"s": {
 "npm": "@ai-sdk/openai-compatible", "name": "S",
 "options": {"baseURL": "http://127.0.0.1:$(cat "$work/port")/v1", "apiKey": "x"},
 "models": {"m1": {"name": "M1", "limit": {"context": 100000, "output": 8000}}}}}}
JSON
opencode() {
    local version=$1
    shift
    (cd "$home/src/fountain" && env -i PATH="$PATH" HOME="$home" OPENCODE_DISABLE_AUTOUPDATE=1 \
        OPENCODE_DISABLE_MODELS_FETCH=1 "$work/$version/node_modules/.bin/opencode" "$@" 2>&1 < /dev/null)
}
opencode "$OLD" run 'Which valve is it?' > /dev/null
session=$(basename "$(find "$home/.local/share/opencode/storage/session" -name 'ses_*.json')" .json)
echo "opencode $OLD kept: $(grep -rhoE '"text": .*Which valve.*' "$home/.local/share/opencode/storage/part")"
said=$(opencode "$NEW" export "$session" || true)
echo "opencode $NEW export $session: $said"
ls "$home/.local/share/opencode" | tr '\n' ' '
echo
[[ $said == *"Session not found"* ]] || { echo "the behaviour changed"; exit 1; }
grep -rqF '"text": "\"Which valve is it?\"' "$home/.local/share/opencode/storage/part" ||
    { echo "prompts are kept without quotes now"; exit 1; }
