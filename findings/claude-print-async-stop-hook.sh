#!/usr/bin/env bash
# Behaviour: with `claude -p`, a Stop hook that has "async": true is begun and killed before a second
#   has gone; in 2.1.197 no SessionEnd hook is run then either (it is where no async Stop hook is).
# Good guess: an async hook runs beside the agent, also past its end; SessionEnd comes after every session.
# Versions: @anthropic-ai/claude-code 2.1.332 and 2.1.197. Source: this run.
source "$(dirname "$0")/agents.sh"
hook() {
  local command="echo begin $1 >> $log; sleep 1; echo end $1 >> $log"
  echo "{\"hooks\": [{\"type\": \"command\", \"command\": \"$command\"$2}]}"
}
count() { grep -c "$1" "$log" || true; }
run_thrice() {
  log="$work/hooks"
  : > "$log"
  claude_home "{\"hooks\": {\"Stop\": [$(hook Stop "$1")], \"SessionEnd\": [$(hook SessionEnd "")]}}"
  for i in 1 2 3; do claude -p "Prompt $i" </dev/null >>"$work/log"; done
  sleep 3
  sort "$log" | uniq -c
}
serve '[]'
for version in 2.1.332 2.1.197; do
  install @anthropic-ai/claude-code "$version" claude
  echo "Stop is async:"
  run_thrice ', "async": true'
  expect "no async Stop hook came to its end ($version)" test "$(count 'end Stop')" = 0
  ends=$([ "$version" = 2.1.332 ] && echo 3 || echo 0)
  expect "SessionEnd ran $ends times of 3 ($version)" test "$(count 'end SessionEnd')" = "$ends"
  echo "Stop is not async:"
  run_thrice ""
  expect "every Stop hook came to its end ($version)" test "$(count 'end Stop')" = 3
done
