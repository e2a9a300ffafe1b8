"""What the extractor found in one memory, and its JSON for the cache. No finding happens here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast, get_args

from noctuary.errors import StoreError
from noctuary.graph.model import Role, StatedRelation

EXTRACTOR_VERSION = 4
"""Raised whenever the same memory may give another extraction; part of every cache key."""

KINDS = (
    "title",
    "heading",
    "key",
    "label",
    "leading",
    "tag",
    "keyword",
    "speaker",
    "session",
    "url",
    "email",
    "path",
    "ticket",
    "date",
    "version",
    "identifier",
    "quoted",
    "name",
    "stated",
    "run",
)
"""Kinds of concept, strongest first: a concept has the strongest kind that any memory gives it.

`stated` is a side of a statement that no other rule found; `run` a stop-word-free run, of which
only those that the whole corpus bears out become concepts."""

_KIND_SET = frozenset(KINDS)
_ROLE_SET = frozenset(cast("tuple[str, ...]", get_args(Role)))
_RELATION_SET = frozenset(cast("tuple[str, ...]", get_args(StatedRelation)))


class Found(NamedTuple):
    """One finding of the extractor.

    Attributes:
        role: How the memory holds it.
        kind: One of KINDS.
        name: Its folded name, never empty.
        start: First character in the content, or NO_SPAN.
        end: One past the last character, or NO_SPAN.
        surface: The text as authored.
    """

    role: Role
    kind: str
    name: str
    start: int
    end: int
    surface: str


class Stated(NamedTuple):
    """A relation that the text states between two names.

    Attributes:
        subject: Folded name; "" only where the memory itself is the subject, "#" + id where another
            memory is ("resolves #12": #12 resolved_by #).
        relation: What is stated. `has` of an attribute: "my manager is Dana" is `user manager` has
            `dana`; `has` of the memory itself with another one: a plain link ("see [[12]]").
        object: Folded name, never empty; "#" + id where another memory is meant ("supersedes #12"),
            "#" alone where the memory itself is.
        start: First character of the whole statement in the content, or NO_SPAN.
        end: One past its last character, or NO_SPAN.
        subject_surface: What folds to the subject: as authored, the speaker for "I", "X's Y" for
            "my Y"; "" or "#" + id for a memory.
        object_surface: Likewise.
    """

    subject: str
    relation: StatedRelation
    object: str
    start: int
    end: int
    subject_surface: str
    object_surface: str


@dataclass(frozen=True, slots=True)
class Extraction:
    """All findings of one memory, sorted by start, end, role, kind and name; a pure function of it.

    Attributes:
        found: The findings, without repeats.
        stated: The relations stated, sorted by start, end, relation, subject, object.
        aliases: (alias, canonical name, why) that the text gives, both folded, sorted.
    """

    found: tuple[Found, ...]
    stated: tuple[Stated, ...] = ()
    aliases: tuple[tuple[str, str, str], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-able form that carries the extractor's version."""
        return {
            "version": EXTRACTOR_VERSION,
            "found": [list(item) for item in self.found],
            "stated": [list(item) for item in self.stated],
            "aliases": [list(item) for item in self.aliases],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Extraction:
        """Read what `to_json` wrote.

        Raises:
            StoreError: It was written by another version of the extractor, or is no extraction.
        """
        if value.get("version") != EXTRACTOR_VERSION:
            raise StoreError(
                f"found an extraction of version {value.get('version')!r}, expected "
                f"{EXTRACTOR_VERSION}: drop the cached row and extract again"
            )
        try:
            return cls(
                tuple(_read_found(item) for item in value["found"]),
                tuple(_read_stated(item) for item in value["stated"]),
                tuple(_read_alias(item) for item in value["aliases"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise StoreError(
                f"a cached extraction is damaged ({error}), expected a list of [role, kind, name, "
                "start, end, surface]: drop the cached row and extract again"
            ) from error


def _read_found(item: Sequence[Any]) -> Found:
    role, kind, name, start, end, surface = item
    if role not in _ROLE_SET or kind not in _KIND_SET:
        raise ValueError(f"unknown role {role!r} or kind {kind!r}")
    return Found(cast("Role", role), kind, str(name), int(start), int(end), str(surface))


def _read_stated(item: Sequence[Any]) -> Stated:
    subject, relation, thing, start, end, subject_surface, object_surface = item
    if relation not in _RELATION_SET:
        raise ValueError(f"unknown relation {relation!r}")
    return Stated(
        str(subject), cast("StatedRelation", relation), str(thing), int(start), int(end),
        str(subject_surface), str(object_surface),
    )  # fmt: skip


def _read_alias(item: Sequence[Any]) -> tuple[str, str, str]:
    alias, canonical, detail = item
    return str(alias), str(canonical), str(detail)
