"""What `noctuary evaluate run` can ask: the serving snapshot, or anything that can be imported.

What belongs here: finding and adapting. No metric, no timing.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from noctuary.cli.common import open_paths
from noctuary.errors import SourceFormatError
from noctuary.locate import find_home, store_for_source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noctuary.evaluate.labels.queries import Query
    from noctuary.recall.engine import Recaller
    from noctuary.recall.profile import RetrievalProfile
    from noctuary.snapshot.layout import StorePaths

DEFAULT_NAME = "noctuary"


@dataclass(frozen=True, slots=True)
class SnapshotRetriever:
    """The serving snapshot of a store, asked the way `recall` asks it.

    Attributes:
        recaller: The pinned snapshot.
        profile: The ranking in force: the settings, what the snapshot's evaluation adopted, and the
            store's own default.
        in_wing: Search only the wing that a query names; else the whole snapshot, and finding the
            right wing is part of the work.
        name: What reports call it.
    """

    recaller: Recaller
    profile: RetrievalProfile
    in_wing: bool = False
    name: str = DEFAULT_NAME

    def retrieve_hits(self, query: Query, k: int) -> list[tuple[str, float]]:
        """Return ids with their final scores, best first; only what existed at `query.as_of`."""
        from noctuary.recall.scope import Scope

        scope = Scope(wing=query.wing if self.in_wing else None, as_of=query.as_of)
        found = self.recaller.recall(query.text, k, profile=self.profile, scope=scope)
        return [(str(memory.id), memory.final_score) for memory in found.memories]

    def retrieve(self, query: str, k: int) -> list[str]:
        """Return ids, best first, of the whole snapshot."""
        found = self.recaller.recall(query, k, profile=self.profile)
        return [str(memory.id) for memory in found.memories]

    @property
    def index_size_bytes(self) -> int:
        """Size of the snapshot's directory."""
        from noctuary.files import tree_bytes

        return tree_bytes(self.recaller.reader.directory)

    def close(self) -> None:
        """Release the snapshot."""
        self.recaller.reader.close()


def open_snapshot(directory: Path, store: str | None, in_wing: bool) -> SnapshotRetriever:
    """Pin the serving snapshot that a set is to be asked of.

    Args:
        directory: The set's folder.
        store: What --store says; None means the store that was built from the set, else the
            configured or only one.
        in_wing: See `SnapshotRetriever`.

    Raises:
        StoreError: If nothing is published.
        ConfigError: If the settings cannot be read.
    """
    from noctuary.recall.engine import Recaller
    from noctuary.recall.profile import configured_profile, read_store_profiles
    from noctuary.settings import Settings

    settings = Settings.load(home=find_home())
    recaller = Recaller.open(_store_of(directory, store).root)
    stored = read_store_profiles(recaller.paths.profiles)
    for warning in stored.warnings:
        click.echo(f"! {warning.code}: {warning.message}", err=True)
    profile = configured_profile(settings, recaller.reader.adopted, stored.tables)
    return SnapshotRetriever(recaller, profile, in_wing)


def require_labels(retriever: SnapshotRetriever, queries: Sequence[Query], directory: Path) -> None:
    """Warn of labels that the snapshot does not hold; refuse a snapshot that holds none of them.

    Raises:
        SourceFormatError: If not one labelled memory is in the snapshot: it is of another source.
    """
    labels = {memory_id for query in queries for memory_id in query.relevant_ids}
    known = retriever.recaller.reader.content_hashes(sorted(labels))
    missing = sorted(labels - known.keys())
    where = f"snapshot {retriever.recaller.snapshot_id} of {retriever.recaller.paths.root}"
    if len(missing) == len(labels):
        raise SourceFormatError(
            f"{where} holds none of the {len(labels)} labelled memories of {directory.name}: it "
            f"was built from another source. Run `make nightly STORE={directory}` or pass --store"
        )
    if missing:
        click.echo(
            f"! labels_not_in_snapshot: {where} lacks {len(missing)} of {len(labels)} labelled "
            f"memories; they count as not found. The first: {missing[:10]}",
            err=True,
        )


def import_retriever(spec: str) -> Any:
    """Return what module:name names; a class is instantiated without arguments.

    The current directory can be imported from, as with `python -m`.

    Raises:
        click.BadParameter: If there is no such module or name, or the class cannot be made.
    """
    module_name, _, attribute = spec.partition(":")
    if not module_name or not attribute:
        raise click.BadParameter(
            f"{spec!r} is not module:name, e.g. my_search:Retriever", param_hint="--retriever"
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = getattr(importlib.import_module(module_name), attribute)
        return found() if isinstance(found, type) else found
    except Exception as error:
        # Foreign code runs here and may raise anything.
        raise click.BadParameter(
            f"cannot make {spec!r}: {type(error).__name__}: {error}", param_hint="--retriever"
        ) from error


def _store_of(directory: Path, store: str | None) -> StorePaths:
    if store is None and (store_for_source(find_home(), directory) / "CURRENT").is_file():
        return open_paths(str(directory))
    return open_paths(store)
