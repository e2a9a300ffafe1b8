from __future__ import annotations

from typing import Any

import pytest

from noctuary.core.types import HOOK_NAMES, fire, has_hooks, register_hook


def test_the_hooks_are_those_of_the_rfc() -> None:
    assert set(HOOK_NAMES) == {
        "post_model_guard", "post_cross_wing", "post_score_event", "post_batch",
        "post_compaction_plan",
    }  # fmt: skip


def test_hooks_are_called_in_order_until_they_are_taken_away() -> None:
    heard: list[str] = []
    first = register_hook("post_batch", lambda _: heard.append("first"))
    second = register_hook("post_batch", lambda _: heard.append("second"))
    assert fire("post_batch", {}) == []
    first()
    first()
    fire("post_batch", {})
    second()
    fire("post_batch", {})
    assert heard == ["first", "second", "second"]
    assert not has_hooks("post_batch")


def test_one_function_registered_twice_goes_one_at_a_time() -> None:
    heard: list[dict[str, Any]] = []
    first = register_hook("post_batch", heard.append)
    second = register_hook("post_batch", heard.append)
    second()
    fire("post_batch", {"batch_index": 0})
    first()
    assert heard == [{"batch_index": 0}]


def test_a_hook_writes_into_its_own_copy() -> None:
    context = {"rows": [1, 2]}

    def spoil(facts: dict[str, Any]) -> None:
        facts["rows"].clear()
        facts["more"] = True

    unregister = register_hook("post_batch", spoil)
    fire("post_batch", context)
    unregister()
    assert context == {"rows": [1, 2]}


def test_a_hook_that_raises_is_told_and_the_next_one_runs() -> None:
    heard: list[int] = []

    def fail(_: dict[str, Any]) -> None:
        raise KeyError("x")

    undo = [
        register_hook("post_batch", fail),
        register_hook("post_batch", lambda _: heard.append(1)),
    ]
    faults = fire("post_batch", {})
    for unregister in undo:
        unregister()
    assert heard == [1]
    assert faults == ["a post_batch hook raised KeyError: 'x'"]


def test_an_unknown_hook_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"post_model_guard.*found 'post_nothing'"):
        register_hook("post_nothing", print)
