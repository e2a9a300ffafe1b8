"""A small MCP server over stdio with one tool, run as a script by the agents."""

from __future__ import annotations

import json
import sys
from typing import Any

_SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}
_TOOL = {"name": "log_entry", "description": "Keep a line in the log.", "inputSchema": _SCHEMA}


def _answer(method: str, params: Any) -> Any:
    if method == "initialize":
        about = {"name": "quay", "version": "1"}
        version = params["protocolVersion"]
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "tools/list":
        return {"tools": [_TOOL]}
    if method == "tools/call":
        said = f"entry logged: {params['arguments'].get('text')}"
        return {"content": [{"type": "text", "text": said}]}
    return {} if method == "ping" else None


for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        result = _answer(asked["method"], asked.get("params"))
        found = (
            {"result": result}
            if result is not None
            else {"error": {"code": -32601, "message": "none"}}
        )
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **found}) + "\n")
        sys.stdout.flush()
