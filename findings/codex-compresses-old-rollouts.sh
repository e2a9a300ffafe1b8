#!/usr/bin/env bash
# Behaviour: with features.local_thread_store_compression (off unless set), an app server that starts turns
#   rollouts that nobody touched for long into .jsonl.zst and removes the .jsonl; resuming such a session
#   turns it back into a .jsonl.
# Good guess: sessions/ holds *.jsonl and nothing else.
# Versions: @openai/codex 0.171.0 and 0.146.0. Source: this run.
source "$(dirname "$0")/agents.sh"
serve '[]'
for version in 0.171.0 0.146.0; do
  install @openai/codex "$version" codex
  codex_home "" $'[features]\nlocal_thread_store_compression = true'
  codex_exec "Which buoy?"
  rollout=$(find "$home/.codex/sessions" -name '*.jsonl')
  id=$(basename "$rollout" .jsonl | grep -o '[0-9a-f-]\{36\}$')
  touch -d '40 days ago' "$rollout"
  find "$home/.codex" -name 'rollout-*.lock' -delete # says that it was done today
  {
    echo '{"id": 1, "method": "initialize", "params": {"clientInfo": {"name": "x", "version": "1"}}}'
    echo '{"method": "initialized"}'
    sleep 6
  } | (cd "$home/project" && env -i PATH="$PATH" HOME="$home" CODEX_HOME="$home/.codex" SCRIPTED_KEY=x \
    "$agent" app-server 2>>"$work/log") >>"$work/log"
  (cd "$home/.codex/sessions" && find . -type f)
  expect "the rollout is a .zst ($version)" test -s "$rollout.zst" -a ! -e "$rollout"
  codex_exec resume "$id" "And now?"
  (cd "$home/.codex/sessions" && find . -type f)
  expect "resumed, it is a .jsonl again ($version)" test -s "$rollout" -a ! -e "$rollout.zst"
done
