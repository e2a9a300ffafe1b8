"""A disk that forgets on command what was not flushed, as a power cut does: a FUSE file system.

It lives in memory, in a process of its own with a user and mount namespace, and speaks the kernel's
protocol (linux/fuse.h, 7.31) itself: no library and no privilege is needed, only /dev/fuse.

A flushed file keeps what it held at its last fsync, another is empty. A flushed directory keeps the
names that it had at its last fsync.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.driver import ROOT, Ran, environment

# What a test uses.


class Disk:
    """A mounted disk; only commands that it runs see it."""

    def __init__(self, server: subprocess.Popen[str], mount: Path) -> None:
        self.mount = mount
        self._server = server

    def run(self, words: Sequence[str], extra: Mapping[str, str] | None = None) -> Ran:
        """Run a command to its end."""
        code, out, err = self._ask("run", list(words), self._told(extra))
        return Ran(code, out, err)

    def start(
        self, words: Sequence[str], out: Path, extra: Mapping[str, str] | None = None
    ) -> None:
        """Start a command that writes to a file on another disk; a cut ends it."""
        self._ask("start", list(words), self._told(extra), str(out))

    def flush(self) -> None:
        """Let everything be on disk."""
        self._ask("flush")

    def cut(self, *, keep_names: bool) -> list[str]:
        """Cut the power and mount again; return the files that have lost something.

        With `keep_names`, directories keep all names, as file systems do that write them first.
        """
        return self._ask("cut", keep_names)

    def _told(self, extra: Mapping[str, str] | None) -> dict[str, str]:
        return environment(self.mount / "home", {"PYTHONPATH": str(ROOT), **(extra or {})})

    def _ask(self, *what: Any) -> Any:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        print(json.dumps(what), file=self._server.stdin, flush=True)
        told = json.loads(self._server.stdout.readline())
        assert "fault" not in told, told
        return told["done"]


@contextlib.contextmanager
def forgetful_disk(mount: Path) -> Generator[Disk]:
    """Mount a disk at a directory; skip the test where that cannot be."""
    mount.mkdir()
    words = [sys.executable, "-m", "tests.support.forgetful_disk", str(mount)]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8", cwd=ROOT
    ) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        try:
            if (said := server.stdout.readline().strip()) != "mounted":
                pytest.skip(f"needs FUSE in a user namespace: {said or 'its server ended'}")
            yield Disk(server, mount)
        finally:
            server.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(30)
            server.kill()


# The tree, and what is left of it.


@dataclass(eq=False)
class _Node:
    number: int
    mode: int
    data: bytearray = field(default_factory=bytearray)
    names: dict[bytes, _Node] = field(default_factory=dict)
    flushed_data: bytes = b""
    flushed_names: dict[bytes, _Node] = field(default_factory=dict)
    time_ns: int = field(default_factory=time.time_ns)

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.mode)

    def flush(self) -> None:
        self.flushed_data, self.flushed_names = bytes(self.data), dict(self.names)


def _forget(node: _Node, path: bytes, keep_names: bool) -> list[str]:
    if not node.is_directory:
        lost = bytes(node.data) != node.flushed_data
        node.data = bytearray(node.flushed_data)
        return [os.fsdecode(path)] if lost else []
    lost_names = [] if keep_names else node.names.keys() - node.flushed_names.keys()
    node.names = dict(node.names if keep_names else node.flushed_names)
    node.flushed_names = dict(node.names)
    lost = [os.fsdecode(path + b"/" + name) for name in lost_names]
    for name, child in node.names.items():
        lost += _forget(child, path + b"/" + name, keep_names)
    return lost


def _walk(node: _Node) -> Generator[_Node]:
    yield node
    for child in node.names.values():
        yield from _walk(child)


# The protocol: a request is a header and a body, an answer is bytes or a number of errno.

_HEADER, _REPLY = struct.Struct("<IIQQIIIHH"), struct.Struct("<IiQ")
_ATTRIBUTES, _SETATTR = struct.Struct("<6Q10I"), struct.Struct("<II6Q8I")
_MAX_WRITE = 1 << 20
_BIG_WRITES, _MAX_PAGES, _KEEP_CACHE = 1 << 5, 1 << 22, 2
_FOREVER_S = 1 << 20  # nobody else changes the tree
_NO_REPLY = frozenset({2, 36, 42})  # FORGET, INTERRUPT, BATCH_FORGET
_SIZE, _MTIME, _MTIME_NOW, _MODE = 8, 32, 256, 1


class _Fault(Exception):
    """An errno for whoever asked."""


class _Server:
    """Answers the kernel; one thread, which asks nothing of the disk itself."""

    def __init__(self) -> None:
        self.nodes: dict[int, _Node] = {}
        self.root = self._make(stat.S_IFDIR | 0o700)
        self.lock = threading.Lock()
        self.is_off = False
        self._answers: dict[int, Callable[[_Node, bytes], bytes]] = {
            1: self._lookup, 3: self._getattr, 4: self._setattr, 5: lambda n, _: bytes(n.data),
            6: self._symlink, 8: self._mknod, 9: self._mkdir, 10: self._unlink, 11: self._unlink,
            12: self._rename, 13: self._link, 14: self._open, 15: self._read, 16: self._write,
            17: lambda _n, _b: struct.pack("<5Q4I24x", *[1 << 22] * 5, 4096, 255, 4096, 0),
            18: self._nothing, 20: self._fsync, 25: self._nothing, 26: self._init, 27: self._open,
            28: self._readdir, 29: self._nothing, 30: self._fsync, 35: self._create,
            45: self._rename2,
        }  # fmt: skip

    def serve(self, device: int) -> None:
        """Answer until the file system is unmounted."""
        while True:
            try:
                request = os.read(device, _MAX_WRITE + 4096)
            except OSError as error:
                if error.errno in (errno.EINTR, errno.ENOENT):
                    continue
                return  # ENODEV: unmounted
            _, code, unique, number, *_ = _HEADER.unpack_from(request)
            if code in _NO_REPLY:
                continue
            reply, fault = b"", 0
            try:
                with self.lock:
                    reply = self._answer(code, number, request[_HEADER.size :])
            except _Fault as error:
                fault = error.args[0]
            except Exception as error:  # else whoever asked waits for ever
                sys.stderr.write(f"{error!r}\n")
                fault = errno.EIO
            with contextlib.suppress(OSError):  # whoever asked was killed
                os.write(device, _REPLY.pack(_REPLY.size + len(reply), -fault, unique) + reply)

    def _answer(self, code: int, number: int, body: bytes) -> bytes:
        if self.is_off:
            raise _Fault(errno.EIO)
        if code not in self._answers:
            raise _Fault(errno.ENOSYS)
        return self._answers[code](self.nodes[number or 1], body)

    def _make(self, mode: int) -> _Node:
        node = _Node(len(self.nodes) + 1, mode)
        self.nodes[node.number] = node
        return node

    def _init(self, _node: _Node, _body: bytes) -> bytes:
        flags = _BIG_WRITES | _MAX_PAGES
        return struct.pack("<4I2H2I2H32x", 7, 31, 1 << 17, flags, 12, 9, _MAX_WRITE, 1, 256, 0)

    def _nothing(self, _node: _Node, _body: bytes) -> bytes:
        return b""

    def _attributes(self, node: _Node) -> bytes:
        seconds, rest = divmod(node.time_ns, 10**9)
        size, times = len(node.data), (seconds, seconds, seconds)
        return _ATTRIBUTES.pack(
            node.number, size, -(-size // 512), *times, rest, rest, rest, node.mode, 1, 0, 0, 0,
            4096, 0,
        )  # fmt: skip

    def _entry(self, node: _Node) -> bytes:
        head = struct.pack("<4Q2I", node.number, 0, _FOREVER_S, _FOREVER_S, 0, 0)
        return head + self._attributes(node)

    def _lookup(self, node: _Node, body: bytes) -> bytes:
        found = node.names.get(body.rstrip(b"\0"))
        if found is None:
            raise _Fault(errno.ENOENT)
        return self._entry(found)

    def _getattr(self, node: _Node, _body: bytes) -> bytes:
        return struct.pack("<QII", _FOREVER_S, 0, 0) + self._attributes(node)

    def _setattr(self, node: _Node, body: bytes) -> bytes:
        valid, _, _, size, _, _, mtime, _, _, rest, _, mode, *_ = _SETATTR.unpack_from(body)
        if valid & _SIZE:
            node.data = node.data[:size].ljust(size, b"\0")
        if valid & _MODE:
            node.mode = stat.S_IFMT(node.mode) | stat.S_IMODE(mode)
        if valid & (_SIZE | _MTIME | _MTIME_NOW):
            is_told = valid & _MTIME and not valid & _MTIME_NOW
            node.time_ns = mtime * 10**9 + rest if is_told else time.time_ns()
        return self._getattr(node, b"")

    def _add(self, node: _Node, name: bytes, mode: int) -> _Node:
        if name in node.names:
            raise _Fault(errno.EEXIST)
        node.names[name] = made = self._make(mode)
        return made

    def _symlink(self, node: _Node, body: bytes) -> bytes:
        name, target = body.rstrip(b"\0").split(b"\0")
        made = self._add(node, name, stat.S_IFLNK | 0o777)
        made.data = bytearray(target)
        made.flush()
        return self._entry(made)

    def _mknod(self, node: _Node, body: bytes) -> bytes:
        (mode,) = struct.unpack_from("<I", body)
        return self._entry(self._add(node, body[16:].rstrip(b"\0"), mode))

    def _mkdir(self, node: _Node, body: bytes) -> bytes:
        (mode,) = struct.unpack_from("<I", body)
        return self._entry(self._add(node, body[8:].rstrip(b"\0"), stat.S_IFDIR | mode))

    def _create(self, node: _Node, body: bytes) -> bytes:
        _, mode = struct.unpack_from("<II", body)
        made = self._add(node, body[16:].rstrip(b"\0"), stat.S_IFREG | stat.S_IMODE(mode))
        return self._entry(made) + self._open(made, b"")

    def _unlink(self, node: _Node, body: bytes) -> bytes:
        name = body.rstrip(b"\0")
        if name not in node.names:
            raise _Fault(errno.ENOENT)
        if node.names[name].names:
            raise _Fault(errno.ENOTEMPTY)
        del node.names[name]
        return b""

    def _rename(self, node: _Node, body: bytes, head: int = 8) -> bytes:
        (number,) = struct.unpack_from("<Q", body)
        old, new, _ = body[head:].split(b"\0", 2)
        target = self.nodes[number]
        if old not in node.names:
            raise _Fault(errno.ENOENT)
        if new in target.names and target.names[new].names:
            raise _Fault(errno.ENOTEMPTY)
        target.names[new] = node.names.pop(old)
        return b""

    def _rename2(self, node: _Node, body: bytes) -> bytes:
        number, flags = struct.unpack_from("<QI", body)
        if flags > 1:
            raise _Fault(errno.EINVAL)
        new = body[16:].split(b"\0")[1]
        if flags == 1 and new in self.nodes[number].names:  # RENAME_NOREPLACE
            raise _Fault(errno.EEXIST)
        return self._rename(node, body, 16)

    def _link(self, node: _Node, body: bytes) -> bytes:
        (number,) = struct.unpack_from("<Q", body)
        name = body[8:].rstrip(b"\0")
        if name in node.names:
            raise _Fault(errno.EEXIST)
        node.names[name] = self.nodes[number]
        return self._entry(self.nodes[number])

    def _open(self, _node: _Node, _body: bytes) -> bytes:
        return struct.pack("<QII", 0, _KEEP_CACHE, 0)

    def _read(self, node: _Node, body: bytes) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        return bytes(node.data[offset : offset + size])

    def _write(self, node: _Node, body: bytes) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        if len(node.data) < offset:
            node.data.extend(bytes(offset - len(node.data)))
        node.data[offset : offset + size] = body[40 : 40 + size]
        node.time_ns = time.time_ns()
        return struct.pack("<II", size, 0)

    def _fsync(self, node: _Node, _body: bytes) -> bytes:
        node.flush()
        return b""

    def _readdir(self, node: _Node, body: bytes) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        listing, told = b"", [(b".", node), (b"..", node), *node.names.items()]
        for place, (name, child) in enumerate(told[offset:], start=offset + 1):
            head = struct.pack("<QQII", child.number, place, len(name), child.mode >> 12)
            entry = (head + name).ljust(-(-(24 + len(name)) // 8) * 8, b"\0")
            if len(listing) + len(entry) > size:
                break
            listing += entry
        return listing


# The process that mounts it.

_NEW_NAMESPACES, _PRIVATE, _NO_SUID_DEV, _DETACH = 0x10020000, 0x44000, 6, 2


class _Mounted:
    def __init__(self, mount: str) -> None:
        self.mount = os.fsencode(mount)
        self.server = _Server()
        self.running: list[subprocess.Popen[Any]] = []
        self.libc = ctypes.CDLL(None, use_errno=True)
        user, group = os.getuid(), os.getgid()
        self._call("unshare", _NEW_NAMESPACES)
        told = {"setgroups": "deny", "uid_map": f"0 {user} 1", "gid_map": f"0 {group} 1"}
        for name, text in told.items():
            Path("/proc/self", name).write_text(text, encoding="ascii")
        self._call("mount", None, b"/", None, _PRIVATE, None)
        self.on()

    def _call(self, name: str, *values: Any) -> None:
        if getattr(self.libc, name)(*values) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"{name}: {os.strerror(number)}")

    def on(self) -> None:
        device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        how = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
        self._call("mount", b"forgetful", self.mount, b"fuse", _NO_SUID_DEV, how)
        self.server.is_off = False
        threading.Thread(target=self.server.serve, args=(device,), daemon=True).start()

    def run(self, words: list[str], told: dict[str, str]) -> tuple[int, str, str]:
        done = subprocess.run(words, env=told, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    def start(self, words: list[str], told: dict[str, str], out: str) -> None:
        with Path(out).open("wb") as handle:
            self.running.append(subprocess.Popen(words, env=told, stdout=handle))

    def flush(self) -> None:
        with self.server.lock:
            for node in _walk(self.server.root):
                node.flush()

    def cut(self, keep_names: bool) -> list[str]:
        with self.server.lock:
            self.server.is_off = True  # from now on nothing changes the tree
            lost = _forget(self.server.root, b"", keep_names)
        for process in self.running:
            process.kill()
            process.wait()
        self.running.clear()
        self._call("umount2", self.mount, _DETACH)
        self.on()
        return lost


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _main() -> None:
    try:
        mounted = _Mounted(sys.argv[1])
    except OSError as error:
        _say(str(error))
        return
    _say("mounted")
    for line in sys.stdin:
        what, *values = json.loads(line)
        try:
            told = {"done": getattr(mounted, what)(*values)}
        except Exception as error:  # the test says what it was
            told = {"fault": repr(error)}
        _say(json.dumps(told))
    mounted.server.is_off = True
    for process in mounted.running:
        process.kill()


if __name__ == "__main__":
    _main()
