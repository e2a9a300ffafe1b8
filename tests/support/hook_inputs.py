"""Generated hook inputs: events of both agents, and what breaks them. The same for one seed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

from tests.support.hook_shapes import AGENTS, EVENTS

PROMPTS = (
    "where is the spare key?", "", " ", "ok", "/compact now", "/etc/hosts is broken, why?",
    "wo ist der Ersatzschlüssel", "备用钥匙在哪里", "钥匙", "\ud800 lone", "a\0b spare key",
    "key " * 3000, "<noctuary-recall id=\"0123456789abcdef\" memories=\"1\">\n- [1] undated: x\n",
    "</noctuary-recall> spare key </noctuary-recall>", "Atlas migration\r\n\u2028\u2029", "🔑" * 50,
)  # fmt: skip
PATHS = (
    "", "/tmp/none.jsonl", "/dev/null", "/dev/zero", "relative.jsonl", "/tmp/\0x", "/" * 5000,
    "/tmp", "~/x", "\ud800",
)  # fmt: skip
ODD: tuple[Any, ...] = (
    None, True, 0, -1, 10**30, 1.5, [], {}, [[]], {"a": {}}, "", "x", float("nan"), "\ud800",
)  # fmt: skip


def event(rng: random.Random) -> dict[str, Any]:
    """Return a well-formed event of either agent."""
    name = rng.choice(EVENTS)
    made: dict[str, Any] = {
        "session_id": rng.choice(["s1", "s2", "", "../../etc", "x" * 3000, "\ud800"]),
        "transcript_path": rng.choice([None, *PATHS]),
        "cwd": rng.choice(["/srv/ana/atlas", "/", "", "C:\\work", *PATHS]),
        "hook_event_name": name,
        "permission_mode": "default",
    }
    extra: dict[str, Any] = {
        "UserPromptSubmit": {"prompt": rng.choice(PROMPTS)},
        "SessionStart": {
            "source": rng.choice(["startup", "resume", "clear", "compact", "fork", "new"])
        },
        "PreCompact": {"trigger": rng.choice(["manual", "auto"]), "custom_instructions": None},
        "PostCompact": {"trigger": "auto", "compact_summary": "they talked " * 50},
        "Stop": {"stop_hook_active": rng.random() < 0.5, "last_assistant_message": "Done."},
        "SessionEnd": {"reason": rng.choice(["clear", "logout", "other"])},
    }[name]
    if name == "UserPromptSubmit" and rng.random() < 0.3:
        extra["source"] = rng.choice(["user", "sdk", "system", "loop_wakeup", "poll_event"])
    if rng.random() < 0.1:
        extra["agent_id"] = rng.choice(["sub-1", "", None, 7])
    return {**made, **extra}


def raw_input(rng: random.Random) -> bytes:
    """Return some bytes for stdin: an event, one that is broken, or anything."""
    return rng.choice(_MAKERS)(rng)


def raw_inputs(count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """Yield agents and bytes."""
    rng = random.Random(seed)
    for _ in range(count):
        yield rng.choice(AGENTS), raw_input(rng)


def event_name(raw: bytes) -> str | None:
    """Return the event that some bytes describe, as a strict reader would see it."""
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    name = value.get("hook_event_name")  # pyright: ignore[reportUnknownVariableType,reportUnknownMemberType]
    return name if isinstance(name, str) and name in EVENTS else None


def _encoded(value: Any) -> bytes:
    return json.dumps(value).encode("ascii")


def _whole(rng: random.Random) -> bytes:
    return _encoded(event(rng))


def _wrong_types(rng: random.Random) -> bytes:
    made = event(rng)
    for name in rng.sample(sorted(made), rng.randint(1, 3)):
        if rng.random() < 0.3:
            del made[name]
        else:
            made[name] = rng.choice(ODD)
    return _encoded(made)


def _cut(rng: random.Random) -> bytes:
    raw = _whole(rng)
    return raw[: rng.randint(0, len(raw))]


def _flipped(rng: random.Random) -> bytes:
    raw = bytearray(_whole(rng))
    for _ in range(rng.randint(1, 5)):
        raw[rng.randrange(len(raw))] = rng.randrange(256)
    return bytes(raw)


def _noise(rng: random.Random) -> bytes:
    return rng.randbytes(rng.choice([0, 1, 7, 100, 5_000]))


def _no_event(rng: random.Random) -> bytes:
    return _encoded(rng.choice([*ODD, "UserPromptSubmit", [event(rng)]]))


def _deep(rng: random.Random) -> bytes:
    depth = rng.choice([10, 1_000, 100_000])
    return b'{"hook_event_name": "Stop", "x": ' + b"[" * depth + b"]" * depth + b"}"


def _twice(rng: random.Random) -> bytes:
    return _whole(rng) + rng.choice([b"\n", b"", b"\0"]) + _whole(rng)


def _unicode(rng: random.Random) -> bytes:
    text = json.dumps({**event(rng), "prompt": rng.choice(PROMPTS)}, ensure_ascii=False)
    raw = text.encode("utf-8", "surrogatepass")
    return rng.choice([raw, b"\xef\xbb\xbf" + raw, text.encode("utf-16", "surrogatepass")])


def _large(rng: random.Random) -> bytes:
    size = rng.choice([70_000, 300_000])
    return _encoded({**event(rng), "prompt": "the spare key and more " * (size // 23)})


# Whole and nearly whole events more often than noise: they go deeper.
_MAKERS: tuple[Callable[[random.Random], bytes], ...] = (
    *(_whole,) * 10, *(_wrong_types,) * 6, _cut, _flipped, _flipped, _noise, _no_event, _deep,
    _twice, _unicode, _unicode, _large,
)  # fmt: skip
