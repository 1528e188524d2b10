"""Own what our source says of its steps: where it gives the database a statement, and what it calls of the clients."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

from tests.endurance.counting import Site

STATEMENTS = ("execute", "executemany", "execute_values", "copy_expert")


def with_imported(module: ModuleType) -> list[ModuleType]:
    """Give a module and those of its own package that it imports."""
    package = module.__name__.rpartition(".")[0]
    names = {module.__name__}
    for node in ast.walk(ast.parse(Path(str(module.__file__)).read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == package:
            names |= {f"{package}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{package}."):
            names.add(str(node.module))
    return [import_module(name) for name in sorted(names)]


def _functions(module: ModuleType) -> Iterator[ast.FunctionDef]:
    tree = ast.parse(Path(str(module.__file__)).read_text())
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def _calls(function: ast.FunctionDef) -> Iterator[tuple[ast.Call, str, str]]:
    """Give the calls within a function, with the name that is called and that of what it is called on."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            on = node.func.value
            yield node, node.func.attr, on.attr if isinstance(on, ast.Attribute) else getattr(on, "id", "")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node, node.func.id, ""


def statements_not_given(modules: Iterable[ModuleType], without: Collection[str], given: Collection[Site]) -> list[str]:
    """Name the places of these modules that give the database a statement and are not among those `given`.

    Functions named in `without` are left out; a name that no function has is an error.
    """
    missing, known = [], set()
    for module in modules:
        lines = {line for file, line in given if file == module.__file__}
        for function in _functions(module):
            known.add(function.name)
            for call, name, _ in _calls(function):
                is_given = not lines.isdisjoint(range(call.lineno, (call.end_lineno or call.lineno) + 1))
                if name in STATEMENTS and not is_given and function.name not in without:
                    missing.append(f"{module.__name__}.{function.name}, line {call.lineno}")
    assert set(without) <= known, f"no functions any more: {set(without) - known}"
    return missing


def calls_of(module: ModuleType, client: str) -> set[str]:
    """Name what a module calls of the client that it holds in `client`."""
    return {name for function in _functions(module) for _, name, on in _calls(function) if on == client}
