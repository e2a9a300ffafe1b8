from __future__ import annotations

import pytest

from noctuary.text.dates import find_identifiers


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("https://example.org/a?b=1", "url"),
        ("ops@example.org", "email"),
        ("src/app/main.py", "path"),
        ("/etc/nginx/nginx.conf", "path"),
        (r"C:\work\notes", "path"),
        ("setup.cfg.toml", "path"),
        ("OPS-412", "ticket"),
        ("CVE-2024-12345", "ticket"),
        ("#77", "ticket"),
        ("v2.3", "version"),
        ("2.4.1-rc1", "version"),
        ("retry_limit", "identifier"),
        ("maxRetries", "identifier"),
        ("550e8400-e29b-41d4-a716-446655440000", "identifier"),
        ("9f3c1ab", "identifier"),
    ],
)
def test_each_written_form_has_its_kind(text: str, kind: str) -> None:
    content = f"see {text} (again)"
    found = find_identifiers(content)
    assert [(content[f.start : f.end], f.kind) for f in found] == [(text, kind)]


@pytest.mark.parametrize(
    "text", ["1969", "3.5", "20240512", "defaced", "a-b", "and/or", "e.g. this"]
)
def test_common_words_and_numbers_are_no_identifiers(text: str) -> None:
    assert find_identifiers(f"it was {text} again") == []
