"""peers.md: noctuary beside other stores, from peers.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.results import read_results
from bench.tables.markdown import (
    ENCODER,
    INTERVALS,
    Row,
    commits,
    difference_cell,
    mean_cell,
    number,
    pair,
    short,
    table,
)
from noctuary.evaluate.metrics import Difference
from noctuary.evaluate.statistics import holm

METRICS = ("recall@5", "recall@10", "ndcg@10", "mrr@10")
COUNTED = {
    "any@5": "any_relevant@5",
    "R@5": "recall@5",
    "all@5": "all_relevant@5",
    "any@10": "any_relevant@10",
    "R@10": "recall@10",
    "all@10": "all_relevant@10",
}
"""What others call recall, by the heading of its column."""
QUIET_LOAD = 2.0
"""A load above which times are too long to be published."""
OURS = "noctuary"
SESSION = "session"
"""Scopes that begin so rank sessions; the others rank memories."""

_ASKED = """## Question

How often does each store find the labelled memories, if no language model helps it? All peers ran
on one machine ({machine}), one after another, offline, each in its own environment with pinned
versions. They got the same texts, the {split} queries and k = {k}. Nobody called a model, so nobody
spent a token."""

_POOLED = f"""## Scores over the whole corpus

{INTERVALS} Here p is corrected after Holm over the rows of a table."""

_WING = """## Scores within the wing of the query

A wing is one conversation in locomo and one person in memdaily_zh. Every peer filters by its own
means."""

_COUNTED = """## Any, a share, or all of them

What is called recall differs: whether any labelled memory is among the first k (others call it
hit@k), which share of them is (our R@k), or whether all are. Each ranking above, counted in each
way:"""

_SCOPES = {
    "all": "whole corpus",
    "wing": "own wing",
    f"{SESSION}_all": "sessions, all conversations",
    f"{SESSION}_wing": "sessions, own conversation",
}

_SESSION = """## Sessions of locomo

A session's score is the maximum over its turns, and the sessions with an evidence turn are the
relevant ones. We asked each peer for {depth} turns and took the first ten sessions.

### In all conversations

{all}

### In the conversation of the query

{wing}

### What others publish

{published}

Compare them with the tables above only roughly:

- They ask all 1,540 questions, or 1,986 with the adversarial ones. We ask the {n} of the dev half,
  without adversarial ones.
- They store a session as one text or as chunks. We store turns, so a peer's row here can differ
  from its own figure.
- Encoders differ, and `hybrid v5` adds patterns that the product does not have.
- Not all say whether they search one conversation or all ten."""

_PUBLISHED_COLUMNS = ("system", "counts", "at 1", "at 5", "at 10", "MRR")
_PUBLISHED = (
    ("MemPalace 3.3.0, raw", "not said", "", "", ".603", "", "MemPalace/mempalace/pull/895"),
    ("the same, `hybrid v5`", "not said", "", "", ".889", "", "MemPalace/mempalace/pull/895"),
    (
        "Basic Memory 0.21.6",
        "not said",
        "",
        ".733",
        ".839",
        ".619",
        "basicmachines-co/basic-memory/issues/950",
    ),
    (
        "mem0 2.0.5, with a model",
        "not said",
        "",
        ".791",
        ".891",
        ".648",
        "basicmachines-co/basic-memory/issues/950",
    ),
    ("graph-memory, lexical", "all", "", ".829", ".902", "", "adoresever/graph-memory/issues/76"),
    ("deja-vu, lexical", "any", ".698", ".856", "", "", "vshulcz/deja-vu/pull/326"),
)
"""Session level, in the words of their sources: system, what counts as found, at 1, at 5, at 10,
MRR, page on GitHub."""

_COST = """## Cost

Build time contains embedding the corpus, which every peer with vectors got from noctuary's encoder:
{encoded}. For noctuary it is a whole night. Disk is without the encoder (90 MB; noctuary keeps two
forms of it, 180 MB). Memory is the highest mark of the process that builds, then of the one that
answers. Times are over the whole corpus and contain embedding the query. *Load* is that of the
machine, with two cores: above 2, times are too long, and later rows are left without them."""
_RANKED = """noctuary's rankings are of commit {ranked}, over stores that a night of it had
updated; its costs are of an older commit, or not measured."""

_LIMITS = """## Limits

- We chose each peer's obvious call and its defaults, and tuned nothing. noctuary was tuned on these
  dev queries, but not set by set.
- Every peer with vectors has the same ones. Chroma and MemPalace would download theirs, and mem0
  would load its own by name, so we handed them over. MemPalace cuts texts above 800 characters and
  embeds the pieces.
- We asked MemPalace for twice k drawers, so that a text in pieces costs no place.
- mem0 without a language model is only its vector store: its vendor measures extracted facts. Where
  it lacks its BM25 model, it searches by vector alone.
- bm25s, Engram, YantrikDB and txtai were asked as their pages show. Engram's re-ranker and default
  encoder would be downloaded, and its equal scores keep the order of the store. YantrikDB draws
  from a pool that grows with k, so the first ten of its hundred are other than its ten.
  txtai's index is approximate above 5,000 rows (2wikimultihopqa and locomo have more).
- Basic Memory drops cosines below .55, a default for the encoder that it would download;
  `basic_memory_uncut` turns that off.
- LanceDB's index stems English and does not split Chinese, and mem0 drops cosines below .1. We left
  such defaults.
- An interval covers the choice of queries, not wrong labels."""


def write_peers(directory: Path) -> Iterator[str]:
    """Yield the blocks for the peers file of a directory."""
    for found in read_results(directory, "peers"):
        manifest, sets = found["manifest"], found["sets"]
        yield _ASKED.format(**manifest, split=found["split"])
        ran = {name for one in sets.values() for name in one["measured"]}
        yield table(_describe(name, one) for name, one in found["peers"].items() if name in ran)
        yield from _stopped(sets)
        yield _POOLED
        yield table(_scores(sets, "all"))
        yield _WING
        yield table(_scores(sets, "wing"))
        yield _COUNTED
        yield table(_counted(sets))
        if locomo := sets.get("locomo"):
            yield _SESSION.format(
                depth=manifest["session_depth"],
                n=locomo["n"],
                all=table(_scores({"locomo": locomo}, f"{SESSION}_all")),
                wing=table(_scores({"locomo": locomo}, f"{SESSION}_wing")),
                published=table(
                    dict(zip(_PUBLISHED_COLUMNS, figures, strict=True))
                    | {"source": f"[{page}](https://github.com/{page})"}
                    for *figures, page in _PUBLISHED
                ),
            )
        encoded = ", ".join(
            f"{name} {one['encode_seconds']:.0f} s"
            for name, one in sets.items()
            if one["encode_seconds"]
        )
        yield _COST.format(encoded=encoded)
        if ranked := {
            cost["ranked_on"]
            for one in sets.values()
            for cost in one["measured"].values()
            if "ranked_on" in cost
        }:
            yield _RANKED.format(ranked=", ".join(sorted(one[:12] for one in ranked)))
        yield table(_costs(sets, found["peers"]))
        yield _LIMITS
        yield commits({"manifest": c} for one in sets.values() for c in one["measured"].values())


def _describe(name: str, peer: Mapping[str, Any]) -> Row:
    version = "this checkout" if name == OURS else "Python's SQLite"
    return {
        "peer": f"`{name}`",
        "version": peer["packages"][0] if peer["packages"] else version,
        "vectors": ENCODER if peer["vectors"] else "none",
        "how it is asked": peer["what"],
    }


def _stopped(sets: Mapping[str, Any]) -> Iterator[str]:
    """Yield what stopped a peer or a part of one, in its own words and each text once."""
    said = {f"- `{n}`: {text}" for one in sets.values() for n, text in one["stopped"].items()}
    if said:
        yield "Not measured, and what stopped it:"
        yield "\n".join(sorted(said))
    said = {
        f"- `{name}`: {line}"
        for one in sets.values()
        for name, cost in one["measured"].items()
        for line in cost["warnings"]
    }
    if said:
        yield "Measured without a part of it that would have had to be downloaded or installed:"
        yield "\n".join(sorted(said))


def _scores(sets: Mapping[str, Any], scope: str) -> Iterator[Row]:
    found = {name: one["scopes"][scope] for name, one in sets.items() if scope in one["scopes"]}
    raw = {
        (name, peer): difference["recall@5"]
        for name, one in found.items()
        for peer, difference in one["differences"].items()
    }
    corrected = holm([Difference.from_json(one).p_value for one in raw.values()]) if raw else []
    gains = {
        key: difference_cell(one, p) for (key, one), p in zip(raw.items(), corrected, strict=True)
    }
    for name, one in found.items():
        for peer, means in one["means"].items():
            yield {
                "set": f"{name} ({sets[name]['n']})",
                "peer": _bold(peer),
                **{short(metric): mean_cell(means[metric]) for metric in METRICS},
                f"R@5 of {OURS} minus this": gains.get((name, peer), ""),
            }


def _counted(sets: Mapping[str, Any]) -> Iterator[Row]:
    for name, one in sets.items():
        for scope, where in _SCOPES.items():
            for peer, means in one["scopes"].get(scope, {"means": {}})["means"].items():
                counted = {k: number(means[m]["mean"], 3) for k, m in COUNTED.items()}
                yield {"set": name, "where": where, "peer": _bold(peer), **counted}


def _bold(peer: str) -> str:
    return f"**{peer}**" if peer == OURS else peer


def _costs(sets: Mapping[str, Any], peers: Mapping[str, Any]) -> Iterator[Row]:
    for name, one in sets.items():
        for peer, cost in one["measured"].items():
            given = peer != OURS and peers[peer]["vectors"]
            parts = (cost.get("build_seconds"), one["encode_seconds"] if given else 0.0)
            build = None if None in parts else sum(parts)
            yield {
                "set": name,
                "peer": peer,
                "build s": number(build, 1),
                "disk MB": _mb(cost["store_bytes"], 1),
                "memory MB": f"{_mb(cost['build_peak_bytes'])} / {_mb(cost['ask_peak_bytes'])}",
                "p50 / p95 ms": pair(cost) if "p50_ms" in cost else "not timed",
                "tokens": number(cost["llm_tokens"]),
                "load": number(cost["load_average_1m"], 1),
            }


def _mb(count: int | None, digits: int = 0) -> str:
    return "" if count is None else number(count / 1e6, digits)
