"""Turns for the ingestion gate, and the gate once more as a plain double loop."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.core.files import write_array
from noctuary.core.settings import PromotionSettings, Settings
from noctuary.core.store import StorePaths
from noctuary.curate.promotions import PROMOTIONS as PROPOSALS
from noctuary.curate.promotions import PromotionTable, read_table
from noctuary.curate.signals import Signals
from noctuary.embed.fingerprint import EncoderFingerprint
from noctuary.work.stage import StageOutput, StageResult
from noctuary_assets.index import MEMORY_VECTORS
from noctuary_assets.ingest import CORPUS, export_memories
from noctuary_assets.night import VECTORS, Night
from noctuary_assets.proposals import propose_promotions

Vectors = NDArray[np.float32]
DIM = 8
ENCODER = EncoderFingerprint("m", "0" * 64, DIM, "mean", True, "", "", 64)


class Expected(NamedTuple):
    """What the naive gate says of a turn."""

    position: int
    g: float
    h: float
    r: float
    is_proposed: bool


def unit_rows(rows: int, dim: int, seed: int, spread: float = 1.0) -> Vectors:
    """Return random unit rows; a small spread makes many of them alike."""
    noise = np.random.default_rng(seed).normal(size=(rows, dim)) * spread
    noise[:, 0] += 1.0
    return (noise / np.linalg.norm(noise, axis=1, keepdims=True)).astype(np.float32)


def cosine(vectors: Vectors, one: int, other: int) -> float:
    """Return the cosine of two rows, to 6 digits, by adding up the products."""
    pairs = zip(vectors[one].tolist(), vectors[other].tolist(), strict=True)
    return min(max(round(sum(a * b for a, b in pairs), 6), -1.0), 1.0)


def naive_walk(
    turns: Sequence[int],
    signals: Sequence[Signals],
    memories: Sequence[int],
    vectors: Vectors,
    threshold: float,
) -> list[Expected]:
    """Judge turn after turn as research/peers.md 1.2 says it, comparing everything one by one."""
    durable = list(memories)
    found: list[Expected] = []
    for i, turn in enumerate(turns):
        kept = sorted((cosine(vectors, turn, m) for m in durable), reverse=True)[:5]
        said = sorted((cosine(vectors, turn, t) for t in turns[:i]), reverse=True)[:10]
        h = 1.0 if not kept else 1.0 - sum(max(0.0, c) for c in kept) / len(kept)
        f = min(sum(c >= 0.80 for c in said) / 5, 1.0)
        s = min(sum(c >= 0.85 for c in kept) / 3, 1.0)
        r = f * (1.0 - s)
        x = signals[i]
        gconv = 0.35 * h + 0.40 * r + 0.25 * x.d
        gtech = 0.40 * x.p + 0.35 * x.a + 0.25 * x.dtech
        g = (1.0 - x.t) * gconv + x.t * gtech
        speaks = (x.t < 1.0 and x.d > 0.0) or (x.t > 0.0 and gtech > 0.0)
        is_proposed = round(g, 6) >= threshold and speaks
        if is_proposed:
            durable.append(turn)
        found.append(Expected(turn, g, h, r, is_proposed))
    return found


class Nights:
    """A source of JSON lines with a store of its own: real stages, vectors by hand."""

    def __init__(self, root: Path) -> None:
        self.source = root / "corpus.jsonl"
        self.paths = StorePaths(root / "store")

    def write(self, *rows: Mapping[str, Any]) -> None:
        """Replace the source; ids count from 1."""
        lines = [json.dumps({"id": n, **row}) for n, row in enumerate(rows, start=1)]
        self.source.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def run(
        self, *, enabled: bool = True, threshold: float = 0.35, vectors: Vectors | None = None
    ) -> StageResult:
        """Export, embed and judge; without vectors nothing is near anything else."""
        settings = Settings(promotion=PromotionSettings(enabled, threshold))
        night = Night(self.paths, self.source, settings)
        night.encoder.fingerprint = ENCODER
        export_memories(night)
        rows = night.result_of(CORPUS).rows
        made = np.eye(rows, max(rows, DIM), dtype=np.float32) if vectors is None else vectors

        def body() -> StageOutput:
            write_array(night.work(VECTORS), made)
            return StageOutput(rows, {})

        key = {"corpus": night.result_of(CORPUS).digest, "vectors": made.tobytes().hex()}
        night.run(MEMORY_VECTORS, key, body)
        return propose_promotions(night)

    @property
    def table(self) -> PromotionTable:
        """What the last night judged."""
        return read_table(self.paths.work / PROPOSALS)


def turn(text: str, minute: int = 0, **fields: Any) -> dict[str, Any]:
    """Return a row that is a turn of a conversation."""
    return {
        "content": text,
        "category": "turn",
        "session_id": "s1",
        "created_at": f"2026-03-01T08:{minute:02}:00Z",
        **fields,
    }
