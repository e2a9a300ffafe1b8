"""From the bundled model to a provider's and back: beside what serves, atomically, paid once."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator

import pytest

from noctuary.cli.store import Finding, look_at_serving
from noctuary.core.settings import Settings
from noctuary.recall.inputs import forget_queries
from tests.e2e.byte_scan import find_texts
from tests.e2e.driver import DONE, FAILED, ROOT, run, run_night
from tests.e2e.stores import CANARIES, Bench
from tests.support.fake_server import KEY, VARIABLE, FakeServer, serve_voyage

QUERY = "who looks after the heating?"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Generator[FakeServer]:
    with serve_voyage(monkeypatch) as server:
        yield server


def hosted(server: FakeServer, **more: str) -> dict[str, str]:
    """Return the variables of a night that embeds with the server."""
    return {
        "NOCTUARY_ENCODER_PROVIDER": "voyage",
        "NOCTUARY_ENCODER_MODEL": "voyage-4",
        "NOCTUARY_ENCODER_URL": server.url,
        "NOCTUARY_ENCODER_DIMENSION": "256",
        "NOCTUARY_ENCODER_API_KEY_VARIABLE": VARIABLE,
        VARIABLE: KEY,
        **more,
    }


def told(bench: Bench) -> list[tuple[object, float]]:
    found = bench.ask(QUERY)
    assert found.warnings == ()
    return [(memory.id, memory.final_score) for memory in found.memories]


@pytest.mark.slow
def test_a_store_changes_to_a_provider_and_back(small: Bench, server: FakeServer) -> None:
    before, local = told(small), small.manifest
    poor = run_night(
        small.source, small.store, extra=hosted(server, NOCTUARY_ENCODER_BUDGET_USD="0")
    )
    assert poor.code == FAILED
    assert "encoder.budget_usd" in poor.report["message"]
    assert server.asked == []
    # Dies when the first vectors are paid for and written down, and the stage is not done.
    script = str(ROOT / "tests" / "e2e" / "die_at.py")
    words = [sys.executable, script, "after", "noctuary.embed.documents.put_vectors", "1"]
    words += [str(small.source), "--store", str(small.store), "--json"]
    killed = run(words, small.store.parent, extra=hosted(server))
    assert killed.code == -9
    paid = len(server.texts)
    assert paid >= local.counts["memories"] > 0
    assert told(small) == before, "the old snapshot serves, with the old model"
    assert len(server.texts) == paid

    ran = run_night(small.source, small.store, extra=hosted(server))
    assert ran.code == DONE, ran.says
    assert ran.note("memory_vectors", "texts_reused") == local.counts["memories"]
    texts = [json.dumps(asked.body) for asked in server.asked]
    assert len(texts) == len(set(texts)), "no request was made, or paid for, twice"
    _look_at_hosted(small, server)

    back = run_night(small.source, small.store)
    assert back.code == DONE, back.says
    assert small.manifest.digest == local.digest
    assert told(small) == before
    leaks = find_texts(small.store, [KEY])
    assert leaks == []
    assert all(KEY not in said.says for said in (poor, killed, ran, back))
    assert all(canary not in server.everything for canary in CANARIES)


def _look_at_hosted(bench: Bench, server: FakeServer) -> None:
    """Everything of the snapshot follows the model, and recall asks it for the query alone."""
    manifest = bench.manifest
    assert manifest.encoder is not None
    assert (manifest.encoder["model"], manifest.encoder["dimension"]) == ("voyage:voyage-4", 256)
    tiers = json.loads((bench.paths.work / "stamps" / "vector_tiers.json").read_text())["facts"]
    assert set(tiers["dims"].values()) == {64, 256}
    asked = len(server.asked)
    found = bench.ask(QUERY)
    assert found.warnings == ()
    assert any(memory.dense is not None for memory in found.memories)
    assert [a.texts for a in server.asked[asked:]] == [[QUERY]]
    assert server.asked[-1].body["input_type"] == "query"
    (finding,) = [f for f in _doctor(bench) if f.name == "encoder"]
    assert (finding.level, finding.message.split(",")[0]) == ("ok", "voyage:voyage-4")
    forget_queries()
    server.die_after = 0
    alone = bench.ask(QUERY)
    assert alone.memories, "words find what they find"
    assert [w.code for w in alone.warnings] == ["dense_unavailable"]
    assert KEY not in alone.warnings[0].message
    forget_queries()


def _doctor(bench: Bench) -> list[Finding]:
    return list(look_at_serving(bench.paths, Settings(), is_hooked=False))
