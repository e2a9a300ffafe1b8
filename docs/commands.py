"""Completes two pages while mkdocs builds: commands' help, and profiles' flags."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from noctuary.cli.main import main
from noctuary.recall import profile


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Append the generated sections of a page; mkdocs calls this for each one."""
    added = {"cli.md": commands, "profiles.md": flags}.get(page.file.src_uri)
    return markdown if added is None else "\n".join([markdown, *added()])


def commands() -> Iterator[str]:
    """Yield a section for each command: the help that it prints."""
    return _sections(click.Context(main, info_name="noctuary"))


def _sections(context: click.Context) -> Iterator[str]:
    depth = context.command_path.count(" ") + 2
    yield f"\n{'#' * depth} {context.command_path}\n\n```text\n{context.get_help()}\n```"
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            command = context.command.get_command(context, name)
            if command is not None and not command.hidden:
                yield from _sections(click.Context(command, context, info_name=name))


def flags() -> Iterator[str]:
    """Yield a section for each group of flags: their defaults, ranges and meanings."""
    for heading, names in profile.GROUPS.items():
        yield f"\n### {heading[0].upper()}{heading[1:]}\n"
        yield "| flag | default | range | meaning |\n|---|---|---|---|"
        for name in names:
            flag = profile.FLAGS[name]
            default = str(flag.default).lower() if flag.default != "" else "empty"
            yield f"| `{name}` | `{default}` | {_range(name)} | {flag.meaning} |"


def _range(name: str) -> str:
    if name in profile.CHOICES:
        return " or ".join(f"`{choice}`" for choice in profile.CHOICES[name])
    if name in profile.RANGES:
        return f"{profile.RANGES[name].low:.10g} to {profile.RANGES[name].high:.10g}"
    return "true or false" if profile.FIELD_TYPES[name] is bool else "text"
