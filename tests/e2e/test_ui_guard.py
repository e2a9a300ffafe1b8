"""What a hostile page in a browser, or a DNS name that leads here, can make the Dagster UI do."""

from __future__ import annotations

import http.client
import json
import socket
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest

from noctuary_pipelines.sample import place_sample
from tests.e2e.driver import kill, run
from tests.e2e.stores import Bench
from tests.e2e.ui import Ui, start_ui, wait_until_ready

MUTATION = """mutation { reportRunlessAssetEvents(eventParams: {
  eventType: ASSET_MATERIALIZATION, assetKey: {path: ["%s"]}
}) { __typename } }"""
HARM = MUTATION % "harm"
JSON = {"Content-Type": "application/json"}
BODY = json.dumps({"query": HARM})
QUERY = "/graphql?" + urlencode({"query": HARM})
_KNOWN = """{ assetRecordsOrError(limit: 1000) {
  ... on AssetRecordConnection { assets { key { path } } }
} }"""
_HANDSHAKE = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Protocol": "graphql-ws",
}
EVIL = {"Origin": "http://evil.example"}

Request = tuple[str, str, Mapping[str, str], str]

ATTACKS: dict[str, Request] = {
    "a mutation in an address": ("GET", QUERY, {}, ""),
    "the same behind an encoded name": ("GET", QUERY.replace("query", "%71uery"), {}, ""),
    "a mutation in the address of a POST": ("POST", QUERY, {}, ""),
    "a rebound name": ("POST", "/graphql", {**JSON, "Host": "evil.example:{port}"}, BODY),
    "a rebound name that reads": ("GET", "/server_info", {"Host": "evil.example:{port}"}, ""),
    "a name that begins like ours": (
        "POST", "/graphql", {**JSON, "Host": "localhost.evil.example:{port}"}, BODY,
    ),
    "another port's name": ("POST", "/graphql", {**JSON, "Host": "127.0.0.1:1"}, BODY),
    "a foreign page": ("POST", "/graphql", {**JSON, **EVIL}, BODY),
    "a page of another local port": (
        "POST", "/graphql", {**JSON, "Origin": "http://127.0.0.1:8888"}, BODY,
    ),
    "a page of another local name": (
        "POST", "/graphql", {**JSON, "Origin": "http://localhost:{port}"}, BODY,
    ),
    "a sandboxed page": ("POST", "/graphql", {**JSON, "Origin": "null"}, BODY),
    "a foreign page that reads": ("GET", "/server_info", EVIL, ""),
    "a picture of a foreign page": ("GET", QUERY, {"Sec-Fetch-Site": "cross-site"}, ""),
    "a frame of a local page": ("GET", "/runs", {"Sec-Fetch-Site": "same-site"}, ""),
    "a foreign page asks whether it may": (
        "OPTIONS", "/graphql", {**EVIL, "Access-Control-Request-Method": "POST"}, "",
    ),
    "plain text": ("POST", "/graphql", {"Content-Type": "text/plain"}, BODY),
    "plain text that names JSON": (
        "POST", "/graphql", {"Content-Type": "text/plain; application/json"}, BODY,
    ),
    "GraphQL that is no JSON": ("POST", "/graphql", {"Content-Type": "application/graphql"}, HARM),
    "a form": (
        "POST", QUERY, {"Content-Type": "application/x-www-form-urlencoded"}, "a=b",
    ),
    "a form with a file": (
        "POST", QUERY, {"Content-Type": "multipart/form-data; boundary=x"}, "--x--",
    ),
    "a report of an asset": ("POST", "/report_asset_materialization/harm", {}, ""),
    "a foreign report of an asset": (
        "POST", "/report_asset_materialization/harm", {**JSON, **EVIL}, "{}",
    ),
    "a form that reports a check": (
        "POST", "/report_asset_check/harm?check_name=x&passed=true",
        {"Content-Type": "text/plain"}, "",
    ),
    "a form that reports an observation": (
        "POST", "/report_asset_observation/harm", {"Content-Type": "text/plain"}, "",
    ),
    "a foreign page that reads a log": ("GET", "/logs/a/b.err", EVIL, ""),
    "a rebound name that reads a notebook": (
        "GET", "/notebook?repoLocName=noctuary&path=x.ipynb", {"Host": "evil.example"}, "",
    ),
    "a foreign page that loads a run": (
        "GET", "/download_debug/x", {"Sec-Fetch-Site": "cross-site"}, "",
    ),
    "a foreign page's socket": ("GET", "/graphql", {**_HANDSHAKE, **EVIL}, ""),
    "a sandboxed page's socket": ("GET", "/graphql", {**_HANDSHAKE, "Origin": "null"}, ""),
    "a socket to a rebound name": (
        "GET", "/graphql", {**_HANDSHAKE, "Host": "evil.example:{port}"}, "",
    ),
    "another method": ("PUT", "/graphql", JSON, BODY),
}  # fmt: skip


@pytest.fixture(
    scope="module",
    params=[(), pytest.param(("--webserver-only",), marks=pytest.mark.slow)],
    ids=["with-daemon", "webserver-only"],
)
def ui(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ui]:
    """The UI on a store without a night."""
    directory = tmp_path_factory.mktemp("guard")
    process, found = start_ui(Bench(place_sample(directory), directory / "store"), *request.param)
    try:
        wait_until_ready(found, process)
        yield found
    finally:
        kill(process)


def test_a_hostile_page_is_refused(ui: Ui) -> None:
    answered = {name: _send(ui, *attack) for name, attack in ATTACKS.items()}
    assert {name: code for name, (code, _) in answered.items() if code != 403} == {}
    assert "harm" not in _assets(ui)
    assert "another web page" in answered["a foreign page"][1]
    assert "application/json" in answered["plain text"][1]


def test_the_page_itself_and_a_script_of_the_owner_are_answered(ui: Ui) -> None:
    own = {**JSON, "Origin": ui.url, "Sec-Fetch-Site": "same-origin"}
    body = json.dumps({"query": MUTATION % "mine"})
    assert _send(ui, "POST", "/graphql", own, body)[0] == 200
    assert "mine" in _assets(ui)
    charset = {"Content-Type": "application/json; charset=utf-8", "Host": "localhost:{port}"}
    assert _send(ui, "POST", "/graphql", charset, json.dumps({"query": _KNOWN}))[0] == 200
    for path in ("/", "/asset-groups", "/runs?q=1", "/server_info", "/graphql"):
        typed = {"Sec-Fetch-Site": "none", "Accept": "text/html"}
        assert _send(ui, "GET", path, typed, "")[0] == 200
    for headers in ({**_HANDSHAKE, "Origin": ui.url}, _HANDSHAKE):
        assert _send(ui, "GET", "/graphql", headers, "")[0] == 101


def test_no_page_may_show_the_ui_in_a_frame(ui: Ui) -> None:
    with urllib.request.urlopen(f"{ui.url}/runs", timeout=60) as page:
        assert page.headers["X-Frame-Options"] == "SAMEORIGIN"


def _send(ui: Ui, method: str, path: str, headers: Mapping[str, str], body: str) -> tuple[int, str]:
    """Return status and text of an answer; one that never comes is a failure by timeout."""
    port = _port(ui)
    told = {"Host": f"127.0.0.1:{port}", **headers}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in told.items():
        connection.putheader(name, value.replace("{port}", str(port)))
    if method != "GET":
        connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body.encode())
    answer = connection.getresponse()
    said = "" if answer.status == 101 else answer.read(1000).decode("utf-8", "replace")
    connection.close()
    return answer.status, said


def _assets(ui: Ui) -> set[str]:
    found = ui.ask(_KNOWN)["assetRecordsOrError"]["assets"]
    return {"/".join(asset["key"]["path"]) for asset in found}


def _port(ui: Ui) -> int:
    return urlsplit(ui.url).port or 0


def test_a_busy_port_is_named_and_nothing_else_happens(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        words = ["-m", "noctuary.cli.entry", "ui", "--store", str(tmp_path / "store")]
        ran = run([sys.executable, *words, "--port", str(port)], tmp_path)
    assert ran.code == 1
    assert f"port {port}" in ran.err
    assert "--port" in ran.err
    assert "http://" not in ran.out
    assert not (tmp_path / "store").exists()
