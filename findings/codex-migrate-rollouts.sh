#!/usr/bin/env bash
# Behaviour: `codex migrate-rollouts --apply` rewrites rollouts of 0.146 in place, keeps name, cli_version and
#   every line's stamp, and turns event user_message into item_completed UserMessage with a new item.id.
# Good guess: migrated files are new ones beside the old; or ids of items stay.
# Versions: @openai/codex 0.171.0 over a session of 0.146.0. Source: this run.
source "$(dirname "$0")/agents.sh"
serve '[]'
install @openai/codex 0.146.0 codex
codex_home
codex_exec "PROMPTWORD which buoy?"
rollout=$(find "$home/.codex/sessions" -name '*.jsonl')
cp "$rollout" "$work/before"
install @openai/codex 0.171.0 codex
codex migrate-rollouts --apply >>"$work/log"
for file in "$work/before" "$rollout"; do
  lines "line['type'] == 'event_msg' and 'PROMPTWORD' in str(inner) and (line['timestamp'], inner['type'], (inner.get('item') or {}).get('id'))" "$file"
done
stamp() { grep PROMPTWORD "$1" | grep "$2" | grep -o '"timestamp":"[^"]*"' | head -1; }
expect "one file of the same name" test "$(find "$home/.codex/sessions" -name '*.jsonl')" = "$rollout"
expect "it says that it is paginated" grep -q '"history_mode":"paginated"' "$rollout"
expect "it says that 0.146.0 wrote it" grep -q '"cli_version":"0.146.0"' "$rollout"
expect "the prompt's stamp is that of the event before" \
  test "$(stamp "$work/before" '"user_message"')" = "$(stamp "$rollout" '"UserMessage"')"
