"""Whatever is asked: a typed result or a ValueError, from the API and from the command line."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noctuary.cli.main import main
from noctuary.recall.api import recall
from noctuary.recall.profile import FIELD_NAMES
from noctuary.recall.query import SORT_ORDERS
from noctuary.recall.result import RecallResult
from tests.support.lean import write_encoder
from tests.support.store import household, new_store

GENERATED = 10_000
"""Recalls asked in all by `make test-all`; one takes two ms, most of them hypothesis's."""
GENERATED_BY_DEFAULT = 2_000

NASTY = (
    "", " ", "\x00", "key\x00door", "\ud800", "\udfff key", "🙂" * 50, "שלום עולם",
    "\u202ekey\u202c", "' OR 1=1; --", "key AND OR NOT NEAR(", '"unbalanced', "key*", "col:key",
    "^key", "{key}", "%_\\", "-- drop table memories", "\ufeffkey", "ｋｅｙ", "e\u0301" * 30,
    "key " * 25_000, "鍵はどこ", "\u200d\u200d", "{0}", "{999999999999999999999}",
    "%s %d", "\x1b[31m",
)  # fmt: skip
WORDS = ("key", "door", "cat", "flight", "Atlas", "Nina", "the", "invoice", "booked", "Lisbon")

texts = st.one_of(
    st.sampled_from(NASTY),
    st.text(max_size=80),
    st.text(alphabet=st.characters(codec=None), max_size=20),
    st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join),
)
counts = st.one_of(
    st.integers(0, 30),
    st.sampled_from([0, 10**6, 10**30, -1, -(10**30), 2.5, math.nan, "10", None, True]),
)
moments = st.one_of(
    st.none(),
    st.datetimes(),
    st.datetimes(timezones=st.just(UTC)),
    st.sampled_from([
        datetime(1, 1, 1), datetime(9999, 12, 31),  # noqa: DTZ001
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))),
        datetime(9999, 12, 31, 23, tzinfo=timezone(-timedelta(hours=12))), "2026-01-01", 0,
    ]),
)  # fmt: skip
filters = st.one_of(
    st.none(), st.none(), st.sampled_from(["home", "work", "ana"]), texts, st.just(3)
)
flag_values = st.one_of(
    st.booleans(),
    st.integers(-2, 100),
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from(["cc", "rrf", "hybrid", "two_pass", "annotate", "no-such-model", ""]),
    st.none(),
)
flags = st.one_of(
    st.none(),
    st.none(),
    st.sampled_from(["default", "off", "libravdb", "seed-hybrid", "synapse", "no such profile"]),
    # A reranker's name would start loading torch.
    st.dictionaries(
        st.sampled_from([f for f in (*FIELD_NAMES, "no_such_flag") if f != "reranker"]),
        flag_values,
        max_size=3,
    ),
)
questions = st.fixed_dictionaries(
    {"query": texts, "k": counts},
    optional={
        "wing": filters, "room": filters, "category": filters, "user": filters,
        "session_id": filters,
        "sort_by": st.one_of(st.sampled_from(SORT_ORDERS), texts),
        "as_of": moments,
        "deadline_ms": st.sampled_from([None, 0, -1, 1e-9, 1e9, math.inf, math.nan, "5"]),
        "profile": flags,
        "explain": st.booleans(),
        "candidate_trace": st.booleans(),
    },
)  # fmt: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("asked") / "house"
    store = new_store(directory, encoder=write_encoder(directory / "encoders"))
    store.publish(household())
    return directory


_SETTINGS = settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)


@settings(_SETTINGS, max_examples=GENERATED_BY_DEFAULT)
@given(questions)
def test_a_question_gets_a_result_or_a_value_error(
    root: Path, home: Path, question: dict[str, Any]
) -> None:
    ask(root, question)


@pytest.mark.slow
@settings(_SETTINGS, max_examples=GENERATED)
@given(questions)
def test_every_question_gets_a_result_or_a_value_error(
    root: Path, home: Path, question: dict[str, Any]
) -> None:
    ask(root, question)


def ask(root: Path, question: dict[str, Any]) -> None:
    try:
        result = recall(**question, store=root, dry_run=True)
    except ValueError:
        return
    assert isinstance(result, RecallResult)
    assert "snapshot_damaged" not in {w.code for w in result.warnings}
    assert "phase_failed" not in {w.code for w in result.warnings}
    assert len(result.memories) <= question["k"]
    scores = [m.final_score for m in result.memories]
    assert all(math.isfinite(s) and 0.0 <= s <= 1.0 for s in scores)
    assert scores == sorted(scores, reverse=True)
    json.dumps(result.to_json(), allow_nan=False)


@pytest.mark.parametrize("query", NASTY)
def test_the_command_line_answers_anything(root: Path, home: Path, query: str) -> None:
    arguments = [
        "recall",
        "--store",
        str(root),
        "--dry-run",
        "--no-server",
        "--explain",
        "--",
        query,
    ]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    assert "Traceback" not in done.output


def test_before_the_first_memory_there_is_nothing(root: Path, home: Path) -> None:
    early = datetime(1999, 1, 1, tzinfo=UTC)
    dated = recall("key door flight", store=root, dry_run=True, as_of=early).memories
    assert {m.created_at for m in dated} <= {None}
