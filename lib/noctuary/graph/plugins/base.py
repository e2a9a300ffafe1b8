"""What an extractor plug-in is. Types only.

A plug-in proposes, the text decides: whatever it returns goes through `verify_extraction`, so a
name that does not stand in the memory never reaches the graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from noctuary.graph.extraction import Extraction
from noctuary.progress import Progress


class PluginInput(NamedTuple):
    """One text to look at.

    Attributes:
        key: What the caller files the findings under, unique per call.
        content: The memory's text; nothing else of a memory is shown to a plug-in.
    """

    key: str
    content: str


class Cache(Protocol):
    """A durable map from `Extractor.cache_key` to what the plug-in wants to keep.

    `put_many` returns when the values would survive a kill. Values may hold words of memories:
    they are to be deleted with these.
    """

    def get_many(self, keys: Iterable[str]) -> Mapping[str, bytes]:
        """Return the values of those keys that are known."""
        ...

    def put_many(self, values: Mapping[str, bytes]) -> None:
        """Store values in one durable step."""
        ...


class PluginWarning(NamedTuple):
    """Something that people should know about tonight's run.

    Attributes:
        code: For programs, e.g. "graph_endpoint_down".
        message: One sentence for people: what happened, what it means, what to do.
    """

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Findings:
    """What a plug-in has to say about a batch of memories.

    Attributes:
        extractions: By key; a memory without an answer yet is missing, one without findings is
            not. Spans may be wrong or NO_SPAN: only the surfaces count until they are verified.
        counts: How things stand with these memories, by name; equal for equal knowledge.
        tonight: What only this call did (requests, faults), by name.
        warnings: What went wrong as a whole.
    """

    extractions: Mapping[str, Extraction]
    counts: Mapping[str, int] = field(default_factory=dict[str, int])
    tonight: Mapping[str, int] = field(default_factory=dict[str, int])
    warnings: tuple[PluginWarning, ...] = ()


class Extractor(Protocol):
    """Finds concepts and stated relations that the rules do not."""

    @property
    def name(self) -> str:
        """Return how settings call it."""
        ...

    @property
    def fingerprint(self) -> str:
        """Return a text that changes whenever the same memory may get other findings."""
        ...

    def cache_key(self, content: str) -> str:
        """Return what a text's findings are kept under."""
        ...

    def extract_many(
        self, memories: Sequence[PluginInput], cache: Cache, progress: Progress
    ) -> Findings:
        """Return what is known of each memory by now; never raises for what a model answers.

        Args:
            memories: Texts that the plug-in may see; their order changes nothing.
            cache: What was found before; new findings are put in as soon as they are there.
            progress: Told as it goes.
        """
        ...
