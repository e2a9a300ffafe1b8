from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.core import store as layout
from noctuary.core.files import group_arrays, read_arrays
from noctuary.core.manifest import compute_digest, describe_files, read_manifest, write_manifest
from noctuary.core.types import MemoryRecord
from noctuary.recall.reader import SnapshotReader
from noctuary.snapshot.arrays import ShareArrays
from noctuary.snapshot.checks import judge_candidate
from noctuary.snapshot.pack import pack_shares
from noctuary.sources.source import Share
from tests.support.damage import change_array, drop_array
from tests.support.store import Store, gate_context, memory, new_store, renumber

CHECK = "every_share_is_of_an_owned_memory"
OWNERS = (None, "ana", "ben", "ana", "", "ben")
SHARES = (Share("104", "ben"), Share("102", "eva"), Share("102", "ben"), Share("106", "ana"))


def records() -> list[MemoryRecord]:
    return renumber([memory(f"Note {n} of {user}.", user=user) for n, user in enumerate(OWNERS)])


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return new_store(tmp_path / "store")


def by_reader(shares: list[Share]) -> dict[str, list[int]]:
    packed = pack_shares(records(), shares)
    if packed is None:
        return {}
    return {name: found.tolist() for name, found in packed.by_reader(len(OWNERS)).items()}


def test_shares_are_kept_by_reader_in_order() -> None:
    assert by_reader(list(SHARES)) == {"ana": [5], "ben": [1, 3], "eva": [1]}


@pytest.mark.parametrize(
    "share",
    [
        Share("101", "ana"),  # nobody's: all see it
        Share("105", "ana"),  # likewise
        Share("102", "ana"),  # with themself
        Share("999", "ana"),  # not in the snapshot
        Share("102", ""),  # with nobody
    ],
)
def test_what_opens_nothing_is_no_share(share: Share) -> None:
    assert pack_shares(records(), [share]) is None


ids = st.sampled_from([*(str(101 + n) for n in range(len(OWNERS))), "999"])
shares = st.lists(st.builds(Share, ids, st.sampled_from(["", "ana", "ben", "eva", "Äña"])))


@given(shares)
def test_packing_equals_a_loop_over_all_pairs(found: list[Share]) -> None:
    expected: dict[str, list[int]] = {}
    for reader in sorted({s.shared_with for s in found} - {""}):
        shared = [
            n
            for n, owner in enumerate(OWNERS)
            if owner and owner != reader and Share(str(101 + n), reader) in found
        ]
        if shared:
            expected[reader] = shared
    assert by_reader(found) == expected
    assert by_reader(found[::-1]) == expected


def test_a_store_without_shares_has_no_trace_of_them(
    candidates: tuple[Path, Path], store: Store
) -> None:
    plain = candidates[1]
    files = {path.name: path.read_bytes() for path in plain.iterdir()}
    with closing(sqlite3.connect(plain / layout.ROWS_FILE)) as rows:
        keys = {key for (key,) in rows.execute("SELECT key FROM meta")}
    again = store.candidate(records(), shares=[Share("101", "ana")])
    assert again.name == plain.name  # its digest
    assert {path.name for path in again.iterdir()} == set(files)
    assert group_arrays(read_arrays(plain / layout.ARRAYS_FILE), "shares") == {}
    assert layout.SHARED_WITH not in keys
    assert "shares" not in read_manifest(plain).counts


def test_a_candidate_says_who_may_read_what_and_a_reader_reads_it(
    candidates: tuple[Path, Path],
) -> None:
    directory = candidates[0]
    arrays = read_arrays(directory / layout.ARRAYS_FILE)
    assert arrays["shares.indptr"].tolist() == [0, 1, 3, 4]
    assert arrays["shares.positions"].tolist() == [5, 1, 3, 1]
    assert read_manifest(directory).counts["shares"] == len(SHARES)
    reader = SnapshotReader.open(directory)
    shared = reader.facets["user"].shared
    assert shared is not None
    assert {name: p.tolist() for name, p in shared.items()} == by_reader(list(SHARES))
    assert reader.facets["wing"].shared is None
    reader.close()


def test_equal_shares_in_any_order_give_equal_bytes(
    candidates: tuple[Path, Path], store: Store
) -> None:
    again = store.candidate(records(), shares=[*SHARES[::-1], SHARES[0]])
    assert again.name == candidates[0].name
    assert store.candidate(records(), shares=SHARES[1:]).name != again.name


@pytest.fixture(scope="module")
def candidates(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A candidate with shares and one without."""
    store = new_store(tmp_path_factory.mktemp("shares") / "store")
    return store.candidate(records(), shares=SHARES), store.candidate(records())


def verdict(directory: Path) -> tuple[bool, dict[str, object]]:
    manifest = read_manifest(directory)
    files = describe_files(directory)
    digest = compute_digest(files, manifest.counts, manifest.id_kind, manifest.encoder_digest)
    write_manifest(directory, manifest._replace(files=files, digest=digest))
    checks = judge_candidate(directory, gate_context(directory))
    (found,) = [check for check in checks if check.name == CHECK]
    return found.passed, dict(found.found)


def _positions(*values: int) -> Callable[[Path], None]:
    return lambda d: change_array(d, "shares.positions", lambda was: np.array(values, was.dtype))


def _starts(*values: int) -> Callable[[Path], None]:
    return lambda d: change_array(d, "shares.indptr", lambda was: np.array(values, was.dtype))


def _readers(names: list[str] | None) -> Callable[[Path], None]:
    def change(directory: Path) -> None:
        with closing(sqlite3.connect(directory / layout.ROWS_FILE)) as rows, rows:
            if names is None:
                rows.execute("DELETE FROM meta WHERE key = ?", [layout.SHARED_WITH])
            else:
                sql = "UPDATE meta SET value = ? WHERE key = ?"
                rows.execute(sql, [json.dumps(names), layout.SHARED_WITH])

    return change


def _one_less(directory: Path) -> None:
    _starts(0, 1, 2, 3)(directory)
    _positions(5, 1, 1)(directory)


BAD: dict[str, tuple[Callable[[Path], None], str]] = {
    "of nobody": (_positions(5, 1, 3, 0), "of_nobody"),
    "of an empty owner": (_positions(5, 1, 4, 1), "of_nobody"),
    "with the owner": (_positions(1, 1, 3, 1), "with_the_owner"),
    "twice": (_positions(5, 1, 1, 1), "twice"),
    "unsorted readers": (_readers(["ana", "eva", "ben"]), "unsorted_readers"),
    "a reader twice": (_readers(["ana", "ben", "ben"]), "fault"),
    "too few readers": (_readers(["ana", "ben"]), "fault"),
    "no readers": (_readers(None), "fault"),
    "no starts": (lambda d: drop_array(d, "shares.indptr"), "fault"),
    "no positions": (lambda d: drop_array(d, "shares.positions"), "fault"),
    "beyond the memories": (_positions(5, 1, 6, 1), "fault"),
    "before the memories": (_positions(5, 1, -1, 1), "fault"),
    "a reader of nothing": (_starts(0, 1, 1, 4), "fault"),
    "starts too late": (_starts(1, 2, 3, 4), "fault"),
    "ends too early": (_starts(0, 1, 2, 3), "fault"),
    "uncounted": (_one_less, "uncounted"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_the_gate_refuses_shares_that_do_not_hold(
    candidates: tuple[Path, Path], tmp_path: Path, case: str
) -> None:
    change, expected = BAD[case]
    directory = shutil.copytree(candidates[0], tmp_path / "bad")
    change(directory)
    passed, found = verdict(directory)
    assert not passed
    assert found[expected]


def test_the_gate_passes_shares_and_a_store_without(candidates: tuple[Path, Path]) -> None:
    found = [verdict(directory) for directory in candidates]
    assert [(passed, told["shares"]) for passed, told in found] == [(True, len(SHARES)), (True, 0)]


@pytest.mark.parametrize("starts", [[0, 1, 3], [0, 1, 3, 5], [1, 2, 3, 4], [0, 3, 1, 4]])
def test_shares_that_are_shifted_open_nothing(starts: list[int]) -> None:
    shifted = ShareArrays(
        ("ana", "ben", "eva"),
        np.array(starts, dtype=np.int64),
        np.array([5, 1, 3, 1], dtype=np.int32),
    )
    with pytest.raises(ValueError, match="shares"):
        shifted.by_reader(len(OWNERS))
