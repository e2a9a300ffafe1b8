from __future__ import annotations

from pathlib import Path

import pytest

from bench.suite.evaluation import EvaluatedSet, EvaluationOptions, evaluate_set
from tests.support.labelled_set import SmallSet, small_set


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> SmallSet:
    """A set of 60 memories and 16 queries over a published store. Not to be changed."""
    return small_set(tmp_path_factory.mktemp("suite"))


@pytest.fixture(scope="session")
def evaluated(small: SmallSet, tmp_path_factory: pytest.TempPathFactory) -> EvaluatedSet:
    """Every arm's runs over the small set."""
    runs = tmp_path_factory.mktemp("runs")
    return evaluate_set(small.loaded, small.store, runs, quiet())


def quiet(*arms: str) -> EvaluationOptions:
    return EvaluationOptions(arms=arms or ("*",), log=lambda text: None)


@pytest.fixture
def runs_directory(tmp_path: Path) -> Path:
    """Where finished runs go."""
    return tmp_path / "runs"
