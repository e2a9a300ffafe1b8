"""The sets of the contract: how each becomes a store, what it is asked, and its record on disk.

    python -m tests.contract.record [SET ...]     write the records anew; say why in the commit

A record is made once and then only where a step moves an answer on purpose.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from noctuary_pipelines.sample import QUERIES
from tests.contract.answers import HOOKS, NOW_S, RECALLS, REPLAYS, VARIANTS, WHYS, steady
from tests.e2e.driver import DONE, ROOT, environment
from tests.e2e.stores import build_full_source
from tests.support.labelled_cut import SHARED

SETS = {"sample": 0, "locomo": 0, "2wikimultihopqa": 0, "memdaily_zh": 500}
"""Name -> how many of its memories; 0 is all."""

RECORDS = ROOT / "tests" / "golden" / "contract"

_NIGHT = """
import runpy, sys, time
real, real_ns, ahead = time.time, time.time_ns, {now} - time.time()
time.time = lambda: real() + ahead
time.time_ns = lambda: real_ns() + int(ahead * 1e9)
runpy.run_module("noctuary.cli.entry", run_name="__main__", alter_sys=True)
"""

PROMPTS = (
    "", "ok", "thanks!", "/compact now", "write a haiku about penguins", "run the tests again",
    "what is the capital of Peru?", "wo ist der Ersatzschlüssel?", "备用钥匙在哪里？",
    "\ud800 lone",
    "refactor the parser so that it reads one file at a time", "key " * 500,
)  # fmt: skip


def record_of(name: str) -> Path:
    """Return where a set's record lies."""
    return RECORDS / f"{name}.json.gz"


def read_record(name: str) -> dict[str, Any]:
    """Return what was recorded of a set."""
    return json.loads(gzip.decompress(record_of(name).read_bytes()))


def answer(name: str, directory: Path) -> dict[str, Any]:
    """Build a set's store in an empty directory, ask it everything, return what it said."""
    source, memories, queries = _write_source(name, directory)
    store = directory / "store"
    told = {**environment(directory), "PYTHONPATH": str(ROOT)}
    words = ["nightly", str(source), "--store", str(store), "--json"]
    night = _python(["-c", _NIGHT.format(now=NOW_S), *words], told)
    assert night.returncode == DONE, night.stderr
    (verdict,) = (store / "verdicts").glob("*.json")
    judged = json.loads(verdict.read_bytes())
    questions, out = directory / "questions.json", directory / "answers.json.gz"
    asked = json.dumps(_questions(memories, queries), ensure_ascii=True)
    questions.write_text(asked, "utf-8")
    words = ["-m", "tests.contract.answers", str(store), str(questions), str(out)]
    asker = {**told, "NOCTUARY_HOME": str(directory / "home"), "NOCTUARY_HOOK_DEADLINE_MS": "60000"}
    ran = _python(words, asker)
    assert ran.returncode == DONE, ran.stderr
    report = json.loads(night.stdout)
    return {
        "processor": _processor(),
        "questions": hashlib.sha256(asked.encode()).hexdigest(),
        "digest": judged["digest"],
        "outcome": judged["outcome"],
        "checks": [[c["name"], c["passed"], steady(c["found"])] for c in judged["checks"]],
        # Stages that need nothing of each other run in any order.
        "stages": sorted([s["name"], s["rows"]] for s in report["stages"]),
        **json.loads(gzip.decompress(out.read_bytes())),
    }


def _write_source(name: str, directory: Path) -> tuple[Path, list[Any], list[Any]]:
    """Return the source, its memories and its labelled queries, as plain values."""
    if name == "sample":
        from tests.e2e.stores import sample_rows

        source = build_full_source(directory)
        rows = [
            {"id": row.id, "content": row.content, "created_at": str(row.created_at), "wing": None}
            for row in sample_rows()
            if row.category != "turn"
        ]
        return source, rows, _lines(QUERIES.read_text("utf-8"))
    text = gzip.decompress((SHARED / name / "corpus.jsonl.gz").read_bytes()).decode()
    lines = text.splitlines()[: SETS[name] or None]
    memories = _lines("\n".join(lines))
    held = {memory["id"] for memory in memories}
    queries = _lines((SHARED / name / "queries.jsonl").read_text("utf-8"))
    queries = [query for query in queries if held >= set(query["relevant_ids"])]
    folder = directory / "source"
    folder.mkdir()
    (folder / "corpus.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    told = "".join(json.dumps(query, ensure_ascii=False) + "\n" for query in queries[:100])
    (folder / "queries.jsonl").write_text(told, "utf-8")
    return folder, memories, queries


def _lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def _questions(memories: Sequence[Any], queries: Sequence[Any]) -> dict[str, Any]:
    """Return everything that a store is asked; the same for the same set."""
    dated = [memory for memory in memories if memory["created_at"]]
    moment = str(dated[len(dated) // 2]["created_at"]) if dated else "2024-06-01T00:00:00Z"
    wings = [query["wing"] for query in queries if query.get("wing")] or ["none"]
    ids = [str(memory["id"]) for memory in memories]
    texts = [query["text"] for query in queries]
    texts += [str(memory["content"])[:60] for memory in memories[:: max(len(memories) // 40, 1)]]
    recalls: list[Any] = []
    for n in range(RECALLS):
        options = dict(VARIANTS[(n + n // len(texts)) % len(VARIANTS)])
        if "wing" in options:
            options["wing"] = wings[n % len(wings)]
        if "as_of" in options:
            options["as_of"] = moment
        recalls.append([texts[n % len(texts)], options])
    prompts = [*texts[: HOOKS - len(PROMPTS) - 6], *PROMPTS]
    hooks = [[("claude", "codex")[n % 2], _event(prompt, n)] for n, prompt in enumerate(prompts)]
    broken = [
        "",
        "{",
        "[]",
        '{"hook_event_name": 1}',
        "null",
        json.dumps({"hook_event_name": "Stop"}),
    ]
    return {
        "recalls": recalls,
        "hooks": [*hooks, *([["claude", one] for one in broken])],
        "whys": [[texts[n % len(texts)], _wanted(n, queries, ids)] for n in range(WHYS)],
        "replays": [[texts[n % len(texts)], *_OPTIONS[n % len(_OPTIONS)]] for n in range(REPLAYS)],
        "commands": _commands(texts, ids, wings[0], moment),
    }


def _wanted(n: int, queries: Sequence[Any], ids: Sequence[str]) -> str:
    """Return a memory that answers the question, or for every third one any memory."""
    relevant = queries[n % len(queries)]["relevant_ids"]
    return ids[n * 7 % len(ids)] if n % 3 == 2 or not relevant else str(relevant[-1])


_OPTIONS = ([], ["-k", "3"], ["--sort-by", "recency"], ["--profile", "off"], ["--fusion", "rrf"])


def _event(prompt: str, n: int) -> str:
    event = {
        "session_id": f"s{n // 4}",
        "transcript_path": None,
        "cwd": "/",
        "hook_event_name": "UserPromptSubmit",
        "permission_mode": "default",
        "prompt": prompt,
    }
    return json.dumps(event)


def _commands(texts: Sequence[str], ids: Sequence[str], wing: str, moment: str) -> list[list[str]]:
    """Return command lines; STORE stands for the store."""
    at, text = ["--store", "STORE", "--json"], texts[0]
    return [
        ["recall", text, *at],
        ["recall", texts[1], "-k", "0", *at],
        ["recall", texts[2], "--wing", wing, *at],
        ["recall", texts[2], "--wing", "no such wing", *at],
        ["recall", texts[3], "--as-of", moment[:10], "--explain", *at],
        ["recall", texts[4], "--candidate-trace", "--dry-run", *at],
        ["recall", texts[5], "--all-candidates", "--explain", "-k", "2", *at],
        ["recall", texts[6], "--profile", "no-such-profile", *at],
        ["recall", texts[7], "--set", "no_such_flag=1", *at],
        ["recall", texts[8], "-k", "-1", *at],
        ["recall", texts[9], "--inject", *at],
        ["recall", text, "--store", "/no/such/store", "--json"],
        ["recall"],
        ["why", text, ids[0], *at],
        ["why", text, "no-such-id", *at],
        ["context", text, "--budget", "800", *at],
        ["context", text, "--budget", "0", *at],
        ["context", texts[1], "--budget", "200", "--wing", wing, "--parts", *at],
        ["expand", "no-such-summary", *at],
        ["replay", "no-such-packet", *at],
        ["replay", *at],
        ["status", *at],
        ["status", "--store", "/no/such/store", "--json"],
        ["snapshots", *at],
        ["stores", "--json"],
        ["doctor", *at],
        ["rollback", *at],
        ["rollback", "no-such-snapshot", *at],
        ["profile", "list", *at],
        ["profile", "show", *at],
        ["profile", "show", "synapse", *at],
        ["profile", "show", "no-such-profile", *at],
        ["graph", "top", *at],
        ["graph", "merges", *at],
        ["graph", "show", "no such concept", *at],
        ["graph", "path", "no such concept", "nor this", *at],
        ["compact", *at],
        ["compact", "--list", *at],
        ["compact", "--undo", "no-such-plan", *at],
        ["curate", *at],
        ["curate", "--journal", *at],
        ["promotions", *at],
        ["promotions", "--all", "-n", "5", *at],
        ["sql", "select count(*) as n from memories", *at],
        ["sql", "select memory_id, category from memories order by 1 limit 5", *at],
        ["sql", "drop table memories", *at],
        ["sql", "--schema", *at],
        ["hooks", "status", "--json"],
        ["export", "STORE/../exported", *at],
        ["evaluate", "check", "no-such-set", "--json"],
        ["no-such-command"],
        ["--version"],
    ]


def _python(words: Sequence[str], told: dict[str, str]) -> subprocess.CompletedProcess[str]:
    Path(told["NOCTUARY_HOME"]).mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, *words], env=told, cwd=told["NOCTUARY_HOME"],
        capture_output=True, encoding="utf-8", check=False,
    )  # fmt: skip


def _processor() -> str:
    """Return what decides how floats round: the kind of processor and what it can do."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return os.uname().machine
    told = sorted({line for line in lines if line.startswith(("model name", "flags"))})
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:16]


def main(names: Sequence[str]) -> None:
    """Write the records of some sets, or of all."""
    RECORDS.mkdir(exist_ok=True)
    for name in names or SETS:
        with tempfile.TemporaryDirectory() as directory:
            found = answer(name, Path(directory))
        text = json.dumps(found, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        record_of(name).write_bytes(gzip.compress(text.encode(), 9, mtime=0))
        sys.stdout.write(f"{name}: {found['digest'][:12]}, asked in {found['took_s']} s\n")


if __name__ == "__main__":
    main(sys.argv[1:])
