"""What stands before the Dagster UI, which itself answers any page that a browser shows.

As a module it is the webserver that `dagster dev` starts, with the same command line.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from noctuary.core.store import StorePaths

_LOOPBACK = ("127.0.0.1", "localhost")
_OWN_PAGE = frozenset({"same-origin", "none"})
_JSON = "application/json"
_POLICY_VIOLATION = 1008
_REPORT = re.compile(r"/reports/([0-9A-Za-z-]+\.html)")
_REPORT_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
"""A report loads nothing and runs nothing, whatever a memory made it say."""


class Guard:
    """Lets an application hear this machine's own pages and scripts only; serves /reports."""

    def __init__(self, app: ASGIApp, reports: Path | None = None) -> None:
        self._app = app
        self._reports = reports

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it with a sentence."""

        async def send_unframed(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-frame-options", b"SAMEORIGIN")]
            await send(message)

        fault = find_fault(scope)
        report = _REPORT.fullmatch(scope.get("path", ""))
        if fault is None and self._reports is not None and report is not None:
            await _show_report(self._reports / report[1])(scope, receive, send_unframed)
        elif fault is None:
            await self._app(scope, receive, send_unframed)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
        else:
            await PlainTextResponse(f"{fault}\n", 403)(scope, receive, send)


def _show_report(path: Path) -> Response:
    try:
        return HTMLResponse(path.read_bytes(), headers=_REPORT_HEADERS)
    except OSError:
        return PlainTextResponse("this report is gone: the newest 30 are kept\n", 404)


def find_fault(scope: Scope) -> str | None:
    """Return what is wrong with a request, None where nothing is."""
    if scope["type"] == "lifespan":
        return None
    hosts = _values(scope, b"host")
    port = (scope.get("server") or ("", None))[1]
    if len(hosts) != 1 or hosts[0] not in {f"{name}:{port}" for name in _LOOPBACK}:
        # A name of its own that leads to 127.0.0.1 makes a foreign page look like ours.
        return (
            f"the Host header is {', '.join(hosts) or 'missing'}; expected 127.0.0.1:{port}. Open "
            f"http://127.0.0.1:{port}"
        )
    foreign = [origin for origin in _values(scope, b"origin") if origin != f"http://{hosts[0]}"]
    if foreign or not _OWN_PAGE.issuperset(_values(scope, b"sec-fetch-site")):
        return (
            "another web page sent this request, and only the UI's own pages may. Type "
            f"http://{hosts[0]} into your browser's address bar"
        )
    return None if scope["type"] == "websocket" else _find_method_fault(scope)


def _find_method_fault(scope: Scope) -> str | None:
    if scope["method"] in ("GET", "HEAD"):
        asks = scope["path"] == "/graphql" and scope["query_string"]
        return f"found a GraphQL query in the address; send it by POST as {_JSON}" if asks else None
    kinds = [kind.partition(";")[0].strip() for kind in _values(scope, b"content-type")]
    if scope["method"] != "POST" or kinds != [_JSON]:
        # Any page may post a form or plain text anywhere; for JSON a browser asks first.
        found = f"{scope['method']} with content type {', '.join(kinds) or 'missing'}"
        return f"found {found}; expected GET, or POST with content type {_JSON}"
    return None


def _values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1").lower() for key, value in scope["headers"] if key == name]


def serve(words: Sequence[str] | None = None) -> None:
    """Run Dagster's webserver behind the guard; see `dagster-webserver --help` for the words."""
    cli: Any = import_module("dagster_webserver.cli")
    create = cli.create_app_from_workspace_process_context

    def create_guarded(*args: Any, **options: Any) -> Any:
        store = os.environ.get("NOCTUARY_STORE")
        return Guard(create(*args, **options), StorePaths(Path(store)).reports if store else None)

    cli.create_app_from_workspace_process_context = create_guarded
    cli.dagster_webserver(words)


def serve_with_daemon(words: Sequence[str]) -> None:
    """Run `dagster dev` with our webserver in place of its own."""
    dev: Any = import_module("dagster._cli.dev")
    start = dev.open_ipc_subprocess
    # By name: whatever else a version of Dagster starts is a KeyError, not an open door.
    modules = {
        "dagster_webserver": "noctuary_pipelines.guard",
        "dagster._daemon": "dagster._daemon",
    }

    def start_guarded(command: Sequence[str], **options: Any) -> Any:
        return start([*command[:2], modules[command[2]], *command[3:]], **options)

    dev.open_ipc_subprocess = start_guarded
    # `dg dev` starts a webserver without a guard.
    warnings.filterwarnings("ignore", "Function `dev_command` is superseded")
    dev.dev_command(words)


if __name__ == "__main__":
    serve()
