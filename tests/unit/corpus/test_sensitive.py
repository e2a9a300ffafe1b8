from __future__ import annotations

import pytest

from noctuary.sources.normalize import find_sensitivity
from noctuary.sources.source import QuarantineReason, RawRow
from noctuary.text.flags import is_flag_set

TOKEN = "gh" + "p_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def judge(**fields: object) -> str | None:
    return find_sensitivity(RawRow("line 1", 1, {"content": "plain", **fields}))


def judge_unread(text: str) -> str | None:
    broken = QuarantineReason.INVALID_JSON
    return find_sensitivity(RawRow("line 1", None, {}, broken, "", text))


@pytest.mark.parametrize(
    "value", [1, True, "1", "true", " TRUE ", "yes", 2, 1.0, "maybe", [], {}, b"1", float("nan")]
)
def test_whatever_is_not_plainly_false_is_a_mark(value: object) -> None:
    assert is_flag_set(value)


@pytest.mark.parametrize("value", [None, 0, False, 0.0, "", "0", "false", "No", b"0"])
def test_what_is_plainly_false_is_no_mark(value: object) -> None:
    assert not is_flag_set(value)


def test_a_clean_row_may_leave() -> None:
    assert judge(tags="a,b", is_sensitive=0, importance=0.5, created_at=None) is None


@pytest.mark.parametrize("name", ["is_sensitive", "sensitive"])
def test_the_mark_wins(name: str) -> None:
    assert judge(**{name: 1}) == "flagged"


@pytest.mark.parametrize(
    "content",
    ["[REDACTED]", "[REDACTED: api key]", "[SENSITIVE - see vault]", "was [redacted:x] here"],
)
def test_placeholders(content: str) -> None:
    assert judge(content=content) == "placeholder"


@pytest.mark.parametrize("name", ["vault_path", "encrypted_content"])
def test_a_vaulted_row(name: str) -> None:
    assert judge(**{name: "kv/x"}) == "vaulted"
    assert judge(**{name: None}) is None


@pytest.mark.parametrize(
    "name", ["content", "tags", "expanded_keywords", "category", "id", "other"]
)
def test_every_field_is_scanned(name: str) -> None:
    assert judge(**{name: f"see {TOKEN}"}) == "secret:github_token"


@pytest.mark.parametrize(
    "value", [[TOKEN], {"deep": [{"er": TOKEN}]}, {TOKEN: 1}, TOKEN.encode() + b"\xff"]
)
def test_nested_and_binary_values_are_scanned(value: object) -> None:
    assert judge(other=value) == "secret:github_token"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"id": 1, "is_sensitive": 1, "content": "half', "flagged"),
        ('{"id": 1, "is_sensitive": true', "flagged"),
        ('{"id": 1, "is_sensitive": 0, "content": "half', None),
        ('{"id": 1, "is_sensitive": false, "content": "half', None),
        ('{"content": "[REDACTED] and', "placeholder"),
        ('{"content": "' + TOKEN, "secret:github_token"),
        ('{"content": "half', None),
    ],
)
def test_unreadable_rows_are_judged_by_their_bytes(text: str, reason: str | None) -> None:
    assert judge_unread(text) == reason
