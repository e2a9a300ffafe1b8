"""Stores of every kind that hold sensitive rows, each with a text that must stay where it is."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

VAULT_COLUMNS = ("sensitive TEXT", "vault_path TEXT", "encrypted_content BLOB", "user_id TEXT")

TOKEN = "gh" + "p_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"

PUBLIC: tuple[Mapping[str, Any], ...] = (
    {"id": 1, "content": "The spare key hangs behind the blue door of the pantry."},
    {"id": 2, "content": "The alarm is serviced by Brandt every March."},
    {"id": 3, "content": "Line 4 leaves Harbour Square every twelve minutes."},
)

SENSITIVE: tuple[Mapping[str, Any], ...] = (
    {"id": 11, "content": "CANARYINT the alarm code of the house is 4711", "is_sensitive": 1},
    {"id": 12, "content": "CANARYTEXT the safe opens with 2486", "is_sensitive": "true"},
    {"id": 13, "content": "CANARYODD the diary lies under the stairs", "is_sensitive": "maybe"},
    {"id": 14, "content": "CANARYNAME the gate code is 9093", "sensitive": "yes"},
    {
        "id": 15,
        "content": "CANARYVAULT [SENSITIVE] alarm spare code",
        "vault_path": "kv/CANARYPATH",
    },
    {"id": 16, "content": "CANARYCRYPT kept elsewhere", "encrypted_content": b"\x01CANARYBYTES"},
    {"id": 17, "content": "CANARYHOLDER [REDACTED: alarm code] was here", "tags": "CANARYTAG"},
    {"id": 18, "content": f"CANARYSCAN the deploy token is {TOKEN}", "expanded_keywords": "alarm"},
)
"""By id: why each is sensitive is in its canary's name."""

CANARIES = (
    "CANARYINT", "CANARYTEXT", "CANARYODD", "CANARYNAME", "CANARYVAULT", "CANARYPATH",
    "CANARYCRYPT", "CANARYBYTES", "CANARYHOLDER", "CANARYTAG", "CANARYSCAN", TOKEN,
)  # fmt: skip


def write_lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write rows as JSON lines; bytes as their hexadecimal digits, as an exporter would."""
    dates = {"created_at": "2026-03-01T12:00:00+00:00", "updated_at": "2026-03-01T12:00:00+00:00"}
    plain = [
        {**dates, **{k: v.decode("latin-1") if isinstance(v, bytes) else v for k, v in row.items()}}
        for row in rows
    ]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in plain), encoding="utf-8")
    return path
