#!/usr/bin/env bash
# Behaviour: the end of a background command is a line of type user and fires the UserPromptSubmit hook,
#   with the notification as its prompt; only origin.kind "task-notification" tells (promptSource is
#   "sdk" in 2.1.197, as of a prompt of `-p`, and "system" in 2.1.332).
# Good guess: UserPromptSubmit is for what a user submits.
# Versions: @anthropic-ai/claude-code 2.1.332 and 2.1.197. Source: this run.
source "$(dirname "$0")/agents.sh"
for version in 2.1.332 2.1.197; do
  serve '[["Run it", "I run it.", [["Bash", {"command": "sleep 2", "description": "wait", "run_in_background": true}]], 100]]'
  install @anthropic-ai/claude-code "$version" claude
  hook="{\"hooks\": [{\"type\": \"command\", \"command\": \"cat >> $work/hooks; echo >> $work/hooks\"}]}"
  : > "$work/hooks"
  claude_home "{\"permissions\": {\"allow\": [\"Bash\"]}, \"hooks\": {\"UserPromptSubmit\": [$hook]}}"
  claude -p "Run it in the background." </dev/null >>"$work/log"
  grep -v '^$' "$work/hooks" > "$work/events"
  lines "line['prompt'][:70]" "$work/events"
  lines "line['type'] == 'user' and (line.get('origin'), line.get('promptSource'), str(line['message']['content'])[:40])" \
    "$home"/.claude/projects/*/*.jsonl
  expect "the hook was given the notification as a prompt ($version)" \
    grep -q '"prompt":"<task-notification>' "$work/events"
  expect "the line has origin.kind task-notification ($version)" \
    grep -q '"origin":{"kind":"task-notification"' "$home"/.claude/projects/*/*.jsonl
done
