"""What a recall reads besides its snapshot: the query's vector, and use."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from noctuary.core.errors import EncoderError, FingerprintMismatchError
from noctuary.core.files import remove_tree
from noctuary.core.manifest import Manifest, read_manifest, read_pointer
from noctuary.core.settings import EncoderSettings
from noctuary.core.store import StorePaths
from noctuary.core.types import UNDATED_US
from noctuary.embed.hosted import (
    HOSTED_FILE,
    HostedModel,
    ProviderDownError,
    hosted_model,
    write_description,
)
from noctuary.embed.lean import HEADER_FILE, WEIGHTS_FILE, LeanEncoder
from noctuary.recall.engine import Recaller
from noctuary.recall.inputs import (
    PACK_AFTER,
    Inputs,
    encode_query,
    encoder_identity,
    guard_model,
    remember_queries,
    text_encoder,
    warm_up,
)
from noctuary.recall.reader import SnapshotReader
from noctuary.sources.source import Share
from noctuary.usage.reader import Usage, UsageReader
from tests.support.fake_server import VARIABLE, FakeServer, Fault, serve_voyage, vector_of
from tests.support.lean import write_encoder
from tests.support.store import Store, memory, new_store, renumber
from tests.support.usage import count_retrievals


def manifest_of(store: Store) -> Manifest:
    return read_manifest(store.snapshot(read_pointer(store.paths).snapshot_id))


def codes(store: Store) -> list[str]:
    return [w.code for w in Recaller.open(store.root).recall("spare key").warnings]


def test_a_query_gets_the_vector_of_the_snapshot_s_own_encoder_once(dense_store: Store) -> None:
    assert dense_store.encoder is not None
    manifest = manifest_of(dense_store)
    vector = encode_query(dense_store.paths, manifest, "cat")
    assert np.array_equal(vector, dense_store.encoder.encode_query("cat"))
    assert not vector.flags.writeable
    assert encode_query(dense_store.paths, manifest, "cat") is vector


def test_a_snapshot_without_vectors_has_no_query_vector(plain_store: Store) -> None:
    with pytest.raises(EncoderError, match="without vectors"):
        encode_query(plain_store.paths, manifest_of(plain_store), "cat")
    assert Recaller.open(plain_store.root).inputs_now().known_share("猫") == 1.0


@pytest.mark.parametrize(
    ("text", "share"), [("cat 猫", 0.5), ("cat “key”", 0.5), ("猫", 0.0), ("", 1.0), ("house", 1.0)]
)
def test_the_share_of_a_query_that_the_encoder_reads(
    dense_store: Store, text: str, share: float
) -> None:
    # ASCII is not looked at: a real vocabulary has its letters, this one has not.
    assert Recaller.open(dense_store.root).inputs_now().known_share(text) == share


@pytest.mark.parametrize("damage", ["gone", "header", "weights"])
def test_without_an_encoder_recall_answers_and_says_so(dense_store: Store, damage: str) -> None:
    (directory,) = dense_store.paths.encoders.iterdir()
    if damage == "gone":
        remove_tree(directory)
    elif damage == "header":
        (directory / HEADER_FILE).write_text("{}")
    else:
        (directory / WEIGHTS_FILE).write_bytes(b"short")
    with pytest.raises(EncoderError):
        encode_query(dense_store.paths, manifest_of(dense_store), "cat")
    result = Recaller.open(dense_store.root).recall("spare key")
    assert result.memories[0].id == 101
    assert "dense_unavailable" in [w.code for w in result.warnings]


def test_another_model_in_the_encoder_s_place_is_refused(dense_store: Store) -> None:
    (directory,) = dense_store.paths.encoders.iterdir()
    remove_tree(directory)
    other = write_encoder(dense_store.paths.encoders, scale=2.0)
    (dense_store.paths.encoders / other.fingerprint.digest).rename(directory)
    with pytest.raises(FingerprintMismatchError, match="weights_sha256"):
        encode_query(dense_store.paths, manifest_of(dense_store), "cat")
    assert "model_mismatch" in codes(dense_store)


@pytest.fixture
def packings(monkeypatch: pytest.MonkeyPatch) -> list[LeanEncoder]:
    """Return the encoders that are packed from now on."""
    packed: list[LeanEncoder] = []

    def note(self: LeanEncoder) -> LeanEncoder:
        packed.append(self)
        return self

    monkeypatch.setattr(LeanEncoder, "packed", note)
    return packed


def test_only_a_caller_that_allows_it_gets_a_packed_encoder(
    dense_store: Store, packings: list[LeanEncoder]
) -> None:
    manifest = manifest_of(dense_store)
    for number in range(PACK_AFTER + 2):
        encode_query(dense_store.paths, manifest, f"reproducible {number}")
    assert not packings
    for number in range(1, PACK_AFTER + 2):
        encode_query(dense_store.paths, manifest, f"served {number}", may_warm=True)
        assert len(packings) == (number >= PACK_AFTER)
    assert packings[0].fingerprint.to_json() == manifest.encoder


def test_a_process_that_will_keep_asking_packs_at_once(
    dense_store: Store, packings: list[LeanEncoder]
) -> None:
    warm_up(dense_store.paths, manifest_of(dense_store))
    assert len(packings) == 1


def test_asking_compiles_no_pattern_of_scripts_that_nobody_wrote(dense_store: Store) -> None:
    """They take a fifth of `import numpy`, which every hook would pay."""
    code = (
        "import sys; from noctuary import recall\n"
        "from noctuary.graph.fold import _run_patterns as big\n"
        "for text in ('spare key', 'où est la clé', 'где ключ', '钥匙在哪里'):\n"
        "    assert recall(text, store=sys.argv[1], dry_run=True).memories or not text.isascii()\n"
        "    print(big.cache_info().misses)\n"
    )
    said = subprocess.check_output([sys.executable, "-c", code, str(dense_store.root)], text=True)
    assert said.split() == ["0", "0", "0", "1"]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Generator[FakeServer]:
    with serve_voyage(monkeypatch) as server:
        yield server


def hosted(server: FakeServer, dimension: int = 256) -> HostedModel:
    settings = EncoderSettings("voyage-4", "voyage", server.url, VARIABLE, dimension)
    return hosted_model(settings)


def described(store: Store, model: HostedModel) -> tuple[StorePaths, Manifest]:
    """Return the store as after a night with the model: its manifest, and the model's file."""
    manifest = read_manifest(store.snapshot(read_pointer(store.paths).snapshot_id))
    fingerprint = model.fingerprint()
    write_description(store.paths.encoders / fingerprint.digest, model)
    known = fingerprint.to_json()
    return store.paths, manifest._replace(encoder=known, encoder_digest=fingerprint.digest)


def test_the_snapshot_s_provider_is_asked_once(plain_store: Store, server: FakeServer) -> None:
    place = described(plain_store, hosted(server))
    found = encode_query(*place, "where is the key")
    wanted = vector_of("where is the key", 256, "query")
    np.testing.assert_allclose(found, wanted / np.linalg.norm(wanted), atol=1e-6)
    assert encode_query(*place, "where is the key", may_warm=True) is found
    assert server.texts == ["where is the key"]
    vector = np.eye(1, 256, dtype=np.float32)[0]
    remember_queries(*place, ["known"], vector[np.newaxis])
    kept = encode_query(*place, "known")
    np.testing.assert_array_equal(kept, vector, "what a night asked for is not asked again")
    assert not kept.flags.writeable
    assert server.texts == ["where is the key"]
    server.faults.append(Fault(hang=True))
    with pytest.raises(ProviderDownError, match="within 70 ms"):
        encode_query(*place, "slow", within_ms=100)


def test_a_new_address_needs_no_restart(plain_store: Store, server: FakeServer) -> None:
    nobody = replace(hosted(server), url="http://127.0.0.1:9/v1")
    place = described(plain_store, nobody)
    with pytest.raises(ProviderDownError):
        encode_query(*place, "x")
    assert encode_query(*described(plain_store, hosted(server)), "x").shape == (256,)


def test_only_the_model_of_the_vectors_passes_the_model_guard(
    plain_store: Store, server: FakeServer
) -> None:
    model = hosted(server)
    paths, manifest = described(plain_store, model)
    found = encoder_identity(paths, manifest)
    assert found == model.fingerprint().to_json()
    assert guard_model(manifest.encoder, found).verdict == "MATCH"
    write_description(paths.encoders / model.fingerprint().digest, hosted(server, 512))
    assert guard_model(manifest.encoder, encoder_identity(paths, manifest)).verdict == "MISMATCH"
    with pytest.raises(FingerprintMismatchError, match="dimension"):
        encode_query(paths, manifest, "x")
    assert server.asked == []


def test_without_its_file_nobody_is_asked(plain_store: Store, server: FakeServer) -> None:
    model = hosted(server)
    paths, manifest = described(plain_store, model)
    with pytest.raises(EncoderError, match="only queries"):
        text_encoder(paths, manifest)  # what a session says is sent to nobody
    warm_up(paths, manifest)
    directory = paths.encoders / model.fingerprint().digest
    for damage in ("garbage", "gone"):
        if damage == "gone":
            remove_tree(directory)
        else:
            (directory / HOSTED_FILE).write_text("{")
        assert encoder_identity(paths, manifest) is None
        with pytest.raises(EncoderError, match="nightly job"):
            encode_query(paths, manifest, "x")
    assert server.asked == []


class _Noting:
    """The store's own world, which notes how long a vector may take."""

    def __init__(self, world: Inputs) -> None:
        self._world = world
        self.within_ms: list[float] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)

    def query_vector(self, text: str, within_ms: float = math.inf) -> NDArray[np.float32]:
        self.within_ms.append(within_ms)
        return self._world.query_vector(text, within_ms)


def test_a_recall_tells_how_much_time_is_left(dense_store: Store) -> None:
    recaller = Recaller.open(dense_store.root)
    noting = _Noting(recaller.inputs_now())
    recaller.recall("spare key", deadline_ms=60_000.0, inputs=cast("Inputs", noting))
    assert len(noting.within_ms) == 1
    assert 0 < noting.within_ms[0] < 60_000
    recaller.recall("spare key", inputs=cast("Inputs", noting))
    assert noting.within_ms[1] == math.inf


def test_a_log_of_queries_asks_no_provider(plain_store: Store, server: FakeServer) -> None:
    paths, manifest = described(plain_store, hosted(server))
    found = Recaller.open(plain_store.root).inputs_now()
    assert isinstance(found, Inputs)
    found.reader.manifest = manifest
    world = found._replace(paths=paths)
    with pytest.raises(ProviderDownError, match="no time"):
        world.past_queries("never asked", since_us=0, limit=5, user=None)
    assert server.asked == []


OWNERS = (None, "ana", "ana", "ben", "ben", None, "ana")
IDS = tuple(str(101 + n) for n in range(len(OWNERS)))
SHARED = "103"  # of Ana, with Ben


class Places:
    """Where memories stand, as a snapshot's reader tells it."""

    def positions_of(self, memory_ids: Sequence[str]) -> dict[str, int]:
        return {i: IDS.index(i) for i in memory_ids if i in IDS}


class Whole:
    """Use of all together, most used first: 107 seven times, 101 once."""

    is_missing = False

    def counts(self, memory_ids: Sequence[str]) -> Usage:
        recent = np.array([int(i) - 100 for i in memory_ids], dtype=np.int64)
        return Usage(recent, recent * 2, recent * 3)

    def most_used(self, limit: int) -> list[str]:
        return list(IDS[::-1][: max(limit, 0)])

    def co_retrieved(self, memory_ids: Sequence[str]) -> NDArray[np.int64]:
        others = len(memory_ids) - 1
        return np.array([others for _ in memory_ids], dtype=np.int64)


asked = st.lists(st.sampled_from([*IDS, "999"]), unique=True)
masks = st.lists(st.booleans(), min_size=len(IDS), max_size=len(IDS))


def own(private: Sequence[bool]) -> Inputs:
    mine = np.array(private, dtype=np.bool_)
    use, places = cast(UsageReader, Whole()), cast(SnapshotReader, Places())
    return Inputs(StorePaths(Path()), places, lambda: use, lambda: mine)


@given(asked, masks)
def test_counts_and_pairs_are_of_private_memories(ids: list[str], private: list[bool]) -> None:
    kept = {i for i, mine in zip(IDS, private, strict=True) if mine}
    mine = [i for i in ids if i in kept]
    recent, days, last_us = own(private).usage_of(ids)
    assert recent.tolist() == [int(i) - 100 if i in kept else 0 for i in ids]
    assert days.tolist() == [2 * (int(i) - 100) if i in kept else 0 for i in ids]
    assert last_us.tolist() == [3 * (int(i) - 100) if i in kept else UNDATED_US for i in ids]
    together = own(private).co_retrieved(ids).tolist()
    assert together == [len(mine) - 1 if i in kept else 0 for i in ids]


@given(masks, st.integers(0, 9))
def test_what_others_use_most_takes_no_place(private: list[bool], limit: int) -> None:
    expected = [i for i in IDS[::-1] if private[IDS.index(i)]][:limit]
    assert own(private).most_used(limit) == expected
    assert own(private).knows_usage() == any(private)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    root: Path = tmp_path_factory.mktemp("use") / "store"
    store = new_store(root)
    records = renumber([memory(f"Note {n}.", user=user) for n, user in enumerate(OWNERS)])
    store.publish(records, shares=[Share(SHARED, "ben")])
    count_retrievals(store, [list(IDS)] * 3)
    return store


def used(world: Inputs) -> list[str]:
    usage: Usage = world.usage_of(IDS)
    found = [i for i, n in zip(IDS, usage.recent.tolist(), strict=True) if n]
    together = world.co_retrieved(IDS).tolist()
    assert found == sorted(world.most_used(len(IDS)))
    # Three recalls together with every other one that counts.
    assert together == [3 * (len(found) - 1) if i in found else 0 for i in IDS]
    assert world.knows_usage() == bool(found)
    return found


def test_a_recall_knows_the_use_of_what_nobody_else_sees(store: Store, tmp_path: Path) -> None:
    mine = {"ana": ["102", "107"], "ben": ["104", "105"], "eva": [], None: []}
    for user, expected in mine.items():
        assert used(Recaller.open(store.root).inputs_now(user)) == expected
    unnamed = new_store(tmp_path / "store")
    unnamed.publish(renumber([memory(f"Note {n}.") for n in range(len(IDS))]))
    count_retrievals(unnamed, [list(IDS)] * 3)
    assert used(Recaller.open(unnamed.root).inputs_now("ana")) == list(IDS), "all use counts"
