"""What a store answers, as plain values: recalls in this process, commands in forks of it.

Run as `python -m tests.contract.answers STORE QUESTIONS OUT`. The clock stands still, so that
ages and windows are the same on every day. ONNX Runtime is kept out: how its kernels round depends
on how warm they are.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, cast

NOW_S = 1_795_500_000
"""2026-11-24: after every memory of the sets."""

RECALLS, HOOKS, WHYS, REPLAYS = 300, 60, 50, 50

VARIANTS: tuple[Mapping[str, Any], ...] = (
    {},
    {"k": 3},
    {"k": 40},
    {"wing": True},
    {"as_of": True},
    {"sort_by": "recency"},
    {"sort_by": "importance"},
    {"user": "nobody-of-this-name"},
    {"candidate_trace": True},
    {"profile": "off"},
    {"profile": "synapse"},
    {"profile": "libravdb"},
    {"profile": {"fusion": "rrf"}},
    {"profile": {"graph_weight": 0.0}},
    {"profile": {"dense_weight": 0.0}},
    {"profile": {"scorer": "two_pass"}},
    {"profile": {"mmr_enabled": True}},
    {"profile": {"supersede_filter_enabled": True}},
    {"profile": {"consolidation_enabled": True}},
)
"""Ways to ask. True stands for a value of the set's own: the wing or the moment of a memory."""

MOVED = {
    "compact": ["proposals", "compact"],
    "curate": ["proposals", "curate"],
    "promotions": ["proposals", "promotions"],
    "replay": ["why", "--replay"],
}
"""Commands by the name that they had when the records were made."""

_PROSE = {
    "message", "remedy", "sentences", "reason", "detail", "note", "notes", "undo", "said", "text",
    "description", "about",
}  # fmt: skip
_HERE = {
    "store", "location", "source", "path", "home", "where", "directory", "file", "folder", "log",
    "snapshot_id", "newest", "plan_id", "replay_id", "packet_id", "pid", "version", "command",
    "age_hours", "started", "timing", "timings", "paginated_scoring", "as_of_us", "read_us",
    "profile", "pipeline", "flags", "settings", "rules_file", "digest",
}  # fmt: skip
_HERE_ENDS = ("_ms", "_at", "_bytes", "bytes", "_at_us", "_path")


def main(store: str, questions: str, out: str) -> None:
    """Ask a private copy of a store everything; write a gzipped JSON object."""
    asked = json.loads(Path(questions).read_text("utf-8"))
    started_s = time.time()
    _console()
    time.time = lambda: float(NOW_S)
    time.time_ns = lambda: NOW_S * 10**9
    answers = {
        "hooks": [_hook(Path(store), *one) for one in asked["hooks"]],
        "replays": list(_replays(store, asked["replays"])),
        "whys": [_command(["why", *words, "--json", "--store", store]) for words in asked["whys"]],
        "commands": [
            [words, _command([w.replace("STORE", store) for w in words], aside=True)]
            for words in asked["commands"]
        ],
        "recalls": [_recall(store, *one) for one in asked["recalls"]],
    }
    text = json.dumps({"took_s": round(_real_s() - started_s), **answers}, ensure_ascii=False)
    Path(out).write_bytes(gzip.compress(text.encode(), mtime=0))


def _real_s() -> float:
    return time.clock_gettime(time.CLOCK_REALTIME)


def _recall(store: str, query: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return ids, scores, legs and events of one recall, and the codes of its warnings."""
    from noctuary import recall

    told = dict(options)
    if "as_of" in told:
        told["as_of"] = datetime.fromisoformat(told["as_of"])
    result = recall(query, explain=True, dry_run=True, store=store, **told).to_json()
    plain: dict[str, Any] = {
        "memories": [
            {
                "id": memory["id"],
                "kind": memory["kind"],
                "final_score": memory["final_score"],
                "relevance": memory["relevance"],
                "sources": memory.get("sources", []),
                "annotations": memory.get("annotations", {}),
                "legs": memory["legs"],
                "events": [[e["phase"], e["delta"]] for e in memory["score_events"]],
            }
            for memory in result["memories"]
        ],
        "warnings": [warning["code"] for warning in result["warnings"]],
    }
    return steady(plain)


def _replays(store: str, queries: Sequence[Sequence[str]]) -> Iterator[Any]:
    """Keep recalls, replay each; both are written down."""
    for words in queries:
        kept = _run(["recall", *words, "--set", "replay_log=true", "--json", "--store", store])
        packet = json.loads(_run(["replay", "--last", "1", "--json", "--store", store])[1])
        newest = cast("list[dict[str, Any]]", packet["packets"])
        if not newest:
            yield [kept[0], None]
            continue
        name = str(newest[-1]["replay_id"])
        yield [kept[0], _command(["replay", name, "--json", "--store", store])]


def _hook(store: Path, agent: str, event: str) -> dict[str, Any]:
    """Return what a hook says: its exit code and the memories in its block."""
    words = ["hook", "--agent", agent, "--store", str(store)]
    code, out, _ = _run(words, event.encode("utf-8", "surrogatepass"))
    try:
        told = json.loads(out) if out.strip() else None
    except ValueError:
        return {"code": code, "raw": True}
    texts = list(_texts(told))
    return {
        "code": code,
        "lines": [line for t in texts for line in t.splitlines() if line[:2] == "- "],
    }


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in cast("dict[str, Any]", value).values():
            yield from _texts(one)


def _command(words: Sequence[str], *, aside: bool = False) -> dict[str, Any]:
    """Return a command's exit code and what of its JSON neither clock nor place decides."""
    code, out, _ = _run(words)
    try:
        return {"code": code, "json": steady(json.loads(out))}
    except ValueError:
        return {"code": code, "lines": len(out.splitlines())} if not aside else {"code": code}


def steady(value: Any, key: str = "") -> Any:
    """Return plain values without what depends on the clock, the place or the wording."""
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return {name: steady(one, name) for name, one in items if not _is_elsewhere(name, one)}
    if isinstance(value, list | tuple):
        return [steady(one, key) for one in cast("Sequence[Any]", value)]
    if isinstance(value, float):
        return round(value, 10) if math.isfinite(value) else str(value)
    return value


def _is_elsewhere(name: str, value: Any) -> bool:
    if name in _PROSE and (isinstance(value, list) or " " in str(value)):
        return True
    return name in _HERE or name.endswith(_HERE_ENDS)


def _run(words: Sequence[str], stdin: bytes = b"") -> tuple[int, str, str]:
    """Run the command in a fork; return its exit code and what it wrote."""
    words = [*MOVED.get(words[0], words[:1]), *words[1:]]
    with tempfile.TemporaryDirectory() as directory:
        out, err = Path(directory, "out"), Path(directory, "err")
        child = os.fork()
        if child == 0:
            _become(words, stdin, out, err)
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status), out.read_text("utf-8"), err.read_text("utf-8")


def _become(words: Sequence[str], stdin: bytes, out: Path, err: Path) -> None:
    """Run the console command in this process, to its end."""
    code = 70
    try:
        told = out.with_name("in")
        told.write_bytes(stdin)
        os.dup2(os.open(told, os.O_RDONLY), 0)
        for target, number in ((out, 1), (err, 2)):
            os.dup2(os.open(target, os.O_WRONLY | os.O_CREAT), number)
        sys.stdin = io.TextIOWrapper(os.fdopen(0, "rb", closefd=False), encoding="utf-8")
        sys.argv = ["noctuary", *words]
        _console()()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # as the interpreter would: a traceback and 1
        import traceback

        traceback.print_exc()
        code = 1
    else:
        code = 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _console() -> Callable[[], object]:
    (script,) = entry_points(group="console_scripts", name="noctuary")
    return script.load()


if __name__ == "__main__":
    sys.modules["onnxruntime"] = None  # pyright: ignore[reportArgumentType]
    main(*sys.argv[1:])
