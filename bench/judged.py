"""Answers by a model, judged by a model: noctuary in OmniMemEval's LoCoMo.

`python -m bench.judged CHECKOUT`, where CHECKOUT is github.com/MemTensor/OmniMemEval

Prompts and data are read from the checkout. Each conversation becomes a store by a real night. The
rows go where the harness's own scripts look, results/locomo/noctuary-VERSION; those that are there
are kept. Models are named by its variables, ANSWER_MODEL, ANSWER_BASE_URL (OpenAI-compatible) and
ANSWER_API_KEY, and for the judge EVAL_MODEL and so on.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import re
import runpy
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bench.manifest import describe_run
from bench.results import dump
from bench.suite.night import build_store
from noctuary.context.inject import make_block
from noctuary.core.errors import ConfigError, NoctuaryError, SourceFormatError, SourceMissingError
from noctuary.core.files import write_json, write_text
from noctuary.core.settings import join_path
from noctuary.recall.api import recall
from noctuary.text.marks import estimate_tokens
from noctuary.work.http import (
    MAX_ANSWER_BYTES,
    TIMEOUT_S,
    Endpoint,
    JsonClient,
    RequestError,
    read_api_key,
)

Row = dict[str, Any]
Count = Callable[[str], int]

CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop"}
"""LoCoMo's numbers. The harness leaves out 5, questions that the conversation does not answer."""

ANSWER_PROMPT, JUDGE_SYSTEM, JUDGE_PROMPT = PROMPTS = (
    "LOCOMO_ANSWER_PROMPT", "JUDGE_SYSTEM_PROMPT", "JUDGE_PROMPT",
)  # fmt: skip
TOKENS = ("prompt_tokens", "completion_tokens")
K = 20  # the harness's own `--top-k`
RETRIES, LONGEST_WAIT_S = 6, 120.0  # a run is long, and hosted models limit its rate
SAVE_EVERY_S = 5.0

_DIALOG_ID = re.compile(r"D\d+:\d+")
_LABEL = re.compile(r"""["']label["']\s*:\s*["'](\w+)["']""")


class Conversation(NamedTuple):
    """One of LoCoMo's conversations."""

    name: str
    group: str  # its key in the harness's files
    turns: list[Row]  # lines of a corpus, numbered from 1
    dialog_ids: list[str]  # LoCoMo's name of each turn
    questions: list[Row]


class Harness(NamedTuple):
    """What a checkout holds."""

    results: Path
    prompts: Mapping[str, str]
    conversations: list[Conversation]
    digest: str  # of prompts and data


def open_harness(checkout: Path) -> Harness:
    """Return the prompts and conversations of a checkout; SourceMissingError, SourceFormatError."""
    prompts = checkout / "scripts" / "utils" / "prompts.py"
    data = checkout / "data" / "locomo" / "locomo10.json"
    for path, remedy in (
        (prompts, "clone github.com/MemTensor/OmniMemEval and name its folder"),
        (data, "run `python data/locomo/prepare_locomo.py` in the checkout"),
    ):
        if not path.is_file():
            raise SourceMissingError(f"{path} is missing: {remedy}")
    known = runpy.run_path(str(prompts))
    if missing := [name for name in PROMPTS if not isinstance(known.get(name), str)]:
        raise SourceFormatError(f"{prompts} has no {', '.join(missing)}: another version of it?")
    content = data.read_bytes()
    try:
        conversations = [_conversation(place, row) for place, row in enumerate(json.loads(content))]
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        fault = f"{type(error).__name__}: {error}"
        raise SourceFormatError(f"{data} is not LoCoMo's locomo10.json ({fault})") from error
    digest = hashlib.sha256(prompts.read_bytes() + content).hexdigest()[:12]
    return Harness(checkout / "results" / "locomo", known, conversations, digest)


def _conversation(place: int, row: Row) -> Conversation:
    said = row["conversation"]
    turns: list[Row] = []
    dialog_ids: list[str] = []
    for number in sorted(int(key[8:]) for key in said if re.fullmatch(r"session_\d+", key)):
        session = f"session_{number}"
        at = datetime.strptime(f"{said[f'{session}_date_time']} Z", "%I:%M %p on %d %B, %Y %z")
        for turn in said[session]:
            dialog_ids.append(turn["dia_id"])
            turns.append({
                "id": len(dialog_ids),
                # As the harness hands a turn to its products: without captions of pictures.
                "content": f"{turn['speaker']}: {turn['text']}",
                "category": "dialog_turn",
                "created_at": at.isoformat(),
                "session_id": session,
            })  # fmt: skip
    keys = ("question", "answer", "category", "evidence")
    questions = [{key: qa[key] for key in keys} for qa in row["qa"] if qa["category"] in CATEGORIES]
    return Conversation(row["sample_id"], f"locomo_exp_user_{place}", turns, dialog_ids, questions)


class Rows:
    """The rows of one stage, by conversation, in one of the harness's files.

    Those of a conversation stand in the order of its questions: what is missing is its end.
    """

    def __init__(self, path: Path, made_with: str) -> None:
        """Read the rows that are there; ConfigError if they were made with something else."""
        self.path, self.made_with = path, made_with
        self.groups: dict[str, list[Row]] = {}
        try:
            if path.exists():
                self.groups = json.loads(path.read_bytes())
            others = {str(row["made_with"]) for row in self.all()} - {made_with}
        except (LookupError, TypeError, ValueError, AttributeError):
            others = {"something else than this command"}
        if others:
            raise ConfigError(
                f"{path} was made with {min(others)}, and this run has {made_with}: "
                "name another --version"
            )

    def all(self) -> list[Row]:
        """Return the rows of all conversations."""
        return [row for rows in self.groups.values() for row in rows]

    def extend(self, group: str, count: int, made: Iterable[Row]) -> list[Row]:
        """Add what a conversation of `count` rows lacks and return all; an error loses none."""
        rows = self.groups.setdefault(group, [])
        if len(rows) >= count:
            return rows
        saved = time.monotonic()
        try:
            for row in made:
                rows.append({**row, "made_with": self.made_with})
                if time.monotonic() - saved > SAVE_EVERY_S:
                    self._save(f"{len(rows)} of {count} of {group}")
                    saved = time.monotonic()
        finally:
            self._save(f"{len(rows)} of {count} of {group}")
        return rows

    def _save(self, progress: str) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_json(self.path, self.groups)
        log(f"{self.path.stem}: {progress}")


def search(
    conversation: Conversation, questions: Sequence[Row], stores: Path, k: int, count: Count
) -> Iterator[Row]:
    """Build a conversation's store, and yield what recall puts into the prompt of each question."""
    folder = stores / conversation.name
    folder.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps(turn, ensure_ascii=False) + "\n" for turn in conversation.turns)
    write_text(folder / "turns.jsonl", "".join(lines))
    night = build_store(folder / "turns.jsonl", folder / "store", folder / "night.log")
    log(f"{folder}: {night.status} in {night.seconds:.0f} s, {len(conversation.turns)} turns")
    for qa in questions:
        began = time.perf_counter()
        found = recall(qa["question"], k, store=folder / "store", dry_run=True)
        memories = [memory.to_json() for memory in found.memories]
        context = make_block(memories, max_chars=sys.maxsize).text
        duration_ms = (time.perf_counter() - began) * 1000
        if found.warnings:
            raise NoctuaryError(f"recall in {folder} warned: {found.warnings[0].message}")
        wanted = set(_DIALOG_ID.findall(" ".join(qa["evidence"])))
        seen = {conversation.dialog_ids[m["id"] - 1] for m in memories if m["kind"] == "memory"}
        yield {
            "query": qa["question"],
            "context": context,
            "duration_ms": duration_ms,
            "status": "success" if context else "success_empty",
            "context_tokens": count(context),
            "evidence": len(wanted & seen) / len(wanted) if wanted else None,
        }


class Model:
    """A model of the environment, "ANSWER" or "EVAL"."""

    def __init__(self, role: str) -> None:
        """Read its variables; ConfigError if one is missing or wrong."""
        parts = ("MODEL", "BASE_URL", "API_KEY")
        self.name, url, key = (os.environ.get(f"{role}_{part}", "").strip() for part in parts)
        api_key = read_api_key(f"{role}_API_KEY" if key else "", "the harness")
        if not (self.name and url):
            raise ConfigError(
                f"{role}_MODEL and {role}_BASE_URL must name a model and its address, such as "
                "http://127.0.0.1:8080/v1; --search-only asks no model"
            )
        try:
            address = join_path(Endpoint(url, self.name).url, "/chat/completions")
        except ValueError as error:
            raise ConfigError(f"{role}_BASE_URL: {error}") from None
        self._told = f"{role}_MODEL {self.name}"
        self._client = JsonClient(
            address, api_key, MAX_ANSWER_BYTES, retries=RETRIES, longest_wait_s=LONGEST_WAIT_S
        )

    def ask(self, *messages: tuple[str, str]) -> tuple[str, Row]:
        """Return the text and the usage that the model reports; RequestError without a text."""
        said = [{"role": role, "content": content} for role, content in messages]
        body = {"model": self.name, "messages": said, "temperature": 0}
        try:
            reply = self._client.ask(body, TIMEOUT_S)
            return str(reply["choices"][0]["message"]["content"] or ""), reply.get("usage") or {}
        except RequestError as error:
            raise RequestError(f"{self._told}: {error}") from None
        except (LookupError, TypeError, AttributeError):
            raise RequestError(f"{self._told}: no choices[0].message.content") from None


def answer(
    model: Model, prompts: Mapping[str, str], count: Count, qa: Row, found: Row, _: Row
) -> Row:
    """Let the model answer a question from what was found."""
    prompt = prompts[ANSWER_PROMPT].format(context=found["context"], question=qa["question"])
    began = time.perf_counter()
    text, usage = model.ask(("user", prompt))
    return {
        "question": qa["question"],
        "answer": text,
        "category": qa["category"],
        "golden_answer": qa["answer"],
        "response_duration_ms": (time.perf_counter() - began) * 1000,
        "search_duration_ms": found["duration_ms"],
        "status": "success",
        # A server that reports nothing was sent the prompt all the same.
        "prompt_tokens": usage.get("prompt_tokens") or count(prompt),
        "completion_tokens": usage.get("completion_tokens") or count(text),
    }


def judge(
    model: Model, prompts: Mapping[str, str], _: Count, qa: Row, found: Row, answered: Row
) -> Row:
    """Let the judge compare an answer with the labelled one; RequestError without a label."""
    prompt = prompts[JUDGE_PROMPT].format(
        question=qa["question"], golden_answer=qa["answer"], response=answered["answer"]
    )
    text, _usage = model.ask(("system", prompts[JUDGE_SYSTEM]), ("user", prompt))
    label = _LABEL.search(text)
    if label is None:
        wanted = 'expected {"label": "CORRECT"} or "WRONG"'
        raise RequestError(f"EVAL_MODEL {model.name}: {wanted}, found {text[:80]!r}; start again")
    return {
        **{key: value for key, value in answered.items() if key not in TOKENS},
        "llm_judgments": {"judgment_1": label[1].lower() == "correct"},
        "nlp_metrics": {"context_tokens": found["context_tokens"]},
        "total_duration_ms": answered["response_duration_ms"] + answered["search_duration_ms"],
    }


def run(harness: Harness, options: argparse.Namespace) -> Row:
    """Work through the conversations, stage by stage, and return the report; NoctuaryError."""
    counter, count = choose_counter()
    models = [] if options.search_only else [Model("ANSWER"), Model("EVAL")]
    code, results = describe_run(), harness.results / f"noctuary-{options.version}"
    commit = f"{code['commit']}{'+' if code['dirty'] else ''}"
    made_with = [f"noctuary {commit}, k {options.k}, {counter}", *(m.name for m in models)]
    searches, *further = [
        Rows(results / f"noctuary_locomo_{name}.json", f"{maker}, data {harness.digest}")
        for name, maker in zip(("search_results", "responses", "judged"), made_with, strict=False)
    ]
    with ThreadPoolExecutor(options.workers) as pool:
        for conversation in harness.conversations[: options.conversations]:
            group, questions = conversation.group, conversation.questions
            todo = questions[len(searches.groups.get(group, ())) :]
            stores = harness.results / "noctuary-stores"
            rows: Iterable[Row] = search(conversation, todo, stores, options.k, count)
            before = found = searches.extend(group, len(questions), rows)
            for kept, model, make in zip(further, models, (answer, judge), strict=False):
                start = len(kept.groups.get(group, ()))
                todo = (questions[start:], found[start:], before[start:])
                rows = pool.map(partial(make, model, harness.prompts, count), *todo)
                before = kept.extend(group, len(questions), rows)
    report = {
        "kind": "judged",
        "manifest": code,
        "data": harness.digest,
        "k": options.k,
        "models": [model.name for model in models],
        "token_counter": counter,
        **summarize(searches.all(), *(kept.all() for kept in further)),
    }
    if models:
        calls = further[0].all()
        usage = {name: sum(row[name] for row in calls) for name in TOKENS}
        usage |= {"total_tokens": sum(usage.values()), "call_count": len(calls)}
        modules = {"ANSWER": {"model": models[0].name, **usage}}
        made = {"timestamp": code["measured_at"], "modules": modules}
        write_json(results / "token_usage_answer.json", made)
    return report


def summarize(
    found: Sequence[Row], answered: Sequence[Row] = (), judged: Sequence[Row] = ()
) -> Row:
    """Return accuracy by category, tokens a question, and how much evidence was in the prompt."""
    accuracy: Row = {}
    for name in ("all", *CATEGORIES.values()):
        rows = [row for row in judged if name in ("all", CATEGORIES[row["category"]])]
        right = sum(row["llm_judgments"]["judgment_1"] for row in rows)
        if rows:
            share = round(right / len(rows), 4)
            accuracy[name] = {"n": len(rows), "correct": right, "share": share}
    evidence = [row["evidence"] for row in found if row["evidence"] is not None]
    return {
        "questions": len(found),
        "accuracy": accuracy,
        "tokens": {
            "memories": spread([row["context_tokens"] for row in found]),
            **{name: spread([row[name] for row in answered]) for name in TOKENS if answered},
        },
        "evidence_recall": round(statistics.fmean(evidence), 4) if evidence else None,
        "recall_ms": spread([row["duration_ms"] for row in found]),
    }


def spread(values: Sequence[float]) -> Row:
    """Return the median and the mean."""
    kept = values or [0.0]
    return {"p50": round(statistics.median(kept), 1), "mean": round(statistics.fmean(kept), 1)}


def choose_counter() -> tuple[str, Count]:
    """Return what counts tokens and its name: tiktoken as in the harness, else an estimate."""
    try:
        encoding: Any = importlib.import_module("tiktoken").get_encoding("cl100k_base")
    except ImportError:
        return "estimate", estimate_tokens
    return "cl100k_base", lambda text: len(encoding.encode(text, disallowed_special=()))


def show(report: Row) -> str:
    """Return the report as text."""
    asked = " judged by ".join(report["models"]) or "no model"
    lines = [f"{report['questions']} questions, k = {report['k']}, answered by {asked}"]
    lines += [""] if report["accuracy"] else []
    for name, row in report["accuracy"].items():
        lines.append(f"{name:<18}{row['share']:>9.1%}  {row['correct']:,} of {row['n']:,}")
    lines += ["", f"{'tokens a question':<18}{'p50':>9}{'mean':>9}"]
    for name, row in report["tokens"].items():
        lines.append(f"{name:<18}{row['p50']:>9,.0f}{row['mean']:>9,.0f}")
    lines += ["", f"memories are counted by {report['token_counter']}"]
    if report["evidence_recall"] is not None:
        lines.append(f"{report['evidence_recall']:.1%} of the labelled turns were in the prompt")
    return "\n".join(lines)


def log(text: str) -> None:
    """Tell how far the run is; standard output holds the report alone."""
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and print the report; 1 if something was missing or a model failed."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.judged",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("checkout", type=Path, help="of OmniMemEval, with data/locomo prepared")
    parser.add_argument("--version", default="default", help="name of the rows [default: default]")
    parser.add_argument("--conversations", type=int, metavar="N", help="the first N [default: all]")
    parser.add_argument("--k", type=int, default=K, help=f"memories a question [default: {K}]")
    parser.add_argument("--workers", type=int, default=8, help="questions at once [default: 8]")
    parser.add_argument("--search-only", action="store_true", help="ask no model: count tokens")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    options = parser.parse_args(arguments)
    if any(n is not None and n < 1 for n in (options.k, options.workers, options.conversations)):
        parser.error("--k, --workers and --conversations must be at least 1")
    try:
        report = run(open_harness(options.checkout.absolute()), options)
    except (NoctuaryError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(dump(report).rstrip() if options.json else show(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
