#!/usr/bin/env bash
# Gemini CLI 0.61.0 (@google/gemini-cli): a chat is a .jsonl that only grows, and it says a message
# several times.
#
# Behaviour: an answer that called a tool has two lines of one id, the second with `toolCalls`; a
# resumed session appends `$set.messages` with every earlier message again, and begins the session
# a second time, with nothing but the session context: in a file of its own, or, in the minute in
# which it was begun, in the middle of the same file. The text of a file that
# the prompt names stands in the prompt's `content`; what was typed is `displayContent`.
# Source: a run against a scripted server on loopback; bundle, packages/core chatRecordingService.
# Good guess: one line a message, one file a session.
set -euo pipefail
VERSION=0.61.0
work=$(mktemp -d)
trap 'kill "${server:-0}" 2>/dev/null || true; rm -rf "$work"' EXIT
mkdir -p "$work/tool" "$work/home/src/fountain" "$work/home/.gemini"
echo '{"private": true}' > "$work/tool/package.json"
(cd "$work/tool" && npm install --no-audit --no-fund --loglevel=error "@google/gemini-cli@$VERSION")
cat > "$work/server.py" <<'PY'
import http.server, json, sys
class Model(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        last = json.dumps(body.get("contents", [{}])[-1])
        call = {"name": "run_shell_command", "args": {"command": "echo V7", "description": "echo"}}
        parts = [{"text": "I look."}, {"functionCall": call}] if "Which valve" in last else [{"text": "V7."}]
        said = {"candidates": [{"index": 0, "content": {"role": "model", "parts": parts}, "finishReason": "STOP"}],
                "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 2, "totalTokenCount": 11}}
        data = json.dumps(said)
        is_stream = "streamGenerateContent" in self.path
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream" if is_stream else "application/json")
        self.end_headers()
        self.wfile.write((f"data: {data}\r\n\r\n" if is_stream else data).encode())
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
print(server.server_port, flush=True)
server.serve_forever()
PY
python3 "$work/server.py" > "$work/port" &
server=$!
until [ -s "$work/port" ]; do sleep 0.1; done
echo '{"security": {"auth": {"selectedType": "gemini-api-key"}}, "privacy": {"usageStatisticsEnabled": false}, "general": {"enableAutoUpdate": false}, "model": {"name": "gemini-2.5-flash"}}' > "$work/home/.gemini/settings.json"
echo 'The valve is V7.' > "$work/home/src/fountain/notes.md"
gemini() {
    (cd "$work/home/src/fountain" && env -i PATH="$PATH" HOME="$work/home" GEMINI_API_KEY=x \
        GEMINI_CLI_TRUST_WORKSPACE=true GOOGLE_GEMINI_BASE_URL="http://127.0.0.1:$(cat "$work/port")" \
        "$work/tool/node_modules/.bin/gemini" -y "$@" > /dev/null 2>&1)
}
gemini -p 'Which valve is it? @notes.md'
gemini -r latest -p 'Thank you.'
echo "gemini-cli $VERSION"
python3 - "$work/home/.gemini/tmp/fountain/chats" <<'PY'
import collections, json, pathlib, sys
files = sorted(pathlib.Path(sys.argv[1]).glob("*.jsonl"))
chats = [[json.loads(line) for line in file.read_text().splitlines()] for file in files]
sessions = [chat[0]["sessionId"] for chat in chats]
lines = max(chats, key=len)
ids = collections.Counter(line["id"] for line in lines if "id" in line)
again = [line["$set"]["messages"] for line in lines if len(line.get("$set", {}).get("messages", [])) > 1]
prompt = next(line for line in lines if line.get("type") == "user" and "displayContent" in line)
headers = sum("projectHash" in line for chat in chats for line in chat)
print(f"{headers} beginnings of {len(set(sessions))} session in {len(files)} files")
print(f"ids on several lines: {[n for n in ids.values() if n > 1]}")
print(f"messages said again by the resumed session: {[len(messages) for messages in again]}")
print("content:", json.dumps(prompt["content"])[:160])
print("displayContent:", json.dumps(prompt["displayContent"]))
is_so = headers > len(set(sessions)) and max(ids.values()) > 1 and again
sys.exit(0 if is_so else "the behaviour changed")
PY
