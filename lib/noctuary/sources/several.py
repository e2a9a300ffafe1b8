"""Combine the stores listed in the table [sources] and the own store into one source."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

from noctuary.core.errors import ConfigError, SourceError
from noctuary.core.files import hash_text
from noctuary.core.settings import Settings
from noctuary.core.store import (
    OWN_FILE,
    SourceName,
    expand_user,
    find_home,
    name_source,
)
from noctuary.core.types import SEVERAL
from noctuary.sources.source import (
    KnownEdge,
    KnownMention,
    MemoryLink,
    RawRow,
    Share,
    Source,
    SourceIdentity,
    Told,
)
from noctuary.sources.sqlite import KIND

OWN = "own"  # name of the own store among several
TRANSCRIPTS = "transcripts:"
"""Prefix of a folder of transcripts in [sources]; the folder may be empty."""
EVERY = "*"  # path component that matches every folder, each a store of its own


class Member(NamedTuple):
    """A listed store, or a folder of transcripts."""

    source: SourceName
    is_transcripts: bool = False


def read_members(file: Path) -> dict[str, Member]:
    """Return the stores that a configuration file lists and the own store, sorted by name.

    Relative paths are resolved against the file's folder. ConfigError if the file is invalid.
    """
    listed = Settings.load(file, environ={}).sources
    members = {OWN: Member(find_home() / OWN_FILE)}
    for name, said in listed.items():
        members.update(expand_member(name, said, file.absolute().parent))
    if own := listed.get(OWN):
        raise ConfigError(
            f"{file}: the source {OWN!r} is noctuary's own store, and always read: give {own} "
            "another name"
        )
    return dict(sorted(members.items()))


def expand_member(name: str, said: str, folder: Path) -> Iterator[tuple[str, Member]]:
    """Yield the stores of one line of [sources]: one, or one per folder that * matches."""
    path = said.removeprefix(TRANSCRIPTS)
    source = name_source(path)
    if not isinstance(source, Path):
        yield name, Member(source)
        return
    source = folder / expand_user(source)
    if EVERY not in source.parts:
        yield name, Member(source, is_transcripts=path != said)
        return
    at = source.parts.index(EVERY)
    top, below = Path(*source.parts[:at]), source.parts[at + 1 :]
    try:
        entries = sorted(os.scandir(top), key=lambda entry: entry.name)
    except OSError as error:
        # Without it, all of its memories would be gone from the next snapshot.
        raise SourceError(f"the source {name!r}: {top} cannot be read ({error.strerror})") from None
    for entry in entries:
        found = Path(entry.path, *below)
        if entry.is_dir(follow_symlinks=False) and found.is_dir() and not found.is_symlink():
            plain = re.sub(r"[^\w.-]", "-", entry.name)
            told = plain if plain == entry.name else f"{plain}~{hash_text(entry.name)[:6]}"
            yield f"{name}/{told}", Member(found, is_transcripts=path != said)


class SeveralSources(Source):
    """The rows of several stores, each id prefixed with its store's name: `own:12`."""

    def __init__(self, file: Path, stores: Mapping[str, Source | Path], opened: ExitStack) -> None:
        """Take stores by name (a path if the file does not exist yet); `opened` closes them."""
        self._file, self._stores, self._opened = file.absolute(), stores, opened
        self._members = {n: s for n, s in stores.items() if isinstance(s, Source)}

    def identity(self) -> SourceIdentity:
        """Return the file's path and the kind, location, rows and last id of each store."""
        known = {name: source.identity() for name, source in self._members.items()}
        facts: dict[str, Mapping[str, int | str]] = {
            # Listed because live recall reads new memories there before the next night.
            name: {"kind": KIND, "location": str(path), "rows": 0}
            for name, path in self._stores.items()
            if isinstance(path, Path)
        }
        for name, one in known.items():
            last = {n: one.marker[n] for n in ("last_id",) if n in one.marker}
            rows = self._members[name].count()
            facts[name] = {"kind": one.kind, "location": one.location, "rows": rows, **last}
        notes = tuple(dict.fromkeys(note for one in known.values() for note in one.notes))
        members = dict(sorted(facts.items()))
        marker = {"rows": self.count()}
        return SourceIdentity(SEVERAL, str(self._file), "1", "str", marker, notes, members)

    def count(self) -> int:
        """Return the number of rows of all stores together."""
        return sum(source.count() for source in self._members.values())

    def rows(self) -> Iterator[RawRow]:
        """Yield the rows store by store, by store name; within a store in its own order."""
        for name, source in self._members.items():
            yield from (_add_prefix(row, name) for row in source.rows())

    def rows_of(self, key: str) -> Iterator[RawRow]:
        """Yield the rows of one id from the store that its prefix names."""
        name, _, own = key.partition(":")
        if name in self._members:
            yield from (_add_prefix(row, name) for row in self._members[name].rows_of(own))

    def told(self, noun: type[Told]) -> Iterator[Told]:
        """Yield the relations of each store, with prefixed ids."""
        for name, source in self._members.items():
            for said in source.told(noun):
                yield cast("Told", said._replace(**_prefix_ids(said, name)))

    def close(self) -> None:
        """Close all stores."""
        self._opened.close()


def _add_prefix(row: RawRow, name: str) -> RawRow:
    key = None if row.key is None else f"{name}:{row.key}"
    return replace(row, locator=f"{name}: {row.locator}", key=key)


def _prefix_ids(said: Any, name: str) -> Mapping[str, Any]:
    """Return the memory-id fields of a relation, with the store's name prefixed."""
    match said:
        case MemoryLink():
            return {"from_id": f"{name}:{said.from_id}", "to_id": f"{name}:{said.to_id}"}
        case KnownMention() | Share():
            return {"memory_id": f"{name}:{said.memory_id}"}
        case KnownEdge():
            return {"evidence": tuple(f"{name}:{memory_id}" for memory_id in said.evidence)}
        case _:
            return {}
