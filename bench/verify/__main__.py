"""Check the numbers of the labelled sets against bench/regressions.

`python -m bench.verify [--sets locomo cranfield] [--stores DIR] [--json] [--accept "reason"]`

Exit codes: 0 every number is OK or OKish; 1 one FAILs, or a set could not be measured; 2 the sets
are not there.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.datasets import find_shared
from bench.manifest import describe_run
from bench.suite.loading import load_set
from bench.suite.plan import SuitePaths
from bench.verify.changes import CHANGES, Change, append_changes, as_text, check_reason
from bench.verify.measure import measure
from bench.verify.regression import (
    REGRESSIONS,
    Regression,
    read_regression,
    regression_path,
    write_regression,
)
from bench.verify.verdict import Judged, Verdict, judge, worst
from noctuary.core.errors import NoctuaryError, SourceMissingError
from noctuary_pipelines.progress import choose_progress

_COMMIT_CHARS = 12


@dataclass(frozen=True, slots=True)
class Checked:
    """A set's verdicts, or why there are none."""

    dataset: str
    judged: list[Judged]
    fault: str | None = None

    @property
    def verdict(self) -> Verdict:
        """The worst of the set; a set that could not be measured FAILs."""
        return Verdict.FAIL if self.fault else worst(self.judged)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "dataset": self.dataset,
            "verdict": self.verdict.value,
            "fault": self.fault,
            "numbers": [asdict(one) for one in self.judged],
        }


def known_sets(directory: Path) -> list[str]:
    """Return the sets that have a regression file, sorted."""
    return sorted(path.stem for path in directory.glob("*.yaml"))


def accept(
    regressions: Path, log: Path, expected: Regression, found: Regression, reason: str
) -> list[Change]:
    """Write a set's new values and one entry per number that changed; return the entries.

    The log is written first: a run that is killed in between leaves a file that disagrees with its
    log, which the tests say, and never a number that changed without an entry.
    """
    run = describe_run()
    commit = str(run["commit"] or "unknown")[:_COMMIT_CHARS] + ("+" if run["dirty"] else "")
    today = datetime.now(UTC).date().isoformat()
    changes = [
        Change(
            today,
            found.dataset,
            one.name,
            as_text(one.expected),
            as_text(one.found),
            commit,
            reason,
        )
        for one in judge(expected, found)
        if one.expected != one.found
    ]
    if changes:
        append_changes(log, changes)
        accepted = Regression(found.dataset, found.values, expected.tolerance)
        write_regression(regression_path(regressions, found.dataset), accepted)
    return changes


def check_set(name: str, data: Path, paths: SuitePaths, options: argparse.Namespace) -> Checked:
    """Measure a set and judge it; with --accept, take what was found as the new expectation."""
    file = regression_path(options.regressions, name)
    try:
        expected = Regression(name) if options.accept and not file.is_file() else None
        expected = expected or read_regression(file)
        loaded = load_set(data / name)
        found = measure(loaded, paths.store(name), paths.log(name), choose_progress(None))
    except NoctuaryError as error:
        return Checked(name, [], str(error))
    if options.accept:
        changes = accept(options.regressions, options.log, expected, found, options.accept)
        _say(options, f"{name}: {len(changes)} numbers accepted")
        expected = read_regression(file)
    return Checked(name, judge(expected, found))


def show(checked: Checked) -> None:
    """Print a set's table."""
    print(f"\n{checked.dataset}: {checked.verdict.value}")
    if checked.fault:
        print(f"  {checked.fault}")
    for one in checked.judged:
        sides = f"{as_text(one.expected)[:16]:>16}  {as_text(one.found)[:16]:>16}"
        print(f"  {one.verdict.value:<6} {one.name:<36} {sides}")


def _say(options: argparse.Namespace, text: str) -> None:
    print(text, file=sys.stderr if options.json else sys.stdout, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the sets asked for and return the exit code."""
    options = _parse(arguments)
    shared = find_shared()
    if shared is None:
        print("no labelled sets: put them beside the checkout as ../shared or set NOCTUARY_SHARED")
        return 2
    paths = SuitePaths.below(options.stores, None)
    names: list[str] = options.sets or known_sets(options.regressions)
    if not names:
        raise SourceMissingError(f"no regression file in {options.regressions}: name --sets")
    checked: list[Checked] = []
    for name in names:
        checked.append(check_set(name, (shared / "data").absolute(), paths, options))
        if not options.json:
            show(checked[-1])
    if options.json:
        print(json.dumps([one.to_json() for one in checked], indent=1))
    return 1 if any(one.verdict is Verdict.FAIL for one in checked) else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.verify", description=__doc__)
    parser.add_argument("--sets", nargs="*", metavar="NAME", help="default: all with a file")
    parser.add_argument("--stores", type=Path, help="stores to reuse [default: artifacts/bench]")
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    parser.add_argument("--accept", metavar="REASON", help="expect what is found from now on")
    parser.add_argument("--regressions", type=Path, default=REGRESSIONS)
    parser.add_argument("--log", type=Path, default=CHANGES)
    options = parser.parse_args(arguments)
    if options.accept is not None:
        options.accept = check_reason(options.accept)
    return options


if __name__ == "__main__":
    try:
        sys.exit(main())
    except NoctuaryError as error:
        sys.exit(str(error))
