"""Several stores as one source: the table [sources] of a configuration file, and the own store."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

from noctuary.core.errors import ConfigError, NoctuaryError, SourceError, SourceMissingError
from noctuary.core.files import hash_text
from noctuary.core.settings import Settings, SourceSettings
from noctuary.core.store import (
    OWN_FILE,
    SourceName,
    expand_user,
    find_home,
    name_source,
    path_of,
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
    is_several,
    open_source,
)
from noctuary.sources.sqlite import KIND

OWN = "own"  # its name among several
TRANSCRIPTS = "transcripts:"
"""Begins the path of a folder of transcripts: one that is emptied by now looks like none."""
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
    """Yield the stores that a line of [sources] names: one, or one for each folder that * is."""
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
    """The rows of several stores, each id behind the name of its store: `own:12`.

    All are read or none: one that cannot be opened is a SourceError that names it, because a night
    without it would lose its memories. Transcripts are no part of it: a night keeps their turns.
    """

    def __init__(self, file: Path, settings: SourceSettings | None = None) -> None:
        self._file = file.absolute()
        self._members: dict[str, Source] = {}
        # Without a row yet, but known: what is remembered later is found at once.
        self._facts: dict[str, dict[str, int | str]] = {}
        with ExitStack() as opened:
            for name, member in read_members(file).items():
                if member.is_transcripts:
                    continue
                if (source := self._open(name, member.source, settings)) is not None:
                    self._members[name] = opened.enter_context(source)
            self._opened = opened.pop_all()

    def _open(
        self, name: str, source: SourceName, settings: SourceSettings | None
    ) -> Source | None:
        """Open a store; None where there may be nothing yet."""
        if name == OWN and not path_of(source).exists():
            self._facts[name] = {"kind": KIND, "location": str(source), "rows": 0}
            return None
        try:
            if is_several(source):
                raise SourceError(f"{source} lists sources itself; list them here.")
            return open_source(source, settings)
        except (NoctuaryError, OSError) as error:
            if isinstance(error, SourceMissingError) and "/" in name:
                return None  # one of many folders
            raise SourceError(
                f"the source {name!r} of {self._file} cannot be read: {error} Nothing was "
                f"published, and the last snapshot keeps serving. Repair it, or take its line out "
                f"of [sources]: then the next snapshot is without its memories."
            ) from None

    def identity(self) -> SourceIdentity:
        """Return what the file is, and what each store is; a mark says how many rows there are."""
        known = {name: source.identity() for name, source in self._members.items()}
        facts = dict(self._facts)
        for name, one in known.items():
            told = {n: one.marker[n] for n in ("rows", "last_id") if n in one.marker}
            rows = self._members[name].count()
            facts[name] = {"kind": one.kind, "location": one.location, **told, "rows": rows}
        notes = tuple(dict.fromkeys(note for one in known.values() for note in one.notes))
        marker = {"rows": self.count()}
        identity = SourceIdentity(SEVERAL, str(self._file), "1", "str", marker, notes)
        return replace(identity, members=dict(sorted(facts.items())))

    def count(self) -> int:
        """Return the number of rows of all."""
        return sum(source.count() for source in self._members.values())

    def rows(self) -> Iterator[RawRow]:
        """Yield the rows store by store, in the order of their names; inside in the store's own."""
        for name, source in self._members.items():
            for row in source.rows():
                key = None if row.key is None else f"{name}:{row.key}"
                yield replace(row, locator=f"{name}: {row.locator}", key=key)

    def told(self, noun: type[Told]) -> Iterator[Told]:
        """Yield what each store says, with the ids of its memories as they are here."""
        for name, source in self._members.items():
            for said in source.told(noun):
                yield cast("Told", said._replace(**_renamed(said, name)))

    def close(self) -> None:
        """Close all."""
        self._opened.close()


def _renamed(said: Any, name: str) -> Mapping[str, Any]:
    """Return the fields of what a store says that hold ids of memories."""
    match said:
        case MemoryLink():
            return {"from_id": f"{name}:{said.from_id}", "to_id": f"{name}:{said.to_id}"}
        case KnownMention() | Share():
            return {"memory_id": f"{name}:{said.memory_id}"}
        case KnownEdge():
            return {"evidence": tuple(f"{name}:{memory_id}" for memory_id in said.evidence)}
        case _:
            return {}
