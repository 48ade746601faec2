"""Pipelines on Spark: a definition in YAML, SQL and Python, and what runs it.

`millstream pipeline` is the command; from a program: `load` a definition, then `run` it. In a
library of a pipeline, `@view` makes a dataset of a function. Nothing here imports PySpark before
a pipeline is run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, overload

from millstream.spark.pipelines.definition import Pipeline
from millstream.spark.pipelines.loading import load

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.spark.pipelines.runner import run as run

__all__ = ["Pipeline", "load", "run", "view"]

F = TypeVar("F", bound="Callable[..., Any]")


@overload
def view(function: F, /) -> F: ...
@overload
def view(*, name: str | None = None) -> Callable[[F], F]: ...
def view(function: F | None = None, /, *, name: str | None = None) -> F | Callable[[F], F]:
    """Mark a function of a library as a view: its parameters are named for what it is made from.

    The definition finds it by reading the file, so the name must be written as a plain text.
    """
    if function is not None:
        return function
    return lambda marked: marked


def __getattr__(name: str) -> object:
    if name != "run":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Libraries import this package for `view` alone, on every worker.
    from millstream.spark.pipelines.runner import run

    return run
