"""Make the fixtures of the default suite from runs: `python -m tests.agents.shrink`.

A run of `make test-agents` leaves what the agents wrote below artifacts/agents. Long texts are the
tools' own: their middles go. Paths, and what tells of the machine, are replaced by invented ones.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

from tests.agents.versions import PACKAGES

ROOT = Path(__file__).resolve().parents[2]
RUNS = ROOT / "artifacts" / "agents"
GOLDEN = ROOT / "tests" / "golden" / "agents"
_END_CHARS = 80  # that are kept at both ends of a long text
_MANY = 6  # items of a list
_HOME = re.compile(r"/[^\s\"'<>]*?/(?:home)/(?=src/|\.c)")
_SLUG = re.compile(r"-tmp-[\w-]*?-home(?=-src-)")
_MACHINE = (
    (re.compile(r"Linux \d[\w.+-]*"), "Linux 6.1.0"),
    (re.compile(r"/tmp/claude-\d+"), "/tmp/claude-1000"),
    (re.compile(r"\S+/python\d?(?= )"), "python3"),
    (re.compile(r"/[^\s\"']*/(?=hook\.py)"), "/home/me/"),
    (re.compile(r"/[^\s\"']*/(?=quay_server\.py)"), "/home/me/"),
)
# Of these one a file is enough: they say nothing that a turn is made of.
_BOOKS = frozenset(
    {
        "api-request", "api-request-blob", "api-request-shape", "atis-latch", "cost-state",
        "file-history-snapshot", "last-prompt", "mode", "permission-mode", "tools-used",
        "prompt_snapshot", "skill_listing", "agent_listing_delta", "deferred_tools_delta",
        "environment", "model", "session_context", "hook_success", "stop_hook_summary",
        "remote_session_change", "turn_duration", "turn_context", "world_state",
        "token_usage_record", "token_count", "thread_settings_applied",
    }
)  # fmt: skip


def shrink(value: Any) -> Any:
    """Return a JSON value without the middles of long texts and lists, and without this machine."""
    if isinstance(value, dict):
        return {shrink(key): shrink(one) for key, one in value.items()}
    if isinstance(value, list):
        return [shrink(one) for one in value[:_MANY]]
    if not isinstance(value, str):
        return value
    text = _SLUG.sub("-home-me", _HOME.sub("/home/me/", value))
    for found, invented in _MACHINE:
        text = found.sub(invented, text)
    left_out = len(text) - 2 * _END_CHARS
    if left_out <= _END_CHARS:
        return text
    note = f" [{left_out} characters left out] "
    return text[:_END_CHARS] + note + text[-_END_CHARS:]


def shrink_file(path: Path, target: Path) -> None:
    """Write the lines of a transcript, shrunk."""
    seen = set[str]()
    kept = list[str]()
    for line in path.read_text("utf-8").splitlines():
        value = json.loads(line)
        inner = value.get("attachment") or value.get("payload") or {}
        kinds = {value["type"], str(inner.get("type")), str(value.get("subtype"))} & _BOOKS
        if kinds and kinds <= seen:
            continue
        seen |= kinds
        value = _without_inside(value) if kinds else value
        kept.append(json.dumps(shrink(value), ensure_ascii=False))
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")


def _without_inside(line: dict[str, Any]) -> dict[str, Any]:
    """Return a line of bookkeeping with the kinds of what it holds, and nothing of it."""
    inner = {k: {"type": v.get("type")} if isinstance(v, dict) else v for k, v in line.items()}
    return {k: [] if isinstance(v, list) else v for k, v in inner.items()}


def main() -> None:
    """Make the fixtures of the newest and the oldest version of each agent anew."""
    for agent, package in PACKAGES.items():
        for version in {package.versions[0], package.versions[-1]}:
            for run in sorted((RUNS / f"{agent}-{version}").glob("*")):
                target = GOLDEN / run.parent.name / run.name
                shutil.rmtree(target, ignore_errors=True)
                for path in sorted(run.rglob("*.jsonl")):
                    if path.parent != run:
                        below = path.relative_to(run).parts
                        shrink_file(path, target / Path(*(_SLUG.sub("-home-me", p) for p in below)))


if __name__ == "__main__":
    main()
