from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np

from bench.compaction_growth.__main__ import growth, main
from bench.compaction_growth.corpus import WordVectors, iter_turns
from bench.results import read_result


def test_turns_depend_on_nothing_but_size_and_seed() -> None:
    assert list(iter_turns(200, seed=1)) == list(iter_turns(200, seed=1))
    assert list(iter_turns(200, seed=1)) != list(iter_turns(200, seed=2))
    assert [t.position for t in islice(iter_turns(10**9), 3)] == [0, 1, 2]
    assert {t.session_id for t in iter_turns(200, one_session=True)} == {"s0"}
    assert len({t.session_id for t in iter_turns(200)}) > 4


def test_the_cheap_encoder_brings_texts_that_share_words_together() -> None:
    words = [t.content for t in iter_turns(2)]
    rows = WordVectors().encode([words[0], words[0], words[1], "unheard of"])
    assert np.array_equal(rows[0], rows[1])
    assert rows[0] @ rows[1] > rows[0] @ rows[2]
    assert not rows[3].any()


def test_growth_is_one_where_all_doubles() -> None:
    runs = [{"turns": n, "cpu_s": n / 10, "peak_rss_bytes": 100 * n} for n in (10, 20)]
    assert growth(runs) == {"cpu_s": 1.0, "peak_rss_bytes": 1.0}
    assert growth(runs[:1]) == {}


def test_small_stores_are_measured_each_in_its_own_process(tmp_path: Path) -> None:
    out, plot = tmp_path / "growth.json", tmp_path / "growth.png"
    arguments = ["--sizes", "400", "200", "--no-embedding"]
    assert main([*arguments, "--out", str(out), "--plot", str(plot)]) == 0
    runs = read_result(out)["runs"]
    assert [(run["turns"], run["strategy"]) for run in runs] == [
        (200, "chronological"),
        (400, "chronological"),
    ]
    for run in runs:
        assert run["made"] == sum(run["summaries"]["by_status"].values()) > 0
        assert run["made_again"] == 0
        assert run["same_facts_again"]
        assert run["clusters"]["turns"] == run["turns"]
        assert 0 < run["peak_rss_bytes"] < 2_000_000_000
    assert plot.read_bytes().startswith(b"\x89PNG")
