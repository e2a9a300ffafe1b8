"""Group evaluate: what a night asks itself, what follows; no text of a query in metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

from noctuary.core.files import hash_file, hash_text, read_json, write_json
from noctuary.core.manifest import Manifest
from noctuary.embed.documents import text_key
from noctuary.embed.fingerprint import EncoderFingerprint
from noctuary.evaluate.abstain import calibrate_signals
from noctuary.evaluate.decide import (
    SERVED,
    KeptAnswers,
    adopted_ranking,
    ask_arms,
    decide_by_groups,
    runs_from_json,
    runs_to_json,
    score_group,
)
from noctuary.evaluate.queries import (
    LABELLED,
    Questions,
    find_labels,
    gather_questions,
    read_everyday,
)
from noctuary.evaluate.report import report_arms, served_means
from noctuary.evaluate.run import Run
from noctuary.recall.engine import Recaller
from noctuary.recall.inputs import remember_queries
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.reader import SnapshotReader
from noctuary.work.content import as_rows
from noctuary.work.stage import Stage, StageOutput, StageResult
from noctuary_assets.index import chosen_backend
from noctuary_assets.night import (
    ABSTENTION,
    DECISION,
    EVALUATION,
    EVALUATION_QUERIES,
    EVALUATION_RUNS,
    MEMORIES,
    Night,
    store_profile,
)
from noctuary_assets.pack import SERVING_PACK, pack_path
from noctuary_assets.reporting import stage_asset

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Stage recall_evaluation: tonight's pack answers tonight's queries, with every arm.

RECALL_EVALUATION = Stage(
    "recall_evaluation", "3", (EVALUATION, EVALUATION_QUERIES, EVALUATION_RUNS)
)
RECALL_ANSWERS_KIND = f"{RECALL_EVALUATION.name}:{RECALL_EVALUATION.version}"
"""Kind of what is kept: answers of a night that was stopped."""


def served_profile(night: Night, adopted: Mapping[str, Any] | None = None) -> RetrievalProfile:
    """Return what answers a call that asks for nothing special, as a snapshot adopted it."""
    # Without the flags that only watch: a night has no business in the replay log.
    served = store_profile(night, adopted)
    return served.replaced(explain=False, candidate_trace=False, replay_log=False)


@stage_asset(RECALL_EVALUATION, deps=["serving_pack"], kinds={"json"})
def evaluate_pack(night: Night) -> StageResult:
    """The pack's recall on its own phrases and on labelled queries: served, legs, challengers.

    The exact group is built from the corpus's own words and favours lexical search.
    """
    chosen, served = night.settings.evaluation, served_profile(night)
    labels = find_labels(night.source, chosen.queries) if chosen.enabled else None
    inputs = {
        "pack": night.result_of(SERVING_PACK).facts["digest"],
        "queries": hash_file(labels) if labels is not None and labels.is_file() else None,
        "profile": served.to_json(),
        "enabled": chosen.enabled,
        "exact_queries": chosen.exact_queries,
    }

    def body() -> StageOutput:
        reused = 0
        questions, runs = Questions(notes=("the evaluation is switched off",)), {}
        if chosen.enabled:
            questions = gather_questions(night.work(MEMORIES), labels, chosen.exact_queries)
            kept = KeptAnswers(night.content(RECALL_ANSWERS_KIND))
            with closing(SnapshotReader.open(pack_path(night))) as reader:
                embed_queries(night, reader.manifest, questions.texts())
                recaller = Recaller(night.paths, reader, "candidate")
                runs = ask_arms(recaller, questions, served, kept, night.progress)
            reused = kept.reused
        report = report_arms(questions, runs)
        write_json(night.work(EVALUATION_QUERIES), questions.to_json())
        write_json(night.work(EVALUATION_RUNS), runs_to_json(runs))
        write_json(night.work(EVALUATION), report)
        notes = {"note": "; ".join(questions.notes)} if questions.notes else {}
        facts = {"queries": questions.counts(), **served_means(report), **notes}
        asked = sum(len(queries) for queries in questions.groups.values())
        return StageOutput(asked, facts, {"answers_reused": reused} if reused else {})

    return night.finish(night.run(RECALL_EVALUATION, inputs, body))


def read_questions(night: Night) -> Questions:
    """Return the queries that the last evaluation asked."""
    return Questions.from_json(read_json(night.work(EVALUATION_QUERIES)))


def read_runs(night: Night) -> dict[str, dict[str, Run]]:
    """Return the runs that the last evaluation kept."""
    return runs_from_json(read_json(night.work(EVALUATION_RUNS)))


# Stage fusion_decision: which fusion and graph weight tonight's snapshot serves with, and why.

FUSION_DECISION = Stage("fusion_decision", "1", (DECISION,))


@stage_asset(FUSION_DECISION, deps=["recall_evaluation"], kinds={"json"})
def decide_fusion(night: Night) -> StageResult:
    """Fusion and graph weight of tonight's snapshot: yours, unless another is proven better.

    Proven means that its interval excludes zero on queries it was not chosen on.
    """
    adopt = night.settings.evaluation.adopt
    evaluation = night.result_of(RECALL_EVALUATION)
    inputs = {"evaluation": evaluation.digest, "adopt": adopt}

    def body() -> StageOutput:
        reason = "the settings stay: evaluation.adopt is off"
        document, facts = {"reason": reason, "decision": None}, {"adopted": None, "ranking": None}
        tested = 0
        if adopt:
            questions, runs = read_questions(night), read_runs(night)
            scored = {group: score_group(questions, runs, group) for group in questions.groups}
            decision = decide_by_groups(scored)
            ranking = adopted_ranking(decision, served_profile(night))
            document = {"reason": decision.reason, "decision": decision.to_json()}
            facts = {"adopted": decision.adopted, "ranking": ranking}
            tested = len(decision.tested)
        write_json(night.work(DECISION), document)
        return StageOutput(tested, {**facts, "reason": document["reason"]})

    return night.finish(night.run(FUSION_DECISION, inputs, body))


# Stage abstention_calibration: below which score tonight's snapshot has no answer.

ABSTENTION_CALIBRATION = Stage("abstention_calibration", "4", (ABSTENTION,))


@stage_asset(
    ABSTENTION_CALIBRATION,
    deps=["serving_pack", "recall_evaluation", "fusion_decision"],
    kinds={"json"},
)
def calibrate_abstention(night: Night) -> StageResult:
    """Below which score the snapshot has no answer, and the bar of a single memory.

    Chosen by everyday prompts, by questions that the night makes of the store's own memories and,
    where there are some, by the owner's labels.
    """
    decision = night.result_of(FUSION_DECISION)
    inputs = {
        "pack": night.result_of(SERVING_PACK).facts["digest"],
        "evaluation": night.result_of(RECALL_EVALUATION).digest,
        "decision": decision.digest,
        "profile": served_profile(night).to_json(),
        "prompts": hash_text(*read_everyday()),
    }

    def body() -> StageOutput:
        ranking = decision.facts["ranking"]
        with closing(SnapshotReader.open(pack_path(night))) as reader:
            questions = read_questions(night)
            embed_queries(night, reader.manifest, questions.texts())
            found = calibrate_signals(
                Recaller(night.paths, reader, "candidate"),
                served_profile(night, ranking["adopted"] if ranking else None),
                questions,
                read_runs(night).get(LABELLED, {}),
                ranking["challenger"] if ranking else SERVED,
                partial(embed_queries, night, reader.manifest),
            )
        write_json(night.work(ABSTENTION), found)
        signals = found["sealed"]["signals"] if found["sealed"] else {}
        facts = {f"threshold {name}": told["threshold"] for name, told in signals.items()}
        return StageOutput(len(signals), {**facts, "reason": "; ".join(found["said"])})

    return night.finish(night.run(ABSTENTION_CALIBRATION, inputs, body))


def read_calibration(night: Night) -> dict[str, Any]:
    """Return `sealed` (what the snapshot carries, or None), `said` (by signal) and `asked`."""
    return read_json(night.work(ABSTENTION))


def embed_queries(
    night: Night, manifest: Manifest, texts: Sequence[str]
) -> NDArray[np.float32] | None:
    """Encode queries at once and keep the vectors, (n, d), for the recalls of this process.

    None where a snapshot has no vectors, or those of another model than tonight's.
    """
    # Also for a provider: recall answers without a vector where one request fails, in an evaluation
    # a drop that is none. Here it is asked patiently, or the night fails with a sentence.
    encoder = night.encoder
    if manifest.encoder is None or not texts:
        return None
    if EncoderFingerprint.from_json(manifest.encoder) != encoder.fingerprint:
        return None
    found = encoder.embed_queries(chosen_backend(night), texts)
    remember_queries(night.paths, manifest, texts, found.vectors)
    return found.vectors


def query_keys(night: Night) -> NDArray[np.uint8]:
    """Return the keys of the queries that the last evaluation and calibration asked."""
    texts = [*read_everyday(), *read_questions(night).texts()]
    # An earlier version noted none.
    asked = [bytes.fromhex(key) for key in read_calibration(night).get("asked", ())]
    return as_rows([*map(text_key, texts), *asked])
