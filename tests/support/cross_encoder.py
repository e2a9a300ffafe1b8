"""A tiny cross-encoder that counts one word, built and trained on the spot.

Its effect on an order is known before it is used: the more often a text says MARKER, the higher
it scores, whatever the query is.
"""

from __future__ import annotations

import importlib
import importlib.util
import random
from pathlib import Path
from typing import Any

import pytest

MARKER = "amber"
MOST_MARKERS = 3
TEXT_WORDS = 8
FILLERS = (
    "river", "stone", "paper", "lamp", "window", "quartz", "garden", "letter", "copper", "valley",
    "ladder", "walnut", "saddle", "number", "meadow", "lantern",
)  # fmt: skip

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_STEPS = 120
_BATCH = 32
_LEARNING_RATE = 5e-3


def marked_text(rng: random.Random, markers: int) -> str:
    """Return a text of TEXT_WORDS words of which so many are MARKER, in any order."""
    words = [MARKER] * markers + rng.choices(FILLERS, k=TEXT_WORDS - markers)
    rng.shuffle(words)
    return " ".join(words)


def any_query(rng: random.Random) -> str:
    """Return three words that say nothing about the order."""
    return " ".join(rng.choices(FILLERS, k=3))


def require_models() -> None:
    """Skip the test where PyTorch is not installed: the index may have it with CUDA only."""
    if importlib.util.find_spec("sentence_transformers") is None:
        pytest.skip("needs the extra [models]: make setup")


def write_cross_encoder(directory: Path, *, classes: int = 1) -> Path:
    """Build, train and save the model; the same seed gives the same weights.

    Args:
        directory: Where to.
        classes: Scores per pair; more than 1 makes a classifier, which is left untrained.
    """
    require_models()
    import torch

    # Loaded by name: it ships no types that a checker could follow.
    transformers: Any = importlib.import_module("transformers")
    vocabulary = {word: number for number, word in enumerate((*_SPECIAL, MARKER, *FILLERS))}
    torch.manual_seed(7)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary), hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=64, num_labels=classes,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, initializer_range=0.2,
    )  # fmt: skip
    model = transformers.BertForSequenceClassification(config)
    tokenizer = transformers.BertTokenizerFast(vocab=vocabulary)
    if classes == 1:
        threads = torch.get_num_threads()
        # On a busy machine the threads of a small product wait for each other most of the time.
        torch.set_num_threads(1)
        _train(model, tokenizer)
        torch.set_num_threads(threads)
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


def _train(model: Any, tokenizer: Any) -> None:
    import torch

    rng = random.Random(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=_LEARNING_RATE)
    model.train()
    for _ in range(_STEPS):
        counts = [rng.randint(0, MOST_MARKERS) for _ in range(_BATCH)]
        queries = [any_query(rng) for _ in counts]
        texts = [marked_text(rng, count) for count in counts]
        batch = tokenizer(queries, texts, return_tensors="pt", padding=True)
        wanted = torch.tensor(counts, dtype=torch.float32) / MOST_MARKERS
        logits = model(**batch).logits[:, 0]
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
