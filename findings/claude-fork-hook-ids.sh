#!/usr/bin/env bash
# Behaviour: `claude -p --resume ID --fork-session` of 2.1.197 gives the SessionStart hook the parent's
#   session_id and the UserPromptSubmit hook the fork's; 2.1.332 gives both the fork's, with source "fork".
#   The fork's transcript repeats the parent's lines with their uuids under its own sessionId.
# Good guess: all hook events of one process name one session; a fork refers to its parent.
# Versions: @anthropic-ai/claude-code 2.1.332 and 2.1.197. Source: this run.
source "$(dirname "$0")/agents.sh"
serve '[]'
for version in 2.1.332 2.1.197; do
  install @anthropic-ai/claude-code "$version" claude
  hook="{\"hooks\": [{\"type\": \"command\", \"command\": \"cat >> $work/hooks; echo >> $work/hooks\"}]}"
  claude_home "{\"hooks\": {\"SessionStart\": [$hook], \"UserPromptSubmit\": [$hook]}}"
  claude -p "Which buoy?" </dev/null >>"$work/log"
  parent=$(basename "$home"/.claude/projects/*/*.jsonl .jsonl)
  : > "$work/hooks"
  claude -p --resume "$parent" --fork-session "What colour?" </dev/null >>"$work/log"
  grep -v '^$' "$work/hooks" > "$work/events"
  lines "line['hook_event_name'], line['session_id'], line.get('source', '')" "$work/events"
  started=$(sed -n 1p "$work/events" | grep -c "\"session_id\":\"$parent\"" || true)
  expect "SessionStart names the parent only in 2.1.197 ($version)" \
    test "$started" = "$([ "$version" = 2.1.197 ] && echo 1 || echo 0)"
  expect "UserPromptSubmit names the fork ($version)" \
    test "$(sed -n 2p "$work/events" | grep -c "\"session_id\":\"$parent\"" || true)" = 0
  uuid=$(python3 -c "
import json, sys
print(next(l['uuid'] for l in map(json.loads, open(sys.argv[1])) if l['type'] == 'user'))" \
    "$home"/.claude/projects/*/"$parent".jsonl)
  expect "the parent's first prompt stands in both files, by its uuid ($version)" \
    test "$(grep -l "\"uuid\":\"$uuid\"" "$home"/.claude/projects/*/*.jsonl | wc -l)" = 2
done
