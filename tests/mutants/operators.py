"""Own which mutants a module has: the operators of mutmut, on the bodies of all functions, decorated ones too."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider, WhitespaceInclusivePositionProvider
from mutmut.mutation.mutators import mutation_operators

# What mutmut leaves out too: a mutant of these tells nothing, or cannot be told from the function itself.
_LEFT_OUT_CALLS = {"len", "isinstance", "cast"}


@dataclass(frozen=True)
class Mutant:
    """One change of one place of a module."""

    path: str
    line: int
    first_line: int  # of the statement that it is in, or of its head: the lines that Python says it runs
    last_line: int
    function: str  # the qualified name of the outermost function around it
    begin: int  # of what is changed, in the module's text
    end: int
    mutated: str
    text: str  # of the module

    @property
    def source(self) -> str:
        """The whole module with the change."""
        return self.text[: self.begin] + self.mutated + self.text[self.end :]

    def change(self, source: str) -> str:
        """Say the change as its lines before and after."""
        lines = list(difflib.unified_diff(self.text.splitlines(), source.splitlines(), n=0, lineterm=""))[2:]
        return "\n".join(f"{line[0]} {line[1:].strip()}" for line in lines if line[0] in "+-")


class _Places(cst.CSTVisitor):
    METADATA_DEPENDENCIES = (PositionProvider, WhitespaceInclusivePositionProvider)

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[int, int, int, str, int, int, str]] = []
        self._line_starts = [0, *accumulate(len(line) for line in text.splitlines(keepends=True))]
        self._scope: list[cst.FunctionDef | cst.ClassDef] = []
        self._statements: list[tuple[int, int]] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.Annotation | cst.Decorator | cst.Parameters | cst.Import | cst.ImportFrom):
            return False
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value in _LEFT_OUT_CALLS:
            return False
        if isinstance(node, cst.Arg) and _is_strict(node):
            return False
        if isinstance(node, cst.Expr) and isinstance(node.value, cst.SimpleString | cst.ConcatenatedString):
            return False
        if isinstance(node, cst.SimpleStatementLine | cst.BaseCompoundStatement):
            span = self.get_metadata(PositionProvider, node)
            last = span.end.line
            if isinstance(node, cst.BaseCompoundStatement):
                body = node.cases[0] if isinstance(node, cst.Match) else node.body
                last = max(span.start.line, self.get_metadata(PositionProvider, body).start.line - 1)
            self._statements.append((span.start.line, last))
        if isinstance(node, cst.FunctionDef | cst.ClassDef):
            self._scope.append(node)
        elif any(isinstance(scope, cst.FunctionDef) for scope in self._scope):
            self._change(node)
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        if isinstance(original_node, cst.SimpleStatementLine | cst.BaseCompoundStatement):
            self._statements.pop()
        if isinstance(original_node, cst.FunctionDef | cst.ClassDef):
            self._scope.pop()

    def _change(self, node: cst.CSTNode) -> None:
        span = self.get_metadata(WhitespaceInclusivePositionProvider, node, None)
        if span is None or isinstance(node, cst.BaseCompoundStatement):
            return
        begin, end = (self._line_starts[at.line - 1] + at.column for at in (span.start, span.end))
        for kind, operator in mutation_operators:
            for mutated in operator(node) if isinstance(node, kind) else ():
                if any(map(_is_strict, getattr(node, "args", ()))) <= any(
                    map(_is_strict, getattr(mutated, "args", ()))
                ):
                    text = cst.Module([]).code_for_node(mutated)
                    self.found.append((span.start.line, *self._statements[-1], self._function(), begin, end, text))

    def _function(self) -> str:
        names = []
        for scope in self._scope:
            names.append(scope.name.value)
            if isinstance(scope, cst.FunctionDef):
                break
        return ".".join(names)


def _is_strict(argument: cst.Arg) -> bool:
    """Tell `strict=True` of zip: it guards against our own mistakes, and no test can reach it."""
    name = argument.keyword.value if argument.keyword else ""
    return name == "strict" and isinstance(argument.value, cst.Name) and argument.value.value == "True"


def mutants_of(path: Path) -> Sequence[Mutant]:
    """All mutants of a module, in the order of its text."""
    text = path.read_text("utf-8")
    places = _Places(text)
    MetadataWrapper(cst.parse_module(text)).visit(places)
    return [Mutant(path.as_posix(), *place, text) for place in places.found]


def functions_in(code: Any) -> Iterator[tuple[str, Any]]:
    """Code objects of the functions and methods of a compiled module, with their qualified names."""
    for constant in code.co_consts:
        if hasattr(constant, "co_qualname"):
            yield constant.co_qualname, constant
            yield from functions_in(constant)
