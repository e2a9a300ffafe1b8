"""Rules about the shape of the code that a linter does not check."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support.imports import ROOT, tree_of

MAX_FUNCTION_LINES = 60
PRODUCT = ("lib", "assets", "pipelines")
EVERYTHING = (*PRODUCT, "bench", "tests")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def python_files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def functions(tree: ast.AST) -> Iterator[Function]:
    for node in ast.walk(tree):
        if isinstance(node, Function):
            yield node


def length_without_docstring(function: Function) -> int:
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    if ast.get_docstring(function) is not None:
        docstring = function.body[0]
        lines -= (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
    return lines


def test_there_is_something_to_look_at() -> None:
    assert len(python_files(*PRODUCT)) > 100
    assert len(python_files("tests")) > 50


def test_a_function_has_at_most_60_lines() -> None:
    lengths = {
        f"{named(path)}: {f.name}": length_without_docstring(f)
        for path in python_files(*EVERYTHING)
        for f in functions(tree_of(path))
    }
    assert not {name: n for name, n in lengths.items() if n > MAX_FUNCTION_LINES}


def test_only_commands_print() -> None:
    prints = [
        f"{named(path)}:{node.lineno}"
        for path in python_files(*PRODUCT)
        if "cli" not in path.parts
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call)
        if isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert not prints


def _executed_at_import(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """Yield every node that runs when the module is imported: not what is inside a function."""
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, Function | ast.Lambda):
            # Decorators and defaults run at import, the body does not.
            waiting += [*node.args.defaults, *(d for d in node.args.kw_defaults if d)]
            waiting += getattr(node, "decorator_list", [])
        else:
            waiting += ast.iter_child_nodes(node)


def _reads_environment(node: ast.AST) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return name in {"environ", "getenv", "environb", "expandvars"}


def test_no_environment_is_read_at_import() -> None:
    reads = [
        f"{named(path)}: {ast.unparse(node)}"
        for path in python_files(*PRODUCT)
        for node in _executed_at_import([n for n in tree_of(path).body if not _is_main_guard(n)])
        if _reads_environment(node)
    ]
    assert not reads


def _is_main_guard(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "__main__" in ast.dump(node.test)


def test_the_rule_about_the_environment_sees_what_it_must() -> None:
    """The rules themselves, on code that breaks them."""
    for source, breaks in (
        ("import os\nHOME = os.environ.get('X')", True),
        ("import os\nclass A:\n    x = os.getenv('X')", True),
        ("import os\ndef f(x=os.environ['X']): ...", True),
        ("import os\n@decorate(os.environ)\ndef f(): ...", True),
        ("import os\ndef f():\n    return os.environ['X']", False),
        ("import os\nf = lambda: os.environ['X']", False),
    ):
        found = any(_reads_environment(n) for n in _executed_at_import(ast.parse(source).body))
        assert found is breaks, source


def test_everything_public_has_a_docstring() -> None:
    missing = [
        f"{named(path)}: {name}"
        for path in python_files(*PRODUCT)
        for name, node in (("the module", tree_of(path)), *_public(tree_of(path)))
        if ast.get_docstring(node) is None
    ]
    assert not missing


def _public(tree: ast.Module) -> Iterator[tuple[str, Function | ast.ClassDef]]:
    for node in tree.body:
        if not isinstance(node, Function | ast.ClassDef) or node.name.startswith("_"):
            continue
        yield node.name, node
        if isinstance(node, ast.ClassDef):
            for member in node.body:
                if isinstance(member, Function) and not _is_private_or_stub(member):
                    yield f"{node.name}.{member.name}", member


def _is_private_or_stub(member: Function) -> bool:
    """A body of three dots describes somebody else's method, whose own documentation counts."""
    return member.name.startswith("_") or [ast.unparse(line) for line in member.body] == ["..."]


def test_every_test_is_typed() -> None:
    untyped = [
        f"{named(path)}: {f.name}"
        for path in python_files("tests")
        for f in functions(tree_of(path))
        if f.returns is None
    ]
    assert not untyped


def test_test_folders_are_no_packages() -> None:
    """Importlib mode: an `__init__.py` would give two modules one name."""
    assert not list((ROOT / "tests").rglob("__init__.py"))
