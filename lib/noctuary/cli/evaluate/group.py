"""The group `noctuary evaluate` and its commands."""

from __future__ import annotations

import click

from noctuary.cli.evaluate.check import check
from noctuary.cli.evaluate.compare import compare
from noctuary.cli.evaluate.judgements import holes, kappa, pool
from noctuary.cli.evaluate.run import run


@click.group()
def evaluate() -> None:
    """Measure recall on labelled sets, and judge whether a difference is real.

    \b
    noctuary evaluate check SET                        does the set load; every fault with its line
    make nightly STORE=SET                           build a snapshot of the set's corpus
    noctuary evaluate run SET --out ours.json          ask its queries, score them, keep the run
    noctuary evaluate run SET --retriever my:Search --out theirs.json
    noctuary evaluate compare ours.json theirs.json --queries SET
    noctuary evaluate pool ours.json theirs.json --out judge.jsonl
    noctuary evaluate kappa ann.jsonl bob.jsonl
    noctuary evaluate holes ours.json theirs.json --judged ann.jsonl

    A SET is a folder with corpus.jsonl(.gz) and queries.jsonl. Formats, and how to read intervals
    and p-values: docs/evaluation.md.
    """  # noqa: D301 (click wants the control character)


for command in (check, run, compare, pool, holes, kappa):
    evaluate.add_command(command)
