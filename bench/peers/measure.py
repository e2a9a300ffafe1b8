"""Running one peer over one set: its environment, what it is given, two child processes.

Everything lies below one folder and is reused while what it depends on is the same, so that a
stopped run goes on and one peer can be measured again without the others.
"""

from __future__ import annotations

import inspect
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.children import ONE_THREAD
from bench.datasets import CHECKOUT
from bench.manifest import describe_run
from bench.peers import runner
from bench.suite.keys import code_digest, run_key
from bench.suite.loading import LoadedSet
from noctuary.core.files import remove_tree, tree_bytes, write_text
from noctuary.embed.default_model import DEFAULT_MODEL
from noctuary.embed.onnx import OnnxEncoder
from noctuary.embed.sentence import export_onnx, open_sentence_encoder

SESSION_DEPTH = 100
"""Memories asked for where their sessions are ranked: enough for ten distinct ones."""

_ENVIRONMENT = {
    **ONE_THREAD,
    "ANONYMIZED_TELEMETRY": "False",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "MEM0_TELEMETRY": "False",
}
_OWN_CODE = ("lib", "assets", "pipelines")
_PATH = re.compile(r"(?<![\w.])/[\w./+-]+")
_ERROR_CHARS = 400
_WARNING = "Failed to load"
"""How a peer begins the line that says which part of it is missing."""


class PeerError(Exception):
    """A peer could not be installed or measured; the message is its own last word."""


class Measured(NamedTuple):
    """What a peer did with a set: costs as JSON values, and the runner's answers."""

    costs: dict[str, Any]
    answers: list[dict[str, Any]]


def prepare_set(loaded: LoadedSet, root: Path) -> Path:
    """Write texts and questions of a set for its peers, and return the folder."""
    folder = root / loaded.name / "given"
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        {"id": str(row["id"]), "content": row["content"], "wing": row.get("wing") or ""}
        for row in loaded.rows
    ]
    asked = [{"query_id": q.query_id, "text": q.text, "wing": q.wing} for q in loaded.queries]
    for name, lines in (("corpus", rows), ("queries", asked)):
        write_text(folder / f"{name}.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    for name, target in (("encoder", root / "encoder"), ("source", loaded.dataset.directory)):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target.absolute())
    return folder


def encode_set(loaded: LoadedSet, root: Path, *, fresh: bool) -> float:
    """Write the vectors of a set's texts beside them, and return the seconds that this took."""
    folder, encoder = prepare_set(loaded, root), root / "encoder"
    known: dict[str, Any] = _read_json(folder / "vectors.json")
    if fresh or known.get("key") != _key_of(loaded):
        if not (encoder / "onnx.json").is_file():
            export_onnx(open_sentence_encoder(DEFAULT_MODEL), encoder, [])
        started = time.perf_counter()
        texts = [row["content"] for row in loaded.rows]
        OnnxEncoder.open(encoder).encode_documents(texts).tofile(folder / "vectors.f32")
        seconds = round(time.perf_counter() - started, 1)
        known = {"key": _key_of(loaded), "encode_seconds": seconds}
        write_text(folder / "vectors.json", json.dumps(known))
    return known["encode_seconds"]


def _key_of(loaded: LoadedSet) -> str:
    return run_key(rows=loaded.rows, queries=loaded.queries_digest())


def measure_peer(name: str, loaded: LoadedSet, root: Path, *, fresh: bool) -> Measured:
    """Let a peer store a set and answer its questions, as far as that is not done already.

    A peer that searches by vector needs `encode_set` first.

    Raises:
        PeerError: If it cannot be installed or fails, with its last word.
    """
    python = _prepare_environment(runner.PEERS[name], root)
    given, place = prepare_set(loaded, root), root / loaded.name / name
    depth = SESSION_DEPTH if has_sessions(loaded) else 0
    made_of = [inspect.getsource(part) for part in (runner.PEERS[name].open, runner.answer)]
    code = code_digest(_OWN_CODE) if name == "noctuary" else runner.PEERS[name].packages
    key = run_key(given=_key_of(loaded), runner=made_of, code=code, depth=depth)
    if fresh or _read_json(place / "done.json").get("key") != key:
        remove_tree(place)
        (place / "store").mkdir(parents=True)
        command = [str(python), "-P", str(Path(runner.__file__)), "{}", name, str(given)]
        words = {"HOME": str(place), **_ENVIRONMENT}
        told: dict[str, dict[str, Any]] = {}
        for action in ("build", "ask"):
            command[3] = action
            lines, said = _call([*command, str(place / "store"), str(depth)], words)
            write_text(place / f"{action}.jsonl", lines)
            told[action] = json.loads(lines.splitlines()[-1])
            told[action]["warnings"] = {line for line in said.splitlines() if _WARNING in line}
        costs = _costs(told, place / "store")
        write_text(place / "done.json", json.dumps({"key": key, "costs": costs}))
    answers = runner.read_lines(place / "ask.jsonl")[:-1]
    return Measured(_read_json(place / "done.json")["costs"], answers)


def has_sessions(loaded: LoadedSet) -> bool:
    """Whether every memory of a set says which session it is of."""
    return all(row.get("session_id") for row in loaded.rows)


def _prepare_environment(peer: runner.Peer, root: Path) -> Path:
    """Return a Python with a peer's packages, or this one if it has none."""
    if not peer.packages:
        return Path(sys.executable)
    home = root / "environments" / run_key(packages=list(peer.packages))[:12]
    python = home / "bin" / "python"
    if not (home / ".ready").is_file():
        _call([_find_python(peer.python), "-m", "venv", "--clear", str(home)], {})
        _call([str(python), "-m", "pip", "install", "--quiet", *peer.packages], {})
        (home / ".ready").touch()
    return python


def _find_python(oldest: tuple[int, int]) -> str:
    """Return this Python if it is new enough, or the first of the PATH that is."""
    if sys.version_info >= oldest:
        return sys.executable
    names = [f"python{oldest[0]}.{minor}" for minor in range(oldest[1], oldest[1] + 3)]
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        raise PeerError(f"it needs one of {', '.join(names)} on the PATH, which has none")
    return found


def _costs(told: Mapping[str, Mapping[str, Any]], store: Path) -> dict[str, Any]:
    # The night keeps the encoder inside its store; that of the others stands beside theirs.
    encoder = sum(tree_bytes(path) for path in store.glob("*/encoders"))
    run = describe_run()
    return {
        "build_seconds": round(told["build"]["seconds"], 2),
        "build_peak_bytes": told["build"]["peak_bytes"],
        "ask_peak_bytes": told["ask"]["peak_bytes"],
        "store_bytes": tree_bytes(store) - encoder,
        "llm_tokens": 0,
        "warnings": sorted(told["build"]["warnings"] | told["ask"]["warnings"]),
        **{fact: run[fact] for fact in ("commit", "dirty", "measured_at", "load_average_1m")},
    }


def _call(command: Sequence[str], environment: Mapping[str, str]) -> tuple[str, str]:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd=CHECKOUT,
        env={**os.environ, **environment},
    )
    if done.returncode != 0:
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        last = said[-1] if said else f"exit code {done.returncode}"
        if wanted := re.search(r"Requires-Python [^\s;,]+", done.stderr):
            last += f" ({wanted[0]}; this is {platform.python_version()})"
        raise PeerError(_PATH.sub("PATH", last)[:_ERROR_CHARS])
    return done.stdout, _PATH.sub("PATH", done.stderr)


def _read_json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
