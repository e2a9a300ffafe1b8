"""Vectors of the evaluation's queries where a provider makes them: asked in batches, before recall.

What belongs here: asking for them and handing them to recall. What does not: the queries, and
scoring. Recall asks a provider for one query at a time, once, and answers without a vector where
that fails. In an evaluation this would be a drop that is none, so there it is asked patiently, and
a night whose provider is down fails with a sentence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from mnemon.encode.fingerprint import EncoderFingerprint
from mnemon.encode.hosted.documents import HostedEncoder
from mnemon.night.context import Night
from mnemon.night.embedding import HOSTED
from mnemon.recall.query_encoder import remember_query
from mnemon.snapshot.manifest import Manifest
from mnemon.vectors.embed import embed_texts
from mnemon.work.memo import Memo


def fetch_query_vectors(night: Night, manifest: Manifest, texts: Sequence[str]) -> int:
    """Ask for the vectors of queries that are not known, and let this process's recalls find them.

    Nothing is done for a snapshot whose vectors were made here, or by another model than tonight's.

    Args:
        night: The night.
        manifest: Of the snapshot that will be asked.
        texts: The queries.

    Returns:
        How many the provider was asked for.

    Raises:
        EncoderError: The provider gives none, or the budget does not cover them.
    """
    provider = night.settings.encoder.provider
    if provider not in HOSTED or manifest.encoder is None:
        return 0
    fingerprint = night.fingerprint()
    if EncoderFingerprint.from_json(manifest.encoder) != fingerprint:
        return 0
    with Memo.open(night.paths.memo) as memo:
        found = embed_texts(
            texts,
            memo,
            fingerprint,
            lambda: _Queries(night.hosted_encoder()),
            night.progress,
            face=f"{provider}:query",
            batches_per_write=1,
        )
    for text, vector in zip(texts, found.vectors, strict=True):
        remember_query(night.paths, manifest, text, vector.copy())
    return found.computed


class _Queries:
    """A hosted encoder whose texts are queries."""

    def __init__(self, encoder: HostedEncoder) -> None:
        self._encoder = encoder

    def iter_document_batches(
        self, texts: Sequence[str]
    ) -> Iterator[tuple[list[int], NDArray[np.float32]]]:
        """Yield places and vectors; see `DocumentEncoder`."""
        return self._encoder.iter_batches(texts, "query")
