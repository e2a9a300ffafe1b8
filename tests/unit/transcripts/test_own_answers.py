"""What the MCP server answered comes back from a transcript as the call, without its memories."""

from __future__ import annotations

import json

import pytest

from noctuary.agents.mcp_view import RelatedAnswer, plain
from noctuary.sources.transcripts import Part, vet_part

ANSWER = json.dumps(
    plain(
        RelatedAnswer(
            about="spare key", kind="concept", memories=[], concepts=[], relations=[], totals={},
            warnings=[], snapshot_id="s",
        )
    )
)  # fmt: skip


@pytest.mark.parametrize("said", [ANSWER, json.dumps([{"type": "text", "text": ANSWER}])])
def test_an_answer_of_our_own_is_not_kept(said: str) -> None:
    kept = vet_part(Part("result:1", "result", "", (said,)), 500)
    assert kept is not None
    assert kept.text == ""


def test_other_results_and_what_people_quote_are_kept() -> None:
    result = vet_part(Part("result:1", "result", "", ("3 files", ANSWER)), 500)
    assert result is not None
    assert result.text == "[tool result: 3 files]"
    quoted = vet_part(Part("t:0", "text", "", (ANSWER,)), 500)
    assert quoted is not None
    assert quoted.text == ANSWER
    call = vet_part(Part("call:1", "call", "mcp__noctuary__recall", ("spare key",)), 500)
    assert call is not None
    assert "spare key" in call.text
