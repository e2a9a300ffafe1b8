"""The reports that the UI serves: files of one folder, which can load and run nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from noctuary_pipelines.guard import Guard

NAME = "20261123T030000-abc.html"


@pytest.fixture
def client(tmp_path: Path) -> TestClient:
    reports = tmp_path / "store" / "reports"
    reports.mkdir(parents=True)
    (reports / NAME).write_text("<h1>A night</h1>")
    (reports.parent / "CURRENT").write_text("secret")
    (reports / "other.txt").write_text("secret")
    guard = Guard(PlainTextResponse("the UI"), reports)
    return TestClient(guard, base_url="http://127.0.0.1:3000")


def test_a_report_is_shown_and_can_do_nothing(client: TestClient) -> None:
    found = client.get(f"/reports/{NAME}", headers={"Sec-Fetch-Site": "same-origin"})
    assert (found.status_code, found.text) == (200, "<h1>A night</h1>")
    policy = found.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert policy.endswith("sandbox")
    assert found.headers["X-Frame-Options"] == "SAMEORIGIN"
    assert found.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    "headers",
    [{"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}],
)
def test_only_the_uis_own_pages_may_read_it(client: TestClient, headers: dict[str, str]) -> None:
    found = client.get(f"/reports/{NAME}", headers=headers)
    assert found.status_code == 403
    assert "A night" not in found.text


def test_a_report_that_is_gone_is_said_so(client: TestClient) -> None:
    assert client.get("/reports/none.html").status_code == 404


@pytest.mark.parametrize(
    "path",
    ["/reports/other.txt", "/reports/../CURRENT", "/reports/%2e%2e/CURRENT", "/reports/a%2fb.html",
     "/reports/..%2fCURRENT", "/reports/.html", "/reports/", f"/reports/{NAME}%0a"],
)  # fmt: skip
def test_no_other_file_is_shown(client: TestClient, path: str) -> None:
    found = client.get(path)
    assert "secret" not in found.text
    assert found.text == "the UI"
