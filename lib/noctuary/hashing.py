"""Content hashes. What belongs here: stable digests of texts, objects and files. No I/O policy."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

JsonValue = None | bool | int | float | str | Sequence["JsonValue"] | Mapping[str, "JsonValue"]

_CHUNK_BYTES = 1 << 20


def hash_text(*parts: str) -> str:
    """Return the SHA-256 hex digest of the parts.

    Length-prefixed so that ("ab", "") != ("a", "b").
    """
    raw = [part.encode("utf-8", "surrogatepass") for part in parts]
    # At once: two updates per part cost more than the hash of a memory's fields.
    whole = b"".join([piece for r in raw for piece in (len(r).to_bytes(8, "big"), r)])
    return hashlib.sha256(whole).hexdigest()


def canonical_json(value: object) -> str:
    """Serialize with sorted keys and no spaces, so that equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def hash_json(value: object) -> str:
    """Return the SHA-256 hex digest of the canonical JSON of a value."""
    return hash_text(canonical_json(value))


def hash_file(path: Path) -> str:
    """Return the SHA-256 hex digest of a file's bytes, read in chunks."""
    digest = hashlib.sha256()
    with path.open("rb") as handle:
        while chunk := handle.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
