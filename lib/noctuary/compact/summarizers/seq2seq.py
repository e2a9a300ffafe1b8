"""The abstractive summarizer of a local sequence-to-sequence model (T5 and its kin).

What belongs here: loading, packing turns into the model's input, greedy decoding and the decoder's
own confidence. What does not: downloads (only local files are read), whether a text is faithful
(escalation). torch and transformers are imported when the first draft is wanted.

Such a model has no instruction that could tell earlier summaries from turns, and would summarise
them too: it is shown none.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from noctuary.compact.attempts import Outcome
from noctuary.compact.extractive import EXTRACTIVE
from noctuary.compact.sanitize import sanitize
from noctuary.compact.summarizers.base import AGGRESSIVE_SUFFIX, Draft, Refusal, Request
from noctuary.hashing import JsonValue, hash_file

READING_VERSION = "1"
"""Raised whenever the same model and turns may give another text."""

PREFIX = "summarize: "
"""What T5 was taught to obey; a model without it reads one word more."""

MAX_INPUT_TOKENS = 512
"""Of one piece of input where the model names no limit of its own; T5's training length."""

MIN_NEW_TOKENS = 8
"""Room for one short sentence, however little the density leaves."""

_WEIGHT_FILES = ("*.safetensors", "*.bin")


@dataclass(slots=True)
class Seq2SeqSummarizer:
    """Summaries decoded by a model of transformers' AutoModelForSeq2SeqLM.

    Attributes:
        model: Directory, or name of a model that is in the local cache.
    """

    model: str
    _decoder: Decoder | None = field(default=None, init=False)
    _missing: str = field(default="", init=False)

    @property
    def name(self) -> str:
        """Return "seq2seq"."""
        return "seq2seq"

    @property
    def recipe(self) -> Mapping[str, JsonValue]:
        """Return the model's name and, of a directory, the hashes of its weights."""
        return {
            "reading": READING_VERSION,
            "prefix": PREFIX,
            "model": self.model,
            "weights": _weights(self.model),
        }

    @property
    def uses_context(self) -> bool:
        """Return False; see the module's docstring."""
        return False

    @property
    def densities(self) -> tuple[float, float]:
        """Return those of the extractive summarizer, which stands in."""
        return EXTRACTIVE.densities

    def drafts(
        self, requests: Sequence[Request], *, density: float, aggressive: bool = False
    ) -> list[Draft | Refusal]:
        """Decode one draft per request.

        Turns are packed into pieces that fit the model; the summaries of the pieces are joined.
        `raw_confidence` is exp of the mean log probability of all decoded tokens.
        """
        decoder = self._opened()
        if decoder is None:
            return [Refusal(Outcome.UNAVAILABLE, self._missing)] * len(requests)
        method = self.name + (AGGRESSIVE_SUFFIX if aggressive else "")
        return [_draft(decoder, request, density, method) for request in requests]

    def _opened(self) -> Decoder | None:
        if self._decoder is None and not self._missing:
            try:
                self._decoder = Decoder.open(self.model)
            # The loader raises whatever its many parts raise; the night goes on without it.
            except Exception as error:
                self._missing = f"{self.model} cannot be loaded ({type(error).__name__})"
        return self._decoder


@dataclass(frozen=True, slots=True)
class Decoder:
    """A loaded model with its tokenizer.

    Attributes:
        model: A transformers model with a decoder of its own.
        tokenizer: Its tokenizer.
        max_input: Tokens of one piece of input.
    """

    model: Any
    tokenizer: Any
    max_input: int

    @staticmethod
    def open(name: str) -> Decoder:
        """Load a model from a directory or the local cache; nothing is downloaded.

        Raises:
            Exception: Of any type, by transformers: no such model, damaged or unfit files.
        """
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

        with _without_bars():
            tokenizer: Any = AutoTokenizer.from_pretrained(name, local_files_only=True)
            model: Any = AutoModelForSeq2SeqLM.from_pretrained(name, local_files_only=True)
        model.eval()
        limits = (
            tokenizer.model_max_length,
            getattr(model.config, "n_positions", None),
            getattr(model.config, "max_position_embeddings", None),
        )
        known = [limit for limit in limits if isinstance(limit, int) and 0 < limit < 1 << 20]
        return Decoder(model, tokenizer, min(known, default=MAX_INPUT_TOKENS))

    def count(self, text: str) -> int:
        """Return the model's tokens of a text, without special ones."""
        return len(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def decode(self, text: str, max_new: int) -> tuple[str, list[float]]:
        """Return the greedy output and the log probability of each of its tokens."""
        import torch

        inputs = self.tokenizer(
            text, return_tensors="pt", truncation=True, max_length=self.max_input
        )
        with torch.inference_mode():
            out = self.model.generate(
                input_ids=inputs["input_ids"],
                attention_mask=inputs["attention_mask"],
                max_new_tokens=max_new,
                do_sample=False,
                num_beams=1,
                output_logits=True,
                return_dict_in_generate=True,
            )
            chosen = out.sequences[0, -len(out.logits) :]
            steps = torch.stack(out.logits)[:, 0].log_softmax(dim=-1)
            logs = steps.gather(1, chosen[:, None])[:, 0].tolist()
        decoded = self.tokenizer.decode(chosen, skip_special_tokens=True)
        return " ".join(decoded.split()), logs


def _draft(decoder: Decoder, request: Request, density: float, method: str) -> Draft | Refusal:
    parts: list[str] = []
    logs: list[float] = []
    for piece, tokens in _pieces(decoder, [sanitize(text) for text in request.texts]):
        room = max(MIN_NEW_TOKENS, math.floor(density * tokens))
        try:
            text, found = decoder.decode(PREFIX + piece, room)
        except (RuntimeError, ValueError, IndexError) as error:
            return Refusal(Outcome.UNUSABLE, f"decoding failed ({type(error).__name__})")
        logs += found
        parts.append(text)
    text = " ".join(part for part in parts if part)
    if not text:
        return Refusal(Outcome.UNUSABLE, "the model wrote nothing")
    return Draft(text=text, method=method, raw_confidence=mean_probability(logs))


def mean_probability(logs: Sequence[float]) -> float | None:
    """Return exp of the mean log probability, in [0, 1]; None of nothing or of no number.

    Source: libravdb mathematics section 5.1.
    """
    if not logs or any(math.isnan(log) for log in logs):
        return None
    return min(1.0, math.exp(sum(logs) / len(logs)))


def _pieces(decoder: Decoder, texts: Sequence[str]) -> list[tuple[str, int]]:
    """Pack turns into inputs that fit the model, each with its tokens; a longer turn is cut."""
    room = decoder.max_input - decoder.count(PREFIX) - 1
    return pack(texts, [decoder.count(text) for text in texts], max(room, 1))


def pack(texts: Sequence[str], counts: Sequence[int], room: int) -> list[tuple[str, int]]:
    """Return consecutive texts joined so that each piece has at most `room` tokens, if it can.

    Args:
        texts: Turns in order.
        counts: Their tokens.
        room: Tokens of a piece, at least 1; a turn of more is a piece of its own with `room`.
    """
    pieces: list[tuple[list[str], int]] = []
    for text, count in zip(texts, counts, strict=True):
        if pieces and pieces[-1][1] + count <= room:
            joined, before = pieces[-1]
            pieces[-1] = [*joined, text], before + count
        else:
            pieces.append(([text], min(count, room)))
    return [(" ".join(joined), count) for joined, count in pieces]


@contextmanager
def _without_bars() -> Generator[None]:
    """Hide the progress bars of the loader, and put the setting back afterwards."""
    settings: Any = import_module("transformers.utils.logging")
    shown = settings.is_progress_bar_enabled()
    settings.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            settings.enable_progress_bar()


def _weights(model: str) -> JsonValue:
    directory = Path(model)
    if not directory.is_dir():
        return None
    files = sorted(path for glob in _WEIGHT_FILES for path in directory.glob(glob))
    return {path.name: hash_file(path) for path in files}
