"""The group `mnemon evaluate` and its commands."""

from __future__ import annotations

import click

from mnemon.cli.evaluate.check import check
from mnemon.cli.evaluate.compare import compare
from mnemon.cli.evaluate.judgements import holes, kappa, pool
from mnemon.cli.evaluate.run import run


@click.group()
def evaluate() -> None:
    """Measure recall on labelled sets, and judge whether a difference is real.

    \b
    mnemon evaluate check SET                        does the set load; every fault with its line
    make nightly STORE=SET                           build a snapshot of the set's corpus
    mnemon evaluate run SET --out ours.json          ask its queries, score them, keep the run
    mnemon evaluate run SET --retriever my:Search --out theirs.json
    mnemon evaluate compare ours.json theirs.json --queries SET
    mnemon evaluate pool ours.json theirs.json --out judge.jsonl
    mnemon evaluate kappa ann.jsonl bob.jsonl
    mnemon evaluate holes ours.json theirs.json --judged ann.jsonl

    A SET is a folder with corpus.jsonl(.gz) and queries.jsonl. Formats, and how to read intervals
    and p-values: docs/evaluation.md.
    """  # noqa: D301 (click wants the control character)


for command in (check, run, compare, pool, holes, kappa):
    evaluate.add_command(command)
