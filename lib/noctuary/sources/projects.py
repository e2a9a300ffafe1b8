"""Find the project of a folder: the wing of its turns and of a hook's recall.

A project is its git remote, else its path; its wing is a short name, assigned once and kept.
"""

from __future__ import annotations

import os
import re
import sqlite3
import stat
import unicodedata
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from operator import methodcaller
from pathlib import Path, PurePath
from typing import NamedTuple

MAX_PROJECT_CHARS = 120  # of a name; more costs a longer line per memory in a prompt
_WINDOWS = re.compile(r"[A-Za-z]:[\\/]|\\\\")
_WORKTREES = (".claude", "worktrees")


def project_of(folder: str, wings: Sequence[str] = ()) -> str:
    """Return the name of the project at a path, or "".

    It is the wing of its turns and of a hook's recall: the wing that `wings` (FOLDER=WING) has for
    the nearest folder, else the name of the git repository, else the last folder's. The path need
    not exist; a worktree belongs to its repository.
    """
    if named := wing_in_settings(folder, wings):
        return named
    return _name_of(_repository_of(folder).root or folder)


def wing_in_settings(folder: str, wings: Sequence[str]) -> str:
    """Return the wing of the nearest folder among settings (FOLDER=WING), or ""."""
    named = ((_expanded(place), wing.strip()) for place, _, wing in map(_CUT, wings))
    return max(
        (pair for pair in named if f"{folder}/".startswith(f"{pair[0]}/")), default=("", "")
    )[1]


def _name_of(folder: str) -> str:
    text = unicodedata.normalize("NFC", folder)
    is_windows = _WINDOWS.match(text) is not None
    separators = r"[\\/]+" if is_windows else "/+"
    parts = [p for p in re.split(separators, text) if p.strip() not in ("", ".", "~")]
    if is_windows and parts and parts[0].endswith(":"):
        parts = parts[1:]
    for i in range(1, len(parts) - 1):
        if tuple(parts[i : i + 2]) == _WORKTREES:
            parts = parts[:i]
            break
    name = parts[-1] if parts else ""
    if not re.search(separators, text):
        name = name.lstrip("-")
    return _printable(name)


def _printable(name: str) -> str:
    shown = "".join(" " if unicodedata.category(c)[0] == "C" else c for c in name)
    return " ".join(shown.split())[:MAX_PROJECT_CHARS].strip()


# Wings of projects. Two folders of one name may be two projects, and one project may have two
# folders: the remote decides. The first project of a name gets the name, the next one is prefixed
# with its owner or parent folder; each keeps its wing from then on. The assignments are stored in
# the file of turns, next to the turns that have the wings.

_SCP = re.compile(r"(?:[^@/:\s]+@)?(\[[^\]]+\]|[^/:\s]{2,}):(?!//)(.*)", re.DOTALL)
_URL = re.compile(
    r"([a-z][a-z0-9+.-]*)://(?:[^@/]*@)?(\[[^\]]+\]|[^/:]*)(?::\d*)?(/.*|)", re.I | re.S
)
_HOSTS = {"ssh.github.com": "github.com", "altssh.gitlab.com": "gitlab.com"}  # SSH over port 443
_ANY_CASE = frozenset({"github.com", "gitlab.com", "bitbucket.org"})  # paths are case-insensitive


class Project(NamedTuple):
    """A project's identity, and the possible names of its wing, best first."""

    identity: str  # "github.com/ada/tidemill", or a path
    path: str  # of the folder, or of its repository
    tree: str  # the same, or the root of the worktree
    names: tuple[str, ...]


def find_project(folder: str) -> Project:
    """Return the project of a folder; without a git remote it is identified by path."""
    found = _repository_of(folder)
    path = found.root or _project_path(folder)
    short, remote = _name_of(path), _remote_of(found.config, found.root) if found.root else ""
    above = [p for p in re.split(r"[\\/]+", remote or path)[:-1] if p]
    # Prefixed with the owner, then with the whole path.
    nearer = (_printable(f"{'/'.join(above[-n:])}/{short}") for n in range(1, len(above) + 1))
    digest = zlib.crc32((remote or path).encode("utf-8", "replace"))
    unlike = f"{short[: MAX_PROJECT_CHARS - 9]} {digest:08x}"
    return Project(remote or path, path, found.tree or path, (short, *nearer, unlike))


def choose_wing(folder: str, known: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return the wing of a folder's project, and the assignments to store.

    `known` holds the stored assignments: wings by identity, and by the paths of projects.
    """
    project = find_project(folder)
    if not project.names[0]:
        return "", {}
    wing = known.get(project.identity) or _former_wing(project, known)
    if wing is None:
        taken = set(known.values())
        wing = next((name for name in project.names if name not in taken), project.names[-1])
    keys = (project.identity, project.path, project.tree)
    return wing, {key: wing for key in keys if known.get(key) != wing}


def _former_wing(project: Project, known: Mapping[str, str]) -> str | None:
    """Return the stored wing of a repository that got a remote since, or of a deleted folder."""
    own = known.get(project.path)
    if project.identity != project.path:
        # Another remote at the same path is another project.
        return None if own is None or _has_remote(known, project.path) else own
    if own is None and not Path(project.path).exists():
        home = _expanded("~")
        above = (str(p) for p in PurePath(project.path).parents)
        own = next((known[p] for p in above if p != home and _has_remote(known, p)), None)
    return own


def _has_remote(known: Mapping[str, str], path: str) -> bool:
    """Return whether a path is stored as the repository of a remote."""
    return path in known and any(
        wing == known[path] and not _is_path(key) for key, wing in known.items()
    )


def _is_path(identity: str) -> bool:
    return identity.startswith(("/", "\\")) or _WINDOWS.match(identity) is not None


def _project_path(folder: str) -> str:
    """Return a folder's path without an agent's worktree suffix."""
    head, found, _ = unicodedata.normalize("NFC", folder).partition(
        "/" + "/".join(_WORKTREES) + "/"
    )
    return (head if found and head else folder).rstrip("/") or folder


def _remote_of(config: str, root: str) -> str:
    """Return the normalised URL of a repository's remote: origin, else the first; or ""."""
    remotes: dict[str, str] = {}
    for section, key, value in _read_config(config):
        name = re.fullmatch(r'remote\s*"(.*)"', section, re.I)
        if name is not None and key == "url" and value:
            remotes.setdefault(name[1], value)
    url = remotes.get("origin") or next(iter(remotes.values()), "")
    return normalize_remote(url, root) if url else ""


def normalize_remote(url: str, root: str = "") -> str:
    """Normalise a repository's URL so that all spellings agree: "github.com/ada/tidemill"."""
    url = url.strip()
    match = _URL.fullmatch(url)
    is_file = match is not None and match[1].casefold() == "file"
    named = None if is_file else match or _SCP.fullmatch(url)
    if named is None:
        local = match[match.lastindex or 0] if match is not None else url
        path = os.path.normpath(Path(root, local))
        return re.sub(r"(?:/|(?<=[^/]))\.git\Z", "", path)
    host, path = named[named.re.groups - 1], named[named.re.groups]
    host = host.casefold().rstrip(".").removeprefix("www.")
    host = _HOSTS.get(host, host)
    path = re.sub(r"\.git\Z", "", "/".join(p for p in path.split("/") if p), flags=re.IGNORECASE)
    return f"{host}/{path.casefold() if host in _ANY_CASE else path}"


_MAX_CONFIG_BYTES = 1_000_000


def _read_config(path: str) -> Iterator[tuple[str, str, str]]:
    """Yield section, key and value of each setting in a git config; nothing if unreadable."""
    section = text = ""
    with suppress(OSError, ValueError):
        if path and stat.S_ISREG(Path(path).stat().st_mode):
            with Path(path).open("rb") as raw:
                text = raw.read(_MAX_CONFIG_BYTES).decode("utf-8", "surrogateescape")
    for line in text.splitlines():
        plain = line.strip()
        if found := re.match(r"\[([^\]]*)\]", plain):
            section, plain = found[1].strip(), plain[found.end() :].strip()
        key, equals, value = plain.partition("=")
        if equals and not key.startswith(("#", ";")):
            value = re.sub(r"\s[#;].*\Z", "", value.strip())
            yield section, key.strip().casefold(), value.strip().strip('"')


PROJECT = "project:"  # prefix of facts in turns.sqlite: identity or path of a project -> wing


def known_projects(db: sqlite3.Connection) -> dict[str, str]:
    """Return the stored wings of projects, by identity and path."""
    sql = "SELECT substr(name, ?), value FROM facts WHERE name >= ? AND name < ?"
    return dict(db.execute(sql, (len(PROJECT) + 1, PROJECT, f"{PROJECT[:-1]};")))


def wing_of(folder: str, turns: Path, wait_s: float) -> str:
    """Return the stored or future wing of a folder; stores nothing."""
    known: dict[str, str] = {}
    if turns.is_file():
        try:
            uri = f"{turns.absolute().as_uri()}?mode=ro"
            with closing(sqlite3.connect(uri, uri=True, timeout=wait_s)) as db:
                known = known_projects(db)
        except sqlite3.Error:
            return project_of(folder)
    return choose_wing(folder, known)[0]


_CUT = methodcaller("rpartition", "=")
_GIT_LEVELS = 40  # parent folders to search for a repository
_GIT_LINK = re.compile(r"gitdir: ([^\n]+)")


def _expanded(place: str) -> str:
    with suppress(RuntimeError):  # no such user
        return str(Path(place).expanduser())
    return place


class _Repository(NamedTuple):
    """A git repository; empty strings if there is none."""

    root: str = ""
    config: str = ""  # path of its git config
    tree: str = ""  # root of the worktree; else the repository's root


def _repository_of(folder: str) -> _Repository:
    """Return the git repository that contains a folder."""
    start, home = Path(folder), Path(_expanded("~"))
    for place in (start, *start.parents)[:_GIT_LEVELS] if start.is_absolute() else ():
        # Dotfile repositories at the home folder do not contain the projects below it.
        if place == home != start:
            break
        git = place / ".git"
        with suppress(OSError, ValueError):
            mode = git.stat().st_mode
            if stat.S_ISDIR(mode):
                return _Repository(str(place), str(git / "config"), str(place))
            if stat.S_ISREG(mode):
                return _linked_repository(git)._replace(tree=str(place))
    return _Repository()


def _linked_repository(git: Path) -> _Repository:
    """Return the repository of a worktree or a submodule, from its `.git` file."""
    with git.open("rb") as handle:
        found = _GIT_LINK.match(handle.read(4_096).decode("utf-8", "replace"))
    if found is None:
        return _Repository(str(git.parent))
    link = PurePath(os.path.normpath(git.parent / found[1].strip()))
    if link.parent.name != "worktrees":
        return _Repository(str(git.parent), str(link / "config"))
    common = link.parent.parent
    root = common.parent if common.name == ".git" else common.with_suffix("")
    return _Repository(str(root), str(common / "config"))
