"""Recorded and answered again: every method, every kind of answer."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from noctuary.core.errors import EncoderError, FingerprintMismatchError
from noctuary.core.types import UNDATED_US, MemoryRecord
from noctuary.recall.inputs import ArchiveState, Inputs, Usage
from noctuary.recall.replay import RecordedInputs, RecordingInputs
from noctuary.recall.result import RecallWarning
from noctuary.sources.live import LiveState
from noctuary.usage.query_log import LoggedQuery


@dataclass
class SmallInputs:
    """A world of plain values; its clock moves with every look at it."""

    ticks: int = 1_700_000_000_000_000
    fault: Exception | None = None
    reranked: NDArray[np.float64] | RecallWarning = field(
        default_factory=lambda: np.array([0.1 + 0.2, -1e-300])
    )

    def now_us(self) -> int:
        self.ticks += 1
        return self.ticks

    def encoder(self) -> dict[str, Any] | None:
        return {"model": "tiny", "dimension": 3}

    def query_vector(self, text: str, within_ms: float = math.inf) -> NDArray[np.float32]:
        if self.fault is not None:
            raise self.fault
        return np.array([len(text), 1 / 3, -np.float32(1e-40)], dtype=np.float32)

    def archive(self) -> ArchiveState | None:
        return None

    def live(self) -> LiveState | None:
        return None

    def live_vectors(
        self, rows: Sequence[MemoryRecord], within_ms: float = math.inf
    ) -> Mapping[str, NDArray[np.float32]]:
        raise AssertionError("there is no live row")

    def knows_usage(self) -> bool:
        return True

    def usage_of(self, memory_ids: Sequence[str]) -> Usage:
        used = [m == "7" for m in memory_ids]
        return Usage(
            np.array([3 * u for u in used], dtype=np.int64),
            np.array([2 * u for u in used], dtype=np.int64),
            np.array([99 if u else UNDATED_US for u in used], dtype=np.int64),
        )

    def most_used(self, limit: int) -> list[str]:
        return ["7", "9"][:limit]

    def co_retrieved(self, memory_ids: Sequence[str]) -> NDArray[np.int64]:
        return np.array([len(memory_ids) if m == "7" else 0 for m in memory_ids], dtype=np.int64)

    def past_queries(
        self, text: str, *, since_us: int, limit: int, user: str | None
    ) -> tuple[list[LoggedQuery], str | None]:
        if self.fault is not None:
            raise self.fault
        return [("an earlier one", since_us, 0.1 + 0.2, ("7", "9"))], "half of it is damaged"

    def rerank(
        self, name: str, query: str, texts: Sequence[str], timeout_ms: float
    ) -> NDArray[np.float64] | RecallWarning:
        return self.reranked


def recording_of(inputs: SmallInputs) -> RecordingInputs:
    return RecordingInputs(cast("Inputs", inputs))


def again(recording: RecordingInputs) -> RecordedInputs:
    return RecordedInputs(json.loads(json.dumps(recording.record, allow_nan=False)))


def test_every_answer_comes_back_exactly() -> None:
    recording = recording_of(SmallInputs())
    ids = ["7", "8", "9"]
    now, vector = recording.now_us(), recording.query_vector("a query")
    used, together = recording.usage_of(ids), recording.co_retrieved(ids)
    past = recording.past_queries("a query", since_us=5, limit=2, user="ana")
    scores = recording.rerank("ce", "a query", ["one", "two"], 10.0)
    assert isinstance(scores, np.ndarray)
    assert (recording.encoder(), recording.most_used(1)) == (SmallInputs().encoder(), ["7"])
    assert recording.knows_usage()

    world = again(recording)
    assert world.now_us() == now == recording.now_us(), "one clock for one recall"
    assert world.encoder() == SmallInputs().encoder()
    assert world.knows_usage()
    assert world.query_vector("a query").tobytes() == vector.tobytes()
    assert world.query_vector("a query").dtype == np.float32
    found = world.usage_of(ids)
    for name in ("recent", "days", "last_us"):
        assert getattr(found, name).tolist() == getattr(used, name).tolist()
        assert getattr(found, name).dtype == np.int64
    assert world.co_retrieved(ids).tolist() == together.tolist() == [3, 0, 0]
    assert world.most_used(1) == ["7"]
    assert world.past_queries("a query", since_us=5, limit=2, user="ana") == past
    reranked = world.rerank("ce", "a query", ["one", "two"], 0.0)
    assert isinstance(reranked, np.ndarray)
    assert reranked.tobytes() == scores.tobytes()


def test_what_was_not_asked_is_unknown() -> None:
    recording = recording_of(SmallInputs())
    recording.past_queries("a query", since_us=5, limit=2, user="ana")
    world = again(recording)
    assert world.encoder() is None
    assert not world.knows_usage()
    assert world.usage_of(["7"]).recent.tolist() == [0]
    assert world.usage_of(["7"]).last_us.tolist() == [UNDATED_US]
    assert world.usage_of([]).recent.shape == (0,)
    assert world.co_retrieved(["7", "8"]).tolist() == [0, 0]
    assert world.most_used(3) == []
    assert world.past_queries("a query", since_us=5, limit=2, user=None) == ([], None)
    assert world.past_queries("another", since_us=5, limit=2, user="ana") == ([], None)
    assert isinstance(world.rerank("ce", "a query", ["one"], 10.0), RecallWarning)
    with pytest.raises(EncoderError):
        world.query_vector("a query")


@pytest.mark.parametrize(
    "fault",
    [
        EncoderError("no model"),
        FingerprintMismatchError("another model"),
        FileNotFoundError("no file"),
        ValueError("bad"),
    ],
)
def test_a_fault_comes_back_as_the_same_fault(fault: Exception) -> None:
    recording = recording_of(SmallInputs(fault=fault))
    kind = OSError if isinstance(fault, OSError) else type(fault)
    asks: list[Callable[[Inputs], Any]] = [
        lambda world: world.query_vector("a query"),
        lambda world: world.past_queries("a query", since_us=5, limit=2, user=None),
    ]
    for ask in asks:
        with pytest.raises(type(fault)):
            ask(cast("Inputs", recording))
        with pytest.raises(kind) as raised:
            ask(cast("Inputs", again(recording)))
        assert type(raised.value) is kind
        assert str(raised.value) == str(fault)


def test_a_warning_of_the_reranker_comes_back() -> None:
    late = RecallWarning("reranker_timeout", "too slow")
    recording = recording_of(SmallInputs(reranked=late))
    assert recording.rerank("ce", "q", ["one"], 1.0) == late
    assert again(recording).rerank("ce", "q", ["one"], 1.0) == late


def test_what_was_read_of_memories_is_not_in_the_record() -> None:
    recording = recording_of(SmallInputs())
    recording.query_vector("a query pantry")
    recording.rerank("ce", "a query", ["the secret of the pantry"], 1.0)
    assert "pantry" not in json.dumps(recording.record)
