"""Tests of the benchmarks are slow ones: nobody's memories depend on them (DESIGN section 2)."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.suite.evaluation import EvaluatedSet, EvaluationOptions, evaluate_set
from tests.support.labelled_set import SmallSet, small_set

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark them before pytest chooses by marks."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> SmallSet:
    """A set of 60 memories and 16 queries over a published store. Not to be changed."""
    return small_set(tmp_path_factory.mktemp("suite"))


@pytest.fixture(scope="session")
def evaluated(small: SmallSet, tmp_path_factory: pytest.TempPathFactory) -> EvaluatedSet:
    """Every arm's runs over the small set."""
    options = EvaluationOptions(("*",), log=lambda text: None)
    return evaluate_set(small.loaded, small.store, tmp_path_factory.mktemp("runs"), options)
