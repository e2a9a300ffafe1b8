"""The import graph of the project, read from its source and not from what happens to be loaded."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOP_LEVEL = {
    "noctuary": ROOT / "lib" / "noctuary",
    "noctuary_assets": ROOT / "assets" / "noctuary_assets",
    "noctuary_pipelines": ROOT / "pipelines" / "noctuary_pipelines",
}


@cache
def modules() -> dict[str, Path]:
    """Return every module of the project by dotted name; a package is its `__init__`."""
    found: dict[str, Path] = {}
    for top, folder in TOP_LEVEL.items():
        for path in sorted(folder.rglob("*.py")):
            parts = [top, *path.relative_to(folder).with_suffix("").parts]
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name] = path
    return found


@cache
def tree_of(path: Path) -> ast.Module:
    """Return a file's syntax tree."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@cache
def imports_of(
    module: str, *, typing_only: bool = False, eager_only: bool = False
) -> frozenset[str]:
    """Return what a module imports, at its top and inside its functions.

    Names of the project are resolved to modules, with the packages that Python runs on the way;
    others stay as written.

    Args:
        module: A module of the project.
        typing_only: Also what only a type checker imports (`if TYPE_CHECKING`).
        eager_only: Only what importing the module imports, not what its functions do when called.
    """
    found: set[str] = set()
    package = module if modules()[module].name == "__init__.py" else module.rpartition(".")[0]
    nodes = _live_nodes(tree_of(modules()[module]), typing_only, eager_only)
    for name in _imported_names(nodes, package):
        found |= _resolve(name)
    return frozenset(found - {module})


def lazy_imports_of(module: str) -> frozenset[str]:
    """Return what only the functions of a module import, when they are called."""
    return imports_of(module) - imports_of(module, eager_only=True)


def reachable_from(
    module: str, *, eager_only: bool = False, without: frozenset[tuple[str, str]] = frozenset()
) -> frozenset[str]:
    """Return everything that a module imports directly or through others, itself left out.

    Args:
        module: A module of the project.
        eager_only: As in `imports_of`.
        without: Imports (from, to) that are not followed; `to` may be the package of what is
            imported.
    """
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        current = waiting.pop()
        for name in imports_of(current, eager_only=eager_only):
            if name in seen or _is_shut(current, name, without):
                continue
            seen.add(name)
            if name in modules():
                waiting.append(name)
    return frozenset(seen - {module})


def why(
    start: str,
    goal: str,
    *,
    eager_only: bool = False,
    without: frozenset[tuple[str, str]] = frozenset(),
) -> list[str]:
    """Return a shortest chain of imports between two modules, for a failing test's message."""
    chains = [[start]]
    seen = {start}
    for chain in chains:
        if chain[-1] == goal:
            return chain
        nexts = imports_of(chain[-1], eager_only=eager_only) if chain[-1] in modules() else ()
        for name in sorted(nexts):
            if name not in seen and not _is_shut(chain[-1], name, without):
                seen.add(name)
                chains.append([*chain, name])
    return []


def _is_shut(module: str, name: str, without: frozenset[tuple[str, str]]) -> bool:
    return any(
        module == start and (name == goal or name.startswith(f"{goal}.")) for start, goal in without
    )


def package_of(module: str) -> str:
    """Return the feature package of a module of noctuary (`snapshot`), or its name at the top."""
    return module.removeprefix("noctuary.").split(".")[0]


def _imported_names(nodes: Iterator[ast.AST], package: str) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")
                base = ".".join([*parts[: len(parts) - node.level + 1], *filter(None, [base])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and _is_import_call(node.func):
            argument = node.args[0]
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                yield argument.value


def _is_import_call(function: ast.expr) -> bool:
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in {"import_module", "__import__"}


def _live_nodes(tree: ast.AST, typing_only: bool, eager_only: bool) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if eager_only and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and not typing_only and _is_type_checking(node.test):
            for branch in node.orelse:
                yield branch
                yield from _live_nodes(branch, typing_only, eager_only)
            continue
        yield node
        yield from _live_nodes(node, typing_only, eager_only)


def _is_type_checking(test: ast.expr) -> bool:
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", "")
    return name == "TYPE_CHECKING"


def _resolve(name: str) -> set[str]:
    """Return the modules behind a dotted name; an attribute of a module is that module."""
    if name.split(".")[0] not in TOP_LEVEL:
        return {name}
    parts = name.split(".")
    prefixes = {".".join(parts[:n]) for n in range(1, len(parts) + 1)}
    return prefixes & set(modules())
