"""What one server may see: a store, a user and a wing, fixed when it starts.

What belongs here: opening the serving snapshot under that view, and what may be seen of it. What
does not: answering anything. Who calls the server chooses nothing of the view; default deny as in
every recall (`noctuary.recall.scope`).
"""

from __future__ import annotations

import difflib
import gc
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.errors import NoctuaryError, SnapshotCorruptError, StoreError
from noctuary.graph.view.names import NameBook
from noctuary.graph.view.opening import GraphFiles, Looking, open_graph
from noctuary.graph.view.source import GraphSource
from noctuary.locate import find_home, find_store
from noctuary.recall.engine import Recaller
from noctuary.recall.result import RecallWarning
from noctuary.recall.scope import Mask, Scope, build_mask
from noctuary.recall.serving import find_serving
from noctuary.snapshot import layout

FACETS = ("wing", "room", "category")
"""What a recall may be narrowed to."""

_NEAR_SHOWN = 3
"""Similar values offered where one is unknown."""


def is_text(name: str) -> bool:
    """Say whether a name can be one of anything: half a character outside of UTF-8 cannot."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


class UnknownItemError(StoreError):
    """Nothing of this id or name is there for this server."""


class OutsideViewError(NoctuaryError, ValueError):
    """A call asks for what this server was not started for."""


class Seen(NamedTuple):
    """A pinned snapshot, and what of it may be seen.

    Attributes:
        recaller: The snapshot.
        allowed: Which memories, shape (n,).
        user: Whose they are besides those of nobody, or None.
        warnings: What is to be said about the snapshot.
    """

    recaller: Recaller
    allowed: Mask
    user: str | None
    warnings: tuple[RecallWarning, ...]

    def position_of(self, item_id: str) -> int | None:
        """Return where a memory or a summary stands; None where it may not be seen or is not there.

        A summary may be seen where every memory that it stands for may.
        """
        reader = self.recaller.reader
        if not is_text(item_id):
            return None
        position = reader.positions_of([item_id]).get(item_id)
        if position is None:
            position = reader.summaries.position_of(item_id)
        if position is None:
            return None
        stands_for = [position]
        if position >= reader.count:
            stands_for = list(reader.summaries.at(position).sources)
        return position if bool(self.allowed[stands_for].all()) else None

    def find(self, item_id: str) -> int:
        """Return where a memory or a summary that may be seen stands.

        Raises:
            UnknownItemError: There is none.
        """
        position = self.position_of(item_id)
        if position is None:
            raise UnknownItemError(
                f"there is no memory {item_id!r} here: ids are those that recall returns. It may "
                "be newer than the last night, forgotten since, or not for this server to see"
            )
        return position

    def values_of(self, facet: str) -> tuple[str, ...]:
        """Return the values of a facet that visible memories have, sorted."""
        found = self.recaller.reader.facets[facet]
        codes: NDArray[np.int32] = np.unique(found.codes[self.allowed])
        return tuple(sorted(found.values[code] for code in codes[codes >= 0].tolist()))

    def unknown_facets(self, asked: dict[str, str | None]) -> tuple[RecallWarning, ...]:
        """Return a warning for every value that no visible memory has, with similar ones that are.

        Recall's own warnings judge and suggest by the whole snapshot: they would tell that others
        have a wing of this name, and what their wings are called.
        """
        warnings: list[RecallWarning] = []
        for facet, wanted in asked.items():
            values = () if wanted is None else self.values_of(facet)
            if wanted is None or wanted in values:
                continue
            near = difflib.get_close_matches(wanted, values, n=_NEAR_SHOWN, cutoff=0.5)
            hint = f"near: {', '.join(near)}" if near else f"there are {len(values)}"
            message = f"no memory here has {facet} {wanted!r}; {hint}"
            warnings.append(RecallWarning(f"unknown_{facet}", message))
        return tuple(warnings)

    @contextmanager
    def graph(self) -> Generator[tuple[GraphSource, NameBook]]:
        """Open the graph as far as it may be seen; for one thread.

        Raises:
            StoreError: The snapshot is too old for it.
        """
        reader = self.recaller.reader
        looking = Looking(
            self.allowed, reader.created_at_us, reader.relations, reader.id_kind == "int"
        )
        files = GraphFiles.locate(
            reader.directory, layout.ROWS_FILE, layout.mention_file, layout.graph_file
        )
        with open_graph(files, looking) as source:
            yield source, NameBook(source)


class View:
    """What a server answers for; safe to share between threads.

    Attributes:
        user: Whose memories besides those of nobody; None: only those of nobody.
        wing: The only wing, or None for all.
    """

    def __init__(
        self, store: str | Path | None = None, *, user: str | None = None, wing: str | None = None
    ) -> None:
        self.user = user
        self.wing = wing
        self._asked = store
        self._directory: Path | None = None
        self._guessed: tuple[RecallWarning, ...] = ()
        self._snapshot_id: str | None = None
        self._lock = threading.Lock()

    @property
    def scope(self) -> Scope:
        """What may be seen, as a recall's filters."""
        return Scope(wing=self.wing, user=self.user)

    def store(self) -> Path:
        """Return the store directory: the first one found, for as long as the server runs.

        Another store that publishes later must not take this one's place between two calls.

        Raises:
            StoreError: There is none yet.
        """
        with self._lock:
            if self._directory is None:
                directory, guessed = find_store(self._asked, home=find_home())
                if guessed:
                    message = (
                        f"several stores exist; this server answers for {directory.name}, which "
                        "published last when it was first asked: start it with --store"
                    )
                    self._guessed = (RecallWarning("store_guessed", message),)
                self._directory = directory
            return self._directory

    def store_warnings(self) -> tuple[RecallWarning, ...]:
        """Return what is to be said about the choice of the store."""
        return self._guessed

    @contextmanager
    def open(self) -> Generator[Seen]:
        """Pin what serves now, for one call.

        Raises:
            StoreError: There is no store, or nothing published that can be read: also where
                damage shows while it is read.
        """
        serving, warnings = find_serving(self.store())
        recaller = serving.recaller
        self.release_after_swap(recaller.snapshot_id)
        reader = recaller.reader
        mask, _ = build_mask(self.scope, reader.facets, reader.created_at_us)
        if mask is None:
            mask = np.ones(reader.count, dtype=np.bool_)
        try:
            yield Seen(recaller, mask, self.user, (*self.store_warnings(), *warnings))
        except (NoctuaryError, OSError):
            raise
        # Damage below the reach of the quick check raises whatever the step that meets it raises.
        except Exception as error:
            raise SnapshotCorruptError(
                f"{type(error).__name__} in {recaller.snapshot_id}: run `noctuary doctor`"
            ) from error

    def release_after_swap(self, snapshot_id: str | None) -> None:
        """Close the files of a snapshot that was replaced.

        A sqlite3 connection is part of a reference cycle: in a process that allocates little, the
        collector may come by only after many nights, and removed snapshots would keep their space.
        """
        with self._lock:
            replaced = self._snapshot_id not in (None, snapshot_id)
            self._snapshot_id = snapshot_id
        if replaced:
            gc.collect()

    def narrowed_to(self, wing: str | None) -> str | None:
        """Return the wing that a call searches.

        Raises:
            OutsideViewError: It asks for another one than the server's.
        """
        if self.wing is None or wing is None or wing == self.wing:
            return self.wing if wing is None else wing
        raise OutsideViewError(
            f"this server answers for the wing {self.wing!r} only, and {wing!r} was asked for: "
            "leave wing out"
        )
