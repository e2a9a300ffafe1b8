# Sourced by the scripts of this folder: a temporary folder, an agent from npm in it, an empty home,
# and a scripted model server on loopback. Nothing of noctuary's library is used.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
server=""
finish() {
  if [ -n "$server" ]; then kill "$server" 2>/dev/null || true; fi
  rm -rf "$work"
}
trap finish EXIT

# install PACKAGE VERSION COMMAND: sets $agent to the command.
install() {
  mkdir -p "$work/$2"
  echo '{"private": true}' > "$work/$2/package.json"
  (cd "$work/$2" && npm install --silent --no-audit --no-fund "$1@$2" >/dev/null)
  agent="$work/$2/node_modules/.bin/$3"
  echo "version: $("$agent" --version)"
}

# serve RULES: a JSON list of [text to look for, words, [[tool, arguments, namespace], ...], tokens].
# Each rule answers once; everything else is answered with "Understood."
serve() {
  if [ -n "$server" ]; then kill "$server"; fi
  rm -f "$work/url"
  python3 "$here/scripted_model.py" "$work/url" "$1" &
  server=$!
  for _ in $(seq 100); do [ -s "$work/url" ] && break; sleep 0.1; done
  url=$(cat "$work/url")
}

new_home() {
  home="$work/home-$RANDOM"
  mkdir -p "$home/project"
  echo "The buoy is B12." > "$home/project/notes.md"
}

# codex_home HOOKS_JSON MORE_CONFIG
codex_home() {
  new_home
  mkdir "$home/.codex"
  cat > "$home/.codex/config.toml" <<CONFIG
model = "gpt-5"
model_provider = "scripted"
approval_policy = "never"
sandbox_mode = "danger-full-access"
[model_providers.scripted]
name = "scripted"
base_url = "$url/v1"
wire_api = "responses"
env_key = "SCRIPTED_KEY"
${2:-}
CONFIG
  if [ -n "${1:-}" ]; then echo "$1" > "$home/.codex/hooks.json"; fi
}

codex() {
  (cd "$home/project" && env -i PATH="$PATH" HOME="$home" CODEX_HOME="$home/.codex" SCRIPTED_KEY=x \
    "$agent" "$@" 2>>"$work/log" </dev/null)
}

codex_exec() { codex exec --skip-git-repo-check --dangerously-bypass-hook-trust "$@" >>"$work/log"; }

# claude_home SETTINGS_JSON
claude_home() {
  new_home
  mkdir "$home/.claude"
  echo "${1:-{\}}" > "$home/.claude/settings.json"
  echo '{"hasCompletedOnboarding": true}' > "$home/.claude.json"
}

claude() {
  (cd "$home/project" && env -i PATH="$PATH" HOME="$home" ANTHROPIC_BASE_URL="$url" \
    ANTHROPIC_API_KEY=sk-ant-scripted DISABLE_AUTOUPDATER=1 SHELL=/bin/bash \
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1 "$agent" "$@" 2>>"$work/log")
}

# lines PYTHON FILES: prints what an expression over `line` (a dict) gives for each line of files.
lines() {
  python3 - "$@" <<'PYTHON'
import json, sys
for path in sys.argv[2:]:
    for at, text in enumerate(open(path, encoding="utf-8")):
        line = json.loads(text)
        inner = line.get("payload") or line.get("attachment") or {}
        shown = eval(f"({sys.argv[1]})")
        if shown:
            print(f"{at:3} {shown}")
PYTHON
}

# expect SENTENCE COMMAND...: says whether a command succeeds; its failure is the script's.
expect() {
  local sentence=$1
  shift
  if "$@"; then echo "as found: $sentence"; else echo "CHANGED: $sentence"; exit 1; fi
}
