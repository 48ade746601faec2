"""Whether the parts of a definition fit together: names, references, circles, functions.

`loading` asks when every part has been read by itself.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from millstream.config import keys_of
from millstream.spark.pipelines.expectations import DEAD_LETTER
from millstream.spark.pipelines.graph import DEAD_SUFFIX, dead_letter_topics
from millstream.spark.pipelines.libraries import SESSION_PARAMETER
from millstream.spark.pipelines.schema import Fault, Place, nearest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from millstream.config import Key
    from millstream.spark.pipelines.definition import Pipeline, View
    from millstream.spark.pipelines.libraries import Library

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_PIPELINE_NAME: Final = re.compile(r"(?!\.+$)[A-Za-z0-9._-]{1,100}", re.ASCII)
"""A name of nothing but dots would be another directory."""


def check_pipeline(
    pipeline: Pipeline, library: Library, unusable: Collection[str] = ()
) -> Iterator[Fault]:
    """Everything that is wrong across the parts.

    `unusable` are datasets with faults of their own: a dataset that refers to them is not to blame.
    """
    yield from _names(pipeline)
    yield from _references(pipeline, unusable)
    for view in pipeline.views.values():
        yield from _view(view, library)
        yield from _window(pipeline, view)
    yield from _circles(pipeline)
    yield from _shared_directories(pipeline)
    yield from _dead_letters(pipeline)
    yield from _brokers(pipeline)
    yield from _client_settings(pipeline)


def _names(pipeline: Pipeline) -> Iterator[Fault]:
    if not _PIPELINE_NAME.fullmatch(pipeline.name):
        yield Fault(
            Place(str(pipeline.file or "")),
            f"the name {pipeline.name!r} becomes part of topics and groups: use at most 100 "
            "letters, digits, '.', '_' and '-'",
        )
    if "://" in pipeline.storage:
        yield Fault(
            Place(str(pipeline.file or "")),
            "`storage` is a directory of this machine; give the address as `checkpoints`",
        )
    if not pipeline.sinks:
        yield Fault(Place(str(pipeline.file or "")), "the pipeline has no sink, so nothing runs")
    for kind, named in (("source", pipeline.sources), ("view", pipeline.views)):
        for name, each in named.items():
            if not _NAME.fullmatch(name):
                yield Fault(
                    each.place,
                    f"{kind} {name!r} is to be used in SQL: use letters, digits and '_', "
                    "and begin with a letter",
                )
    for name in pipeline.sources.keys() & pipeline.views.keys():
        yield Fault(pipeline.views[name].place, f"{name!r} is a source and a view; rename one")
    for name, sink in pipeline.sinks.items():
        if not _PIPELINE_NAME.fullmatch(name):
            yield Fault(sink.place, f"sink {name!r}: use letters, digits, '.', '_' and '-'")


def _references(pipeline: Pipeline, unusable: Collection[str]) -> Iterator[Fault]:
    known = pipeline.datasets
    for name, view in pipeline.views.items():
        for each in view.inputs:
            if each not in known and each not in unusable:
                hint = _unknown(each, known.keys() - {name})
                yield Fault(view.place, f"view {name!r} reads {each!r}{hint}")
    for name, sink in pipeline.sinks.items():
        if sink.from_ not in known and sink.from_ not in unusable:
            hint = _unknown(sink.from_, known)
            yield Fault(sink.place, f"sink {name!r} reads {sink.from_!r}{hint}")
        elif not _may_stream(pipeline, sink.from_):
            yield Fault(
                sink.place,
                f"sink {name!r} reads no stream, so nothing would ever be new; give it one",
            )


def _may_stream(pipeline: Pipeline, dataset: str) -> bool:
    """Whether a dataset comes from a stream, or from something that is not known well enough."""
    upstream = pipeline.upstream_of(dataset)
    return any(each not in pipeline.datasets for each in upstream) or any(
        source.is_streaming
        for each in upstream
        if (source := pipeline.sources.get(each)) is not None
    )


def _unknown(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    there = f"; there are {', '.join(names)}" if names else ""
    return f", which is no source and no view{nearest(name, names) or there}"


def _view(view: View, library: Library) -> Iterator[Fault]:
    shown = f"view {view.name!r}"
    if view.python is not None:
        yield from _function(view, library, shown)
    elif view.stateful is not None and view.stateful.processor not in library.classes:
        wanted = view.stateful.processor
        hint = nearest(wanted, library.classes) or "; `libraries` lists the files"
        yield Fault(view.place, f"{shown}: no library has a class {wanted!r}{hint}")
    if view.from_ and (view.sql is not None or view.join is not None):
        yield Fault(view.place, f"{shown} says itself what it reads; leave out `from`")
    takes_one = view.aggregate or view.deduplicate or view.stateful
    if takes_one is not None and len(view.from_) != 1:
        yield Fault(view.place, f"{shown} needs one dataset in `from`, not {len(view.from_)}")
    if view.sql is not None and not view.inputs:
        yield Fault(view.place, f"{shown} reads no source and no view")


def _function(view: View, library: Library, shown: str) -> Iterator[Fault]:
    assert view.python is not None
    function = library.functions.get(view.python)
    if function is None:
        hint = nearest(view.python, library.functions) or "; `libraries` lists the files"
        yield Fault(view.place, f"{shown}: no library has a function {view.python!r}{hint}")
        return
    wanted = [each for each in function.parameters if each != SESSION_PARAMETER]
    if len(wanted) != len(view.inputs):
        yield Fault(
            view.place,
            f"{shown}: {view.python}() takes {len(wanted)} datasets, `from` has {len(view.inputs)}",
        )


def _window(pipeline: Pipeline, view: View) -> Iterator[Fault]:
    aggregate = view.aggregate
    if aggregate is None or not aggregate.has_time or aggregate.time_column is not None:
        return
    upstream = {each for name in view.inputs for each in pipeline.upstream_of(name)}
    if all(
        pipeline.datasets[each].watermark is None for each in upstream & pipeline.datasets.keys()
    ):
        yield Fault(
            view.place,
            f"view {view.name!r} has windows but no time: give {', '.join(view.inputs)} a "
            "watermark, or the window a column",
        )


def _brokers(pipeline: Pipeline) -> Iterator[Fault]:
    for each in (*pipeline.sources.values(), *pipeline.sinks.values()):
        if getattr(each, "bootstrap_servers", "") is None:
            yield Fault(
                each.place,
                f"{each.name!r} is a topic of no brokers: give `cluster.bootstrap_servers`",
            )


def _client_settings(pipeline: Pipeline) -> Iterator[Fault]:
    """Each client takes those that it has; one that none has would be passed over in silence."""
    from millstream.client.admin.config import AdminConfig
    from millstream.client.consumer.config import ConsumerConfig
    from millstream.client.producer.config import ProducerConfig

    configs = (AdminConfig, ConsumerConfig, ProducerConfig)
    known = {each.name: each for config in configs for each in keys_of(config).values()}
    for name, text in pipeline.cluster.client.items():
        if name not in known:
            problem = f"no client has a setting {name!r}{nearest(name, known)}"
        elif (must_be := _must_be(known[name], text)) is not None:
            shown = "[hidden]" if known[name].is_sensitive else repr(text)
            problem = f"{name}={shown}: must be {must_be}"
        else:
            continue
        yield Fault(Place(str(pipeline.file or "")), f"`client` of `cluster`: {problem}")


def _must_be(key: Key, text: str) -> str | None:
    try:
        return key.fault_of(key.parse(text))
    except ValueError:
        return key.allowed_texts


def _circles(pipeline: Pipeline) -> Iterator[Fault]:
    for name, view in pipeline.views.items():
        beyond = {upstream for each in view.inputs for upstream in pipeline.upstream_of(each)}
        if name in beyond:
            others = sorted(each for each in beyond if name in pipeline.upstream_of(each))
            yield Fault(
                view.place, f"view {name!r} is made from itself, by way of {', '.join(others)}"
            )


def _shared_directories(pipeline: Pipeline) -> Iterator[Fault]:
    """Two queries that number their batches in one place: each leaves out the other's."""
    first: dict[str, str] = {}
    for name, sink in pipeline.sinks.items():
        log = sink.batch_log
        if log is not None and first.setdefault(log, name) != name:
            yield Fault(
                sink.place,
                f"sink {name!r} writes to the directory of sink {first[log]!r}, and rows of one of "
                "them would be lost: give it another `path`",
            )


def _dead_letters(pipeline: Pipeline) -> Iterator[Fault]:
    for name in dead_letter_topics(pipeline):
        sink = pipeline.sinks.get(name + DEAD_SUFFIX)
        if sink is not None:
            yield Fault(sink.place, f"{sink.name!r} is the query of dead letters of {name!r}")
    needs_brokers = pipeline.cluster.bootstrap_servers is None
    for name, dataset in pipeline.datasets.items():
        seen: set[str] = set()
        for each in dataset.expectations:
            if each.name in seen:
                yield Fault(dataset.place, f"{name!r} has two expectations {each.name!r}")
            seen.add(each.name)
            if each.on_violation == DEAD_LETTER and needs_brokers:
                yield Fault(
                    dataset.place,
                    f"dead letters of {name!r} go to a topic: give `cluster.bootstrap_servers`",
                )
            if each.topic is not None and each.on_violation != DEAD_LETTER:
                yield Fault(
                    dataset.place,
                    f"expectation {each.name!r} has a topic but no dead letters: "
                    "give `on_violation: dead-letter`",
                )
