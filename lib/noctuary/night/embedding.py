"""Which implementation of the encoder embeds tonight, for every stage that embeds.

What belongs here: the choice between ONNX Runtime and sentence-transformers, made once by the stage
memory_vectors and followed by the later ones, so that no night mixes their last bits. A hosted
model leaves no choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from noctuary.encode.onnx_encoder import OnnxEncoder
from noctuary.encode.onnx_export import export_onnx, known_header
from noctuary.encode.onnx_format import OnnxHeader, hash_files, onnx_directory, toolchain
from noctuary.errors import EncoderError
from noctuary.night.context import Night
from noctuary.settings.sections import PROVIDERS
from noctuary.vectors.embed import BATCHES_PER_WRITE, DocumentEncoder, Embedded, embed_texts
from noctuary.work.memo import Memo

LIBRARY = "sentence-transformers"

HOSTED = frozenset(PROVIDERS[1:])

NOT_INSTALLED = "onnx or onnxruntime is not installed"

AGREEMENT_SAMPLE = 16
"""Texts of the corpus on which the two must agree, spread over it; each costs both some 20 ms."""


@dataclass
class Face:
    """The implementation that embeds.

    Attributes:
        tag: Of its vectors in the memo; empty for sentence-transformers, of a hosted model its
            provider.
        min_cosine: Worst agreement with sentence-transformers; 0 where there was nothing to
            compare.
        declined: Why it is not ONNX Runtime; empty if it is.
    """

    tag: str
    min_cosine: float = 0.0
    declined: str = ""
    _encoder: DocumentEncoder | None = None

    def opened(self, night: Night, texts: Sequence[str]) -> DocumentEncoder:
        """Return the encoder; opened once, because a stage may embed in many small batches."""
        if self._encoder is None:
            self._encoder = _open(night, self, texts)
        return self._encoder

    @property
    def batches_per_write(self) -> int:
        """How many batches a kill may lose: none that was paid for."""
        return 1 if self.tag in HOSTED else BATCHES_PER_WRITE

    def to_facts(self) -> dict[str, str]:
        """Return what the stage's facts say; `face_of` reads it back."""
        named = {"face": self.tag or LIBRARY}
        return {**named, "onnx_declined": self.declined} if self.declined else named


def face_of(facts: Mapping[str, Any]) -> Face:
    """Return the choice that the facts of memory_vectors tell."""
    return Face("" if facts["face"] == LIBRARY else str(facts["face"]))


def choose_face(night: Night, texts: Sequence[str]) -> Face:
    """Return what embeds tonight; exports and checks a model that is new or was lost.

    Args:
        night: The night.
        texts: The corpus or a sample of it; AGREEMENT_SAMPLE of them are compared, evenly spread.
    """
    if night.settings.encoder.provider in HOSTED:
        return Face(night.settings.encoder.provider)
    if toolchain() is None:
        return Face("", declined=NOT_INSTALLED)
    header = _whole_export(night)
    if header is None:
        directory = onnx_directory(night.paths.encoders, night.fingerprint())
        step = max(len(texts) // AGREEMENT_SAMPLE, 1)
        header = export_onnx(night.encoder(), directory, texts[::step][:AGREEMENT_SAMPLE])
    return Face(header.tag, header.min_cosine, header.declined)


def embed(night: Night, face: Face, texts: Sequence[str], memo: Memo) -> Embedded:
    """Embed texts with the night's choice; see `embed_texts`."""
    return embed_texts(
        texts,
        memo,
        night.fingerprint(),
        lambda: face.opened(night, texts),
        night.progress,
        face=face.tag,
        batches_per_write=face.batches_per_write,
    )


def _open(night: Night, face: Face, texts: Sequence[str]) -> DocumentEncoder:
    if not face.tag:
        return night.encoder()
    # Again, because a later stage may find the export gone that an earlier night's vectors are of.
    found = choose_face(night, texts)
    if found.tag != face.tag:
        raise EncoderError(
            f"the memory vectors were made by {face.tag}, but this machine now has "
            f"{found.tag or LIBRARY} {found.declined}. Delete {night.paths.work / 'stamps'} and "
            "run the whole nightly job: it embeds again."
        )
    if face.tag in HOSTED:
        return night.hosted_encoder()
    return OnnxEncoder.open(onnx_directory(night.paths.encoders, night.fingerprint()))


def _whole_export(night: Night) -> OnnxHeader | None:
    """Return what is known of the model's ONNX export; None if it is new, lost or damaged."""
    directory = onnx_directory(night.paths.encoders, night.fingerprint())
    header = known_header(directory, night.fingerprint())
    try:
        is_whole = header and (header.declined or hash_files(directory) == header.files)
    except EncoderError:
        return None
    return header if is_whole else None
