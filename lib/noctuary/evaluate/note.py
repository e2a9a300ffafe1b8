"""The morning note: a night's results in a few sentences, from the facts of its stages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from noctuary.compact.summarizers import TRIED_AGAIN
from noctuary.evaluate.metrics import HEADLINE_METRIC
from noctuary.evaluate.report import as_signed
from noctuary.snapshot.checks import DROP_CHECK
from noctuary.snapshot.publish import Verdict
from noctuary.sources.exports import GET_ALL_DEFAULT, NOTE_DEFAULT, NOTE_PAGE, UNREAD_EXPIRY
from noctuary.sources.source import UNREAD_DATE, QuarantineReason
from noctuary.text.marks import plural, spoken
from noctuary.work.stage import StageResult

_REPEATS = (QuarantineReason.INJECTED_BLOCK, QuarantineReason.INJECTED_LINES)

_SOURCE_WARNINGS = {
    NOTE_DEFAULT: (
        f"an export of mem0 has exactly {GET_ALL_DEFAULT} memories, where get_all() of mem0 2.x "
        "stops unless it is told more: export again with top_k=100_000"
    ),
    NOTE_PAGE: "an export of mem0 is one page of several: export all pages into one list",
    UNREAD_EXPIRY: "memories of mem0 that stay, as their expiration_date is not understood: {:,}",
    UNREAD_DATE: "memories without a date, as theirs is not understood or has two meanings: {:,}",
}
"""Sentences for a source's warnings that its owner can fix; {} is how many rows."""

_RUN_AGAIN = (
    "run the night again, which rebuilds the candidate; if it is refused again, "
    "`noctuary doctor` looks for the cause"
)

_REMEDIES = {
    DROP_CHECK: (
        "look at the report; if you intended the loss, set evaluation.on_drop to report and run "
        "the night again"
    ),
    "counts_are_conserved_from_source_to_snapshot": (
        "keep the store and report the numbers: this is a defect of noctuary"
    ),
    "no_sensitive_row_is_anywhere": (
        "flag or remove these rows in the source and run the night again"
    ),
    "every_tier_row_has_its_memory": "remove the store's lance directory and run the night again",
    "every_index_covers_its_tier": "remove the store's lance directory and run the night again",
}
"""Remedies for a failed check, if running the night again is not enough (docs/gates.md)."""


def write_note(stages: Sequence[StageResult], verdict: Verdict | None = None) -> list[str]:
    """Return the results of a night in sentences; numbers and ids, never a text of a memory."""
    # Missing stages and zero counts are left out.
    done = {stage.name: stage for stage in stages}
    parts = (
        _note_corpus, _note_withheld, _note_graph, _note_summaries, _note_recall,
        _note_proposals, _note_warnings,
    )  # fmt: skip
    lines = [line for part in parts for line in part(done)]
    lines += _note_refusal(verdict)
    report = done.get("evaluation_report")
    if report is not None and report.reused:
        lines.append(f"Nothing new was measured; the last report is {report.facts['page']}.")
    return lines


Done = Mapping[str, StageResult]


def _told(done: Done, name: str) -> dict[str, Any]:
    """Return the counts of a stage; empty if it did not run."""
    stage = done.get(name)
    return {**stage.facts, **stage.notes} if stage is not None else {}


def _news(done: Done, name: str) -> dict[str, Any]:
    """Return the same, but empty as well where nothing of it is new tonight."""
    return _told(done, name) if name in done and not done[name].reused else {}


def _counted(rows: Iterable[tuple[int, str, str, str]]) -> str:
    """Return the counts that are not zero with their nouns and suffixes."""
    return ", ".join(plural(n, noun, nouns) + more for n, noun, nouns, more in rows if n)


def _note_corpus(done: Done) -> Iterator[str]:
    told = _told(done, "corpus_export")
    if "exported" not in told:
        return
    if "added" not in told:  # not one byte of the source changed
        yield f"Memories: nothing new, changed or gone; {told['exported']:,} in all."
        return
    counts = {"new": told["added"], "changed": told["edited"], "gone": told["deleted"]}
    changes = ", ".join(f"{count:,} {word}" for word, count in counts.items() if count)
    is_first = told["added"] == told["exported"]
    all_of_them = "" if is_first and changes else f"; {told['exported']:,} in all"
    yield f"Memories: {changes or 'nothing new, changed or gone'}{all_of_them}."
    if turned := told["turned_sensitive"]:
        they = "it is" if turned == 1 else "they are"
        rows = plural(turned, "memory has", "memories have")
        yield f"{rows} turned sensitive: {they} taken out of every snapshot."


def _note_withheld(done: Done) -> Iterator[str]:
    told = _told(done, "corpus_export")
    if not told:
        return
    reasons = dict(told["quarantined_by_reason"])
    repeats = sum(reasons.pop(reason, 0) for reason in _REPEATS)
    kinds = Counter[str]()
    for reason, count in told["sensitive_by_reason"].items():
        kinds[str(reason).partition(":")[0]] += count
    withheld = (
        (kinds.total(), "sensitive row", "", _itemise(kinds)),
        (sum(reasons.values()), "quarantined row", "", _itemise(reasons)),
        (repeats, "repeat", "", " of what recall had injected"),
    )
    if found := _counted(withheld):
        yield f"Withheld: {found}."


def _itemise(counts: Mapping[str, int]) -> str:
    found = [f"{count:,} {spoken(name)}" for name, count in sorted(counts.items()) if count]
    return f" ({', '.join(found)})" if found else ""


def _note_graph(done: Done) -> Iterator[str]:
    told = _news(done, "concept_graph")
    counts = (
        ("concepts", "concept", "concepts"),
        ("merges", "merged name", "merged names"),
        ("supersessions", "superseded memory", "superseded memories"),
    )
    before = done["concept_graph"].before if told else {}
    found = [
        plural(told[key], *nouns) + _change(told, before, key)
        for key, *nouns in counts
        if told.get(key) or before.get(key)
    ]
    if found:
        yield f"Graph: {', '.join(found)}."


def _change(told: Mapping[str, int], before: Mapping[str, int], key: str) -> str:
    """Return how a count differs from last night's; empty where it does not, or none is known."""
    change = told[key] - before[key] if key in before else 0
    return f" ({change:+,})".replace("-", "\u2212") if change else ""


def _note_summaries(done: Done) -> Iterator[str]:
    told = _news(done, "summaries")
    status: Mapping[str, int] = told.get("by_status", {})
    if accepted := status.get("accepted", 0):
        stand, save = ("stands", "saves") if accepted == 1 else ("stand", "save")
        turns = plural(told["summarised_turns"], "turn")
        tokens = plural(told["source_tokens"] - told["summary_tokens"], "token")
        change = _change(status, done["summaries"].before.get("by_status", {}), "accepted")
        share = f"{told['tokens_saved_share']:.0%}"
        yield f"Summaries: {accepted:,}{change} {stand} for {turns} and {save} {tokens} ({share})."
    if declined := status.get("declined", 0):
        verb = "was" if declined == 1 else "were"
        yield f"{plural(declined, 'summary', 'summaries')} {verb} declined; the turns stay."


def _note_recall(done: Done) -> Iterator[str]:
    measured = _told(done, "recall_evaluation")
    compared = _news(done, "recall_comparison")
    means = {name: value for name, value in measured.items() if name.startswith(HEADLINE_METRIC)}
    groups = {name.removeprefix(HEADLINE_METRIC).strip(): mean for name, mean in means.items()}
    if groups and (compared or _news(done, "recall_evaluation")):
        shown = ", ".join(f"{group} {mean:.3f}" for group, mean in groups.items())
        if "note" in compared:
            shown += f"; not compared with the last night: {compared['note']}"
        yield f"{HEADLINE_METRIC.capitalize()}: {shown}."
    both = [group for group in groups if f"{group} {HEADLINE_METRIC}" in compared]
    if found := [_against(compared, group) for group in both]:
        losses = compared["dropped"]
        lost = f"; {plural(losses, 'significant loss', 'significant losses')}" if losses else ""
        yield f"Compared with the last snapshot, on the same questions: {', '.join(found)}{lost}."
    if missing := _news(done, "recall_evaluation").get("note"):
        yield f"Questions: {missing}."
    ranking = _news(done, "fusion_decision")
    if ranking.get("adopted"):
        yield f"Ranking: {ranking['adopted']} is adopted; {ranking['reason']}."


def _against(compared: Mapping[str, Any], group: str) -> str:
    """Return the difference of a group to the serving snapshot, with its interval if known."""
    difference, ends = compared[f"{group} {HEADLINE_METRIC}"], compared["intervals"].get(group)
    if not difference and not any(ends or ()):
        return f"{group} no different"
    shown = f" ({as_signed(ends[0])} to {as_signed(ends[1])})" if ends else ""
    return f"{group} {as_signed(difference)}{shown}"


def _note_proposals(done: Done) -> Iterator[str]:
    tidy = sum(_told(done, "curation_proposals").get("by_action", {}).values())
    heard = _told(done, "promotion_proposals").get("proposed", 0)
    old = _told(done, "compaction_plan").get("would_archive", 0)
    proposals = (
        (tidy, "change", "", " to the source (`noctuary proposals curate`)"),
        (heard, "turn", "", " worth keeping for good (`noctuary proposals promotions`)"),
        (old, "memory", "memories", " to archive (`noctuary proposals compact`)"),
    )
    if found := _counted(proposals):
        yield f"Proposed: {found}."
    if unchecked := _told(done, "compaction_plan").get("unchecked", 0):
        memories = plural(unchecked, "memory", "memories")
        yield f"Not checked for long, or about to end: {memories} (`noctuary review`)."


def _note_warnings(done: Done) -> Iterator[str]:
    warnings = [str(w["message"]) for w in _told(done, "concept_graph").get("warnings", ())]
    bent = _told(done, "corpus_export").get("warnings", {})
    warnings += [said.format(bent[name]) for name, said in _SOURCE_WARNINGS.items() if name in bent]
    unanswered = _told(done, "summaries").get("by_fallback", {})
    if waiting := sum(unanswered.get(outcome, 0) for outcome in TRIED_AGAIN):
        groups = plural(waiting, "group of turns", "groups of turns")
        warnings.append(f"the summaries' model gave no answer for {groups}; asked again next night")
    for stage in done.values():
        told = _told(done, stage.name)
        named = (
            "fault", "injections_fault", "warning", "hook_faults", "transcript_faults",
            "unread_sessions",
        )  # fmt: skip
        warnings += [f"{spoken(stage.name)}: {told[name]}" for name in named if told.get(name)]
    found = [" ".join(warning.split()) for warning in warnings if warning]
    yield from (f"Warning: {warning}." for warning in found)
    if found:
        yield "`noctuary doctor` checks the store."


def _note_refusal(verdict: Verdict | None) -> Iterator[str]:
    failed = [check for check in verdict.checks if not check.passed] if verdict is not None else []
    if failed:
        yield "The gate refused tonight's candidate; the current snapshot stays."
    for check in failed:
        numbers = ", ".join(f"{spoken(name)} {value}" for name, value in check.found.items())
        if "dropped" in check.found:
            losses = plural(int(check.found["dropped"]), "significant loss", "significant losses")
            numbers = f"{losses} in {plural(int(check.found['queries']), 'query', 'queries')}"
        yield f"{check.name} found {numbers}."
    for remedy in dict.fromkeys(_REMEDIES.get(check.name, _RUN_AGAIN) for check in failed):
        yield f"What to do: {remedy}."
