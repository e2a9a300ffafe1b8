"""`noctuary hook`: what coding agents run at their events; here for its help text.

What belongs here: the command line's face. What does not: the command itself: `noctuary.cli.entry`
answers a hook before click is loaded.
"""

from __future__ import annotations

import time

import click


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    add_help_option=True,
)
@click.option("--agent", metavar="claude|codex", help="Who runs the hook.")
@click.option(
    "--store",
    metavar="STORE",
    help="A store directory, its name, or the source it was built from.",
)
@click.pass_context
def hook(context: click.Context, agent: str | None, store: str | None) -> None:
    """Answer one event of a coding agent: one JSON object on stdin, one or nothing on stdout.

    Agents run this; `noctuary hooks install` tells them to. It recalls for prompts, restores after
    a compaction what was injected before it, writes compactions to a journal and keeps the turns of
    a session that stops. It never stops an agent, whatever goes wrong: the counters say what did
    (`noctuary doctor`).

    Exit code always 0. To see what it would inject:

    \b
    echo '{"hook_event_name": "UserPromptSubmit", "prompt": "where is the spare key?"}' |
        noctuary hook --agent claude
    """  # noqa: D301 (click wants the control character)
    from noctuary.agents.process import run_hook

    given = [("--agent", agent), ("--store", store)]
    arguments = [text for name, value in given if value is not None for text in (name, value)]
    run_hook([*arguments, *context.args], time.monotonic())
