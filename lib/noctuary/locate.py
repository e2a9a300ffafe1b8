"""Where things are.

Noctuary's home, the store that belongs to a source, the source that a name leads to.

What belongs here: paths and their precedence. No file contents. A *source* is the memory store that
the user owns and noctuary only reads; a *store* is the directory that noctuary writes for it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from noctuary.errors import ConfigError, SnapshotMissingError, StoreError
from noctuary.hashing import hash_text
from noctuary.source_name import DatabaseName, SourceName, name_source, names_postgres

_CHECKOUT = Path(__file__).resolve().parents[2]
_SLUG_HASH_CHARS = 6


def checkout_root() -> Path | None:
    """Return the repository that this package runs from, or None when it is installed elsewhere."""
    return _CHECKOUT if (_CHECKOUT / "workspace.yaml").is_file() else None


def find_home(environ: Mapping[str, str] | None = None) -> Path:
    """Return noctuary's home.

    `NOCTUARY_HOME`, else the checkout's `data`, else the user's data directory.

    Raises:
        StoreError: If it is named by a `~` that leads nowhere.
    """
    env = os.environ if environ is None else environ
    configured = env.get("NOCTUARY_HOME", "").strip()
    if configured:
        return expand_user(configured).absolute()
    root = checkout_root()
    if root is not None:
        return root / "data"
    base = env.get("XDG_DATA_HOME", "").strip()
    return (Path(base) if base else expand_user("~/.local/share")) / "noctuary"


def expand_user(path: str | Path) -> Path:
    """Return a path with a leading `~` replaced by a home directory.

    Raises:
        StoreError: If there is no such user, or this one has no home directory.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise StoreError(
            f"{path} names no home directory that this machine knows: write the path in full"
        ) from None


def store_for_source(home: Path, source: SourceName) -> Path:
    """Return the store directory of a source: readable name plus a hash of its full path.

    A database's is named after what may be shown of its address, so that a new password or another
    way to name it leads to the same store.
    """
    if isinstance(source, DatabaseName):
        full = source.display
        stem = full.partition("://")[2].rpartition("@")[2]
    else:
        path = expand_user(source).resolve()
        full = str(path)
        stem = path.name if path.is_dir() else f"{path.parent.name}-{path.name.split('.')[0]}"
    slug = re.sub(r"[^\w.-]+", "-", stem).strip("-.") or "store"
    return home / f"{slug}-{hash_text(full)[:_SLUG_HASH_CHARS]}"


def list_stores(home: Path) -> list[Path]:
    """Return every store below a home that has published at least once, sorted by name."""
    if not home.is_dir():
        return []
    return sorted(p.parent for p in home.glob("*/CURRENT"))


def find_store(
    store: str | Path | None, *, home: Path, environ: Mapping[str, str] | None = None
) -> tuple[Path, bool]:
    """Resolve which store a reader means.

    Args:
        store: A store directory, the name of one below `home` or how only its name begins, or the
            source it was built from (a path, `postgresql://...` or `env:NAME`); None means
            `NOCTUARY_STORE`, else the only store of `home`, else the one that published last.
        home: noctuary's home.
        environ: The environment; None means the process's own.

    Returns:
        The store directory and whether it was a guess among several.

    Raises:
        SnapshotMissingError: If nothing was named and `home` holds no published store.
        StoreError: If several names begin so, or the address of a database cannot be read.
    """
    env = os.environ if environ is None else environ
    named = store if store is not None else (env.get("NOCTUARY_STORE", "").strip() or None)
    if named is not None:
        return _named_store(named, home, env), False
    stores = list_stores(home)
    if not stores:
        raise SnapshotMissingError(
            f"no published store under {home}: run `make nightly` (or `make nightly "
            "STORE=path/to/memory.db`) first"
        )
    newest = max(stores, key=lambda p: ((p / "CURRENT").stat().st_mtime_ns, p.name))
    return newest, len(stores) > 1


def _named_store(named: str | Path, home: Path, environ: Mapping[str, str]) -> Path:
    if isinstance(named, str) and names_postgres(named):
        try:
            return store_for_source(home, name_source(named, environ))
        except ConfigError as error:
            raise StoreError(str(error)) from None
    path = expand_user(named)
    # The home first: a project that somebody else made may hold a folder of a store's name.
    for candidate in (home / path, path):
        if (candidate / "CURRENT").is_file() or (candidate / "work").is_dir():
            return candidate.absolute()
    if path.exists():
        return store_for_source(home, path)
    if len(path.parts) > 1:
        return path.absolute()
    begun = [store for store in list_stores(home) if store.name.startswith(path.name)]
    if len(begun) > 1:
        names = ", ".join(store.name for store in begun)
        raise StoreError(f"several stores begin with {named}: {names}; name one in full")
    return begun[0] if begun else home / path
