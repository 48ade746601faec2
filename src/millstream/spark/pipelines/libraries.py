"""What the files of a definition hold, without running them: functions, classes, views.

Python is parsed and not imported, so that `validate` needs neither PySpark nor trust. `modules`
imports it when the pipeline is assembled.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from millstream.spark.pipelines.definition import View
from millstream.spark.pipelines.schema import Fault, Place
from millstream.spark.pipelines.sql_text import statements, tables_of

if TYPE_CHECKING:
    from pathlib import Path

SESSION_PARAMETER: Final = "spark"
_VIEW_DECORATOR: Final = "view"


@dataclass(frozen=True, slots=True)
class Function:
    """A function of a library and the datasets that its parameters name."""

    name: str
    parameters: tuple[str, ...]
    place: Place


@dataclass(slots=True)
class Library:
    """Everything that the files of a definition hold."""

    functions: dict[str, Function] = field(default_factory=dict)
    classes: dict[str, Place] = field(default_factory=dict)
    views: list[View] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)

    def add(self, path: Path, shown: str) -> None:
        """Read one file; `shown` names it in faults."""
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            self.faults.append(Fault(Place(shown), f"cannot be read: {error}"))
            return
        if path.suffix == ".sql":
            self._add_sql(text, shown)
        elif path.suffix == ".py":
            self._add_python(text, shown)
        else:
            self.faults.append(Fault(Place(shown), "a library is a file ending in .py or .sql"))

    def _add_sql(self, text: str, shown: str) -> None:
        for statement in statements(text):
            place = _place(text, statement.position, shown)
            created = statement.created_view
            if created is None:
                self.faults.append(
                    Fault(place, "write CREATE TEMPORARY VIEW name AS SELECT …; sinks keep rows")
                )
                continue
            name, query = created
            self.views.append(
                View(name=name, place=place, sql=query, inputs=tuple(tables_of(query)))
            )

    def _add_python(self, text: str, shown: str) -> None:
        try:
            module = ast.parse(text)
        except SyntaxError as error:
            place = Place(shown, error.lineno or 1, error.offset or 1)
            self.faults.append(Fault(place, f"this is no Python: {error.msg}"))
            return
        for node in module.body:
            if isinstance(node, ast.ClassDef):
                self.classes[node.name] = Place(shown, node.lineno, node.col_offset + 1)
            elif isinstance(node, ast.FunctionDef):
                self._add_function(node, shown)

    def _add_function(self, node: ast.FunctionDef, shown: str) -> None:
        place = Place(shown, node.lineno, node.col_offset + 1)
        names = [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
        self.functions[node.name] = Function(node.name, tuple(names), place)
        for decorator in node.decorator_list:
            name = _view_name(decorator, node.name)
            if name is not None:
                inputs = tuple(each for each in names if each != SESSION_PARAMETER)
                self.views.append(View(name=name, place=place, python=node.name, inputs=inputs))


def _view_name(decorator: ast.expr, default: str) -> str | None:
    """The name that `@view` or `@view(name="…")` gives; None if it is another decorator."""
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    shown = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", None)
    if shown != _VIEW_DECORATOR:
        return None
    if isinstance(decorator, ast.Call):
        for keyword in decorator.keywords:
            if keyword.arg == "name" and isinstance(keyword.value, ast.Constant):
                return str(keyword.value.value)
    return default


def _place(text: str, position: int, shown: str) -> Place:
    line_start = text.rfind("\n", 0, position) + 1
    return Place(shown, text.count("\n", 0, position) + 1, position - line_start + 1)
