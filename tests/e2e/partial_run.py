"""Runs a part of the nightly job through Dagster, as the UI's "materialize selected" does."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from unittest import mock

import dagster as dg

from noctuary_pipelines.definitions import build_definitions
from noctuary_pipelines.resources import NightResource
from noctuary_pipelines.site import prepare_instance, resolve_site
from tests.e2e.driver import environment
from tests.e2e.stores import Bench

BEFORE_THE_CANDIDATE = (
    "memories",
    "turns",
    "quarantine",
    "query_encoder",
    "memory_vectors",
    "vector_tiers",
    "lexical_index",
    "concepts",
    "memory_concepts",
    "concept_edges",
    "edges",
    "supersessions",
    "turn_clusters",
    "summaries",
    "access_statistics",
    "ltp_scores",
)
TO_THE_CANDIDATE = (
    "serving_pack",
    "recall_evaluation",
    "fusion_decision",
    "abstention_calibration",
    "snapshot_candidate",
)
FROM_THE_CANDIDATE = (
    *TO_THE_CANDIDATE,
    "recall_comparison",
    "gate_verdict",
    "release",
    "evaluation_report",
    "snapshot",
)


@dataclass(frozen=True)
class PartialRun:
    """What came of it: errors with causes, what blocking checks said, checks that do not hold."""

    success: bool
    made: set[str]
    errors: list[str]
    failed_checks: set[str]


def materialize(bench: Bench, selection: Sequence[str]) -> PartialRun:
    """Materialize some assets on a bench, recorded in the store's own Dagster instance."""
    alone = environment(bench.store.parent)
    with ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, alone, clear=True))
        site = resolve_site(str(bench.source), str(bench.store))
        home = prepare_instance(site.paths)
        os.environ["DAGSTER_HOME"] = str(home)
        night = NightResource(source=str(site.source), store=str(site.paths.root))
        definitions = build_definitions({"night": night})
        instance = stack.enter_context(dg.DagsterInstance.from_config(str(home)))
        run = definitions.resolve_job_def("nightly").execute_in_process(
            instance=instance,
            raise_on_error=False,
            asset_selection=[dg.AssetKey(name) for name in selection],
            run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
        )
    evaluations = run.get_asset_check_evaluations()
    return PartialRun(
        success=run.success,
        made={
            e.asset_key.to_user_string()
            for e in run.get_asset_materialization_events()
            if e.asset_key
        },
        errors=[
            *(text for e in run.all_events if e.is_step_failure for text in _chain(e)),
            *(str(e.description) for e in evaluations if e.blocking and not e.passed),
        ],
        failed_checks={e.check_name for e in evaluations if not e.passed},
    )


def _chain(event: dg.DagsterEvent) -> list[str]:
    error, texts = event.step_failure_data.error, list[str]()
    while error is not None:
        texts.append(error.message)
        error = error.cause
    return texts
