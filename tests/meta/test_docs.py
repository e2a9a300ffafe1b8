"""The documentation names what is there: every command, setting, check, file and table.

A test here fails when something is added without a word about it. Whether the word is true is for
reviewers.
"""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path

import click
import pytest

from noctuary.cli.main import main as noctuary_command
from noctuary.core import store as layout
from noctuary.core.errors import ConfigError
from noctuary.core.files import read_arrays
from noctuary.core.formats import FORMATS
from noctuary.core.settings import Settings, known_settings
from noctuary.core.store import StorePaths
from noctuary.snapshot import pack as row_file
from noctuary.sources.source import QuarantineReason
from noctuary_assets.publish import CHECKS
from noctuary_pipelines.definitions import build_definitions
from tests.support.damage import good_candidate

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
DECISIONS = DOCS / "decisions"
DECISION_HEADINGS = ["Context", "Decision", "Consequences", "What was tried instead"]
MOST_DECISIONS = 30

_MACHINE_PATH = re.compile(r"(?<![\w.$~/>})])/(?:work|root|home)/(?!me/)")
_REGISTRY_HOST = re.compile(
    r"\b(?:pypi|pytorch|anaconda|huggingface|hf)\.(?:org|co|com)\b|pythonhosted|artifactory"
    r"|\bindex-url\b|\bfind-links\b",
    re.IGNORECASE,
)
# PyTorch's own public index: the one way to its CPU build, which its documentation names.
_CPU_BUILD = "--index-url https://download.pytorch.org/whl/cpu"
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)


@cache
def documentation() -> str:
    """README and everything below docs, as one text; benchmark results are numbers, not prose."""
    pages = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
    return "\n".join(p.read_text(encoding="utf-8") for p in pages if "benchmarks" not in p.parts)


def missing(words: list[str]) -> list[str]:
    """The words that stand nowhere in the documentation as a whole word."""
    text = documentation()
    return [w for w in words if not re.search(rf"(?<![\w-]){re.escape(w)}(?![\w-])", text)]


@cache
def tracked_files() -> tuple[Path, ...]:
    """What is in git, or would be with the next `git add`; all files where this is no checkout."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listing.returncode != 0:
        pytest.skip("not a git checkout: what belongs to the project cannot be told")
    paths = [ROOT / name for name in listing.stdout.decode("utf-8").split("\0") if name]
    return tuple(p for p in paths if p.is_file())


def markdown_files() -> list[Path]:
    return [p for p in tracked_files() if p.suffix == ".md"]


def commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """Yield a command and all below it, with the words that call them."""
    yield path, command
    if isinstance(command, click.Group):
        for name in sorted(command.list_commands(context := click.Context(command))):
            child = command.get_command(context, name)
            assert child is not None
            yield from commands(child, f"{path} {name}")


def options(command: click.Command) -> list[str]:
    """Every spelling of every option, the help option included."""
    # With the command's own settings: click caches the help option that the first context makes.
    context = click.Context(command, **command.context_settings)
    parameters = command.get_params(context)
    found = [[*p.opts, *p.secondary_opts] for p in parameters if isinstance(p, click.Option)]
    return list(chain.from_iterable(found))


COMMANDS = dict(commands(noctuary_command, "noctuary"))


@pytest.mark.parametrize("path", sorted(COMMANDS))
def test_every_command_and_option_is_documented(path: str) -> None:
    assert path in documentation()
    assert missing(options(COMMANDS[path])) == []


def test_the_walk_over_the_commands_finds_them() -> None:
    assert {"noctuary recall", "noctuary rollback", "noctuary doctor"} <= COMMANDS.keys()
    assert {"-k", "--as-of", "--json", "--help"} <= set(options(COMMANDS["noctuary recall"]))
    assert "--webserver-only" in options(COMMANDS["noctuary ui"])


def test_every_make_target_is_documented() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = re.search(r"^TARGETS :=(.*)$", makefile, re.MULTILINE)
    assert phony is not None
    targets = phony.group(1).split()
    assert "nightly" in targets
    assert [t for t in targets if f"make {t}" not in documentation()] == []


def test_every_make_target_has_a_line_of_help() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = re.search(r"^TARGETS :=(.*)$", makefile, re.MULTILINE)
    assert phony is not None
    assert set(re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE)) == set(
        phony.group(1).split()
    )


def test_every_setting_is_in_the_configuration_page_and_has_the_variable_of_its_rule() -> None:
    page = (DOCS / "configuration.md").read_text(encoding="utf-8")
    assert "`NOCTUARY_<SECTION>_<KEY>`" in page
    names = known_settings()
    assert names
    assert [n for n in names if f"`{n}`" not in page] == []
    variables = {f"NOCTUARY_{name.replace('.', '_').upper()}": "\0" for name in names}
    with pytest.raises(ConfigError) as caught:
        Settings.load(environ={**variables, "NOCTUARY_NO_SUCH": "1"})
    assert re.findall(r"unknown variable (\w+)", str(caught.value)) == ["NOCTUARY_NO_SUCH"]


def test_the_configuration_page_names_no_setting_that_is_gone() -> None:
    page = (DOCS / "configuration.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z]+\.[a-z0-9_]+)` \|", page, re.MULTILINE)
    assert sorted(rows) == sorted(known_settings())


def test_the_configuration_page_has_the_real_defaults() -> None:
    page = (DOCS / "configuration.md").read_text(encoding="utf-8")
    for section, keys in Settings().to_json().items():
        for key, default in keys.items():
            row = re.search(rf"^\| `{section}\.{key}` \|.*$", page, re.MULTILINE)
            assert row is not None
            shown = row.group().split("|")[2]
            words = default if isinstance(default, list) else [default]
            assert all(str(w) in shown or json.dumps(w) in shown for w in words), f"{section}.{key}"


def test_the_example_configuration_loads(tmp_path: Path) -> None:
    page = (DOCS / "configuration.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    file = tmp_path / "noctuary.toml"
    file.write_text(example, encoding="utf-8")
    assert Settings.load(file, environ={}) != Settings()


def test_every_location_variable_is_documented() -> None:
    wanted = ["NOCTUARY_HOME", "NOCTUARY_CONFIG", "NOCTUARY_STORE", "NOCTUARY_SHARED"]
    page = (DOCS / "configuration.md").read_text(encoding="utf-8")
    assert [v for v in wanted if f"`{v}`" not in page] == []


def test_every_check_of_the_gate_has_its_section() -> None:
    page = (DOCS / "gates.md").read_text(encoding="utf-8")
    sections = re.findall(r"^### (\w+)$", page, re.MULTILINE)
    assert sections == list(CHECKS)


def test_every_other_asset_check_is_documented() -> None:
    checks = build_definitions().resolve_asset_graph().asset_check_keys
    names = {key.name for key in checks} - CHECKS.keys()
    rows = (
        (DOCS / "gates.md").read_text(encoding="utf-8").partition("## Checks of single assets")[2]
    )
    assert set(re.findall(r"^\| `(\w+)` \|", rows, re.MULTILINE)) == names


def test_every_file_of_a_snapshot_is_documented() -> None:
    constants = [v for k, v in sorted(vars(layout).items()) if k.endswith("_FILE")]
    page = (DOCS / "formats.md").read_text(encoding="utf-8")
    assert layout.ROWS_FILE in constants
    assert [f for f in constants if f not in page] == []


def test_every_array_of_a_snapshot_is_documented(tmp_path: Path) -> None:
    _, directory = good_candidate(tmp_path)
    arrays = read_arrays(directory / layout.ARRAYS_FILE)
    page = (DOCS / "formats.md").read_text(encoding="utf-8")
    assert {"graph.indptr", "tier.vectors", "summary_vectors"} < arrays.keys()
    assert [name for name in arrays if f"`{name}`" not in page] == []


def test_every_table_of_the_pack_and_its_columns_are_documented() -> None:
    schema = vars(row_file)["_SCHEMA"]
    page = (DOCS / "formats.md").read_text(encoding="utf-8")
    tables = re.findall(r"CREATE TABLE (\w+)", schema)
    assert "memories" in tables
    assert [t for t in tables if f"| `{t}` |" not in page] == []
    words = r"(\w+)\s+(?:INTEGER|TEXT|REAL|BLOB)\b"
    columns = sorted(set(re.findall(words, schema)))
    assert [c for c in columns if f"`{c}`" not in page] == []


def test_every_path_of_a_store_is_in_the_architecture_page() -> None:
    paths = StorePaths(Path())
    found = (getattr(paths, name) for name in vars(StorePaths) if not name.startswith("__"))
    names = [path.as_posix() for path in found if isinstance(path, Path)]
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    assert "CURRENT" in names
    assert [n for n in names if n not in page] == []


def test_the_formats_page_has_the_table_of_versions() -> None:
    page = (DOCS / "formats.md").read_text(encoding="utf-8").partition("\n## Versions\n")[2]
    wanted = [
        f"| {name.lower().replace('_', ' ')} | {one.version or 'none'} "
        f"| {', '.join(f'`{file}`' for file in one.files)} | {'yes' if one.is_kept else 'no'} "
        f"| {one.older or 'none exists'} | {one.newer} |"
        for name, one in FORMATS.items()
    ]
    assert re.findall(r"^\|.*\|$", page, re.MULTILINE)[2:] == wanted


def test_no_version_of_a_format_stands_anywhere_else() -> None:
    """Of other programs' formats, and of algorithms, versions stand where they are read."""
    number = re.compile(r"^(?:\w*FORMAT\w*|SCHEMA_VERSION|VERSION) = \d|\bversion=\d", re.MULTILINE)
    lib = [p for p in tracked_files() if ROOT / "lib" in p.parents and p.suffix == ".py"]
    assert len(lib) > 100
    assert [p.name for p in lib if number.search(p.read_text(encoding="utf-8"))] == []


def test_every_quarantine_reason_is_documented() -> None:
    page = (DOCS / "formats.md").read_text(encoding="utf-8")
    assert [r for r in QuarantineReason if f"`{r}`" not in page] == []


def test_every_trouble_that_doctor_finds_is_documented() -> None:
    code = (ROOT / "lib" / "noctuary" / "cli" / "doctor.py").read_text(encoding="utf-8")
    told = re.findall(r"\b_(warn|fail)(?:_if)?\(\s*\"([\w ]+)\"", code)
    assert [key for _, key in told if f'    "{key}": ' not in code] == [], "without a remedy"
    found = {(key.split(" ")[0], level) for level, key in told}
    found |= set(re.findall(r"Finding\(\s*\"(\w+)\",\s*\"(warn|fail)\"", code))
    assert {("usage", "warn"), ("settings", "fail"), ("encoder", "warn")} <= found
    page = (DOCS / "operations.md").read_text(encoding="utf-8")
    assert sorted(f for f in found if f"| `{f[0]}` | {f[1]} |" not in page) == []


def decisions() -> list[Path]:
    return sorted(DECISIONS.glob("[0-9]*.md"))


def test_decisions_are_numbered_without_gaps() -> None:
    names = [p.name for p in decisions()]
    assert names
    assert {p.name for p in DECISIONS.iterdir()} == {"README.md", *names}
    assert all(re.fullmatch(r"\d{4}-[a-z0-9-]+\.md", name) for name in names)
    assert [int(name[:4]) for name in names] == list(range(1, len(names) + 1))
    assert len(names) <= MOST_DECISIONS


def test_the_list_of_decisions_has_each_in_order() -> None:
    page = (DECISIONS / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^- \[(\d{4})\]\((.+?)\): \S.*\.$", page, re.MULTILINE)
    assert rows == [(p.name[:4], p.name) for p in decisions()]


@pytest.mark.parametrize("path", decisions(), ids=lambda p: str(p.stem))
def test_a_decision_has_its_number_its_date_and_the_four_headings(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    day = r"\d{4}-\d{2}-\d{2}"
    assert re.match(rf"# {path.name[:4]}\. .+\n\nAccepted {day}(, revised {day})?\.\n\n## ", text)
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == DECISION_HEADINGS
    bodies = re.split(r"^## .+$", text, flags=re.MULTILINE)[1:]
    assert all(body.strip() for body in bodies)


def test_decisions_that_code_refers_to_exist() -> None:
    numbers = {p.name[:4] for p in decisions()}
    code = [p for p in tracked_files() if p.suffix in {".py", ".toml"}]
    named = {
        number
        for p in code
        for number in re.findall(r"docs/decisions/(\d{4})", p.read_text(encoding="utf-8"))
    }
    assert named
    assert named <= numbers


def slug(heading: str) -> str:
    """The anchor that Markdown renderers make of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def broken_links(page: Path) -> list[str]:
    broken: list[str] = []
    for target in _LINK.findall(page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name) if name else page
        if not file.exists() or (anchor and slug(anchor) not in map(slug, headings(file))):
            broken.append(target)
    return broken


def headings(page: Path) -> list[str]:
    return _HEADING.findall(page.read_text(encoding="utf-8"))


def test_every_relative_link_leads_somewhere() -> None:
    pages = markdown_files()
    assert ROOT / "README.md" in pages
    assert {str(p.relative_to(ROOT)): bad for p in pages if (bad := broken_links(p))} == {}


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One heading\n[a](gone.md) [b](#one-heading) [c](#two) [d](https://x.y/z)\n")
    assert broken_links(page) == ["gone.md", "#two"]


def offences(pattern: re.Pattern[str]) -> list[str]:
    """File and line of every match in the project's text files; this one holds the patterns."""
    found: list[str] = []
    for path in tracked_files():
        if path == Path(__file__).resolve():
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for match in pattern.finditer(text.replace(_CPU_BUILD, "")):
            found.append(f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}")
    return found


def test_no_file_holds_a_path_of_the_machine_it_was_written_on() -> None:
    assert offences(_MACHINE_PATH) == []


def test_no_file_names_a_package_registry() -> None:
    assert offences(_REGISTRY_HOST) == []


def test_the_patterns_match_what_they_are_for() -> None:
    assert _MACHINE_PATH.search("see /work/main/x")
    assert _MACHINE_PATH.search('"/home/ann/x"')
    for below in ("data", "<store>", "~"):
        assert not _MACHINE_PATH.search(f"{below}/root/memo.sqlite")
    assert _REGISTRY_HOST.search("https://files.pythonhosted.org/x")
    assert not _REGISTRY_HOST.search("the package registry")


def test_the_changelog_has_the_version_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## \[(\d+\.\d+\.\d+)\] - (.+)$", changelog, re.MULTILINE)
    assert versions
    assert versions[0][0] == project["version"]
    assert all(re.fullmatch(r"unreleased|\d{4}-\d{2}-\d{2}", date) for _, date in versions)


def test_the_package_has_the_version_of_the_project() -> None:
    import noctuary

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert noctuary.__version__ == project["version"]
