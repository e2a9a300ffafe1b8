from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.sources.injected import TAG, Line, render_block
from noctuary.sources.transcripts import strip_wrappers

BLOCK = render_block([Line("17", "2026-03-01", "The spare key hangs in the pantry.")])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("plain words", "plain words"),
        ("<system-reminder>be brief</system-reminder>", ""),
        ("<system-reminder>be brief</system-reminder>\nfix the tax", "fix the tax"),
        ("fix <system-reminder>a\nb</system-reminder>the tax", "fix the tax"),
        ("<local-command-stdout>3 files</local-command-stdout>", ""),
        ("<local-command-caveat>careful</local-command-caveat>", ""),
        (
            """<command-message>review is running</command-message>
<command-name>/review</command-name>
<command-args>only the tax code</command-args>""",
            "only the tax code",
        ),
        ("<command-name>/clear</command-name><command-args></command-args>", ""),
        ("<bash-input>ls</bash-input><bash-stdout>a</bash-stdout>", ""),
        ("<ide_opened_file>x.py</ide_opened_file> what is this?", "what is this?"),
        ("<task-notification>done</task-notification>", ""),
        ("[Request interrupted by user for tool use]", ""),
        ("[Request interrupted by user]stop", "stop"),
        ("<system-reminder>torn off", ""),
        ("What does <system-reminder> mean?", "What does <system-reminder> mean?"),
        ("if a<b and c>d: use <b>bold</b>", "if a<b and c>d: use <b>bold</b>"),
        (BLOCK, ""),
        (f"{BLOCK}\nWhere is the key?", "Where is the key?"),
        (f"<system-reminder>{BLOCK}</system-reminder>Where?", "Where?"),
    ],
)
def test_only_what_was_said_stays(text: str, said: str) -> None:
    assert strip_wrappers(text) == said


_PIECES = st.sampled_from(
    ["<system-reminder>", "</system-reminder>", "<command-args>", "</command-args>", "word ",
     "<tick>", "</tick>", "\n", f"<{TAG}", BLOCK]
)  # fmt: skip


@given(st.lists(_PIECES, max_size=12).map("".join))
def test_any_nesting_ends_and_adds_nothing(text: str) -> None:
    said = strip_wrappers(text)
    assert len(said) <= len(text)
    assert said == said.strip()
    rest = iter(text)
    assert all(c in rest for c in said), "what stays is in its order"


@pytest.mark.parametrize(
    "piece", ["<system-reminder>", "<tick><goal>", "</goal>", "<command-args>"]
)
def test_a_hostile_megabyte_takes_linear_time(piece: str) -> None:
    text = "a" + piece * (10**6 // len(piece))
    started = time.process_time()
    strip_wrappers(text)
    assert time.process_time() - started < 2
