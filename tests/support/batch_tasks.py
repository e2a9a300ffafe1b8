"""Tasks for the tests of the seam: small real ones, and those that fail or kill their worker."""

from __future__ import annotations

import hashlib
import os
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from noctuary.core.errors import EncoderError
from noctuary.work.content import KEY, KEY_BYTES, VALUE
from noctuary.work.shards import BatchFunction, RecordBatch

KEY_TYPE = pa.binary(KEY_BYTES)


def key_of(text: str) -> bytes:
    """Return the content key of a text."""
    return hashlib.sha256(text.encode("utf-8")).digest()


def batches_of(texts: Sequence[str], rows: int = 7) -> Iterator[RecordBatch]:
    """Yield texts with their keys, so many at once."""
    for start in range(0, len(texts), rows):
        part = list(texts[start : start + rows])
        yield pa.record_batch({KEY: pa.array(map(key_of, part), KEY_TYPE), "text": part})


def values_of(batch: RecordBatch, values: Iterable[Any]) -> RecordBatch:
    """Return a task's answer: the keys of a batch, and a value each."""
    return pa.record_batch({KEY: batch.column(KEY), VALUE: list(values)})


@dataclass(frozen=True, slots=True)
class ShoutTexts:
    """Writes every text in capitals; slow enough for other processes where `row_ms` says so."""

    name: str = "shout"
    row_ms: float = 0.001

    def open(self, threads: int) -> BatchFunction:
        """Return the function."""
        return lambda batch: values_of(batch, (t.upper() for t in batch["text"].to_pylist()))


@dataclass(frozen=True, slots=True)
class NameProcess:
    """Says which process did it, and with how many threads."""

    name: str = "name"
    row_ms: float = 1e6

    def open(self, threads: int) -> BatchFunction:
        """Return the function."""
        told = f"{os.getpid()} {threads} {os.environ.get('OPENBLAS_NUM_THREADS')}"
        return lambda batch: values_of(batch, [told] * batch.num_rows)


@dataclass(frozen=True, slots=True)
class Fail:
    """Raises at the text "bad": a ValueError, an error of noctuary, or one that cannot travel."""

    how: str = "plain"
    name: str = "fail"
    row_ms: float = 1e6

    def open(self, threads: int) -> BatchFunction:
        """Return the function."""
        return self._work

    def _work(self, batch: RecordBatch) -> RecordBatch:
        texts = batch["text"].to_pylist()
        if "bad" in texts:
            raise _ERRORS[self.how]()
        return values_of(batch, texts)


class StubbornError(EncoderError):
    """An error that cannot be read back."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} {two}")


_ERRORS = {
    "plain": lambda: ValueError("the seventh is odd"),
    "noctuary": lambda: EncoderError("no such model"),
    "stubborn": lambda: StubbornError("no", "way"),
    "full": lambda: OSError(28, "No space left on device"),
}


@dataclass(frozen=True, slots=True)
class DieOnce:
    """Kills its worker at the text "bad" as often as there are marks to take away.

    Attributes:
        marks: A directory; each file in it is one death to come.
        pause_s: How long a batch takes.
    """

    marks: Path
    pause_s: float = 0.0
    name: str = "die"
    row_ms: float = 1e6

    def open(self, threads: int) -> BatchFunction:
        """Return the function."""
        return self._work

    def _work(self, batch: RecordBatch) -> RecordBatch:
        texts = batch["text"].to_pylist()
        time.sleep(self.pause_s)
        if "bad" in texts and (left := sorted(self.marks.iterdir())):
            left[0].unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return values_of(batch, (text.upper() for text in texts))
