"""`noctuary doctor`: what is wrong and what to do about it."""

from __future__ import annotations

import sys

import click

from noctuary.cli.common import EXIT_FAILED, fail, open_paths, print_json, store_options
from noctuary.diagnosis.doctor import examine, mend_privacy
from noctuary.errors import NoctuaryError

_MARKS = {"ok": "ok  ", "warn": "WARN", "fail": "FAIL"}


@click.command()
@click.option("--fix", is_flag=True, help="First make the store's files readable by you only.")
@store_options
def doctor(fix: bool, store: str | None, as_json: bool) -> None:
    """Look for what is wrong and say what to do about it.

    Checks the settings, who may read the store, the pointer, every checksum of the serving
    snapshot, its age and vectors, the encoder, the source, the transcripts, the schedule, the last
    verdict, the indexes, the logs, the warm server, the hooks in agents' settings and how they
    fare, and the MCP server.

    Exit code 1 if anything fails; warnings alone are 0.
    """
    try:
        paths = open_paths(store)
        mended = mend_privacy(paths) if fix else 0
        findings = examine(paths)
    except (NoctuaryError, OSError) as error:
        fail(error, as_json)
    if as_json:
        print_json({"findings": [f.to_json() for f in findings], "mended": mended})
    else:
        if mended:
            what = "file or directory" if mended == 1 else "files and directories"
            click.echo(f"fixed the permissions of {mended:,} {what}: only you can read them now")
        for finding in findings:
            click.echo(f"{_MARKS[finding.level]}  {finding.name}: {finding.message}")
            if finding.remedy:
                click.echo(f"      -> {finding.remedy}")
    if any(f.level == "fail" for f in findings):
        sys.exit(EXIT_FAILED)
