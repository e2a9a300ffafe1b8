"""The query face of a process that keeps asking: the lean encoder first, ONNX Runtime once it pays.

The lean encoder starts in 20 ms and takes two to three times as long per query; loading the
runtime and its graph takes half a second, so a one-shot process never does.
"""

from __future__ import annotations

import atexit
import itertools
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from noctuary.core.errors import EncoderError
from noctuary.core.types import usable_cores
from noctuary.embed.fingerprint import require_same
from noctuary.embed.lean import LeanEncoder

if TYPE_CHECKING:
    from noctuary.embed.onnx import OnnxEncoder

WARM_AFTER_QUERIES = 8
"""Queries encoded by a process before it loads the runtime. Loading costs about as much as 100
queries save: fewer would make short scripts pay, more keep a server slow for longer."""

CALL_THREADS = 2
"""Threads of one call, at most the cores that there are. Alone a query takes 3.5 ms with one and
2.5 with two; between other work, when the weights have left the cache, 7.4 and 4.4."""

MIN_COSINE = 0.9999
"""Least agreement with the lean encoder on every sample text, as at the export."""

SAMPLE_TEXTS = (
    "",
    "When did we move the quarterly review, and who decided it?",
    "CAPITALS, Ünïcödé accents, Ελληνικά ΣΟΦΟΣ",
    "我们明天去北京开会。 Встреча перенесена на пятницу.",
    "def f(x):\n\treturn x[0] != 'a' # 🙂",
    "one two three four five six seven eight nine ten " * 8,
)
"""Texts on which both faces are compared before the change: each uses another part of them."""

_LEAVE_WITHIN_S = 5.0
"""Longest that the end of a process waits for a load that is under way (it takes 0.5 s): the
runtime aborts a process that ends inside one of its calls."""


class WarmEncoder:
    """Encodes queries of one model; safe to share between threads, and never fails for the runtime.

    `lean` answers until the runtime does, and whenever it cannot; the ONNX export need not exist.
    """

    def __init__(self, lean: LeanEncoder, export: Path) -> None:
        self.lean = lean
        self._export = export
        self._asked = itertools.count(1)
        self._runtime: OnnxEncoder | None = None
        self._reason = f"fewer than {WARM_AFTER_QUERIES} queries were encoded"

    @property
    def reason(self) -> str:
        """Say why the runtime does not encode; empty if it does."""
        return "" if self._runtime is not None else self._reason

    def encode_query(self, text: str) -> NDArray[np.float32]:
        """Return the unit vector of a query; EncoderError if the lean encoder cannot give one."""
        runtime = self._runtime
        if runtime is not None:
            try:
                return runtime.encode_query(text)
            # onnxruntime's exceptions have no common base; the lean encoder answers instead.
            except Exception as error:
                self._runtime, self._reason = None, f"a query failed: {_say(error)}"
        # No lock: `next` is atomic, so exactly one thread sees the number.
        elif next(self._asked) == WARM_AFTER_QUERIES:
            self.load_behind()
        return self.lean.encode_query(text)

    def load_behind(self) -> threading.Thread | None:
        """Load the runtime in the background; None where there is nothing to load."""
        if not self._export.is_dir():
            self._reason = "the store has no ONNX export: the next night makes one"
            return None
        thread = threading.Thread(target=self.load, name="noctuary-warm", daemon=True)
        atexit.register(thread.join, _LEAVE_WITHIN_S)
        self._reason = "the runtime is being loaded"
        thread.start()
        return thread

    def load(self) -> bool:
        """Use the runtime from now on if it loads and agrees; say whether it does. Never raises."""
        try:
            runtime = self._open()
        # Whatever is wrong with the runtime or its files, recall goes on without.
        except Exception as error:
            self._reason = _say(error)
            return False
        self._runtime = runtime
        return True

    def _open(self) -> OnnxEncoder:
        from noctuary.embed.onnx import OnnxEncoder

        cores = min(CALL_THREADS, usable_cores())
        runtime = OnnxEncoder.open(self._export, 1, call_threads=cores)
        require_same(self.lean.fingerprint, runtime.fingerprint)
        for number, text in enumerate(SAMPLE_TEXTS):
            cosine = float(runtime.encode_query(text) @ self.lean.encode_query(text))
            # Not "below": NaN must not pass.
            if not cosine >= MIN_COSINE:
                raise EncoderError(
                    f"the ONNX export agrees with the lean encoder only to cosine {cosine:.6f} on "
                    f"sample text {number}; expected {MIN_COSINE}. Delete {self._export}; the next "
                    "night exports again."
                )
        return runtime


def _say(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
