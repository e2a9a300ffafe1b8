"""The judged run over an invented harness: real nights, real requests, a model that has rules."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import judged
from bench.datasets import CHECKOUT
from tests.support.fake_server import Asked, FakeServer, envelope

PROMPTS = """
LOCOMO_ANSWER_PROMPT = "Answer from this.\\n{context}\\nQuestion: {question}"
JUDGE_SYSTEM_PROMPT = "You grade."
JUDGE_PROMPT = "Question: {question}\\nGold: {golden_answer}\\nSaid: {response}"
"""


def conversation(name: str, turns: list[str], qa: list[tuple[str, Any, int, list[str]]]) -> Any:
    """Return a conversation of one session in LoCoMo's format."""
    said = [
        {"speaker": turn.split(":")[0], "dia_id": f"D1:{n}", "text": turn.split(": ")[1]}
        for n, turn in enumerate(turns, start=1)
    ]
    keys = ("question", "answer", "category", "evidence")
    return {
        "sample_id": name,
        "conversation": {
            "speaker_a": "Ada",
            "speaker_b": "Ben",
            "session_1": said,
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_2_date_time": "2:00 pm on 9 May, 2023",  # LoCoMo has dates without a session
        },
        "qa": [dict(zip(keys, row, strict=True)) for row in qa],
    }


CONVERSATIONS = [
    conversation(
        "conv-1",
        ["Ada: My parrot is called Pim.", "Ben: I sail at noon.", "Ada: I have 3 canoes."],
        [
            ("What is the parrot called?", "Pim", 4, ["D1:1"]),
            ("When does Ben sail?", "midnight", 2, ["D1:2; D1:9"]),
            ("What did Ada never say?", "nothing", 5, []),
            ("How many canoes has Ada?", 3, 4, ["D1:3"]),
        ],
    ),
    conversation(
        "conv-2", ["Ben: My parrot is called Oto."], [("What is the parrot called?", "Oto", 1, [])]
    ),
]


class Scripted(FakeServer):
    """Answers with the memory that shares most words, and judges by the gold answer's text."""

    def answer(self, asked: Asked) -> dict[str, Any]:
        *system, prompt = (message["content"] for message in asked.body["messages"])
        if system:
            gold, said = re.findall(r"(?:Gold|Said): (.*)", prompt)
            told = json.dumps({"label": "CORRECT" if gold in said else "WRONG"})
            told = "No idea." if gold in self.poisoned else f"By rule: {told}"
        else:
            memories, question = prompt.split("\nQuestion: ")
            words = set(re.findall(r"\w+", question.lower()))
            lines = [line for line in memories.splitlines() if line.startswith("- [")]
            told = max(lines, key=lambda line: len(words & set(re.findall(r"\w+", line.lower()))))
        usage = {"prompt_tokens": len(prompt), "completion_tokens": 7}
        return {**json.loads(envelope(told)), "usage": usage}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = tmp_path / "harness"
    (root / "scripts" / "utils").mkdir(parents=True)
    (root / "scripts" / "utils" / "prompts.py").write_text(PROMPTS)
    (root / "data" / "locomo").mkdir(parents=True)
    (root / "data" / "locomo" / "locomo10.json").write_text(json.dumps(CONVERSATIONS))
    return root


def name_models(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Set the variables of both models."""
    for role in ("ANSWER", "EVAL"):
        monkeypatch.setenv(f"{role}_MODEL", f"{role.lower()}-by-rule")
        monkeypatch.setenv(f"{role}_BASE_URL", url)
        monkeypatch.delenv(f"{role}_API_KEY", raising=False)


def command(checkout: Path, *options: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "bench.judged", str(checkout), *options]
    return subprocess.run(words, cwd=CHECKOUT, capture_output=True, text=True, check=False)


def test_a_run_that_broke_off_goes_on_and_leaves_rows_in_the_harness_s_format(
    home: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Scripted(poisoned="midnight") as server:
        name_models(monkeypatch, server.url)
        broken = command(checkout)
        assert broken.returncode == 1
        assert 'expected {"label": "CORRECT"} or "WRONG", found \'No idea.\'' in broken.stderr
        server.poisoned = ""
        done = command(checkout, "--json")
        asked = [a.body["messages"][0]["content"] for a in server.asked]
    assert done.returncode == 0, done.stderr
    answered = [text for text in asked if text.startswith("Answer from this.")]
    assert len(answered) == 4, "a question was asked again although its answer was kept"
    report = json.loads(done.stdout)
    shares = {name: (row["correct"], row["n"]) for name, row in report["accuracy"].items()}
    expected = {"all": (3, 4), "multi-hop": (1, 1), "temporal": (0, 1), "single-hop": (2, 2)}
    assert shares == expected
    assert report["tokens"]["prompt_tokens"]["mean"] == round(sum(map(len, answered)) / 4, 1)
    assert report["tokens"]["memories"]["p50"] > 0
    assert report["evidence_recall"] == pytest.approx((1 + 1 / 2 + 1) / 3, abs=1e-4)

    results = checkout / "results" / "locomo" / "noctuary-default"
    rows = {
        name: json.loads((results / f"noctuary_locomo_{name}.json").read_text())
        for name in ("search_results", "responses", "judged")
    }
    for groups in rows.values():
        assert list(groups) == ["locomo_exp_user_0", "locomo_exp_user_1"]
        assert [len(found) for found in groups.values()] == [3, 1]
    found, last = (
        rows["search_results"]["locomo_exp_user_1"][0],
        rows["judged"]["locomo_exp_user_0"][2],
    )
    assert found["query"] == "What is the parrot called?"
    assert "2023-05-08: Ben: My parrot is called Oto." in found["context"]
    assert "Pim" not in found["context"], "another conversation's memory"
    assert found["status"] == last["status"] == "success"
    assert (last["question"], last["golden_answer"]) == ("How many canoes has Ada?", 3)
    assert (last["category"], last["llm_judgments"]) == (4, {"judgment_1": True})
    assert last["nlp_metrics"] == {
        "context_tokens": rows["search_results"]["locomo_exp_user_0"][2]["context_tokens"]
    }
    durations = (last["search_duration_ms"], last["response_duration_ms"])
    assert last["total_duration_ms"] == pytest.approx(sum(durations))
    usage = json.loads((results / "token_usage_answer.json").read_text())["modules"]["ANSWER"]
    assert (usage["model"], usage["call_count"]) == ("answer-by-rule", 4)
    assert usage["prompt_tokens"] == sum(map(len, answered))

    other = command(checkout, "--k", "3", "--search-only")
    assert other.returncode == 1
    assert "name another --version" in other.stderr


@pytest.mark.parametrize(
    ("path", "content", "told"),
    [
        ("scripts/utils/prompts.py", None, "clone github.com/MemTensor/OmniMemEval"),
        ("scripts/utils/prompts.py", "JUDGE_PROMPT = ''", "has no LOCOMO_ANSWER_PROMPT, JUDGE_SYS"),
        ("data/locomo/locomo10.json", None, "run `python data/locomo/prepare_locomo.py`"),
        ("data/locomo/locomo10.json", "{", "is not LoCoMo's locomo10.json (JSONDecodeError"),
        ("data/locomo/locomo10.json", '[{"qa": []}]', "(KeyError: 'conversation')"),
        ("results/locomo/noctuary-default/noctuary_locomo_responses.json", "[7]", "another --ver"),
        (".env", "", "ANSWER_MODEL and ANSWER_BASE_URL must name a model and its address"),
    ],
)
def test_what_is_missing_or_broken_is_named_before_anything_is_built(
    checkout: Path,
    path: str,
    content: str | None,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name_models(monkeypatch, "http://127.0.0.1:9/v1")
    if path == ".env":
        monkeypatch.delenv("ANSWER_MODEL")
    if content is None:
        (checkout / path).unlink()
    else:
        (checkout / path).parent.mkdir(parents=True, exist_ok=True)
        (checkout / path).write_text(content)
    assert judged.main([str(checkout)]) == 1
    assert told in capsys.readouterr().err
    assert not (checkout / "results" / "locomo" / "noctuary-stores").exists()
