"""A small night and a recall in one process: what is loaded when both are done."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import FirstNight
from tests.e2e.driver import ROOT, run

pytestmark = pytest.mark.slow

NIGHT_AND_RECALL = """
import json, sys
from pathlib import Path
from noctuary import recall
from noctuary_pipelines.nightly import run_night
from noctuary_pipelines.site import prepare_instance, resolve_site
site = resolve_site(sys.argv[1], sys.argv[2])
prepare_instance(site.paths)
outcome = run_night(site)
assert outcome.status == "published", outcome
assert not all(stage.reused for stage in outcome.stages)
assert recall("where is the spare key", store=site.paths.root, dry_run=True).memories
print(json.dumps(sorted(sys.modules)))
"""


def test_a_whole_first_night_loads_nothing_of_ray(small_night: FirstNight, tmp_path: Path) -> None:
    """With every heavy step computed: nothing is known of this store."""
    source = small_night.bench.twin(tmp_path / "bench").source
    words = [sys.executable, "-c", NIGHT_AND_RECALL, str(source), str(tmp_path / "fresh")]
    ran = run(words, tmp_path, cwd=ROOT)
    assert ran.code == 0, ran.says
    loaded = {name.split(".")[0] for name in json.loads(ran.out.splitlines()[-1])}
    assert {"dagster", "lancedb", "noctuary"} <= loaded, "it was a night"
    assert not loaded & {"ray", "lance_ray", "dagster_ray"}
