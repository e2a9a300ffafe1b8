"""What a language model costs per summary: `python -m bench.compaction_growth.embedding FOLDER`.

Measured apart from the growth, because it is the same for every summary and would hide the rest.
"""

from __future__ import annotations

import json
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Any

from noctuary.compact.summaries import iter_summaries
from noctuary.core.settings import EncoderSettings
from noctuary.embed.sentence import open_sentence_encoder

SAMPLE = 256
"""Summaries embedded; some twenty seconds on one core."""


def measure_embedding(folder: Path) -> dict[str, Any]:
    """Return milliseconds per summary of the bundled encoder, by sentence-transformers."""
    texts = [
        summary.text
        for summary in islice(
            (s for s in iter_summaries(folder / "summaries.parquet") if len(s.source_ids) > 1),
            SAMPLE,
        )
    ]
    model = EncoderSettings().model
    encoder = open_sentence_encoder(model)
    list(encoder.iter_document_batches(texts[:8]))
    wall, cpu = time.perf_counter(), time.process_time()
    list(encoder.iter_document_batches(texts))
    return {
        "encoder": model,
        "summaries": len(texts),
        "mean_chars": round(sum(map(len, texts)) / len(texts)),
        "wall_ms_per_summary": round((time.perf_counter() - wall) * 1000 / len(texts), 2),
        "cpu_ms_per_summary": round((time.process_time() - cpu) * 1000 / len(texts), 2),
    }


if __name__ == "__main__":
    print(json.dumps(measure_embedding(Path(sys.argv[1]))))
