"""Durable and private files, and hashes of content."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import mmap
    from _hashlib import HASH

    from numpy.typing import NDArray


JsonValue = None | bool | int | float | str | Sequence["JsonValue"] | Mapping[str, "JsonValue"]

_CHUNK_BYTES = 1 << 20


def sha256(raw: bytes = b"") -> HASH:
    """Return a SHA-256 that some bytes went into."""
    # Python's own, where OpenSSL is not loaded yet: loading it takes a hook 3 ms.
    if "_hashlib" not in sys.modules:
        with suppress(ImportError):
            return _own_hashes().sha256(raw)
    import hashlib

    return hashlib.sha256(raw)


@cache
def _own_hashes() -> Any:
    return import_module("_sha2" if sys.version_info >= (3, 12) else "_sha256")


def hash_text(*parts: str) -> str:
    """Return the SHA-256 hex digest of the parts, each with its length: ab, "" is not a, b."""
    raw = [part.encode("utf-8", "surrogatepass") for part in parts]
    # At once: two updates per part cost more than the hash of a memory's fields.
    whole = b"".join([piece for r in raw for piece in (len(r).to_bytes(8, "big"), r)])
    return sha256(whole).hexdigest()


def canonical_json(value: object) -> str:
    """Serialize with sorted keys and no spaces, so that equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def hash_json(value: object) -> str:
    """Return the SHA-256 hex digest of the canonical JSON of a value."""
    return hash_text(canonical_json(value))


def hash_file(path: Path) -> str:
    """Return the SHA-256 hex digest of a file's bytes, read in chunks."""
    import hashlib  # OpenSSL's, several times as fast as Python's own

    digest = hashlib.sha256()
    with path.open("rb") as handle:
        while chunk := handle.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


# A file written here is either the old one or the new one, never a torn one, and its owner's alone.

_TMP_SUFFIX = ".tmp"


def fsync_file(path: Path) -> None:
    """Flush a file written by another library."""
    # Windows flushes only files open for writing.
    fd = os.open(path, os.O_RDWR if sys.platform == "win32" else os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def fsync_dir(path: Path) -> None:
    """Flush a directory entry, so that a rename inside it survives a power cut."""
    if sys.platform != "win32":  # which opens no directory
        fsync_file(path)


def make_directory(path: Path) -> None:
    """Create a directory and its missing parents, on disk, for their owner only."""
    if not path.is_dir():
        make_directory(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)
        fsync_dir(path.parent)


def create_private(path: Path) -> None:
    """Make a file for its owner only before SQLite does; its side files take their mode from it."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


@contextmanager
def private_umask() -> Generator[None]:
    """Let all that this process makes meanwhile, with other libraries, be its owner's alone."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def open_to_others(root: Path, spared: Path | None = None) -> list[Path]:
    """Return paths at and below a directory that others may read, write or enter; no symlinks.

    `spared` is a file, with SQLite's files next to it, or a directory that is not ours.
    """
    found: list[Path] = []
    for path in (root, *root.rglob("*")):
        if spared and (spared in (path, *path.parents) or str(path).startswith(f"{spared}-")):
            continue
        with suppress(FileNotFoundError):
            mode = path.lstat().st_mode
            if not stat.S_ISLNK(mode) and mode & 0o077:
                found.append(path)
    return found


def make_private(root: Path, spared: Path | None = None) -> int:
    """Take others' access from all of `open_to_others` that is ours; return from how many."""
    mended = 0
    for path in open_to_others(root, spared):
        with suppress(OSError):
            path.chmod(stat.S_IMODE(path.lstat().st_mode) & 0o700)
            mended += 1
    return mended


@contextmanager
def replacement(path: Path) -> Generator[Path]:
    """Yield a temporary sibling, and put it in place durably if the block ends well."""
    make_directory(path.parent)
    tmp = path.with_name(f".{path.name}.{os.getpid()}{_TMP_SUFFIX}")
    try:
        os.close(os.open(tmp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
        yield tmp
        fsync_file(tmp)
        tmp.replace(path)
        fsync_dir(path.parent)
    finally:
        tmp.unlink(missing_ok=True)


def remove_temporary_files(directory: Path, *, below: bool = True) -> None:
    """Remove files left by a killed `replacement`; a running process keeps its own."""
    pattern = f".*.*{_TMP_SUFFIX}"
    for path in directory.rglob(pattern) if below else directory.glob(pattern):
        pid = path.name.removesuffix(_TMP_SUFFIX).rpartition(".")[2]
        if path.is_file() and pid.isdecimal() and not _is_alive(int(pid)):
            path.unlink(missing_ok=True)


def write_bytes(path: Path, data: bytes) -> None:
    """Replace a file atomically."""
    with replacement(path) as tmp:
        tmp.write_bytes(data)


def write_text(path: Path, text: str) -> None:
    """Replace a text file atomically (UTF-8)."""
    write_bytes(path, text.encode("utf-8"))


def read_json(path: Path) -> Any:
    """Return the value of a JSON file that noctuary itself wrote."""
    return json.loads(path.read_text(encoding="utf-8"))


def write_json(path: Path, value: object) -> None:
    """Replace a JSON file atomically; keys stay in their order."""
    write_text(path, json.dumps(value, ensure_ascii=False) + "\n")


def write_array(path: Path, array: NDArray[Any]) -> None:
    """Replace a `.npy` file atomically; the array is stored C-contiguous and without pickling."""
    import numpy as np

    with replacement(path) as tmp, tmp.open("wb") as handle:
        np.save(handle, np.ascontiguousarray(array), allow_pickle=False)


def write_array_blocks(
    path: Path, shape: tuple[int, ...], dtype: str, blocks: Iterable[NDArray[Any]]
) -> None:
    """Replace a `.npy` file by rows that come block by block: the bytes of `write_array`."""
    import numpy as np

    rows = 0
    with replacement(path) as tmp, tmp.open("wb") as handle:
        header = {"descr": dtype, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(handle, header)
        for block in blocks:
            if block.shape[1:] != shape[1:]:
                raise ValueError(f"a block of shape {block.shape} is not part of {shape}")
            rows += len(block)
            handle.write(np.ascontiguousarray(block, dtype=dtype).data)
        if rows != shape[0]:
            raise ValueError(f"{rows} rows came for an array of shape {shape}")


_HEADER_BYTES = 128
_HEADER = (
    rb"\x93NUMPY\x01\x00\x76\x00\{'descr': '([<|][bifu]\d)', 'fortran_order': False, "
    rb"'shape': \((\d+,|\d+, \d+)\), \} *\n"
)


def read_array(path: Path, *, mmap: bool = True) -> NDArray[Any]:
    """Open a `.npy` file read-only."""
    import numpy as np

    with path.open("rb") as handle:
        header = re.match(_HEADER, handle.read(_HEADER_BYTES), re.DOTALL) if mmap else None
    if header is None or len(header[0]) != _HEADER_BYTES:
        array: NDArray[Any] = np.load(path, mmap_mode="r" if mmap else None, allow_pickle=False)
        array.flags.writeable = False
        return array
    # Header of `write_array`: numpy parses its own as Python, which takes longer than the map.
    dtype, shape = np.dtype(header[1].decode()), tuple(map(int, re.findall(rb"\d+", header[2])))
    return np.memmap(path, dtype, "r", _HEADER_BYTES, shape)


# Many arrays in one file, as safetensors has them: the header's length, a JSON header, the data
# without gaps. One that is opened costs a descriptor and a map, not one for each array.

_DTYPES = {"F64": "<f8", "I64": "<i8", "F32": "<f4", "I32": "<i4", "I8": "|i1"}
_VIEWS = {"F64": "d", "I64": "q", "F32": "f", "I32": "i", "I8": "b"}
_Place = tuple[str, str, tuple[int, ...], int, int]
"""Name, type, shape, and where in the file it begins and ends."""
_LENGTH_BYTES = 8
_ALIGNED_BYTES = 64  # of the whole data; each array in it begins at a multiple of its items' size
_MOST_HEADER_BYTES = 1 << 20  # some 4,000 are in use; a flipped bit must not read gigabytes


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Replace a file of named arrays atomically; equal arrays give equal bytes."""
    import numpy as np

    codes = {dtype: code for code, dtype in _DTYPES.items()}
    # Widest items first, so that none needs a gap before it.
    ordered = sorted(arrays.items(), key=lambda item: (-item[1].itemsize, item[0]))
    header: dict[str, JsonValue] = {}
    end = 0
    for name, array in ordered:
        start, end = end, end + array.nbytes
        header[name] = {
            "dtype": codes[array.dtype.str], "shape": array.shape, "data_offsets": [start, end],
        }  # fmt: skip
    raw = json.dumps(header, separators=(",", ":")).encode()
    raw += b" " * (-(_LENGTH_BYTES + len(raw)) % _ALIGNED_BYTES)
    with replacement(path) as tmp, tmp.open("wb") as handle:
        handle.write(len(raw).to_bytes(_LENGTH_BYTES, "little") + raw)
        for _, array in ordered:
            handle.write(np.ascontiguousarray(array).data)


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Map a file of `write_arrays` read-only; ValueError or similar for any other file."""
    import numpy as np

    data, places = _map(path)
    whole = np.frombuffer(data, np.uint8)
    return {
        name: whole[start:end].view(_DTYPES[code]).reshape(shape)
        for name, code, shape, start, end in places
    }


def view_arrays(path: Path) -> dict[str, memoryview[Any]]:
    """Map the same file for a process that does without numpy: flat views of its numbers."""
    data, places = _map(path)
    if sys.byteorder != "little":
        raise ValueError(f"{path.name} holds numbers of another byte order")
    whole, none = memoryview(data), memoryview(bytes(_LENGTH_BYTES))  # nothing cannot be cast

    def view(code: str, start: int, end: int) -> memoryview[Any]:
        kind: Any = _VIEWS[code]
        return whole[start:end].cast(kind) if end > start else none.cast(kind)[:0]

    return {name: view(code, start, end) for name, code, _, start, end in places}


def _map(path: Path) -> tuple[mmap.mmap, list[_Place]]:
    """Map a file of named arrays, and check where each of them lies."""
    import mmap

    with path.open("rb") as handle:
        mapped = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)
    begin = _LENGTH_BYTES + int.from_bytes(mapped[:_LENGTH_BYTES], "little")
    if begin > _MOST_HEADER_BYTES:
        raise ValueError(f"{path.name} has a header of {begin} bytes")
    places: list[_Place] = []
    end = begin
    for name, told in json.loads(mapped[_LENGTH_BYTES:begin]).items():
        code, shape = told["dtype"], tuple(told["shape"])
        start, end = end, end + int(_DTYPES[code][-1]) * prod(shape)
        if told["data_offsets"] != [start - begin, end - begin] or min(shape) < 0:
            raise ValueError(f"{name} of {path.name} is not where its shape says")
        places.append((name, code, shape, start, end))
    if end != len(mapped):
        raise ValueError(f"{path.name} has {len(mapped)} bytes, its arrays end at {end}")
    return mapped, places


def release_pages(array: NDArray[Any]) -> None:
    """Give back the memory of the file that an array is mapped from; it is read again if needed."""
    import mmap

    advice, held = getattr(mmap, "MADV_DONTNEED", None), array.base
    while held is not None and not isinstance(held, mmap.mmap):
        held = held.obj if isinstance(held, memoryview) else getattr(held, "base", None)
    if advice is not None and held is not None:
        held.madvise(advice)


def group_arrays(arrays: Mapping[str, NDArray[Any]], group: str) -> dict[str, NDArray[Any]]:
    """Return the arrays that are named "group.field", by field."""
    named = ((name.partition("."), array) for name, array in arrays.items())
    return {field: array for (found, _, field), array in named if found == group}


def remove_tree(path: Path) -> None:
    """Remove a directory tree if it is there."""
    if path.is_dir() and not path.is_symlink():
        import shutil  # loads three compressors, and a recall removes nothing

        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def tree_bytes(path: Path) -> int:
    """Return the apparent size in bytes of a file or of every file below a directory."""
    if path.is_file():
        return path.stat().st_size
    return sum(p.stat().st_size for p in path.rglob("*") if p.is_file())


def _is_alive(pid: int) -> bool:
    if sys.platform == "win32":
        return True  # signal 0 would interrupt it
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # owned by someone else
    return True
