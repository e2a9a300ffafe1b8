"""Documents per second of the two bulk encoders, side by side on the same texts in one run.

`python -m bench.measure encoding --data ../shared/data/locomo --data ../shared/data/scifact`

The texts are cut into slices; each slice is encoded by every system before the next one, in
rotating order, so that a busy moment of the machine hits all of them.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.datasets import open_dataset, read_corpus
from bench.manifest import describe_run
from bench.results import RESULTS_DIR, write_result
from noctuary.core.errors import EncoderError
from noctuary.core.store import StorePaths
from noctuary.embed.default_model import DEFAULT_MODEL
from noctuary.embed.onnx import OnnxEncoder
from noctuary.embed.sentence import (
    SentenceEncoder,
    export_onnx,
    open_sentence_encoder,
)
from noctuary.sources.corpus import read_records
from noctuary_assets.night import MEMORIES

DOCUMENTS = 1500
"""Texts in all: a minute or two per system, and every length of the corpora occurs."""

SLICES = 12
"""Each gives one ratio; their spread tells how far the mean may be trusted."""

BATCH_SIZES = (4, 8, 16, 32, 64)
"""Of sentence-transformers, which is measured at each of them: the best one counts."""

TRIAL_TEXTS = 64
"""Encoded once per batch size, to drop the sizes that cannot be the best, and to warm up."""

_KEPT_SIZES = 2
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "MKL_NUM_THREADS")

Encode = Callable[[Sequence[str]], NDArray[np.float32]]


def read_texts(corpora: Sequence[Path], store: Path | None, count: int) -> list[str]:
    """Return `count` texts, in equal parts and evenly spread over data sets and store."""
    pools = [[str(r["content"]) for r in read_corpus(open_dataset(path))] for path in corpora]
    if store is not None:
        pools.append([r.content for r in read_records(StorePaths(store).work / MEMORIES)])
    share = -(-count // len(pools))
    picked = [pool[:: max(len(pool) // share, 1)][:share] for pool in pools]
    # In turns, so that every slice has texts of every corpus.
    return [pool[i] for i in range(max(map(len, picked))) for pool in picked if i < len(pool)][
        :count
    ]


def measure_encoding(texts: Sequence[str], dataset: str, model: str) -> dict[str, Any]:
    """Return the encoding document of these texts.

    The median of the slices' ratios is the result: another process that takes the machine for one
    slice moves the ratio of the sums, not the median.

    Raises:
        EncoderError: If the model is not exported, so that there is nothing to compare.
    """
    run = describe_run()
    source = open_sentence_encoder(model)
    with tempfile.TemporaryDirectory() as directory:
        started = time.perf_counter()
        header = export_onnx(source, Path(directory) / "export.onnx", texts[:16])
        if header.declined:
            raise EncoderError(header.declined)
        export_s = time.perf_counter() - started
        onnx = OnnxEncoder.open(Path(directory) / "export.onnx")
    systems = {
        "onnx": onnx.encode_documents,
        "noctuary_torch": source.encode_documents,
        **_best_sizes(source, texts[:TRIAL_TEXTS]),
    }
    seconds, vectors = _alternate(systems, texts)
    counts = source.token_counts(texts)
    return {
        "kind": "encoding",
        "dataset": dataset,
        "manifest": {
            **run,
            "toolchain": dict(header.toolchain),
            "model": model,
            "documents": len(texts),
            "mean_tokens": round(statistics.mean(min(c, 256) for c in counts), 1),
            "threads": onnx.threads,
            "torch_threads": _torch_threads(),
            "environment": {n: os.environ[n] for n in _THREAD_VARIABLES if n in os.environ},
        },
        "export_s": round(export_s, 2),
        **_summary(seconds, vectors, len(texts)),
    }


def _best_sizes(source: SentenceEncoder, trial: Sequence[str]) -> dict[str, Encode]:
    def at(size: int) -> Encode:
        return lambda texts: source.model.encode(
            list(texts), batch_size=size, show_progress_bar=False, normalize_embeddings=True
        )

    times = {size: min(_seconds(at(size), trial) for _ in range(2)) for size in BATCH_SIZES}
    best = sorted(times, key=times.__getitem__)[:_KEPT_SIZES]
    return {f"sentence_transformers_{size}": at(size) for size in best}


def _alternate(
    systems: dict[str, Encode], texts: Sequence[str]
) -> tuple[dict[str, list[float]], dict[str, NDArray[np.float32]]]:
    names = list(systems)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    parts: dict[str, list[NDArray[np.float32]]] = {name: [] for name in names}
    bounds = np.linspace(0, len(texts), SLICES + 1).astype(int)
    for turn, (start, end) in enumerate(itertools.pairwise(bounds)):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            started = time.perf_counter()
            parts[name].append(systems[name](texts[start:end]))
            seconds[name].append(time.perf_counter() - started)
    return seconds, {name: np.concatenate(found) for name, found in parts.items()}


def _summary(
    seconds: dict[str, list[float]], vectors: dict[str, NDArray[np.float32]], count: int
) -> dict[str, Any]:
    library = [name for name in seconds if name != "onnx"]
    best = min(library, key=lambda name: sum(seconds[name]))
    ratios = [b / a for a, b in zip(seconds["onnx"], seconds[best], strict=True)]
    cosines = np.einsum("ij,ij->i", vectors["onnx"], vectors[best], dtype=np.float64)
    return {
        "documents_per_s": {name: round(count / sum(s), 1) for name, s in seconds.items()},
        "best_library_setting": best,
        "ratio": round(sum(seconds[best]) / sum(seconds["onnx"]), 2),
        "median_ratio": round(statistics.median(ratios), 2),
        "ratio_per_slice": [round(ratio, 2) for ratio in ratios],
        "min_cosine": round(float(cosines.min()), 7),
    }


def _seconds(encode: Encode, texts: Sequence[str]) -> float:
    started = time.perf_counter()
    encode(texts)
    return time.perf_counter() - started


def _torch_threads() -> int:
    import torch

    return torch.get_num_threads()


def main(arguments: Sequence[str] | None = None) -> None:
    """Write encoding-NAME.json."""
    parser = argparse.ArgumentParser(prog="python -m bench.measure encoding", description=__doc__)
    parser.add_argument("--data", type=Path, action="append", default=[], help="a data set")
    parser.add_argument("--store", type=Path, help="a store that has had a night")
    parser.add_argument("--name", help="of the result; default: the names of the data sets")
    parser.add_argument("--documents", type=int, default=DOCUMENTS)
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--out", type=Path, default=RESULTS_DIR)
    options = parser.parse_args(arguments)
    if not options.data and options.store is None:
        parser.error("give --data or --store: what is encoded decides how long the texts are")
    name = options.name or "-".join([path.name for path in options.data] or ["store"])
    texts = read_texts(options.data, options.store, options.documents)
    path = options.out / f"encoding-{name}.json"
    write_result(path, measure_encoding(texts, name, options.model))
    print(f"wrote {path}")
