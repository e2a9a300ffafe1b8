"""Entries of ours in a value: added, renewed and removed; everything else stays what it was."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.agents.client import AGENTS
from noctuary.agents.install import (
    EVENTS,
    HookInstallError,
    add_hooks,
    hook_groups,
    is_same_json,
    list_hooks,
    remove_hooks,
)
from tests.support.agent_settings import settings_values

agents = st.sampled_from(AGENTS)
OLD = {"type": "command", "command": "noctuary hook --agent claude"}
FOREIGN = {"type": "command", "command": "say done"}


def without_empty(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings without the lists of ours that hold nothing: whose they were is not known."""
    ours = {event.name for event in EVENTS}
    events = {e: g for e, g in settings.get("hooks", {}).items() if g or e not in ours}
    rest = {key: value for key, value in settings.items() if key != "hooks"}
    return {**rest, "hooks": events} if events else rest


@given(settings_values, agents)
def test_adding_and_removing_gives_the_settings_of_before(
    settings: dict[str, Any], agent: str
) -> None:
    kept = copy.deepcopy(settings)
    added = add_hooks(settings, hook_groups(agent, ["/bin/noctuary"]))
    assert is_same_json(without_empty(remove_hooks(added)), without_empty(kept))
    assert is_same_json(settings, kept)  # nothing was changed in place


@given(settings_values, agents)
def test_each_event_has_one_entry_of_ours_and_all_of_the_others(
    settings: dict[str, Any], agent: str
) -> None:
    added = add_hooks(settings, hook_groups(agent, ["/bin/noctuary"]))
    assert sorted(event for event, _ in list_hooks(added)) == sorted(e.name for e in EVENTS)
    for event, groups in settings.get("hooks", {}).items():
        texts = [json.dumps(group, sort_keys=True) for group in added["hooks"][event]]
        assert [t for t in texts if "/bin/noctuary" not in t] == [
            json.dumps(group, sort_keys=True) for group in groups
        ]
    assert {k: v for k, v in added.items() if k != "hooks"} == {
        k: v for k, v in settings.items() if k != "hooks"
    }


@given(settings_values, agents)
def test_adding_twice_is_adding_once(settings: dict[str, Any], agent: str) -> None:
    groups = hook_groups(agent, ["/bin/noctuary"], "/store")
    once = add_hooks(settings, groups)
    assert is_same_json(add_hooks(once, groups), once)


@given(settings_values, agents)
def test_other_entries_of_ours_are_renewed_in_their_places(
    settings: dict[str, Any], agent: str
) -> None:
    old = add_hooks(settings, hook_groups(agent, ["/old/noctuary"], "/old"))
    wanted = hook_groups(agent, ["/new/noctuary"])
    renewed = add_hooks(old, wanted)
    assert is_same_json(renewed, add_hooks(settings, wanted))
    assert [len(v) for v in renewed["hooks"].values()] == [len(v) for v in old["hooks"].values()]


def test_an_entry_that_moved_into_the_owners_group_leaves_it() -> None:
    settings = {"hooks": {"Stop": [{"matcher": "x", "hooks": [FOREIGN, OLD]}, {"hooks": [OLD]}]}}
    wanted = hook_groups("claude", ["/bin/noctuary"])
    found = add_hooks(settings, wanted)["hooks"]["Stop"]
    assert sorted(json.dumps(g) for g in found) == sorted(
        [json.dumps({"matcher": "x", "hooks": [FOREIGN]}), json.dumps(wanted["Stop"])]
    )


def test_a_renewed_entry_keeps_its_place_before_the_owners() -> None:
    settings = {"hooks": {"Stop": [{"hooks": [FOREIGN]}, {"hooks": [OLD]}, {"hooks": [FOREIGN]}]}}
    wanted = hook_groups("claude", ["/bin/noctuary"])
    found = add_hooks(settings, wanted)["hooks"]["Stop"]
    assert found == [{"hooks": [FOREIGN]}, wanted["Stop"], {"hooks": [FOREIGN]}]


def test_an_event_that_is_no_longer_ours_is_left() -> None:
    settings = {"hooks": {"PreToolUse": [{"hooks": [OLD]}], "Notification": []}}
    hooks = add_hooks(settings, hook_groups("claude", ["/bin/noctuary"]))["hooks"]
    assert "PreToolUse" not in hooks
    assert hooks["Notification"] == []


def test_what_ours_leave_empty_goes() -> None:
    settings = {"a": 1, "hooks": {"Stop": [{"hooks": [OLD]}], "PreCompact": []}}
    assert remove_hooks(settings) == {"a": 1, "hooks": {"PreCompact": []}}
    assert remove_hooks({"hooks": {"Stop": [{"hooks": [OLD]}]}}) == {}
    assert remove_hooks({"a": 1}) == {"a": 1}


def test_what_the_owner_added_after_installing_stays() -> None:
    added = add_hooks({}, hook_groups("claude", ["/bin/noctuary"]))
    added["hooks"]["Stop"][0]["hooks"].append(FOREIGN)
    added["hooks"]["PreToolUse"] = [{"hooks": [FOREIGN]}]
    assert remove_hooks(added) == {
        "hooks": {"Stop": [{"hooks": [FOREIGN]}], "PreToolUse": [{"hooks": [FOREIGN]}]}
    }


@pytest.mark.parametrize(
    ("hooks", "says"),
    [
        ([], '"hooks" holds an array'),
        (None, '"hooks" holds null'),
        (True, "true or false"),
        (3, "a number"),
        ({"Stop": {}}, '"hooks.Stop" holds an object'),
        ({"Stop": "x"}, '"hooks.Stop" holds text'),
    ],
)
def test_another_type_is_refused_with_a_sentence(hooks: Any, says: str) -> None:
    with pytest.raises(HookInstallError, match=says) as refused:
        add_hooks({"hooks": hooks}, hook_groups("claude", ["/bin/noctuary"]))
    assert "nothing was changed" in str(refused.value)


@pytest.mark.parametrize(
    "hooks", [[], None, {"Stop": {}}, {"Stop": [1, {}, {"hooks": 1}]}, {"PreToolUse": 7}]
)
def test_other_forms_are_passed_over_when_looking(hooks: Any) -> None:
    assert list_hooks({"hooks": hooks}) == []
    assert remove_hooks({"hooks": hooks}) == {"hooks": hooks}
