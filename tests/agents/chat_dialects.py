"""Two more protocols of the scripted model server: OpenAI Chat Completions and Gemini."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tests.agents.model_server import Dialect, Json, Reply, said_after, sse


def _said_chat(body: Json) -> str:
    return said_after(body.get("messages", []), lambda m: m.get("role") == "assistant")


def _write_chat(reply: Reply, unique: str, model: str) -> Iterator[bytes]:
    chunk: Json = {"id": f"chat_{unique}", "object": "chat.completion.chunk", "model": model}
    deltas: list[Json] = [{"role": "assistant", "content": ""}]
    if reply.text:
        deltas.append({"content": reply.text})
    for at, call in enumerate(reply.calls):
        function = {"name": call.name, "arguments": json.dumps(call.arguments)}
        one = {"index": at, "id": f"call_{unique}{at}", "type": "function", "function": function}
        deltas.append({"tool_calls": [one]})
    for delta in deltas:
        yield sse("", {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    stop = "tool_calls" if reply.calls else "stop"
    yield sse("", {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": stop}]})
    usage = {"prompt_tokens": reply.tokens, "completion_tokens": 20}
    usage["total_tokens"] = reply.tokens + 20
    yield sse("", {**chunk, "choices": [], "usage": usage})
    yield b"data: [DONE]\n\n"


def _said_gemini(body: Json) -> str:
    return said_after(body.get("contents", []), lambda m: m.get("role") == "model")


def _answer_gemini(reply: Reply) -> Json:
    parts: list[Json] = [{"text": reply.text}] if reply.text else []
    parts += [{"functionCall": {"name": c.name, "args": dict(c.arguments)}} for c in reply.calls]
    candidate = {"index": 0, "content": {"role": "model", "parts": parts}, "finishReason": "STOP"}
    usage = {"promptTokenCount": reply.tokens, "candidatesTokenCount": 20}
    usage["totalTokenCount"] = reply.tokens + 20
    return {"candidates": [candidate], "usageMetadata": usage}


def _stream_gemini(reply: Reply, _unique: str, _model: str) -> Iterator[bytes]:
    yield b""  # A held reply waits behind the first piece
    yield f"data: {json.dumps(_answer_gemini(reply))}\r\n\r\n".encode()


def _write_gemini(reply: Reply, _unique: str, _model: str) -> Iterator[bytes]:
    yield json.dumps(_answer_gemini(reply)).encode()


SPOKEN = {
    "/v1/chat/completions": Dialect(_said_chat, _write_chat),
    ":streamGenerateContent": Dialect(_said_gemini, _stream_gemini),
    ":generateContent": Dialect(_said_gemini, _write_gemini, "application/json"),
}
"""As `DIALECTS` of the server."""
