"""Several stores as one source: those of the table [sources], and the own store."""

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

OWN = "own"  # its name among several
TRANSCRIPTS = "transcripts:"
"""Prefix of a folder of transcripts, which may be empty by now."""
EVERY = "*"  # as a part of a path: every folder there, each a store of its own


class Member(NamedTuple):
    """One of the stores, or a folder of transcripts."""

    source: SourceName
    is_transcripts: bool = False


def read_members(file: Path) -> dict[str, Member]:
    """Return the stores that a configuration file lists, and the own one, sorted by name.

    Relative paths start from the file's folder. ConfigError where the file has faults.
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
    """Yield the stores of a line of [sources]: one, or one for each folder that * matches."""
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
    """The rows of several stores, each id after the name of its store: `own:12`."""

    def __init__(self, file: Path, stores: Mapping[str, Source | Path], opened: ExitStack) -> None:
        """Take stores by name, which `opened` closes; the path of one that does not exist yet."""
        self._file, self._stores, self._opened = file.absolute(), stores, opened
        self._members = {n: s for n, s in stores.items() if isinstance(s, Source)}

    def identity(self) -> SourceIdentity:
        """Return the file's path, and kind, location, rows and last id of each store."""
        known = {name: source.identity() for name, source in self._members.items()}
        facts: dict[str, Mapping[str, int | str]] = {
            # Recall finds there what is remembered before the next night.
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
        """Return the number of rows of all stores."""
        return sum(source.count() for source in self._members.values())

    def rows(self) -> Iterator[RawRow]:
        """Yield the rows store by store, sorted by name; within a store in its own order."""
        for name, source in self._members.items():
            yield from (_prefixed(row, name) for row in source.rows())

    def rows_of(self, key: str) -> Iterator[RawRow]:
        """Yield the rows of one id from the store that its prefix names."""
        name, _, own = key.partition(":")
        if name in self._members:
            yield from (_prefixed(row, name) for row in self._members[name].rows_of(own))

    def told(self, noun: type[Told]) -> Iterator[Told]:
        """Yield the relations of each store, with prefixed ids."""
        for name, source in self._members.items():
            for said in source.told(noun):
                yield cast("Told", said._replace(**_renamed(said, name)))

    def close(self) -> None:
        """Close all."""
        self._opened.close()


def _prefixed(row: RawRow, name: str) -> RawRow:
    key = None if row.key is None else f"{name}:{row.key}"
    return replace(row, locator=f"{name}: {row.locator}", key=key)


def _renamed(said: Any, name: str) -> Mapping[str, Any]:
    """Return the fields of a relation that hold memory ids, prefixed."""
    match said:
        case MemoryLink():
            return {"from_id": f"{name}:{said.from_id}", "to_id": f"{name}:{said.to_id}"}
        case KnownMention() | Share():
            return {"memory_id": f"{name}:{said.memory_id}"}
        case KnownEdge():
            return {"evidence": tuple(f"{name}:{memory_id}" for memory_id in said.evidence)}
        case _:
            return {}
