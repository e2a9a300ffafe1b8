#!/usr/bin/env bash
# Behaviour: a fork of 0.146 repeats its parent's lines under the stamp of the fork, ids of the messages
#   kept; one of 0.171 refers to them (session_meta.history_base: thread_id, end_ordinal_exclusive) and
#   repeats none.
# Good guess: the copies of a fork keep their stamps, so that stamp and text name a message.
# Versions: @openai/codex 0.171.0 and 0.146.0. Source: this run (app-server, thread/fork).
source "$(dirname "$0")/agents.sh"
serve '[]'
fork_by_app_server() {
  {
    echo '{"id": 1, "method": "initialize", "params": {"clientInfo": {"name": "x", "version": "1"}, "capabilities": {"experimentalApi": true}}}'
    echo '{"method": "initialized"}'
    echo "{\"id\": 2, \"method\": \"thread/fork\", \"params\": {\"threadId\": \"$1\"}}"
    sleep 4
  } | (cd "$home/project" && env -i PATH="$PATH" HOME="$home" CODEX_HOME="$home/.codex" SCRIPTED_KEY=x \
    "$agent" app-server 2>>"$work/log") >>"$work/log"
}
for version in 0.171.0 0.146.0; do
  install @openai/codex "$version" codex
  codex_home
  codex_exec "PROMPTWORD which buoy?"
  parent=$(find "$home/.codex/sessions" -name '*.jsonl')
  id=$(basename "$parent" .jsonl | grep -o '[0-9a-f-]\{36\}$')
  sleep 1
  fork_by_app_server "$id"
  fork=$(find "$home/.codex/sessions" -name '*.jsonl' | grep -v "$id")
  for file in "$parent" "$fork"; do
    lines "(line['type'] == 'session_meta' and inner.get('history_base')
      or inner.get('role') == 'user' and 'PROMPTWORD' in str(inner) and (line['timestamp'], inner['id']))" "$file"
  done
  copies=$([ "$version" = 0.146.0 ] && echo 1 || echo 0)
  message() { grep PROMPTWORD "$1" | grep '"role":"user"' || true; }
  expect "the fork repeats the prompt $copies times ($version)" test "$(message "$fork" | wc -l)" = "$copies"
  if [ "$copies" = 1 ]; then
    field() { message "$1" | grep -o "\"$2\":\"[^\"]*\"" | head -1; }
    expect "under the same id" test "$(field "$parent" id)" = "$(field "$fork" id)"
    expect "under another stamp" test "$(field "$parent" timestamp)" != "$(field "$fork" timestamp)"
  else
    expect "it refers to its parent" grep -q "\"history_base\":{\"thread_id\":\"$id\"" "$fork"
  fi
done
