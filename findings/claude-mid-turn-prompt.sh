#!/usr/bin/env bash
# Behaviour: a prompt that is sent while a tool runs stands in the transcript as an attachment of type
#   queued_command, never as a line of type user. Where the prompt came as blocks, so it stands there,
#   and the queue-operation lines before it hold no text. 2.1.332 adds reason "absorbed_mid_turn".
# Good guess: whatever the user types becomes a line of type user.
# Versions: @anthropic-ai/claude-code 2.1.332 and 2.1.197. Source: this run.
source "$(dirname "$0")/agents.sh"
say() { echo "{\"type\": \"user\", \"message\": {\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"$1\"}]}}"; }
for version in 2.1.332 2.1.197; do
  serve '[["Which buoy", "Let me look.", [["Bash", {"command": "sleep 4; cat notes.md", "description": "read"}]], 100],
          ["MIDTURN", "Noted.", [], 100]]'
  install @anthropic-ai/claude-code "$version" claude
  claude_home '{"permissions": {"allow": ["Bash"]}}'
  { say "Which buoy?"; sleep 4; say "MIDTURN the buoy is mine"; sleep 6; } |
    claude -p --input-format stream-json --output-format stream-json --verbose >>"$work/log"
  lines "line['type'] in ('user', 'queue-operation') and str(line.get('message', line))[:110]
    or inner.get('type') == 'queued_command' and str(inner)[:110]" "$home"/.claude/projects/*/*.jsonl
  expect "one attachment queued_command holds it ($version)" \
    test "$(grep -h MIDTURN "$home"/.claude/projects/*/*.jsonl | grep -c '"type":"queued_command"')" = 1
  expect "no line of type user holds it ($version)" \
    test "$(grep -h MIDTURN "$home"/.claude/projects/*/*.jsonl | grep -c '"type":"user"' || true)" = 0
done
