"""A cross-encoder behind a hard time limit: reads query and memory together, scores each pair."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.core.store import keep_caches_in_home
from noctuary.recall.result import RecallWarning

# A cross-encoder behind a hard time limit: reads query and memory together, scores each pair.
#
# sentence-transformers and torch are imported when a reranker is first asked, in a thread of its
# own, and nothing is fetched: local files only. A thread cannot be stopped from outside, so a
# question that was given up ends by itself: between two batches it looks whether anybody waits.
#
# Source: hybrid-recall design A.6 (over the fused top 20 to 30, fallback to the fused order).

_BATCH_PAIRS = 8  # per forward pass: fewer give up sooner after a timeout, more cost fewer calls

_RETRY_AFTER_S = 30.0
"""A model that could not be loaded is tried again after this long: shorter slows every recall of a
store whose reranker is broken, longer keeps a repaired one unused in a running server."""

_EXIT_PATIENCE_S = 5.0
"""How long a process that ends waits for the batch that is being computed: an interpreter that goes
away under torch's compiled code aborts (measured), a model that hangs must not keep it for ever."""

_making = threading.Lock()


class _Job:
    """One call of a model: its input, its result, and whether the caller still waits."""

    def __init__(self, query: str, texts: Sequence[str]) -> None:
        self.pairs = [(_readable(query), _readable(text)) for text in texts]
        self.done = threading.Event()
        self.given_up = self.computing = False
        self.answer: NDArray[np.float64] | RecallWarning | None = None


class Reranker:
    """One cross-encoder of this process; safe to share between threads, one question at a time."""

    def __init__(self, model: str) -> None:
        self.model = model
        self._turn = threading.Lock()
        self._given_up = False
        self._loaded: Any = None
        self._broken: RecallWarning | None = None
        self._retry_at_s = 0.0
        self._running: set[_Job] = set()
        # Not atexit: that would keep an unused model.
        weakref.finalize(self, _leave, self._running)

    def score(
        self, query: str, texts: Sequence[str], timeout_ms: float
    ) -> NDArray[np.float64] | RecallWarning:
        """Return how well each text answers, (m,), higher is better, or why that is not known.

        While a question that was given up still runs, others are refused at once; while somebody
        waits for one, the next waits too, within its own time.
        """
        if not texts:
            return np.empty(0, dtype=np.float64)
        limit_s = min(max(timeout_ms, 0.0) / 1000, threading.TIMEOUT_MAX)
        until_s = time.monotonic() + limit_s
        if not self._turn.acquire(timeout=0.0 if self._given_up else limit_s):
            return self._late(timeout_ms)
        self._given_up = False
        if self._broken is not None and time.monotonic() < self._retry_at_s:
            self._turn.release()
            return self._broken
        job = _Job(query, texts)
        self._running.add(job)
        # A daemon: a process that has its answer does not stay for a model that is still loading.
        threading.Thread(target=self._work, args=(job,), daemon=True).start()
        job.done.wait(max(until_s - time.monotonic(), 0.0))
        if job.answer is None:
            job.given_up = self._given_up = True
            return self._late(timeout_ms)
        return job.answer

    def _late(self, timeout_ms: float) -> RecallWarning:
        if self._loaded is None:
            return RecallWarning(
                "reranker_loading",
                f"the reranker {self.model} was not loaded within {timeout_ms:g} ms; the fused "
                "order stands. Ask again in a process that stays (noctuary serve)",
            )
        return RecallWarning(
            "reranker_timeout",
            f"the reranker {self.model} did not answer within {timeout_ms:g} ms; the fused order "
            "stands. Raise rerank_timeout_ms, lower rerank_depth or use a smaller model",
        )

    def _work(self, job: _Job) -> None:
        try:
            if self._loaded is None:
                self._loaded, self._broken = _load(self.model), None
            job.answer = self._ask(job)
        except _UnavailableError as error:
            self._broken = job.answer = RecallWarning("reranker_unavailable", str(error))
            self._retry_at_s = time.monotonic() + _RETRY_AFTER_S
        # The model's code may raise anything; recall answers without it and warns.
        except Exception as error:
            job.answer = self._failed(f"raised {type(error).__name__}: {str(error)[:200]}")
        finally:
            self._running.discard(job)
            self._turn.release()
            job.done.set()

    def _ask(self, job: _Job) -> NDArray[np.float64] | RecallWarning | None:
        scores: list[float] = []
        job.computing = True
        for start in range(0, len(job.pairs), _BATCH_PAIRS):
            if job.given_up:
                return None
            batch = job.pairs[start : start + _BATCH_PAIRS]
            found = self._loaded.predict(batch, batch_size=_BATCH_PAIRS, show_progress_bar=False)
            part = np.asarray(found, dtype=np.float64)
            if part.shape != (len(batch),):
                shape = f"an array of shape {part.shape} for {len(batch)} pairs"
                return self._failed(f"gave {shape}; expected one score per pair")
            scores += part.tolist()
        answer = np.array(scores)
        if not np.isfinite(answer).all():
            return self._failed("gave a score that is not a finite number")
        return answer

    def _failed(self, what: str) -> RecallWarning:
        rest = "the fused order stands. Choose another model or set reranker to nothing"
        return RecallWarning("reranker_failed", f"the reranker {self.model} {what}; {rest}")


def open_reranker(model: str) -> Reranker:
    """Return this process's reranker of a name or directory; it is loaded when it is asked."""
    # Two threads that ask first would otherwise load the model twice.
    with _making:
        return _make(model)


@lru_cache(maxsize=2)  # one, and its successor while they are being compared
def _make(model: str) -> Reranker:
    return Reranker(model)


def _leave(running: set[_Job]) -> None:
    """Give up what still runs when the process ends, and wait for the batch at hand."""
    for job in tuple(running):
        job.given_up = True
        # Loading is left alone: it takes seconds, and Python ends an import without harm.
        if job.computing:
            job.done.wait(_EXIT_PATIENCE_S)


class _UnavailableError(Exception):
    """The library or the model cannot be loaded."""


def _load(model: str) -> Any:
    try:
        keep_caches_in_home()
        library: Any = import_module("sentence_transformers")
    except ImportError as error:
        raise _UnavailableError(
            f"sentence-transformers cannot be imported ({error}); the fused order stands. Install "
            "noctuary[models] or set reranker to nothing"
        ) from error
    quiet: Any = import_module("transformers.utils.logging")
    bars = quiet.is_progress_bar_enabled()
    quiet.disable_progress_bar()
    try:
        return library.CrossEncoder(model, local_files_only=True)
    # The loader may raise anything.
    except Exception as error:
        raise _UnavailableError(
            f"the reranker {model} cannot be loaded ({type(error).__name__}: {str(error)[:200]}); "
            "the fused order stands. Give the directory of a whole sentence-transformers "
            "cross-encoder, or download it before"
        ) from error
    finally:
        if bars:
            quiet.enable_progress_bar()


def _readable(text: str) -> str:
    # A lone surrogate cannot be handed to a tokenizer: it is not UTF-8 and carries no text.
    return text.encode("utf-8", "replace").decode("utf-8")
