"""Vectors of queries and prompts before recall: of a provider in batches, of everyday ones once.

What belongs here: asking for them and handing them to recall. What does not: the queries, and
scoring. Recall asks a provider for one query at a time, once, and answers without a vector where
that fails. In an evaluation this would be a drop that is none, so there it is asked patiently, and
a night whose provider is down fails with a sentence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from noctuary.encode.fingerprint import EncoderFingerprint
from noctuary.encode.hosted.documents import HostedEncoder
from noctuary.night.context import Night
from noctuary.night.embedding import HOSTED
from noctuary.night.own_questions import read_everyday
from noctuary.recall.engine import Recaller
from noctuary.recall.query_encoder import remember_query
from noctuary.snapshot.manifest import Manifest
from noctuary.vectors.embed import embed_texts, text_key
from noctuary.work.memo import Memo


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


def everyday_kind(encoder_digest: str) -> str:
    """Return the memo's kind of the vectors of everyday prompts, as recall encodes them."""
    return f"everyday:{encoder_digest}"


def everyday_keys() -> list[str]:
    """Return the memo's keys of everyday prompts, in their order."""
    return [text_key(prompt) for prompt in read_everyday()]


def fetch_everyday_vectors(night: Night, recaller: Recaller) -> NDArray[np.float32] | None:
    """Return the vectors of everyday prompts, encoded once per encoder; None without an encoder.

    Of shape (prompts, d).
    """
    manifest, prompts, keys = recaller.reader.manifest, read_everyday(), everyday_keys()
    if recaller.reader.vectors is None or manifest.encoder_digest is None:
        return None
    kind = everyday_kind(manifest.encoder_digest)
    with Memo.open(night.paths.memo) as memo:
        known = memo.get_many(kind, keys)
        missing = [p for key, p in zip(keys, prompts, strict=True) if key not in known]
        fetch_query_vectors(night, manifest, missing)
        world = recaller.live_world()
        made = {
            text_key(prompt): np.asarray(world.query_vector(prompt), dtype=np.float32).tobytes()
            for prompt in missing
        }
        memo.put_many(kind, made)
    return np.stack([np.frombuffer((known | made)[key], dtype=np.float32) for key in keys])


class _Queries:
    """A hosted encoder whose texts are queries."""

    def __init__(self, encoder: HostedEncoder) -> None:
        self._encoder = encoder

    def iter_document_batches(
        self, texts: Sequence[str]
    ) -> Iterator[tuple[list[int], NDArray[np.float32]]]:
        """Yield places and vectors; see `DocumentEncoder`."""
        return self._encoder.iter_batches(texts, "query")
