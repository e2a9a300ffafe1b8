"""Summaries of a local sequence-to-sequence model (T5 and its kin), decoded greedily.

Only local files are read. torch and transformers are imported when the first draft is wanted. Such
a model has no instruction that could tell earlier summaries from turns: it is shown none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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


@dataclass(slots=True)
class Seq2SeqSummarizer:
    """Summaries decoded by a model of transformers' AutoModelForSeq2SeqLM; see `Summarizer`.

    Attributes:
        model: Directory, or name of a model that is in the local cache.
    """

    name: str = field(default="seq2seq", init=False)
    uses_context: bool = field(default=False, init=False)
    densities: tuple[float, float] = field(default=EXTRACTIVE.densities, init=False)

    model: str
    _decoder: Decoder | None = field(default=None, init=False)
    _missing: str = field(default="", init=False)

    @property
    def recipe(self) -> Mapping[str, JsonValue]:
        """Return the model's name and, of a directory, the hashes of its weights."""
        weights: JsonValue = None
        if (directory := Path(self.model)).is_dir():
            files = [*directory.glob("*.safetensors"), *directory.glob("*.bin")]
            weights = {path.name: hash_file(path) for path in sorted(files)}
        told = {"reading": READING_VERSION, "prefix": PREFIX, "model": self.model}
        return {**told, "weights": weights}

    def drafts(
        self, requests: Sequence[Request], *, density: float, aggressive: bool = False
    ) -> list[Draft | Refusal]:
        """Decode one draft per request.

        Turns are packed into pieces that fit the model; the summaries of the pieces are joined.
        `raw_confidence` is exp of the mean log probability of all decoded tokens.
        """
        if self._decoder is None and not self._missing:
            try:
                self._decoder = Decoder.open(self.model)
            # The loader raises whatever its many parts raise; the night goes on without it.
            except Exception as error:
                self._missing = f"{self.model} cannot be loaded ({type(error).__name__})"
        decoder = self._decoder
        if decoder is None:
            return [Refusal(Outcome.UNAVAILABLE, self._missing)] * len(requests)
        method = self.name + (AGGRESSIVE_SUFFIX if aggressive else "")
        return [_draft(decoder, request, density, method) for request in requests]


@dataclass(frozen=True, slots=True)
class Decoder:
    """A loaded model with its tokenizer, and how many tokens one piece of input may have."""

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

        # Its progress bars would write over the night's.
        import_module("transformers.utils.logging").disable_progress_bar()
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


def mean_probability(logs: Sequence[float]) -> float | None:
    """Return exp of the mean log probability, in [0, 1]; None of nothing or of no number.

    Source: libravdb mathematics section 5.1.
    """
    if not logs or any(math.isnan(log) for log in logs):
        return None
    return min(1.0, math.exp(sum(logs) / len(logs)))


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


def _draft(decoder: Decoder, request: Request, density: float, method: str) -> Draft | Refusal:
    turns = [sanitize(text) for text in request.texts]
    room = max(decoder.max_input - decoder.count(PREFIX) - 1, 1)
    parts: list[str] = []
    logs: list[float] = []
    for piece, tokens in pack(turns, [decoder.count(turn) for turn in turns], room):
        most = max(MIN_NEW_TOKENS, math.floor(density * tokens))
        try:
            text, found = decoder.decode(PREFIX + piece, most)
        except (RuntimeError, ValueError, IndexError) as error:
            return Refusal(Outcome.UNUSABLE, f"decoding failed ({type(error).__name__})")
        logs += found
        parts.append(text)
    text = " ".join(part for part in parts if part)
    if not text:
        return Refusal(Outcome.UNUSABLE, "the model wrote nothing")
    return Draft(text=text, method=method, raw_confidence=mean_probability(logs))
