"""Every error that noctuary raises on purpose, in one tree."""

# Not `from __future__ import annotations`: NamedTuple compiles each annotation that is a text.
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

FAULTS_SHOWN = 10  # in a message: enough to see a pattern; the total is always given


class NoctuaryError(Exception):
    """Base of every deliberate error; its text has the finding, the expectation and a remedy."""


class ConfigError(NoctuaryError, ValueError):
    """A setting is unknown, of the wrong type or out of range."""


class SourceError(NoctuaryError):
    """The memory store cannot be read as a whole."""


class SourceMissingError(SourceError, FileNotFoundError):
    """There is nothing at the source's path."""


class SourceFormatError(SourceError):
    """The source is not in a format that noctuary reads."""


class SourceEmptyError(SourceError):
    """The source holds no row that could be exported."""


class LineFault(NamedTuple):
    """The problem with one line of a file."""

    line: int  # from 1; 0 where the file as a whole is meant
    kind: str  # in one word, e.g. unknown_label
    message: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}" if self.line else self.message


class FileFaultsError(SourceFormatError):
    """Lines of a labelled set's file, or of a session's, are wrong."""

    def __init__(self, path: Path, faults: Sequence[LineFault]) -> None:
        shown = "\n".join(f"  {fault}" for fault in faults[:FAULTS_SHOWN])
        rest = len(faults) - FAULTS_SHOWN
        more = f"\n  ... and {rest} more" if rest > 0 else ""
        noun = "fault" if len(faults) == 1 else "faults"
        super().__init__(f"{path} has {len(faults)} {noun}:\n{shown}{more}")
        self.path = path
        self.faults = tuple(faults)

    def __reduce__(self) -> tuple[Any, ...]:
        # Rebuilt from the arguments of __init__: errors cross processes.
        return type(self), (self.path, self.faults)


class CorpusFileError(FileFaultsError):
    """A corpus file has lines that are not memories, or repeated ids."""


class SessionFileError(FileFaultsError):
    """A file of turns cannot be read, or has lines that are no turns."""


class QueryFileError(FileFaultsError):
    """A query file has faulty lines."""


class EmptyQuerySetError(QueryFileError, SourceEmptyError):
    """A query file holds no query."""


class EncoderError(NoctuaryError):
    """A model is missing, unsupported or broken."""


class FingerprintMismatchError(EncoderError):
    """Two vectors or files were made by different models."""


class StoreError(NoctuaryError):
    """noctuary's own files are missing, damaged or locked."""


class StoreLockedError(StoreError):
    """Another night is running on this store."""


class SnapshotMissingError(StoreError):
    """Nothing has been published yet."""


class SnapshotCorruptError(StoreError):
    """A published snapshot does not match its manifest."""


class SnapshotOutdatedError(SnapshotCorruptError):
    """A snapshot is of a format that another version of noctuary reads: unreadable, not damaged."""


class ShardError(NoctuaryError):
    """A heavy step failed on a shard, or its workers died again and again."""


class AuthoredError(NoctuaryError):
    """A document that people write for their agents cannot be used."""


class AuthoredMissingError(AuthoredError, FileNotFoundError):
    """There is nothing at a document's path."""


class AuthoredFormatError(AuthoredError):
    """A document is not readable Markdown in UTF-8, or its front matter is no YAML mapping."""


class CurationRefusedError(NoctuaryError):
    """The source changed since a proposal or a journal entry was made; nothing was written."""


class MemoryRefusedError(NoctuaryError, ValueError):
    """A new memory is a secret, not a memory, or replaces none; nothing was kept."""


class PublishRefusedError(NoctuaryError):
    """The candidate has no PASS verdict for exactly its digest."""
