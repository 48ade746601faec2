"""A pipeline from its files: read, checked in every part and across, or all its faults at once.

`load` is the way in, for the command line and for programs. It needs neither a broker nor Spark.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from millstream.errors import InvalidPipeline
from millstream.spark.pipelines.checks import check_pipeline
from millstream.spark.pipelines.definition import Pipeline, View
from millstream.spark.pipelines.libraries import SESSION_PARAMETER, Library
from millstream.spark.pipelines.reading import Reading
from millstream.spark.pipelines.schema import Context, Fault, Place, nearest, raise_for
from millstream.spark.pipelines.sinks import SINKS, Sink
from millstream.spark.pipelines.sources import SOURCES, Source
from millstream.spark.pipelines.sql_text import tables_of
from millstream.spark.pipelines.yaml_tree import Entries, Scalar, Tree, parse_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE_NAME: Final = "pipeline.yaml"
_KINDS: Final = ("sql", "python", "aggregate", "join", "stateful", "deduplicate")
N = TypeVar("N", Source, Sink)


def load(
    path: str | Path,
    environment: Mapping[str, str] | None = None,
    *,
    storage: str | None = None,
) -> Pipeline:
    """The pipeline that a file defines, or `pipeline.yaml` of a directory.

    Raises `InvalidPipeline` with every fault of it. Variables come from the environment of the
    process unless another is given; `storage` goes before that of the file.
    """
    file = Path(path)
    if file.is_dir():
        file /= FILE_NAME
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise InvalidPipeline(
            f"there is no {file}; `millstream pipeline init` writes an example"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidPipeline(f"{file} cannot be read: {error}") from error
    tree, faults = parse_yaml(text, str(file), os.environ if environment is None else environment)
    loader = _Loader(file, storage)
    loader.reading.faults += faults
    pipeline = None if tree is None else loader.pipeline(tree)
    if pipeline is not None:
        loader.reading.faults += check_pipeline(pipeline, loader.library, loader.unusable)
    raise_for(loader.reading.faults)
    assert pipeline is not None
    return pipeline


class _Loader:
    """Reads the parts of one definition."""

    def __init__(self, file: Path, storage: str | None = None) -> None:
        self.reading = Reading()
        self.library = Library()
        self.unusable: set[str] = set()
        """Sources and views that are there but have faults of their own."""
        self._file = file
        self._storage = storage
        self._directory = file.resolve().parent

    def pipeline(self, tree: Tree) -> Pipeline | None:
        """The whole; None if not even its outline can be read."""
        made = self.reading.mapping(
            Pipeline,
            tree,
            "the pipeline",
            readers={"sources": self._sources, "views": self._views, "sinks": self._sinks},
        )
        # Faults of libraries are told even if the outline has one.
        paths = self._libraries(tree)
        if made is None:
            return None
        if self._storage is not None:
            made = dataclasses.replace(made, storage=self._storage)
        context = self._context(made)
        return dataclasses.replace(
            made,
            storage=context.path(made.storage),
            checkpoints=None if made.checkpoints is None else context.path(made.checkpoints),
            sources=_placed(made.sources, context),
            views=self._with_library(made.views),
            sinks=_placed(made.sinks, context),
            file=self._file.resolve(),
            library_paths=paths,
        )

    def _context(self, made: Pipeline) -> Context:
        return Context(
            made.name,
            self._directory,
            made.cluster.bootstrap_servers,
            made.cluster.client,
            made.checkpoints or made.storage,
        )

    # Parts that are read in a way of their own.

    def _sources(self, tree: Tree) -> dict[str, Source]:
        return self._formats(tree, "source", SOURCES.known())

    def _sinks(self, tree: Tree) -> dict[str, Sink]:
        return self._formats(tree, "sink", SINKS.known())

    def _formats(self, tree: Tree, what: str, formats: Mapping[str, type[N]]) -> dict[str, N]:
        """Things of which the key `format` says what they are."""
        found: dict[str, N] = {}
        for name, (place, each) in self._entries(tree, f"`{what}s`").items():
            shown = f"{what} {name!r}"
            if isinstance(each, Entries):
                cls = self._format(each, shown, place, formats)
            else:
                self.reading.fault(place, f"{shown} must be a mapping of keys to values")
                cls = None
            made = None
            if cls is not None:
                shown = f"{shown} ({cls.format})"
                made = self.reading.mapping(
                    cls, each, shown, name=name, place=place, extra=("format",)
                )
            if made is not None:
                found[name] = made
            else:
                self.unusable.add(name)
        return found

    def _format(
        self, tree: Entries, shown: str, place: Place, formats: Mapping[str, type[N]]
    ) -> type[N] | None:
        if "format" not in tree.entries:
            self.reading.fault(place, f"{shown} needs a `format`: {', '.join(formats)}")
            return None
        given = tree.entries["format"][1]
        name = given.text if isinstance(given, Scalar) else ""
        if name not in formats:
            hint = nearest(name, formats) or f"; there are {', '.join(formats)}"
            self.reading.fault(given.place, f"{shown}: there is no format {name!r}{hint}")
            return None
        return formats[name]

    def _views(self, tree: Tree) -> dict[str, View]:
        found = {}
        for name, (place, each) in self._entries(tree, "`views`").items():
            shown = f"view {name!r}"
            made = self.reading.mapping(View, each, shown, name=name, place=place)
            if isinstance(each, Entries):
                self._check_kind(each, shown, place)
            if made is not None and any(getattr(made, kind) is not None for kind in _KINDS):
                found[name] = made
            else:
                self.unusable.add(name)
        return found

    def _check_kind(self, tree: Entries, shown: str, place: Place) -> None:
        kinds = [each for each in _KINDS if each in tree.entries]
        if len(kinds) != 1:
            problem = f"has {' and '.join(kinds)}; one is enough" if kinds else "does nothing"
            self.reading.fault(place, f"{shown} {problem}: give it one of {', '.join(_KINDS)}")

    def _entries(self, tree: Tree, what: str) -> Mapping[str, tuple[Place, Tree]]:
        if isinstance(tree, Entries):
            return tree.entries
        if not (isinstance(tree, Scalar) and tree.value is None):
            self.reading.fault(tree.place, f"{what} must be a mapping of names to definitions")
        return {}

    # Libraries.

    def _libraries(self, tree: Tree) -> tuple[Path, ...]:
        given = tree.entries.get("libraries") if isinstance(tree, Entries) else None
        if given is None:
            return ()
        patterns: Any = Reading().value(tuple[str, ...], given[1], "`libraries`")
        paths: list[Path] = []
        for pattern in patterns if isinstance(patterns, tuple) else ():
            matches = self._matches(pattern, given[1].place)
            paths += [each for each in matches if each.is_file() and each not in paths]
        for path in paths:
            self.library.add(path, os.path.relpath(path, Path.cwd()))
        self.reading.faults += self.library.faults
        return tuple(paths)

    def _matches(self, pattern: str, place: Place) -> list[Path]:
        try:
            matches = sorted(self._directory.glob(pattern))
        except (IndexError, NotImplementedError, ValueError) as error:
            problem = f"library {pattern!r}: give a path from the definition on, or a pattern"
            self.reading.fault(place, f"{problem}: {error}")
            return []
        if not matches:
            self.reading.fault(place, f"there is no library {pattern!r}")
        return matches

    def _with_library(self, given: Mapping[str, View]) -> dict[str, View]:
        """The views of the file and those of the libraries, each with what it is made from."""
        views = {name: self._with_inputs(view) for name, view in given.items()}
        for view in self.library.views:
            if view.name in views:
                first = views[view.name].place
                self.reading.fault(view.place, f"view {view.name!r} is defined in {first} already")
                continue
            views[view.name] = view
        return views

    def _with_inputs(self, view: View) -> View:
        inputs = view.from_
        if view.sql is not None:
            inputs = tuple(tables_of(view.sql))
        elif view.join is not None:
            inputs = (view.join.left, view.join.right)
        elif view.python is not None and not inputs:
            function = self.library.functions.get(view.python)
            names = () if function is None else function.parameters
            inputs = tuple(each for each in names if each != SESSION_PARAMETER)
        elif view.stateful is not None and view.stateful.initial_state is not None:
            inputs = (*inputs, view.stateful.initial_state)
        return dataclasses.replace(view, inputs=inputs)


def _placed(named: Mapping[str, N], context: Context) -> dict[str, N]:
    return {name: each.within(context) for name, each in named.items()}


def faults_of(path: str | Path, environment: Mapping[str, str] | None = None) -> list[Fault]:
    """All that is wrong with a definition, as values; empty if nothing is."""
    try:
        load(path, environment)
    except InvalidPipeline as error:
        faults = [each for each in error.faults if isinstance(each, Fault)]
        return faults or [Fault(Place(str(path)), str(error))]
    return []
