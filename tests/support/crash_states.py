"""What a power cut may leave of the files that a program writes: recorded, then enumerated.

strace records what the program asks of the system below one directory. The model of the disk is
POSIX's, which is weaker than any file system in use: the bytes of a file are on disk once that file
is flushed, a name once its directory is (the one it goes to, where it is moved). What is not may be
there, or not, or in part, in any order. A rename is one change. What a flush failed for may be lost
although a later one succeeds, as the system calls it written.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

STRACE = shutil.which("strace")
LINKED_BYTES = 1 << 16
"""From this size on, a file that the program left alone is linked, not copied, into a tree."""

_CALLS = (
    "open,openat,creat,write,pwrite64,writev,pwritev,pwritev2,lseek,ftruncate,truncate,fallocate,"
    "sendfile,copy_file_range,fsync,fdatasync,rename,renameat,renameat2,link,linkat,unlink,unlinkat,"
    "rmdir,mkdir,mkdirat,symlink,symlinkat,mmap,sync,syncfs"
)  # fmt: skip
_RANDOM_SPECS = 4  # of each moment


class Event(NamedTuple):
    """One thing that a program did to a file or directory below the root, named from there."""

    kind: str
    path: str = ""
    other: str = ""  # where it is moved or linked to, or copied from
    fd: int = -1
    offset: int | None = None  # None: where the descriptor stands
    data: bytes = b""
    size: int = 0  # to cut to, or to copy


@dataclass(frozen=True)
class Recording:
    """What a program did below a directory."""

    before: Path  # a copy of the directory as it was
    events: tuple[Event, ...]
    code: int  # exit code
    mapped: frozenset[str]  # files that it may have written through memory, unseen

    def count(self, kind: str) -> int:
        """Return how many events are of a kind."""
        return sum(event.kind == kind for event in self.events)

    def below(self, name: str) -> Recording:
        """Return what happened below a directory, and what was said after "NAME:"."""
        mark, found = f"{name}:".encode(), list[Event]()
        for event in self.events:
            if event.kind == "say" and event.data.startswith(mark):
                found.append(event._replace(data=event.data[len(mark) :]))
            elif f"{event.path}/".startswith(f"{name}/"):
                path, other = event.path[len(name) + 1 :], event.other.removeprefix(f"{name}/")
                found.append(event._replace(path=path, other=other))
        below = (one.removeprefix(f"{name}/") for one in self.mapped if one.startswith(f"{name}/"))
        return Recording(self.before / name, tuple(found), self.code, frozenset(below))


@dataclass(frozen=True)
class State:
    """A tree that a power cut may leave, and what the program had said by then."""

    at: int  # events that had happened
    what: str  # which of them are on disk
    said: str
    files: Mapping[str, bytes | Path | None]  # None is a directory

    def write(self, target: Path) -> Path:
        """Make the tree; the files that are linked must not be changed in place."""
        target.mkdir(mode=0o700, parents=True)
        for name, content in self.files.items():
            path = target / name
            if content is None:
                path.mkdir(mode=0o700)
            elif isinstance(content, Path):
                os.link(content, path)
            else:
                path.write_bytes(content)
        return target


def record(
    words: Sequence[str],
    root: Path,
    before: Path,
    *,
    env: Mapping[str, str],
    cwd: Path,
    inject: str | None = None,
) -> Recording:
    """Run a program to its end and return what it did below `root`; `before` gets a copy of that.

    What it writes to its standard output is what it said. AssertionError where what was recorded
    does not lead to the tree that the program left: then something was not seen. `inject` is a
    fault as strace takes it.
    """
    assert STRACE is not None
    root = root.resolve()
    shutil.copytree(root, before, symlinks=True)
    trace = before.with_name(f"{before.name}.strace")
    command = [STRACE, "-f", "-y", "-xx", "-s", str(1 << 26), "--seccomp-bpf", "-e"]
    command += [f"trace={_CALLS}", "-o", str(trace)]
    command += [*(() if inject is None else ("-e", f"inject={inject}")), *words]
    done = subprocess.run(command, env=env, cwd=cwd, stdout=subprocess.PIPE, check=False)
    reader = _TraceReader(root, cwd)
    with trace.open("rb") as lines:
        events = tuple(event for line in lines for event in reader.read(line))
    trace.unlink()
    recording = Recording(before, events, done.returncode, frozenset(reader.mapped))
    _require_same(recording, root)
    return recording


def crash_states(
    recording: Recording, moments: Sequence[int] | None = None, *, seed: int = 0
) -> Iterator[State]:
    """Yield every tree that one deviation leaves, and some of several, each tree once.

    After each event: everything is on disk, or only what was flushed; all but one change, or one
    change only; one file old, cut in half, or with its latter half only, the others whole; one
    whole, the others old; and a few random choices. With `moments`, numbers of events that had
    happened, one of these for each of them, by chance.
    """
    chooser = random.Random(seed)
    drawn = None if moments is None else Counter(moments)
    seen: set[tuple[str, frozenset[tuple[str, int]]]] = set()
    disk = _Disk(recording.before)
    for at in range(len(recording.events) + 1):
        if at:
            disk.apply(recording.events[at - 1])
        times = None if drawn is None else drawn[at]
        if times == 0:
            continue
        specs = disk.specs(chooser)
        for spec in specs if times is None else chooser.choices(specs, k=times):
            files = disk.tree(spec)
            key = disk.said, frozenset((name, hash(held)) for name, held in files.items())
            if key not in seen:
                seen.add(key)
                yield State(at, spec.what, disk.said, files)


# The disk: what programs see, what is on it, and what may be.


@dataclass(eq=False)
class _Node:
    """A file or a directory, whatever its names."""

    names: dict[str, _Node] | None = None  # of a directory, as programs see it
    on_disk: dict[str, _Node] = field(default_factory=dict["str", "_Node"])
    data: bytearray = field(default_factory=bytearray)  # of a file, as programs see it
    flushed: bytes = b""
    pending: list[tuple[int, bytes | None]] = field(default_factory=list[tuple[int, bytes | None]])
    origin: Path | None = None  # of a large file that was not changed
    is_whole: bool = True  # whether no flush has failed for any of its bytes
    _known: dict[str, bytes] = field(default_factory=dict[str, bytes])

    def change(self, offset: int, data: bytes | None) -> None:
        """Write some bytes, or cut the file to `offset`."""
        self.origin = None
        self.pending.append((offset, data))
        _write(self.data, offset, data)
        self._known.clear()

    def flush(self) -> bool:
        """Let all last but what an earlier flush has failed for; say whether that is all."""
        self.flushed = self._content("full" if self.is_whole else "pending")
        self.pending.clear()
        self._known.clear()
        return self.is_whole

    def fail_to_flush(self) -> None:
        """Take what is pending for written, as the system does: no later flush helps it."""
        self.is_whole = self.is_whole and not self.pending
        self.pending.clear()
        self._known.clear()

    def content(self, how: str) -> bytes | Path:
        """Return what may be on disk: "full", "old", "half" or "late"."""
        if self.origin is not None:
            return self.origin
        if how not in self._known:
            self._known[how] = self._content(how)
        return self._known[how]

    def _content(self, how: str) -> bytes:
        if how == "full":
            return bytes(self.data)
        if how == "old" or not self.pending:
            return self.flushed
        size = sum(len(d or b"") for _, d in self.pending)
        found, left = bytearray(self.flushed), 0 if how == "pending" else size // 2
        how = "late" if how == "pending" else how
        for offset, data in self.pending:
            first, last = (data, data) if data is None else (data[:left], data[left:])
            if how == "half" and (data is None or first):
                _write(found, offset, first)
            elif how == "late" and (data is None or last):
                _write(found, offset + len(first or b""), last)
            left = max(0, left - len(data or b""))
        return bytes(found)


def _write(found: bytearray, offset: int, data: bytes | None) -> None:
    if data is None:
        del found[offset:]
    if len(found) < offset:
        found.extend(bytes(offset - len(found)))
    if data is not None:
        found[offset : offset + len(data)] = data


class _Change(NamedTuple):
    """A change of names: (directory, name, what is there then, what was)."""

    sets: tuple[tuple[_Node, str, _Node | None, _Node | None], ...]
    by: _Node  # the directory that makes it last when it is flushed
    what: str


class _Spec(NamedTuple):
    """Which of the pending changes are on disk."""

    what: str
    changes: frozenset[int]
    how: str  # for all files but these
    files: Mapping[_Node, str] = {}


class _Disk:
    def __init__(self, before: Path) -> None:
        self.root = _load(before)
        self.said = ""
        self._changes: list[_Change] = []
        self._dirty: dict[_Node, str] = {}  # files with bytes that were not flushed, and a name
        self._stands: dict[tuple[_Node, int], int] = {}  # where a descriptor stands

    def apply(self, event: Event) -> None:
        """Let an event happen."""
        doing: Callable[[Event], None] = getattr(self, f"_{event.kind}")
        doing(event)

    def find(self, path: str) -> _Node | None:
        """Return what programs see at a path."""
        node: _Node | None = self.root
        for part in path.split("/") if path else ():
            node = node.names.get(part) if node is not None and node.names is not None else None
        return node

    def _say(self, event: Event) -> None:
        self.said += event.data.decode("utf-8", "replace")

    def _open(self, event: Event) -> None:
        node = self.find(event.path)
        if node is None:
            node = _Node()
            self._set(event.path, node)
        elif event.size == 0 and node.data:
            self._change(node, 0, None, event.path)
        self._stands[node, event.fd] = 0

    def _seek(self, event: Event) -> None:
        if (node := self.find(event.path)) is not None:
            self._stands[node, event.fd] = event.offset or 0

    def _write(self, event: Event) -> None:
        node = self._existing(event.path)
        offset = event.offset
        if offset is None:
            offset = self._stands.get((node, event.fd), 0)
            self._stands[node, event.fd] = offset + len(event.data)
        self._change(node, len(node.data) if offset < 0 else offset, event.data, event.path)

    def _copy(self, event: Event) -> None:
        source = self.find(event.other)
        data = Path(event.other).read_bytes() if source is None else bytes(source.data)
        start = event.offset or 0
        self._write(event._replace(offset=None, data=data[start : start + event.size]))

    def _cut(self, event: Event) -> None:
        self._change(self._existing(event.path), event.size, None, event.path)

    def _extend(self, event: Event) -> None:
        node = self._existing(event.path)
        if event.size > len(node.data):
            self._change(node, event.size, None, event.path)

    def _sync(self, event: Event) -> None:
        if (node := self.find(event.path)) is None:
            return
        if node.names is None:
            if node.flush():
                self._dirty.pop(node, None)
            return
        for change in [change for change in self._changes if change.by is node]:
            self._settle(change)

    def _fail_to_sync(self, event: Event) -> None:
        node = self.find(event.path)
        if node is not None and node.names is None:
            node.fail_to_flush()

    def _sync_all(self, event: Event) -> None:
        self._dirty = {node: path for node, path in self._dirty.items() if not node.flush()}
        for change in [*self._changes]:
            self._settle(change)

    def _settle(self, change: _Change) -> None:
        """Let a change last, and what was done before it to the same names."""
        if change not in self._changes:
            return
        touched = {(id(directory), name) for directory, name, _, _ in change.sets}
        for earlier in self._changes[: self._changes.index(change)]:
            if touched & {(id(directory), name) for directory, name, _, _ in earlier.sets}:
                self._settle(earlier)
        self._changes.remove(change)
        for directory, name, node, was in change.sets:
            _set(directory.on_disk, name, node, was)

    def _mkdir(self, event: Event) -> None:
        self._set(event.path, _Node(names={}))

    def _unlink(self, event: Event) -> None:
        self._set(event.path, None)

    def _link(self, event: Event) -> None:
        self._set(event.other, self._existing(event.path))

    def _rename(self, event: Event) -> None:
        node = self._existing(event.path)
        (old, old_name), (new, new_name) = self._place(event.path), self._place(event.other)
        was = self.find(event.other)
        sets = (old, old_name, None, node), (new, new_name, node, was)
        self._do(_Change(sets, new, f"rename {event.path} {event.other}"))

    def _existing(self, path: str) -> _Node:
        node = self.find(path)
        assert node is not None, f"{path} was not seen to be made"
        return node

    def _place(self, path: str) -> tuple[_Node, str]:
        above, _, name = path.rpartition("/")
        return self._existing(above), name

    def _set(self, path: str, node: _Node | None) -> None:
        directory, name = self._place(path)
        what = f"{'make' if node else 'remove'} {path}"
        self._do(_Change(((directory, name, node, self.find(path)),), directory, what))

    def _do(self, change: _Change) -> None:
        self._changes.append(change)
        for directory, name, node, was in change.sets:
            assert directory.names is not None
            _set(directory.names, name, node, was)

    def _change(self, node: _Node, offset: int, data: bytes | None, path: str) -> None:
        node.change(offset, data)
        self._dirty[node] = path

    def specs(self, chooser: random.Random) -> list[_Spec]:
        """Return what may be on disk at this moment."""
        every, files = frozenset(range(len(self._changes))), list(self._dirty)
        kept = {"all": every, "none": frozenset[int]()}
        for j, change in enumerate(self._changes):
            kept[f"all but {change.what}"] = every - {j}
            kept[f"only {change.what}"] = frozenset({j})
        found = [
            _Spec(f"names: {what}; bytes: {how}", changes, how)
            for what, changes in kept.items()
            for how in ("full", "old")
        ]
        ways = [("full", "old"), ("full", "half"), ("full", "late"), ("old", "full")]
        for what in ("all", "none"):
            for rest, how in ways:
                for node in files:
                    told = f"names: {what}; bytes: {rest}, of {self._dirty[node]} {how}"
                    found.append(_Spec(told, kept[what], rest, {node: how}))
        for number in range(_RANDOM_SPECS if every or files else 0):
            changes = frozenset(j for j in every if chooser.random() < 0.5)
            hows = {node: chooser.choice(("old", "half", "late", "full")) for node in files}
            found.append(_Spec(f"random choice {number}", changes, "full", hows))
        return found

    def tree(self, spec: _Spec) -> dict[str, bytes | Path | None]:
        """Return what is on disk below the root then, by path."""
        changed: dict[_Node, dict[str, _Node]] = {}
        for number, change in enumerate(self._changes):
            if number in spec.changes:
                for directory, name, node, was in change.sets:
                    names = changed.setdefault(directory, dict(directory.on_disk))
                    _set(names, name, node, was)
        found: dict[str, bytes | Path | None] = {}
        left = [("", self.root)]
        while left:
            path, node = left.pop()
            for name, held in sorted(changed.get(node, node.on_disk).items()):
                below = f"{path}{name}"
                if held.names is None:
                    found[below] = held.content(spec.files.get(held, spec.how))
                else:
                    found[below] = None
                    left.append((f"{below}/", held))
        return found


def _set(names: dict[str, _Node], name: str, node: _Node | None, was: _Node | None) -> None:
    if node is not None:
        names[name] = node
    elif names.get(name) is was:
        names.pop(name, None)


def _load(path: Path) -> _Node:
    if not path.is_dir():
        size = path.stat().st_size
        data = path.read_bytes()
        return _Node(
            data=bytearray(data), flushed=data, origin=path if size >= LINKED_BYTES else None
        )
    names = {child.name: _load(child) for child in sorted(path.iterdir())}
    return _Node(names=names, on_disk=dict(names))


def _require_same(recording: Recording, root: Path) -> None:
    """Compare what the events lead to with what the program left."""
    disk = _Disk(recording.before)
    for event in recording.events:
        disk.apply(event)
    seen = {
        p.relative_to(root).as_posix(): None if p.is_dir() else p.read_bytes()
        for p in root.rglob("*")
    }
    (spec,) = [spec for spec in disk.specs(random.Random(0)) if spec.what.startswith("names: all;")
               and spec.what.endswith("bytes: full")]  # fmt: skip
    found = {name: held.read_bytes() if isinstance(held, Path) else held
             for name, held in disk.tree(spec).items()}  # fmt: skip
    names = {name for name in {*seen, *found} if seen.get(name, b"?") != found.get(name, b"?")}
    assert not names - recording.mapped, f"the record is not of these: {sorted(names)}"


# Reading what strace wrote: one line a call, all texts in hexadecimal.

_TEXT = re.compile(rb'"((?:\\x[0-9a-f]{2})*)"')
_PLACE = re.compile(rb"(\d+|AT_FDCWD)<((?:\\x[0-9a-f]{2})*)>(\(deleted\))?")
_PLACE_OR_TEXT = re.compile(rb"<((?:\\x[0-9a-f]{2})*)>|" + _TEXT.pattern)
_LINE = re.compile(rb"(\d+) +(\w+)\((.*)\) += (-?\d+|0x[0-9a-f]+)", re.DOTALL)
_BEGUN = re.compile(rb"(\d+) +(\w+)\((.*) <unfinished \.\.\.>", re.DOTALL)
_ENDED = re.compile(rb"(\d+) +<\.\.\. \w+ resumed>(.*)", re.DOTALL)


def _decode(hexed: bytes) -> bytes:
    return bytes.fromhex(hexed.replace(b"\\x", b"").decode("ascii"))


class _Call(NamedTuple):
    name: str
    rest: bytes  # all arguments
    result: int
    line: bytes

    @property
    def texts(self) -> list[bytes]:
        return [_decode(found) for found in _TEXT.findall(self.rest)]

    @property
    def places(self) -> list[tuple[int, str | None]]:
        """Descriptors of the arguments and their paths; None is a file without a name."""
        return [
            (int(fd) if fd.isdigit() else -1, None if gone else os.fsdecode(_decode(path)))
            for fd, path, gone in _PLACE.findall(self.rest)
        ]

    @property
    def numbers(self) -> list[int]:
        """Arguments that are plain numbers, in order."""
        plain = _PLACE.sub(b"", _TEXT.sub(b"", self.rest))
        return [int(n) for n in re.findall(rb"(?:^|[ ,\[])(\d+)(?=[,\]]|$)", plain)]


class _TraceReader:
    def __init__(self, root: Path, cwd: Path) -> None:
        self.mapped: set[str] = set()
        self._root, self._cwd = f"{root}/", cwd
        self._begun: dict[bytes, bytes] = {}
        self._appending: set[tuple[str, int]] = set()

    def read(self, line: bytes) -> Iterator[Event]:
        """Yield what a line tells of; a call that others interrupt happens when it ends."""
        if begun := _BEGUN.match(line):
            self._begun[begun[1]] = b"%s %s(%s" % begun.groups()
            return
        if ended := _ENDED.match(line):
            line = self._begun.pop(ended[1]) + ended[2]
        found = _LINE.match(line)
        # Of calls that are newer than itself strace knows no name; those so far change no file.
        if found is None or found[2].startswith(b"syscall_"):
            return
        result = int(found[4], 0)
        if result < 0 and found[2] not in (b"fsync", b"fdatasync"):
            return
        call = _Call(found[2].decode(), found[3], result, line)
        yield from getattr(self, f"_{_ALIKE.get(call.name, call.name)}")(call)

    def _below(self, path: str | None) -> str | None:
        if path is not None and f"{path}/".startswith(self._root):
            return f"{path}/"[len(self._root) :].rstrip("/")
        return None

    def _paths(self, call: _Call) -> list[str | None]:
        """Return the paths that a call names, each taken from the directory before it."""
        found: list[str | None] = []
        where = self._cwd
        for place, text in _PLACE_OR_TEXT.findall(call.rest):
            if place:
                where = Path(os.fsdecode(_decode(place)))
            else:
                found.append(self._below(os.path.normpath(where / os.fsdecode(_decode(text)))))
        return found

    def _open(self, call: _Call) -> Iterator[Event]:
        opened = _PLACE.search(call.line, len(call.line) - len(call.line.rpartition(b" = ")[2]))
        path = None if opened is None else self._below(os.fsdecode(_decode(opened[2])))
        if path is None or b"O_DIRECTORY" in call.rest:
            return
        self._appending.discard((path, call.result))
        if b"O_APPEND" in call.rest:
            self._appending.add((path, call.result))
        if b"O_CREAT" in call.rest or b"O_RDWR" in call.rest or b"O_WRONLY" in call.rest:
            size = 0 if b"O_TRUNC" in call.rest else -1
            yield Event("open", path, fd=call.result, size=size)

    def _write(self, call: _Call) -> Iterator[Event]:
        (fd, name), *_ = call.places
        data = b"".join(call.texts)[: call.result]
        path = self._below(name)
        if path is None:
            if fd == 1:
                yield Event("say", data=data)
            return
        offset = None
        if call.name.startswith("p"):
            numbers = call.numbers
            offset = numbers[-2] if call.name == "pwritev2" else numbers[-1]
        elif (path, fd) in self._appending:
            offset = -1
        yield Event("write", path, fd=fd, offset=offset, data=data)

    def _lseek(self, call: _Call) -> Iterator[Event]:
        (fd, name), *_ = call.places
        if path := self._below(name):
            yield Event("seek", path, fd=fd, offset=call.result)

    def _sendfile(self, call: _Call) -> Iterator[Event]:
        (fd, target), (_, source) = call.places
        if path := self._below(target):
            start = re.search(rb"\[(\d+)\]", call.rest)
            yield self._copied(path, fd, source, int(start[1]) if start else 0, call.result)

    def _copy_file_range(self, call: _Call) -> Iterator[Event]:
        (_, source), (fd, target) = call.places
        if path := self._below(target):
            assert b"[" not in call.rest, "copies from or to a place that it names"
            yield self._copied(path, fd, source, 0, call.result)

    def _copied(self, path: str, fd: int, source: str | None, start: int, size: int) -> Event:
        assert source is not None
        inside = self._below(source)
        return Event("copy", path, source if inside is None else inside, fd, start, size=size)

    def _ftruncate(self, call: _Call) -> Iterator[Event]:
        ((_, name),) = call.places
        if path := self._below(name):
            yield Event("cut", path, size=call.numbers[-1])

    def _truncate(self, call: _Call) -> Iterator[Event]:
        if path := self._paths(call)[0]:
            yield Event("cut", path, size=call.numbers[-1])

    def _fallocate(self, call: _Call) -> Iterator[Event]:
        ((_, name),) = call.places
        if (path := self._below(name)) and b"KEEP_SIZE" not in call.rest:
            offset, size = call.numbers[-2:]
            yield Event("extend", path, size=offset + size)

    def _fsync(self, call: _Call) -> Iterator[Event]:
        ((_, name),) = call.places
        if (path := self._below(name)) is not None:
            yield Event("sync" if call.result >= 0 else "fail_to_sync", path)

    def _sync(self, call: _Call) -> Iterator[Event]:
        yield Event("sync_all")

    def _rename(self, call: _Call) -> Iterator[Event]:
        old, new = self._paths(call)
        assert (old is None) == (new is None), "something is moved into the directory or out of it"
        if old is not None and new is not None:
            yield Event("rename", old, new)

    def _link(self, call: _Call) -> Iterator[Event]:
        old, new = self._paths(call)
        if new is not None:
            assert old is not None, "something outside the directory is linked into it"
            yield Event("link", old, new)

    def _unlink(self, call: _Call) -> Iterator[Event]:
        if path := self._paths(call)[0]:
            yield Event("unlink", path)

    def _mkdir(self, call: _Call) -> Iterator[Event]:
        if path := self._paths(call)[0]:
            yield Event("mkdir", path)

    def _symlink(self, call: _Call) -> Iterator[Event]:
        assert self._paths(call)[-1] is None, "symbolic links are not followed"
        return iter(())

    def _mmap(self, call: _Call) -> Iterator[Event]:
        if b"MAP_SHARED" in call.rest and b"PROT_WRITE" in call.rest:
            self.mapped.update(filter(None, (self._below(name) for _, name in call.places)))
        return iter(())


_ALIKE = {
    "openat": "open", "creat": "open", "pwrite64": "write", "writev": "write", "pwritev": "write",
    "pwritev2": "write", "fdatasync": "fsync", "renameat": "rename", "renameat2": "rename",
    "linkat": "link", "unlinkat": "unlink", "rmdir": "unlink", "mkdirat": "mkdir",
    "symlinkat": "symlink", "syncfs": "sync",
}  # fmt: skip
