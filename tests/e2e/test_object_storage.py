"""A store whose LanceDB tables lie in an object store: the same night, the same recall."""

from __future__ import annotations

import pytest

from noctuary.hashing import hash_file
from noctuary.vectors.object_tables import ObjectTables
from noctuary.vectors.tiers import FULL_TIER, tiers_match
from tests.e2e.driver import DONE, FAILED, run_night
from tests.e2e.stores import Bench, add_memory
from tests.support.s3_server import BUCKET, SECRET, s3_server

URI = f"s3://{BUCKET}/stores/small"
QUERY = "which incident touched the payment service"


@pytest.mark.slow
def test_a_night_writes_its_tables_there_and_recall_reads_the_local_pack(
    small: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = small.ask(QUERY)
    tables = sorted(path.name for path in small.paths.lance.iterdir())
    assert tables, "the first night wrote local tables"
    add_memory(small.source, "The payment service was moved to the new cluster in November.")
    with s3_server() as server:
        extra = {**server.environment(), "NOCTUARY_TIERS_URI": URI}
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        ran = run_night(small.source, small.store, extra=extra)
        assert ran.code == DONE, ran.says
        assert ran.report["status"] == "published"
        assert SECRET not in ran.says
        assert not small.paths.lance.exists(), "what no night keeps up to date is removed"
        home = ObjectTables(URI)
        ids = home.connect().open_table(FULL_TIER).to_arrow()["memory_id"].to_pylist()
        assert len(ids) == small.manifest.counts["memories"]
        assert all(match.ok for match in tiers_match(home, ids))
        serving, manifest = small.serving, small.snapshot / "manifest.json"
        digest = hash_file(manifest)
        add_memory(small.source, "The payment service has a new owner since December.")
        server.stop()
        lost = run_night(small.source, small.store, extra=extra)
    assert lost.code == FAILED, lost.says
    assert URI in lost.says
    assert "cannot be reached" in lost.says
    assert SECRET not in lost.says
    assert small.serving == serving, "nothing was published"
    assert hash_file(manifest) == digest
    after = small.ask(QUERY)
    assert {m.id for m in before.memories} & {m.id for m in after.memories}
    leaked = [
        p for p in small.store.rglob("*") if p.is_file() and SECRET.encode() in p.read_bytes()
    ]
    assert not leaked
