"""A good candidate with a bit of everything, and ways to damage a copy of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.core import store as layout
from noctuary.core.files import read_array, read_arrays, write_array, write_arrays
from noctuary.core.manifest import compute_digest, describe_files, read_manifest, write_manifest
from noctuary.embed.rotation import build_prefix_tier, fit
from noctuary.graph.tables import Evidence, GraphTables, Supersession, to_table
from noctuary.snapshot.checks import judge_candidate
from noctuary.snapshot.pack import build_candidate
from noctuary.snapshot.publish import CheckResult
from tests.support.graph_objects import ConceptEdge
from tests.support.lean import write_encoder
from tests.support.store import Store, gate_context, household, new_store, pack_inputs, provenance

TIER_DIM = 4
Edit = Callable[[Path], None]
Change = Callable[[NDArray[Any]], NDArray[Any]]


@dataclass(frozen=True)
class Bench:
    """A private copy of a good candidate, to be damaged and judged."""

    directory: Path
    store: Store

    def judge(self, **context: Any) -> list[CheckResult]:
        """Return the result of every check."""
        told = gate_context(self.directory, self.store.encoder)
        return judge_candidate(self.directory, replace(told, **context))

    def failed(self, **context: Any) -> set[str]:
        """Return the names of the checks that fail."""
        return {result.name for result in self.judge(**context) if not result.passed}

    def result(self, name: str) -> CheckResult:
        """Return the result of one check."""
        (result,) = (result for result in self.judge() if result.name == name)
        return result


def good_candidate(root: Path) -> tuple[Store, Path]:
    """Build the household with vectors, a short tier, relations and supersessions."""
    encoder = write_encoder(root / "encoders")
    store = new_store(root, encoder=encoder)
    inputs = pack_inputs(household(), encoder)
    assert inputs.vectors is not None
    rotation = fit(inputs.vectors, encoder.fingerprint.digest)
    tier = build_prefix_tier(inputs.vectors, rotation, TIER_DIM, rows_per_cell=4)
    inputs = replace(inputs, tier=tier, exits={TIER_DIM: None}, graph=_with_more(inputs.graph))
    return store, build_candidate(store.paths, inputs, provenance(encoder))


def _with_more(graph: GraphTables) -> GraphTables:
    """A relation between concepts and a chain of supersessions, which the household has not."""
    first, second = graph.concepts["concept_id"].to_pylist()[:2]
    stated = ConceptEdge(first, second, "part_of", 0.5, (Evidence(3, 0, 4),), 5, None, 5, None)
    chain = [
        Supersession(older, older + 1, 2, "is_now", 2, None, 3, first, Evidence(older, 0, 3), 5, 5)
        for older in (0, 1)
    ]
    return replace(
        graph,
        concept_edges=to_table("concept_edges", [stated]),
        supersessions=to_table("supersessions", chain),
    )


def sign(directory: Path) -> None:
    """Make the manifest agree with the damaged files, so that only the checks can notice."""
    manifest = read_manifest(directory)
    files = describe_files(directory)
    digest = compute_digest(files, manifest.counts, manifest.id_kind, manifest.encoder_digest)
    write_manifest(directory, manifest._replace(files=files, digest=digest))


def sql(*statements: str) -> Edit:
    """Return an edit that runs statements, each of which changes something."""

    def edit(directory: Path) -> None:
        with closing(sqlite3.connect(directory / layout.ROWS_FILE)) as rows, rows:
            for statement in statements:
                assert rows.execute(statement).rowcount != 0, "the edit touched nothing"
        sign(directory)

    return edit


def array(name: str, change: Change) -> Edit:
    """Return an edit that changes one array."""

    def edit(directory: Path) -> None:
        change_array(directory, name, change)
        sign(directory)

    return edit


def change_array(directory: Path, name: str, change: Change) -> None:
    """Change one array of a snapshot: by its name, or the vectors by their file."""
    path = directory / layout.ARRAYS_FILE
    arrays = read_arrays(path)
    before = read_array(directory / name) if name == layout.VECTORS_FILE else arrays[name]
    after = change(np.array(before))
    assert not np.array_equal(before, after) or before.dtype != after.dtype
    if name == layout.VECTORS_FILE:
        write_array(directory / name, after)
    else:
        write_arrays(path, {**arrays, name: after})


def drop_array(directory: Path, name: str) -> None:
    """Take one array out of a snapshot."""
    path = directory / layout.ARRAYS_FILE
    write_arrays(path, {n: array for n, array in read_arrays(path).items() if n != name})


def put(index: Any, value: float) -> Change:
    """Return a change that sets some of the values."""

    def change(values: NDArray[Any]) -> NDArray[Any]:
        values[index] = value
        return values

    return change


def all_of(*edits: Edit) -> Edit:
    """Return an edit that makes several, in order."""

    def edit(directory: Path) -> None:
        for each in edits:
            each(directory)

    return edit
