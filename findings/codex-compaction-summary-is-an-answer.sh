#!/usr/bin/env bash
# Behaviour: the summary of a compaction is a response_item of role assistant as any answer. 0.171 marks the
#   line with metadata.compaction_output; 0.146 and 0.153 mark nothing: only the
#   `compacted` line behind it tells, whose message ends in the same text.
# Good guess: a summary stands in the `compacted` line alone.
# Versions: @openai/codex 0.171.0, 0.153.4 and 0.146.0. Source: this run.
source "$(dirname "$0")/agents.sh"
for version in 0.171.0 0.153.4 0.146.0; do
  serve '[["Which buoy", "Let me look.", [["exec_command", {"cmd": "cat notes.md"}]], 250000]]'
  install @openai/codex "$version" codex
  codex_home
  codex_exec "Which buoy?"
  rollout=$(find "$home/.codex/sessions" -name '*.jsonl')
  lines "(line['type'] == 'compacted' or inner.get('role') == 'assistant')
    and (line['type'], str(inner.get('content', ''))[:80], (line.get('metadata') or {}).get('compaction_output'))" "$rollout"
  expect "a compaction was written ($version)" grep -q '"type":"compacted"' "$rollout"
  flagged=$([ "$version" = 0.171.0 ] && echo 1 || echo 0)
  expect "the flag stands there $flagged times ($version)" \
    test "$(grep -c '"compaction_output":true' "$rollout" || true)" = "$flagged"
done
