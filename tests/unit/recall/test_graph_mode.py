"""graph_mode = "ppr" over a real snapshot: it ranks, says why, and does without scipy."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from noctuary.graph.transitions import Transitions
from noctuary.recall.engine import Recaller
from noctuary.recall.graph_leg import GraphLeg
from noctuary.recall.graph_paths import path_of
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.result import RecallResult
from noctuary.recall.scope import Scope
from noctuary.recall.snapshot_graph import SnapshotGraph
from tests.support.store import memory, new_store, renumber

QUERY = "what did Nina order for the boat"
# The bridge is mentioned on both sides and the subject of neither: no directed step crosses it.
TEXTS = (
    "Nina wants an anchor for the boat before May, says `MARLIN-7`.",
    "The sailmaker has `MARLIN-7` on his list and asks about `HALYARD-3`.",
    "Invoices with `HALYARD-3` are paid on Fridays.",
    "The feline eats twice a day.",
)
WALK = RetrievalProfile(dense_weight=0.0)
PPR = RetrievalProfile(dense_weight=0.0, graph_mode="ppr")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = new_store(tmp_path_factory.mktemp("ppr") / "house")
    store.publish(renumber([memory(text) for text in TEXTS]))
    return store.root


@pytest.fixture(scope="module")
def recaller(root: Path) -> Recaller:
    return Recaller.open(root)


def ids(result: RecallResult) -> list[str]:
    return [str(found.id) for found in result.memories]


def test_what_shares_a_concept_with_a_hit_arrives_and_says_by_which(recaller: Recaller) -> None:
    walked = recaller.recall(QUERY, profile=WALK)
    ranked = recaller.recall(QUERY, profile=PPR)
    assert not ranked.warnings
    assert ids(walked) == ["101"]
    assert ids(ranked) == ["101", "102", "103"]
    near, far = ranked.memories[1:]
    assert near.final_score > far.final_score > 0.0
    assert near.graph is not None
    assert far.graph is not None
    assert (near.graph.seed_id, near.graph.relation) == (101, "ppr")
    assert near.graph.concept == "MARLIN-7"
    assert list(near.graph.evidence) == [101]
    assert (far.graph.seed_id, far.graph.concept) == (101, None)
    assert near.graph.shares == {"ppr": near.graph.score}


def test_equal_questions_get_equal_answers(root: Path, recaller: Recaller) -> None:
    once = [m.final_score for m in recaller.recall(QUERY, profile=PPR).memories]
    again = [m.final_score for m in Recaller.open(root).recall(QUERY, profile=PPR).memories]
    assert once == again


def test_a_weight_of_zero_asks_nobody(recaller: Recaller) -> None:
    off = replace(PPR, graph_weight=0.0)
    assert ids(recaller.recall(QUERY, profile=off)) == ["101"]


def test_the_matrices_of_the_whole_snapshot_are_made_once(recaller: Recaller) -> None:
    graph = SnapshotGraph(recaller.reader)
    everything = np.ones(len(TEXTS), dtype=bool)
    assert graph.transitions(None) is graph.transitions(everything)
    some = everything.copy()
    some[1] = False
    part, whole = graph.transitions(some), graph.transitions(None)
    assert isinstance(part, Transitions)
    assert isinstance(whole, Transitions)
    assert part.positions.tolist() == [0, 2, 3]
    assert whole.positions.size == len(TEXTS)


def test_a_memory_of_somebody_else_is_no_bridge(tmp_path: Path) -> None:
    """102 is Ben's: what it joins is apart for everybody else."""
    store = new_store(tmp_path / "house")
    users = (None, "ben", None, None)
    store.publish(
        renumber([memory(text, user=user) for text, user in zip(TEXTS, users, strict=True)])
    )
    recaller = Recaller.open(store.root)
    assert ids(recaller.recall(QUERY, profile=PPR, scope=Scope(user="ben"))) == [
        "101",
        "102",
        "103",
    ]
    assert ids(recaller.recall(QUERY, profile=PPR, scope=Scope(user="ana"))) == ["101"]


def test_paths_of_the_leg_alone(recaller: Recaller) -> None:
    graph = SnapshotGraph(recaller.reader)
    leg = GraphLeg(graph, None, 1.0, 0.0, None, graph.transitions(None))
    pool, base = np.array([1]), np.array([0.0, 0.7, 0.0, 0.0])
    ranking = leg.rank("marlin-7", pool, base[pool], lambda p: base[p])
    assert ranking is not None
    assert ranking.positions.tolist() == [0, 1, 2]
    path = path_of(ranking, 2)
    assert path is not None
    assert (path.seed, path.relation, path.evidence) == (1, "ppr", (1,))
    assert path.reason == "reached over the graph from {1} by ppr"


WITHOUT_SCIPY = """
import json, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "scipy":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refuse())
from pathlib import Path
from noctuary.recall.engine import Recaller
from noctuary.recall.profile import RetrievalProfile
recaller = Recaller.open(Path(sys.argv[1]))
found = {}
for mode in ("walk", "ppr"):
    profile = RetrievalProfile(graph_mode=mode, dense_weight=0.0)
    result = recaller.recall(sys.argv[2], profile=profile)
    scores = [(str(m.id), m.final_score) for m in result.memories]
    found[mode] = [scores, [w.code for w in result.warnings], [w.message for w in result.warnings]]
print(json.dumps(found))
"""


def test_without_scipy_the_walk_answers_with_a_warning(root: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_SCIPY, str(root), QUERY],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert found["walk"][1] == []
    assert found["ppr"][0] == found["walk"][0] != []
    assert found["ppr"][1] == ["ppr_unavailable"]
    assert "scipy" in found["ppr"][2][0]


def test_the_walk_and_the_imports_load_no_scipy(root: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom noctuary.recall.engine import Recaller\n"
        "import noctuary.graph.ppr, noctuary.graph.transitions\n"
        f"assert Recaller.open(Path({str(root)!r})).recall({QUERY!r}).memories\n"
        "assert not [name for name in sys.modules if name.split('.')[0] == 'scipy']"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
