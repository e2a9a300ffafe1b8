from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from noctuary.core.errors import EncoderError, FingerprintMismatchError
from noctuary.core.files import remove_tree
from noctuary.core.manifest import Manifest, read_manifest, read_pointer
from noctuary.embed.lean import HEADER_FILE, WARM_AFTER_QUERIES, WEIGHTS_FILE, WarmEncoder
from noctuary.embed.onnx import onnx_directory
from noctuary.recall.engine import Recaller
from noctuary.recall.inputs import encode_query, lean_reason, warm_up
from tests.support.lean import write_encoder
from tests.support.store import Store


def manifest_of(store: Store) -> Manifest:
    return read_manifest(store.snapshot(read_pointer(store.paths).snapshot_id))


def codes(store: Store) -> list[str]:
    return [w.code for w in Recaller.open(store.root).recall("spare key").warnings]


def test_a_query_gets_the_vector_of_the_snapshot_s_own_encoder(dense_store: Store) -> None:
    assert dense_store.encoder is not None
    vector = encode_query(dense_store.paths, manifest_of(dense_store), "cat")
    assert np.array_equal(vector, dense_store.encoder.encode_query("cat"))
    assert not vector.flags.writeable


def test_a_snapshot_without_vectors_has_no_query_vector(plain_store: Store) -> None:
    with pytest.raises(EncoderError, match="without vectors"):
        encode_query(plain_store.paths, manifest_of(plain_store), "cat")


@pytest.mark.parametrize("damage", ["gone", "header", "weights"])
def test_without_a_usable_encoder_recall_answers_and_says_so(
    dense_store: Store, damage: str
) -> None:
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


def test_a_repeated_query_is_not_encoded_again(dense_store: Store) -> None:
    manifest = manifest_of(dense_store)
    first = encode_query(dense_store.paths, manifest, "a question asked twice")
    assert encode_query(dense_store.paths, manifest, "a question asked twice") is first


def test_only_a_caller_that_allows_it_changes_to_the_runtime(
    dense_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest, looked_at = manifest_of(dense_store), list[WarmEncoder]()

    def note(self: WarmEncoder) -> None:
        looked_at.append(self)

    monkeypatch.setattr(WarmEncoder, "load_behind", note)
    for number in range(WARM_AFTER_QUERIES + 2):
        encode_query(dense_store.paths, manifest, f"reproducible {number}")
    assert not looked_at
    for number in range(WARM_AFTER_QUERIES + 2):
        encode_query(dense_store.paths, manifest, f"served {number}", may_warm=True)
    (encoder,) = looked_at
    assert encoder.lean.fingerprint.to_json() == manifest.encoder


def test_a_store_without_an_export_says_so_and_keeps_the_lean_encoder(dense_store: Store) -> None:
    manifest = manifest_of(dense_store)
    assert "fewer than" in lean_reason(dense_store.paths, manifest)
    reason = warm_up(dense_store.paths, manifest)
    assert reason == lean_reason(dense_store.paths, manifest)
    assert dense_store.encoder is not None
    place = onnx_directory(dense_store.paths.encoders, dense_store.encoder.fingerprint)
    assert str(place) in reason
    assert np.array_equal(
        encode_query(dense_store.paths, manifest, "cat", may_warm=True),
        dense_store.encoder.encode_query("cat"),
    )


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
