#!/usr/bin/env bash
# Behaviour: the UserPromptSubmit hook is run for the task that an agent gives a subagent, with the parent's
#   session_id and the task as its prompt; only agent_id tells. The subagent's rollout holds the task as a
#   prompt of its user, and the parent's holds the report as a message of role user.
# Good guess: UserPromptSubmit is for what a user submits.
# Versions: @openai/codex 0.171.0 and 0.146.0. Source: this run.
source "$(dirname "$0")/agents.sh"
for version in 0.171.0 0.146.0; do
  serve '[["Ask a helper", "I start one.", [["spawn_agent", {"message": "TASKWORD measure it."}, "multi_agent_v1"]], 100],
    ["agent_id", "Waiting.", [["exec_command", {"cmd": "sleep 4"}]], 100], ["TASKWORD", "It is 4 m wide.", [], 100]]'
  install @openai/codex "$version" codex
  : > "$work/hooks"
  codex_home "{\"hooks\": {\"UserPromptSubmit\": [{\"hooks\": [{\"type\": \"command\", \"command\": \"cat >> $work/hooks; echo >> $work/hooks\"}]}]}}"
  codex_exec "Ask a helper."
  grep -v '^$' "$work/hooks" > "$work/events"
  lines "line['session_id'], line.get('agent_id'), line['prompt']" "$work/events"
  expect "the hook was given the task as a prompt ($version)" grep -q '"prompt":"TASKWORD' "$work/events"
  expect "both events name one session ($version)" \
    test "$(grep -o '"session_id":"[^"]*"' "$work/events" | sort -u | wc -l)" = 1
  expect "the report is a message of role user ($version)" \
    grep -rq '"role":"user".*<subagent_notification>' "$home/.codex/sessions"
done
