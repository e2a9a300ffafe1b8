"""Break the library in one place at a time and see whether a test of its room fails.

    python -m tests.support.mutants [TEXT ...]     only mutants whose file or code holds a text

Prints one line per mutant and exits with 1 if more than three survive. A mutant whose line has
changed is an error: update the table.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import NamedTuple

import click

ROOT = Path(__file__).resolve().parents[2]
MOST_SURVIVORS = 3
TIMEOUT_S = 900.0
WORKERS = 2


class Mutant(NamedTuple):
    """One fault: a piece of code that occurs once in its file, and what replaces it."""

    file: str  # below lib/noctuary
    code: str
    fault: str
    tests: str = ""  # below tests, space-separated; the room's own where empty

    @property
    def paths(self) -> list[str]:
        """Return the tests that must notice."""
        return [f"tests/{p}" for p in (self.tests or f"rooms/{self.file.split('/')[0]}").split()]


MUTANTS = (
    Mutant("core/files.py", 'for piece in (len(r).to_bytes(8, "big"), r)', "for piece in (r,)"),
    Mutant("core/files.py", "sort_keys=True, separators", "separators"),
    Mutant("core/tombstones.py", "held >= least * len(self.pieces)", "held > len(self.pieces)",
           "rooms/snapshot/test_forget.py rooms/sources/test_corpus.py"),
    Mutant("core/tombstones.py", "if not is_in_place and self.moment != row.moment",
           "if is_in_place and self.moment != row.moment",
           "rooms/snapshot/test_forget.py rooms/sources/test_corpus.py"),
    Mutant("text/tokens.py", "return script if code <= end else Script.OTHER", "return script"),
    Mutant("text/tokens.py", "range(len(segment) - NGRAM_CHARS + 1)",
           "range(len(segment) - NGRAM_CHARS)"),
    Mutant("text/tokens.py", "if not is_stop_word(word))", "if word)"),
    Mutant("text/dates.py", "(timedelta(days=-1), timedelta(days=14))",
           "(timedelta(days=-1), timedelta(days=13))"),
    Mutant("text/dates.py", "if not 1 <= int(number) <= len(MONTH_NAMES)",
           "if not 0 <= int(number) <= len(MONTH_NAMES)"),
    Mutant("text/secrets.py", "if len(letters) >= MIN_SEED_WORDS and",
           "if len(letters) > 2 * MIN_SEED_WORDS and"),
    Mutant("text/secrets.py", "and not re.search(_NO_VALUE, before)", ""),
    Mutant("lexical/search.py", "n_memories - document_frequencies + 0.5",
           "n_memories - document_frequencies"),
    Mutant("lexical/search.py", "(1.0 - b + b * lengths / mean_length)",
           "(b + (1.0 - b) * lengths / mean_length)"),
    Mutant("lexical/search.py", 'candidates[np.argsort(-values, kind="stable")[:depth]]',
           "candidates[np.argsort(-values)[::-1][:depth]]"),
    Mutant("lexical/search.py", "kept = values >= np.partition", "kept = values > np.partition"),
    Mutant("usage/statistics.py", "max(before_us, last_us))\n", "last_us)\n"),
    Mutant("usage/statistics.py", "rank <= {CO_RETRIEVAL_RANKS}", "rank < {CO_RETRIEVAL_RANKS}"),
    Mutant("usage/statistics.py", "a.memory_id < b.memory_id", "a.memory_id <= b.memory_id"),
    Mutant("evaluate/metrics.py", "log2(rank + 1)", "log2(rank + 2)"),
    Mutant("evaluate/metrics.py", "fsum(n / rank for n, rank", "fsum(1 / rank for n, rank"),
    Mutant("evaluate/metrics.py", "1.0 / ranks[0] if ranks", "1.0 / ranks[-1] if ranks"),
    Mutant("evaluate/statistics.py", "(below + 0.5 * tied)", "(below + tied)"),
    Mutant("evaluate/statistics.py", "(6.0 * float(np.sum(centred**2)) ** 1.5)",
           "(3.0 * float(np.sum(centred**2)) ** 1.5)"),
    Mutant("recall/scorers.py", "1.0 - delta * (1.0 - unit_of(confidences))",
           "1.0 - delta * unit_of(confidences)"),
    Mutant("recall/scorers.py", "np.clip(np.where(np.isfinite(exact), exact, 0.0), 0.0, 1.0)",
           "np.clip(exact, 0.0, 1.0)"),
    Mutant("recall/selection.py", "mmr_lambda * relevance - (1.0 - mmr_lambda) * similarity",
           "mmr_lambda * relevance - mmr_lambda * similarity"),
    Mutant("recall/selection.py", "max(int(counts.sum()), 1)", "max(int(counts.sum()) + 1, 1)"),
    Mutant("recall/phases.py", "floor + (1.0 - floor) * np.exp2(-half_lives)",
           "floor + np.exp2(-half_lives)"),
    Mutant("recall/phases.py", "- 1.0) * (1.0 - elapsed)", "- 1.0) * elapsed"),
    Mutant("recall/phases.py", "np.minimum(1.0 + coefficient * np.log1p(counts), max_boost)",
           "1.0 + coefficient * np.log1p(counts)"),
    Mutant("recall/phases.py", "scores / best if best > 1.0 else scores", "scores / best"),
    Mutant("recall/phases.py", "and q.asked_us <= search.now_us", ""),
    Mutant("snapshot/publish.py", "passed = bool(checks) and all(", "passed = all("),
    Mutant("snapshot/publish.py", "protected = {pointer.snapshot_id, pointer.previous_id}",
           "protected = {pointer.snapshot_id}"),
    Mutant("snapshot/publish.py", "if manifest.digest != digest:", "if False:"),
    Mutant("snapshot/publish.py", "if newest and now <= newest:", "if not newest:"),
    Mutant("snapshot/publish.py", "return verdict if verdict.digest == digest else None",
           "return verdict"),
    Mutant("graph/guards.py", "return left.numbers != right.numbers", "return False"),
    Mutant("graph/guards.py", "return left.versions != right.versions", "return False"),
    Mutant("graph/guards.py", "< NAME_MIN_CHARS\n", "< NAME_MIN_CHARS - 1\n"),
    Mutant("graph/walk.py", "for size in range(longest.get(tokens[index].folded, 0), 0, -1)",
           "for size in range(1, longest.get(tokens[index].folded, 0) + 1)"),
    Mutant("graph/sessions.py", "same = owners[distance:] == owners[:-distance]",
           "same = owners[distance:] == owners[distance:]"),
    Mutant("graph/sessions.py", "np.lexsort((-base, -raised))", "np.lexsort((-raised, -base))"),
    Mutant("embed/funnel.py", "if len(rows) > wanted:", "if len(rows) > wanted // 8:"),
    Mutant("embed/funnel.py", "allowed = None if mask is None else mask.take(tier.positions)",
           "allowed = None"),
    Mutant("embed/fingerprint.py", "if expected == found:\n        return",
           "if expected.model == found.model:\n        return"),
    Mutant("work/stage.py", 'and stamp["outputs"] == _hash_outputs(work, stage)\n    )', ")"),
    Mutant("work/stage.py", '"version": stage.version, ', ""),
    Mutant("compact/gate.py", "_clamp((align + cover) / 2.0)", "_clamp(max(align, cover))"),
    Mutant("compact/gate.py", "if not align >= threshold:", "if align < threshold - 0.1:"),
    Mutant("compact/gate.py", "(1.0 - PRESERVATION_WEIGHT) * _clamp(raw)", "_clamp(raw)"),
    Mutant("sources/normalize.py", 'if fields.get("deleted_at"):', "if False:",
           "rooms/sources/test_normalize.py rooms/sources/test_export.py"),
    Mutant("sources/normalize.py", '(("wing",), ("wing", "project"))', '(("wing",), ("wing",))',
           "rooms/sources/test_normalize.py"),
    Mutant("curate/signals.py", "REPEATED_CAP, 1.0) * (1.0 -", "REPEATED_CAP, 1.0) * (",
           "rooms/curate/test_signals.py"),
    Mutant("curate/signals.py", "min(max(c, 0.0), 1.0)", "c", "rooms/curate/test_signals.py"),
    Mutant("context/render.py", '.replace("<", "&lt;")', "",
           "rooms/context rooms/sources/test_injected.py"),
    Mutant("context/render.py", "hash_words(words_of(", "hash_words(words_of(NOTE + ",
           "rooms/context rooms/sources/test_injected.py"),
    Mutant("agents/state.py", "math.ceil(share * total)", "math.floor(share * total)"),
    Mutant("agents/state.py", "i.in_context and i[:2] == key", "i[:2] == key"),
    Mutant("cli/main.py", "moment.replace(tzinfo=UTC)", "moment", "rooms/cli/test_explain.py "
           "rooms/cli/test_recall.py rooms/snapshot/test_forget.py"),
)  # fmt: skip


def main(words: list[str]) -> int:
    """Run the chosen mutants on copies of the checkout; return the exit code."""
    chosen = [m for m in MUTANTS if not words or any(w in m.file or w in m.code for w in words)]
    for mutant in chosen:
        found = (ROOT / "lib" / "noctuary" / mutant.file).read_text("utf-8").count(mutant.code)
        if found != 1:
            click.echo(
                f"{mutant.file} has {mutant.code!r} {found} times, expected once: update the table"
            )
            return 2
    survivors: list[Mutant] = []
    with tempfile.TemporaryDirectory(prefix="noctuary-mutants-") as directory:
        copies: Queue[Path] = Queue()
        for number in range(WORKERS):
            copies.put(copy_checkout(Path(directory) / str(number)))

        def run(mutant: Mutant) -> bool:
            copy = copies.get()
            try:
                return is_caught(copy, mutant)
            finally:
                copies.put(copy)

        whole = sorted({path for mutant in chosen for path in mutant.paths})
        if not passes(copies.queue[0], whole):
            click.echo("the tests fail before anything is broken: make them pass first")
            return 2
        with ThreadPoolExecutor(WORKERS) as pool:
            for mutant, caught in zip(chosen, pool.map(run, chosen), strict=True):
                verdict = "caught  " if caught else "SURVIVED"
                click.echo(f"{verdict} {mutant.file} {mutant.code!r}")
                if not caught:
                    survivors.append(mutant)
    click.echo(f"{len(chosen) - len(survivors)} of {len(chosen)} caught")
    return 1 if len(survivors) > MOST_SURVIVORS else 0


def copy_checkout(target: Path) -> Path:
    """Copy the files that git knows."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    return target


def is_caught(copy: Path, mutant: Mutant) -> bool:
    """Break one place of a copy, say whether a test fails, and mend it."""
    path = copy / "lib" / "noctuary" / mutant.file
    whole = path.read_text("utf-8")
    path.write_text(whole.replace(mutant.code, mutant.fault), "utf-8")
    try:
        return not passes(copy, mutant.paths)
    finally:
        path.write_text(whole, "utf-8")


def passes(copy: Path, paths: list[str]) -> bool:
    """Say whether these tests pass on a copy; one that hangs does not."""
    found = os.pathsep.join(str(copy / part) for part in ("lib", "assets", "pipelines"))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        *paths,
    ]
    # Bytecode is keyed by time and size, which a fault may keep.
    variables = {**os.environ, "PYTHONPATH": found, "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=copy, env=variables, capture_output=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
