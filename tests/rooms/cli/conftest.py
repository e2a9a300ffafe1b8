from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result

from noctuary.cli.main import main

Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `noctuary` with arguments; whatever happens must be an exit code and not an exception."""
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        # The command sets what is unset, for its own process: this one must stay as it was.
        monkeypatch.setenv(variable, "1")

    def invoke(*arguments: str) -> Result:
        result = CliRunner().invoke(main, arguments)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.output
        assert "Traceback" not in result.output
        return result

    return invoke


@pytest.fixture
def run_json(run: Run) -> Callable[..., Any]:
    """Run with --json and a stated exit code; what was printed, parsed."""

    def invoke(*arguments: str, code: int = 0) -> Any:
        result = run(*arguments, "--json")
        assert result.exit_code == code
        return json.loads(result.stdout)

    return invoke
