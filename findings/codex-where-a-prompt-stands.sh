#!/usr/bin/env bash
# Behaviour: rollouts with history_mode "paginated" (0.153 and 0.171) hold a prompt as a response_item of
#   role user and, 1 to 3 ms later, as event_msg/item_completed with item.type UserMessage, under two
#   different ids; event_msg/user_message, where 0.146 has it, is not written any more. What a hook adds
#   is a bare text of role developer.
# Good guess: event_msg/user_message is what the user typed, in every version.
# Versions: @openai/codex 0.171.0, 0.153.4 and 0.146.0. Source: this run.
source "$(dirname "$0")/agents.sh"
serve '[]'
for version in 0.171.0 0.153.4 0.146.0; do
  install @openai/codex "$version" codex
  codex_home
  codex_exec "PROMPTWORD which buoy?"
  rollout=$(find "$home/.codex/sessions" -name '*.jsonl')
  lines "'PROMPTWORD' in str(line) and (line['timestamp'], inner['type'],
    (inner.get('item') or inner).get('type'), (inner.get('item') or inner).get('id'))" "$rollout"
  old=$([ "$version" = 0.146.0 ] && echo 1 || echo 0)
  expect "event_msg/user_message stands there $old times ($version)" \
    test "$(grep -c '"type":"user_message"' "$rollout" || true)" = "$old"
  expect "item_completed UserMessage stands there $((1 - old)) times ($version)" \
    test "$(grep -c '"type":"UserMessage"' "$rollout" || true)" = "$((1 - old))"
  expect "a response_item of role user holds it too ($version)" \
    test "$(grep PROMPTWORD "$rollout" | grep '"type":"response_item"' | grep -c '"role":"user"')" = 1
done
