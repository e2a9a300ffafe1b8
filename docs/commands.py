"""Writes the page of commands while mkdocs builds: the help that each command prints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from noctuary.cli.main import main


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Append to the page of commands a section for each command; mkdocs calls this per page."""
    if page.file.src_uri != "cli.md":
        return markdown
    return "\n".join([markdown, *_sections(click.Context(main, info_name="noctuary"))])


def _sections(context: click.Context) -> Iterator[str]:
    depth = context.command_path.count(" ") + 2
    yield f"\n{'#' * depth} {context.command_path}\n\n```text\n{context.get_help()}\n```"
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            command = context.command.get_command(context, name)
            if command is not None and not command.hidden:
                yield from _sections(click.Context(command, context, info_name=name))
