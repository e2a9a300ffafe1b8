"""Where a store and everything in it lies, and which store is meant."""

# Not `from __future__ import annotations`: NamedTuple compiles each annotation that is a text.
import os
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from noctuary.core.errors import ConfigError, SnapshotMissingError, StoreError
from noctuary.core.files import hash_text, write_text

SCHEMES = ("postgresql://", "postgres://")
VARIABLE = "env:"
"""Begins the name of an environment variable that holds the address: a command line can be read by
every user of the machine."""


class DatabaseName(NamedTuple):
    """A PostgreSQL database."""

    spec: str  # as it was named: `postgresql://...` or `env:NAME`
    conninfo: str  # the address itself, password included
    display: str  # user, host, port and database; what its store is named after

    def __str__(self) -> str:
        return self.display

    def __repr__(self) -> str:
        return f"DatabaseName(display={self.display!r})"  # the others may hold a password


SourceName = Path | DatabaseName


def names_postgres(source: str) -> bool:
    """Return whether a source is given as an address or a variable that holds one."""
    return source.startswith((*SCHEMES, VARIABLE))


def name_source(named: str | Path, environ: Mapping[str, str] | None = None) -> SourceName:
    """Return the source that a text or a path names."""
    if isinstance(named, Path) or not names_postgres(named):
        return Path(named)
    conninfo = named
    if named.startswith(VARIABLE):
        name = named.removeprefix(VARIABLE)
        conninfo = (os.environ if environ is None else environ).get(name, "").strip()
        if not conninfo.startswith(SCHEMES):
            what = "something else" if conninfo else "nothing"
            raise ConfigError(
                f"the environment variable {name!r} holds {what}; expected postgresql://..."
            )
    return DatabaseName(named, conninfo, _display(conninfo))


def _display(conninfo: str) -> str:
    try:
        parts = urlsplit(conninfo)
    except ValueError:
        # Its text quotes the address.
        raise ConfigError(
            "the address of the PostgreSQL source cannot be read; expected "
            "postgresql://USER@HOST:PORT/DATABASE"
        ) from None
    said = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    login, _, place = parts.netloc.rpartition("@")
    user = said.get("user") or unquote(login.partition(":")[0])
    # There may be several hosts, each with its port.
    host = said.get("host") or unquote(place)
    database = said.get("dbname") or unquote(parts.path.lstrip("/"))
    at, port = f"{user}@" if user else "", f":{said['port']}" if "port" in said else ""
    return f"postgresql://{at}{host}{port}/{database}"


def path_of(source: SourceName) -> Path:
    """Return the path of a source that is one."""
    if isinstance(source, DatabaseName):
        raise ConfigError(f"{source} is a database; expected a path")
    return source


OWN_FILE = "memories.sqlite"  # the own store, below the home
OWN_PREFIX = "own:"  # begins ids of the own store among several
# "noct": marks the file as noctuary's, not another claude-memory store
OWN_APPLICATION_ID = 0x6E6F6374

DIGEST_NAME_CHARS = 16
"""Of a candidate's digest, in its directory name: 64 bits among a handful of candidates."""

MANIFEST_FILE = "manifest.json"
ROWS_FILE = "rows.sqlite"
ARRAYS_FILE = "arrays.safetensors"  # every array but the vectors, by "group.field"
VECTORS_FILE = "vectors_full.npy"  # in its own file: copied as the night wrote it, read in rows
TIER_EXITS_FILE = "tier_exits.json"  # only there where a store is large enough for a tier
# Only there where the evaluation adopted another ranking than the settings', or where labelled
# queries told below which score nothing is an answer. A pack's digest counts neither.
RANKING_FILE = "ranking.json"
ABSTENTION_FILE = "abstention.json"
SEALED_FILES = (RANKING_FILE, ABSTENTION_FILE)
SHARED_WITH = "shared_with"
"""Key of table `meta`, there where arrays of shares are: who memories are shared with, sorted."""
FACETS = ("wing", "room", "category", "user", "session_id")


def is_snapshot_id(name: str) -> bool:
    """Return whether a name is that of a published snapshot's directory."""
    return re.fullmatch(r"\d{8}T\d{12}-[0-9a-f]{12}", name) is not None


class _Below:
    """A place below a store's root."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, paths: "StorePaths", owner: type | None = None) -> Path:
        return _join(paths.root, self._name)


@lru_cache(maxsize=1_024)
def _join(root: Path, name: str) -> Path:
    """Return a place below a store, made once: a recall asks for fifteen."""
    return root / name


class StorePaths(NamedTuple):
    """The directories and files of one store."""

    root: Path

    work = _Below("work")  # intermediate artifacts of the night and their stamps
    costs = _Below("work/costs.json")  # what each asset cost in the last night that ran it
    lance = _Below("lance")  # LanceDB tables: a rebuildable projection
    encoders = _Below("encoders")  # for reading, and ONNX exports for embedding, by fingerprint
    rotations = _Below("rotations")  # frozen ones of the tiers, one directory per fingerprint
    candidates = _Below("candidates")  # of snapshots, by digest, waiting for a verdict
    verdicts = _Below("verdicts")  # of the gate, by candidate digest
    snapshots = _Below("snapshots")  # published, immutable
    current = _Below("CURRENT")  # the pointer to the serving snapshot
    last_night = _Below("LAST_NIGHT")  # touched by every night that went through
    purge_pending = _Below("purge.pending")  # while older snapshots hold a row turned sensitive
    hashes = _Below("hashes.json")  # of files by inode, size and times: the next night reads less
    quiet = _Below("quiet.json")  # the state after the last night, by which a night sees no change
    lock = _Below("nightly.lock")  # held by the running night
    reports = _Below("reports")  # one HTML page per evaluated night
    dagster_home = _Below("dagster")  # the Dagster instance of this store
    # Written by the owner, only read by noctuary.
    merges = _Below("merges.toml")  # names that are, or never are, one concept
    # Written between nights.
    access_log = _Below("access.sqlite")  # past retrievals; the only file that recall writes
    queries = _Below("queries.sqlite")  # only written while a profile expands queries
    replays = _Below("replays.sqlite")  # packets to re-run queries, if a profile asks for them
    usage = _Below("usage.sqlite")  # use counts for recall; the night replaces it
    archive = _Below("archive.sqlite")  # which memories are out of default recall; replaced whole
    injections = _Below("injected.sqlite")  # hashes of injected memories; no text
    turns = _Below("turns.sqlite")  # of transcripts: kept, because agents delete those files


def record_night(paths: StorePaths) -> None:
    """Note that a night went through now, whether it published or not."""
    write_text(paths.last_night, datetime.now(UTC).isoformat(timespec="seconds") + "\n")


def last_night_hours(paths: StorePaths) -> float | None:
    """Return how long ago a night went through, published or not; None if none ever did."""
    try:
        touched = paths.last_night.stat().st_mtime
    except OSError:
        return None
    return max((time.time() - touched) / 3600.0, 0.0)


# A *source* is the memory store that the user owns and noctuary only reads; a *store* is the
# directory that noctuary writes for it.


_OLD_HOME = Path(__file__).parents[3] / "data"
"""Where a checkout kept its stores before all installations had one home (docs/decisions/0002)."""


def find_home(environ: Mapping[str, str] | None = None) -> Path:
    """Return noctuary's home: `NOCTUARY_HOME`, else the user's data directory."""
    env = os.environ if environ is None else environ
    configured = env.get("NOCTUARY_HOME", "").strip()
    return expand_user(configured).absolute() if configured else _user_home(env)


_CACHES = {
    "TORCHINDUCTOR_CACHE_DIR": "torchinductor",
    "TRITON_CACHE_DIR": "triton", "TORCH_EXTENSIONS_DIR": "torch_extensions",
}  # fmt: skip


def keep_caches_in_home() -> None:
    """Let libraries that a night imports keep their files below the home; call it before that.

    A place that the user chose stays.
    """
    for variable, name in _CACHES.items():
        os.environ.setdefault(variable, str(find_home() / "cache" / name))


def _user_home(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_DATA_HOME", "").strip()
    return (Path(base) if base else expand_user("~/.local/share")) / "noctuary"


def require_moved(home: Path, environ: Mapping[str, str] | None = None) -> None:
    """Fail where this checkout still holds stores or settings that belong into the user's home."""
    left = [*_OLD_HOME.glob("*/work"), *_OLD_HOME.glob("noctuary.toml")]
    if left and home == _user_home(os.environ if environ is None else environ):
        # The checkout's own data/sample stays where it is.
        moved = " ".join(str(p) for p in sorted(_OLD_HOME.iterdir()) if p.name != "sample")
        raise StoreError(
            f"stores of this checkout lie in {_OLD_HOME}, and noctuary's home is {home} now: move "
            f"them with `mkdir -p {home} && mv {moved} {home}`, or leave them there and set "
            f"NOCTUARY_HOME={_OLD_HOME}"
        )


def expand_user(path: str | Path) -> Path:
    """Return a path with a leading `~` replaced by a home directory."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise StoreError(
            f"{path} names no home directory that this machine knows: write the path in full"
        ) from None


def store_for_source(home: Path, source: SourceName) -> Path:
    """Return the store directory of a source: readable name plus a hash of its full path."""
    # A database is named by the public part of its address: a new password or another way to
    # name it leads to the same store.
    if isinstance(source, DatabaseName):
        full = source.display
        stem = full.partition("://")[2].rpartition("@")[2]
    else:
        path = expand_user(source).resolve()
        full = str(path)
        stem = path.name if path.is_dir() else f"{path.parent.name}-{path.name.split('.')[0]}"
    slug = re.sub(r"[^\w.-]+", "-", stem).strip("-.") or "store"
    return home / f"{slug}-{hash_text(full)[:6]}"


def list_stores(home: Path) -> list[Path]:
    """Return every store below a home that has published at least once, sorted by name."""
    if not home.is_dir():
        return []
    return sorted(p.parent for p in home.glob("*/CURRENT"))


def find_store(
    store: str | Path | None, *, home: Path, environ: Mapping[str, str] | None = None
) -> tuple[Path, bool]:
    """Return the store that a reader means, and whether it was a guess among several.

    `store` is its directory, its name below `home` or the beginning of it, or the source that it
    was built from (a path, `postgresql://...` or `env:NAME`). None means `NOCTUARY_STORE`, else the
    only store of `home`, else the one that published last.
    """
    env = os.environ if environ is None else environ
    named = store if store is not None else (env.get("NOCTUARY_STORE", "").strip() or None)
    if named is not None:
        return _named_store(named, home, env), False
    stores = list_stores(home)
    if not stores:
        require_moved(home, env)
        raise SnapshotMissingError(
            f"no published store under {home}: run `noctuary nightly` (or `noctuary nightly "
            "path/to/memory.db`) first"
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
    # The home first: another person's project may hold a folder of a store's name.
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
    if not begun:
        require_moved(home, environ)
    return begun[0] if begun else home / path
