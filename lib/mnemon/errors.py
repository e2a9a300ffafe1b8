"""Every error that mnemon raises on purpose, in one tree.

MnemonError
├── ConfigError            a setting is unknown, of the wrong type or out of range
├── SourceError            the memory store cannot be read as a whole
│   ├── SourceMissingError
│   ├── SourceFormatError  not a database, unknown schema, truncated archive
│   └── SourceEmptyError
├── EncoderError           a model is missing, unsupported or not the one expected
│   └── FingerprintMismatchError
├── StoreError             mnemon's own files are missing, damaged or locked
│   ├── StoreLockedError
│   ├── SnapshotMissingError
│   └── SnapshotCorruptError
└── PublishRefusedError    no PASS verdict for exactly this candidate

A single bad row is never an exception: it is quarantined with its reason
(mnemon.corpus.quarantine).
"""

from __future__ import annotations


class MnemonError(Exception):
    """Base of every deliberate error; its text says what was found, expected and what to do."""


class ConfigError(MnemonError, ValueError):
    """A setting is unknown, of the wrong type or out of range."""


class SourceError(MnemonError):
    """The memory store cannot be read as a whole."""


class SourceMissingError(SourceError, FileNotFoundError):
    """There is nothing at the source's path."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class SourceFormatError(SourceError):
    """The source is not in a format that mnemon reads."""


class SourceEmptyError(SourceError):
    """The source holds no row that could be exported."""


class EncoderError(MnemonError):
    """A model is missing, unsupported or broken."""


class FingerprintMismatchError(EncoderError):
    """Two vectors or files were made by different models."""


class StoreError(MnemonError):
    """mnemon's own files are missing, damaged or locked."""


class StoreLockedError(StoreError):
    """Another night is running on this store."""


class SnapshotMissingError(StoreError):
    """Nothing has been published yet."""


class SnapshotCorruptError(StoreError):
    """A published snapshot does not match its manifest."""


class PublishRefusedError(MnemonError):
    """The candidate has no PASS verdict for exactly its digest."""
