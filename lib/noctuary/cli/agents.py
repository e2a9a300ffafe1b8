"""Commands for agents: hooks (and hook, which they run), serve, mcp; browse, for people."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from noctuary.agents import install as installation
from noctuary.agents import mcp_install as servers
from noctuary.agents import server as warm
from noctuary.agents.client import AGENTS
from noctuary.agents.state import COUNTERS, read_counters, read_spending
from noctuary.cli import main as cli
from noctuary.cli.entry import run_hook
from noctuary.core.errors import NoctuaryError, SnapshotMissingError
from noctuary.core.store import StorePaths, find_home, find_store, list_stores
from noctuary.text.marks import visible_line

# `noctuary hook`: what coding agents run at their events; here for its help text.


@click.command(
    hidden=True, context_settings={"ignore_unknown_options": True, "allow_extra_args": True}
)
@cli.option("--agent claude|codex", "Who runs the hook.")
@cli.option("--store STORE", "A store directory, its name, or its source.")
@click.pass_context
def hook(context: click.Context, agent: str | None, store: str | None) -> None:
    """Answer one event of a coding agent: one JSON object on stdin, one or nothing on stdout.

    Agents run this; `noctuary hooks install` tells them to. It adds memories to prompts, restores
    them after a compaction, notes compactions in a journal, and keeps the turns of a session that
    stops. It never stops an agent, whatever goes wrong. Its counters record failures (`noctuary
    doctor`).

    The exit code is always 0. To see what it would inject:

    \b
    echo '{"hook_event_name": "UserPromptSubmit", "prompt": "where is the spare key?"}' |
        noctuary hook --agent claude
    """  # noqa: D301 (click wants the control character)
    given = [("--agent", agent), ("--store", store)]
    arguments = [text for name, value in given if value is not None for text in (name, value)]
    run_hook([*arguments, *context.args], time.monotonic())


# `noctuary hooks`: putting `noctuary hook` into the agents' settings, and how it fares there.


@click.group(cls=cli.NamedGroup)
def hooks() -> None:
    """Add memories to an agent's prompts by installing hooks, or remove the hooks.

    \b
    noctuary hooks install --agent claude           memories in every prompt of Claude Code
    noctuary hooks install --agent codex --project  in this project's sessions of Codex
    noctuary hooks status                           where hooks are, and how they perform
    noctuary hooks uninstall --agent claude         remove them
    noctuary hooks plugin DIR                       the same as a plugin folder for both agents

    The agent then runs `noctuary hook` on its events; you never need to.
    """  # noqa: D301 (click wants the control character)


_folder_option = cli.option(
    "--folder",
    "The project's folder.",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
)
_store_option = cli.option("--store STORE", "Passed to the hooks [default: they find the store].")
_change_options = cli.add_options(
    cli.option("--agent", "Whose settings.", type=click.Choice(AGENTS), required=True),
    cli.option(
        "--user",
        "scope",
        "All your sessions [default].",
        flag_value=installation.USER,
        default=installation.USER,
        show_default=False,
    ),
    cli.option("--project", "scope", "Sessions in --folder only.", flag_value=installation.PROJECT),
    _folder_option,
    cli.flag("--dry-run", "Show the change and write nothing."),
    cli.json_option,
)


@hooks.command()
@_store_option
@_change_options
def install(agent: str, scope: str, folder: Path, store: str | None, dry_run: bool) -> None:
    """Add noctuary's hooks to an agent's settings file.

    noctuary keeps all other settings, and a copy of the old file. Installing again changes nothing,
    or updates entries of an older version. It refuses a file that is not plain JSON.

    Exit code 1 if nothing could be installed.
    """
    home, program = find_home(), installation.find_program()
    place = installation.find_place(agent, scope, folder)
    named, notes = _resolve_store(store, home)
    change = installation.install_hooks(place, program, home=home, store=named, dry_run=dry_run)
    _show(change, [*change.notes, *notes, *installation.environment_notes()])


@hooks.command()
@_change_options
def uninstall(agent: str, scope: str, folder: Path, dry_run: bool) -> None:
    """Remove noctuary's hooks from an agent's settings file, and nothing else.

    If nobody changed the file since the installation, it is restored byte for byte.

    Exit code 1 if the file could not be read or written.
    """
    place = installation.find_place(agent, scope, folder)
    change = installation.uninstall_hooks(place, home=find_home(), dry_run=dry_run)
    _show(change, change.notes)


def _show(change: installation.HookChange, notes: Sequence[str]) -> None:
    cli.tell({**change._asdict(), "notes": list(notes)}, _change_lines(change), notes)


def _change_lines(change: installation.HookChange) -> Iterator[str]:
    would = "would be " if change.dry_run and change.diff else ""
    if would:
        yield change.diff
    yield f"{change.agent}, {change.scope}: {would}{change.action} ({change.path})"
    if change.backup:
        yield f"the old file is kept as {change.backup}"


_DAYS, _SESSIONS, _ID_CHARS = 7, 10, 16  # of the tokens that are shown; --json has all


@hooks.command()
@_folder_option
@cli.json_option
def status(folder: Path) -> None:
    """Show where hooks are installed, how they perform, and the tokens that they added to prompts.

    Looks at the user's settings, those of --folder, and every other place of an installation.

    Exit code 1 if a settings file names a missing program, or cannot be read.
    """
    home = find_home()
    states = installation.look_at_places(home, folder)
    plugins = {
        a: str(p) for a in AGENTS if (p := installation.enabled_plugin(a, folder)) is not None
    }
    counters = read_counters(home / COUNTERS)
    found = {
        "places": [state._asdict() for state in states],
        "plugins": plugins,
        "events": [
            {**{k: v for k, v in event._asdict().items() if k != "histogram"}, "p95_ms": p95}
            for event in counters.events
            for p95 in [event.percentile_ms(0.95)]
        ],
        "tokens": read_spending(home),
        "unread": list(_unread_sessions(home)),
        "fault": counters.fault,
    }
    cli.tell(found, _status_lines(found), [counters.fault] if counters.fault else ())
    if any(s.state in {installation.BROKEN, installation.UNREADABLE} for s in states):
        sys.exit(cli.EXIT_FAILED)


def _unread_sessions(home: Path) -> Iterator[str]:
    """Yield what sessions of every store are not understood; doctor names a damaged file."""
    from noctuary.sources.ingest import find_unread_sessions  # loads what no hook needs

    for directory in list_stores(home):
        with suppress(NoctuaryError):
            sentences = find_unread_sessions(StorePaths(directory).turns)
            yield from (f"{directory.name}: {sentence}" for sentence in sentences)


def _status_lines(found: Mapping[str, Any]) -> Iterator[str]:
    for place in found["places"]:
        yield f"{place['agent']:<7}{place['scope']:<9}{place['state']:<11}{place['path']}"
        for told in (f"--store {place['store']}" if place["store"] else "", place["message"]):
            if told:
                yield f"{'':<27}{told}"
    for agent, path in found["plugins"].items():
        yield f"{agent:<7}{'plugin':<9}{'installed':<11}{path}"
    for event in found["events"]:
        p95 = "" if event["p95_ms"] is None else f", p95 {event['p95_ms']:.0f} ms"
        line = f"{event['agent']:<7}{event['event']:<18}{event['calls']:>7,} calls, "
        line += f"{event['failures']:,} failed{p95}"
        if event["cut_short"]:
            line += f"; the deadline cut {event['cut_short']:,} answers short (hook.deadline_ms)"
        code = event["outage_code"]
        yield line if code is None else f"{line}; fails now: {code}"
    for one in found["tokens"]["days"][:_DAYS]:
        yield f"{'tokens':<7}{one['day']:<18}{one['tokens']:>7,} (sessions: {one['sessions']:,})"
    for one in found["tokens"]["sessions"][:_SESSIONS]:
        who = f"{one['agent'] or '':<7}{(one['session_id'] or 'not ended yet')[:_ID_CHARS]:<18}"
        where = f", {one['cwd']}" if one["cwd"] else ""
        yield visible_line(f"{who}{one['tokens']:>7,} tokens, last on {one['last_day']}{where}")
    yield from found["unread"]


@hooks.command()
@click.argument("folder", type=click.Path(path_type=Path))
@_store_option
@cli.flag("--portable", "Start `noctuary` from the PATH, for other machines.")
@cli.json_option
def plugin(folder: Path, store: str | None, portable: bool) -> None:
    """Write a plugin folder for both agents to FOLDER: hooks and the MCP server.

    \b
    claude --plugin-dir FOLDER/noctuary      try it in one session of Claude Code
    claude plugin marketplace add FOLDER   install it: then `claude plugin install noctuary`
    codex plugin marketplace add FOLDER    the same with Codex

    Install either the plugin or the hooks, not both: otherwise both run.

    Exit code 1 if the folder holds anything else, or cannot be written.
    """  # noqa: D301 (click wants the control character)
    named, notes = _resolve_store(store, find_home())
    program = ("noctuary",) if portable else installation.find_program()
    files = installation.plugin_files(program, named)
    written = [str(path) for path in installation.write_plugin(folder, files)]
    found = {"folder": str(folder), "files": list(files), "written": written, "notes": notes}
    cli.tell(found, [f"{folder}: {len(written)} of {len(files)} files written"], notes)


def _resolve_store(
    store: str | None, home: Path, until: str = "hooks add nothing"
) -> tuple[str | None, list[str]]:
    """Return what entries pass as --store: an absolute path where there is one, and a note."""
    if store is None:
        return None, []
    installation.require_utf8(store)
    directory, _ = find_store(store, home=home)
    # By its full path: agents run it in whatever folder the agent was started in.
    named = str(directory.absolute())
    if (directory / "CURRENT").is_file():
        return named, []
    return named, [f"there is no store {directory} yet: until a night has run, {until}"]


# `noctuary serve`: keep snapshot and encoder open for clients on a unix socket.

_SWITCH_S = 0.000_5  # a tenth of the default: a third off the p95 beside recalls of 500 memories
_WHY = {
    "idle": "nobody asked for a while",
    "stopped": "stopped",
    "socket_gone": "its socket was removed",
}


@click.command()
@cli.option(
    "--idle-minutes",
    "Stop after this long without a request; 0 never stops.",
    default=30.0,
    type=click.FloatRange(min=0),
)
@cli.option(
    "--clients",
    "Requests at once; other clients wait a moment, then recall by themselves.",
    default=8,
    type=click.IntRange(min=1, max=64),
)
@cli.store_options
def serve(idle_minutes: float, clients: int, store: str | None) -> None:
    """Answer recalls of one store from a warm process, for this user only.

    `noctuary recall` uses the server if it runs, and otherwise recalls by itself. Ctrl-C or SIGTERM
    stops it after the open requests.

    Exit code 0 if it was stopped or idle, 1 if it cannot run, 4 if the store already has a server.
    """
    directory = cli.open_paths(store).root
    if not directory.is_dir():
        raise SnapshotMissingError(f"no store at {directory}: run `noctuary nightly` first")

    def say_ready() -> None:
        found = {"store": str(directory), "pid": os.getpid(), "socket": str(server.place.socket)}
        cli.tell(found, [f"noctuary serve: answers for {directory} (process {os.getpid()})"])
        sys.stdout.flush()

    def wake(*_: object) -> None:
        server.stop()

    server = warm.Server(
        directory,
        warm.answer_request,
        rest=warm.give_back,
        idle_s=idle_minutes * 60,
        clients=clients,
    )
    # At each of its many steps, a short recall waits this long for a thread with a long one.
    sys.setswitchinterval(_SWITCH_S)
    with cli.handling(wake, signal.SIGTERM, signal.SIGINT):
        reason = server.run(say_ready, lambda: warm.warm_up(directory))
    if not cli.is_json():
        click.echo(f"noctuary serve: ended, {_WHY[reason]}", err=True)


# `noctuary browse`: a page for the owner of a store.


@click.command()
@cli.option("--user", "Whose memories, besides those without an owner; the page cannot change it.")
@cli.option("--wing", "Only this wing; the page cannot show another.")
@cli.option(
    "--port", "Port on 127.0.0.1; 0 takes a free one.", default=0, type=click.IntRange(0, 65535)
)
@cli.flag("--no-open", "Print the link, and open no browser.")
@cli.store_options
def browse(user: str | None, wing: str | None, port: int, no_open: bool, store: str | None) -> None:
    """Show a store on a page in your browser: recall, why, memories, concepts, last night, tokens.

    You can forget the memories that it shows, and replace, confirm or end those of your own store.
    Looking is not logged. The link holds a secret, new each time: whoever knows it and reaches this
    machine's loopback can do all that too. Ctrl-C or SIGTERM stops it.

    Exit code 0 if it was stopped, 1 if it cannot run.
    """
    from noctuary.agents.browse import PageServer, open_page
    from noctuary.agents.mcp_view import View
    from noctuary.cli.forget import night_for

    view = View(store, user=user, wing=wing)
    directory = view.store()
    with view.open() as seen:  # faults of the store are printed here, not on the page
        cli.warn(*cli.coded(seen.warnings))
    with PageServer(view, port, night_for if cli.is_installed("dagster") else None) as server:

        def stop(*_: object) -> None:
            threading.Thread(target=server.shutdown).start()  # it waits for the loop that runs here

        with cli.handling(stop, signal.SIGTERM, signal.SIGINT), open_page(server.link, not no_open):
            found = {"store": str(directory), "link": server.link}
            cli.tell(found, [f"{directory}\n{server.link}"])
            sys.stdout.flush()
            threading.Thread(target=warm.warm_up, args=(directory,), daemon=True).start()
            server.serve_forever()


# `noctuary mcp`: recall for agents that speak the Model Context Protocol.

_HTTP_PORT = 8377


@click.group(cls=cli.NamedGroup, invoke_without_command=True)
@cli.option("--user", "Whose memories, besides those without an owner; no call can change it.")
@cli.option("--wing", "Only this wing; no call can ask for another.")
@cli.flag("--person", "Besides a wing, also what holds for the user in every project.")
@cli.option(
    "--timeout-s",
    "Longest time of one call; after it the client is told to retry.",
    default=10.0,
    type=click.FloatRange(min=0.1, max=600),
)
@cli.flag("--http", "Serve over HTTP, for agents that do not start the server themselves.")
@cli.option("--host", "With --http: where to listen.", default="127.0.0.1")
@cli.option(
    "--port", "With --http; 0 takes a free one.", default=_HTTP_PORT, type=click.IntRange(0, 65535)
)
@cli.option(
    "--token-file FILE",
    "With --http: the token that clients must send [default: mcp_token in noctuary's home].",
    type=click.Path(dir_okay=False, path_type=Path),
)
@cli.store_options
@click.pass_context
def mcp(
    context: click.Context, user: str | None, wing: str | None, person: bool, timeout_s: float,
    store: str | None, **http: Any,
) -> None:  # fmt: skip
    """Serve recall, remember and more to agents that speak MCP, over standard input and output.

    \b
    noctuary mcp install          tell the agents on this machine to start it
    noctuary mcp install cursor   tell one of them; --undo takes it back
    noctuary mcp --http           serve all of them at http://127.0.0.1:8377/mcp

    It shows what --user and --wing allow. Without --user, it shows memories without an owner.
    --json prints its state and exits; with --http, it prints the address and goes on.

    Over HTTP every client sends `Authorization: Bearer TOKEN`. The first start writes the token
    into the token file. At another --host than this machine, that file must be there already.

    Exit code 0 when the client has left, or a signal came; 1 if it cannot run (the extra `mcp` is
    missing, the port is taken, others can read the token file).
    """  # noqa: D301 (click wants the control character)
    source = context.get_parameter_source
    given = [n for n in context.params if source(n) is ParameterSource.COMMANDLINE]
    if context.invoked_subcommand is not None:
        if given:
            raise click.UsageError(f"give options behind `{context.invoked_subcommand}`")
        return
    if not http["http"] and (lost := {"host", "port", "token_file"}.intersection(given)):
        raise click.UsageError(f"--{min(lost).replace('_', '-')} needs --http")
    fault = cli.find_sdk_fault()
    if fault is not None:
        cli.fail(cli.ExtraMissingError(fault))
    from noctuary.agents.mcp_view import View, plain, read_state  # pydantic comes with the SDK

    view = View(store, user=user, wing=wing, person=person)
    if http["http"]:
        _serve_http(view, timeout_s, http["host"], http["port"], http["token_file"])
        return
    if cli.is_json():
        cli.print_json(plain(read_state(view)))
        return
    from noctuary.agents.mcp import run_stdio

    run_stdio(view, timeout_s)


def _serve_http(view: Any, timeout_s: float, host: str, port: int, token_file: Path | None) -> None:
    from noctuary.agents import mcp_http
    from noctuary.agents.mcp import run_http

    path = token_file or find_home() / mcp_http.TOKEN_FILE
    token = mcp_http.read_token(path, may_make=mcp_http.is_loopback(host))
    with mcp_http.listen(host, port) as listener:
        port = listener.getsockname()[1]
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}/mcp"

        def say_ready() -> None:
            lines = [
                f"noctuary mcp: answers at {url} (process {os.getpid()})",
                f"clients send the token in {path} as `Authorization: Bearer TOKEN`",
            ]
            cli.tell({"url": url, "token_file": str(path), "pid": os.getpid()}, lines)
            sys.stdout.flush()

        def take(*_: object) -> None:
            """Do nothing: the server ends at these signals by itself, then passes them on."""

        with cli.handling(take, signal.SIGTERM, signal.SIGINT):
            run_http(view, timeout_s, listener, token, say_ready)


@mcp.command("install")
@click.argument("agents", nargs=-1, type=click.Choice([*servers.CLIENTS]), metavar="[AGENT]...")
@cli.option("--store STORE", "Passed to the server [default: it finds the store].")
@cli.option("--user", "Passed to the server: whose memories.")
@cli.option("--wing", "Passed to the server: only this wing.")
@cli.flag("--person", "Passed to the server: also what holds for the user in every project.")
@cli.flag("--project", "For sessions in --folder only.")
@_folder_option
@cli.flag("--undo", "Take the server out again.")
@cli.flag("--dry-run", "Show the change and write nothing.")
@cli.json_option
def install_mcp(
    agents: Sequence[str], store: str | None, project: bool, folder: Path, undo: bool,
    dry_run: bool, person: bool, **whose: str | None,
) -> None:  # fmt: skip
    """Tell agents to start `noctuary mcp`, in their own settings files.

    AGENT is claude, codex, cursor, gemini, opencode, windsurf or vscode. Without one: all that keep
    settings on this machine; with --undo: all that noctuary told.

    noctuary changes its own entry only, and keeps a copy of the old file. --undo
    restores it if nobody changed it since, and otherwise removes the entry.

    Exit code 1 if an agent's file was not changed as asked; the others are.
    """
    home = find_home()
    store = store or os.environ.get("NOCTUARY_STORE", "").strip() or None
    named, notes = _resolve_store(store, home, "nothing is recalled")
    words, environ = [*installation.find_program(), "mcp"], servers.find_environment(home)
    for name, value in {"store": named, **whose}.items():
        words += [] if value is None else [f"--{name}", value]
    words += ["--person"] if person else []
    changes: list[installation.HookChange] = []
    refused: list[dict[str, str]] = []
    for place in _mcp_places(agents, folder, home, undo=undo, project=project):
        try:
            if undo:
                changes.append(servers.uninstall_server(place, home=home, dry_run=dry_run))
            else:
                change = servers.install_server(
                    place, words, home=home, environ=environ, dry_run=dry_run
                )
                changes.append(change)
        except (installation.HookInstallError, OSError) as error:
            snippet = "" if undo else servers.snippet(place.agent, words, environ)
            refused.append({"agent": place.agent, "message": str(error), "snippet": snippet})
    fault = None if undo else cli.find_sdk_fault()
    notes += [*([fault] if fault else ()), *(note for c in changes for note in c.notes)]
    found = {"changes": [c._asdict() for c in changes], "refused": refused, "notes": notes}
    lines = [line for change in changes for line in _change_lines(change)]
    if undo and not changes:
        lines = ["no agent's settings have an MCP server of noctuary's"]
    lines += [f"{r['agent']}: add this yourself\n{r['snippet']}" for r in refused if r["snippet"]]
    cli.tell(found, lines, [*notes, *(r["message"] for r in refused)])
    if refused:
        sys.exit(cli.EXIT_FAILED)


def _mcp_places(
    agents: Sequence[str], folder: Path, home: Path, *, undo: bool, project: bool
) -> list[installation.SettingsPlace]:
    """Return the files that are meant: of the agents named, else of all that are there."""
    if undo and not agents:
        return servers.installed_places(home)
    scope = installation.PROJECT if project else installation.USER
    used = [a for a in servers.find_used() if servers.CLIENTS[a].project or not project]
    if not agents and not used:
        raise installation.HookInstallError(
            "no agent that noctuary knows keeps settings here: name one of "
            + ", ".join(servers.CLIENTS)
        )
    return [servers.find_place(agent, scope, folder) for agent in dict.fromkeys(agents or used)]
