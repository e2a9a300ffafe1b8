"""The terms of the page and what they mean.

What belongs here: explanations that hold every night. What does not: sentences about results
(wording.py).
"""

from __future__ import annotations

from noctuary.evaluate.resampling import Resampling
from noctuary.reports.numbers import as_count, as_percent

EXACT_BIAS = (
    "Built from the corpus's own words: it favours lexical search. It shows that what is stored "
    "can be found again, not which ranking answers real questions better."
)

METRICS = (
    "recall@k: share of the relevant memories among the first k. all_relevant@k: 1 if all of them "
    "are there. precision@k: share of the k that is relevant. ndcg@k: credit falls with the rank. "
    "mrr@k: one over the rank of the first relevant one. map@k: mean precision at the relevant "
    "ones. Repeats never count twice."
)
GROUPS = (
    "labelled: queries that the owner wrote and labelled. generated: written by a language model. "
    f"exact: {EXACT_BIAS[0].lower()}{EXACT_BIAS[1:]} Groups are never averaged with each other."
)
DIFFERENCE = (
    "Mean over queries of one arm's value minus the other's on the same query. Above zero the arm "
    "that is named first is better."
)
P_VALUES = (
    "Two-sided paired permutation test. Holm p is corrected for how many strata of the same metric "
    "were tested; in the gate's table, for everything that was tested."
)
MEANS = (
    "Two arms answered the same queries, so overlapping intervals of their means do not make them "
    "equal. The differences decide."
)


def explain(resampling: Resampling) -> dict[str, str]:
    """Return what each term means, with the settings that were used."""
    interval = (
        f"{as_percent(resampling.confidence)} bootstrap interval of the mean (BCa, "
        f"{as_count(resampling.draws)} draws, seeded). \u201cnone\u201d: fewer than two queries."
    )
    verdict = (
        "better or worse only if the interval excludes zero and Holm p is below "
        f"{resampling.alpha:g}. Everything else is not significant, which is no proof of equality. "
        "Many arms are shown: a few look significant by chance, because nothing is corrected over "
        "arms."
    )
    detectable = (
        "Smallest true difference that so many queries would show "
        f"{as_percent(resampling.power)} of the time. A result that is not significant says "
        "nothing about smaller ones."
    )
    return {
        "difference": DIFFERENCE,
        "interval": interval,
        "p, Holm p": P_VALUES,
        "verdict": verdict,
        "detectable": detectable,
        "better, worse, same": "How many queries changed in which direction.",
        "metrics": METRICS,
        "overall, macro": "Overall, every query counts once; macro, every stratum counts once.",
        "intervals of means": MEANS,
        "groups": GROUPS,
    }
