"""A pipeline as a graph: what is made from what, which query waits for which, and pictures of it.

The command line prints the pictures; `runner` asks for the stages.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from millstream.spark.pipelines.definition import (
    Aggregate,
    Deduplicate,
    Join,
    PythonFunction,
    Sql,
    Stateful,
)
from millstream.spark.pipelines.expectations import DEAD_LETTER
from millstream.spark.pipelines.topics import TopicSink, TopicSource

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from millstream.spark.pipelines.definition import Pipeline, View

DEAD_SUFFIX: Final = ".dead"


class Kind(Enum):
    """What a node of the graph is."""

    SOURCE = "source"
    VIEW = "view"
    SINK = "sink"
    DEAD_LETTERS = "dead letters"


@dataclass(frozen=True, slots=True)
class Node:
    """A part of the pipeline."""

    name: str
    kind: Kind
    detail: str
    """What it is or does, in a few words."""
    is_streaming: bool = True

    @property
    def id(self) -> str:
        """Names it among all: a sink may be called as a view is."""
        return f"{self.kind.name.lower()}_{self.name}"


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes, and from which to which rows go."""

    nodes: tuple[Node, ...]
    edges: tuple[tuple[Node, Node], ...]

    def successors(self, node: Node) -> list[Node]:
        """Where a node's rows go."""
        return [after for before, after in self.edges if before == node]


def as_data(graph: Graph) -> dict[str, list[dict[str, object]]]:
    """For programs: nodes by id, and edges between ids."""
    return {
        "nodes": [
            {
                "id": node.id,
                "name": node.name,
                "kind": node.kind.value,
                "detail": node.detail,
                "streaming": node.is_streaming,
            }
            for node in graph.nodes
        ],
        "edges": [{"from": before.id, "to": after.id} for before, after in graph.edges],
    }


def graph_of(pipeline: Pipeline) -> Graph:
    """The graph of a pipeline, in the order of its definition."""
    datasets = {
        name: Node(name, Kind.SOURCE, source.subject, source.is_streaming)
        for name, source in pipeline.sources.items()
    }
    datasets |= {
        name: Node(name, Kind.VIEW, _view_detail(view)) for name, view in pipeline.views.items()
    }
    edges = [
        (datasets[each], datasets[name])
        for name, view in pipeline.views.items()
        for each in view.inputs
    ]
    sinks = []
    for name, sink in pipeline.sinks.items():
        sinks.append(Node(name, Kind.SINK, sink.subject))
        edges.append((datasets[sink.from_], sinks[-1]))
    for name, topics in dead_letter_topics(pipeline).items():
        sinks.append(Node(name + DEAD_SUFFIX, Kind.DEAD_LETTERS, f"topic {', '.join(topics)}"))
        edges.append((datasets[name], sinks[-1]))
    return Graph((*datasets.values(), *sinks), tuple(edges))


def dead_letter_topics(pipeline: Pipeline) -> dict[str, tuple[str, ...]]:
    """Datasets that send rows to dead letters, and to which topics; only those that are used."""
    used = {each for sink in pipeline.sinks.values() for each in pipeline.upstream_of(sink.from_)}
    found = {}
    for name, dataset in pipeline.datasets.items():
        topics = dict.fromkeys(
            pipeline.dead_letter_topic(name, each)
            for each in dataset.expectations
            if each.on_violation == DEAD_LETTER
        )
        if topics and name in used:
            found[name] = tuple(topics)
    return found


def stages(pipeline: Pipeline) -> list[list[str]]:
    """Names of sinks, and of dead letters' queries, in the order in which data goes through them.

    A query that reads a topic comes after those of the same pipeline that write it: a run that
    ends when all available data is done takes them one stage after the other.
    """
    reads: dict[str, list[TopicSource]] = {}
    writes: dict[str, Collection[str]] = {}
    for name, sink in pipeline.sinks.items():
        reads[name] = _topics_read(pipeline, sink.from_)
        topic = sink.topic if isinstance(sink, TopicSink) else None
        writes[name] = () if topic is None else (topic,)
    for name, topics in dead_letter_topics(pipeline).items():
        reads[name + DEAD_SUFFIX] = _topics_read(pipeline, name)
        writes[name + DEAD_SUFFIX] = topics
    waiting = list(reads)
    ordered = []
    while waiting:
        ready = [
            name
            for name in waiting
            if not any(
                source.reads(topic)
                for other in waiting
                if other != name
                for topic in writes[other]
                for source in reads[name]
            )
        ]
        # Topics may go round in a circle; then there is no first one.
        ordered.append(ready or waiting)
        waiting = [each for each in waiting if each not in ordered[-1]]
    return ordered


def _topics_read(pipeline: Pipeline, dataset: str) -> list[TopicSource]:
    sources = (pipeline.sources.get(each) for each in pipeline.upstream_of(dataset))
    return [each for each in sources if isinstance(each, TopicSource)]


def _view_detail(view: View) -> str:
    match view.transformation:
        case Sql():
            detail = "sql"
        case PythonFunction(function=function):
            detail = f"python {function}()"
        case Join(how=how, on=on):
            detail = f"{how} join on {on}"
        case Aggregate(window=window, session_gap=gap):
            span = f" in windows of {window.duration}" if window else ""
            span = span or (f" in sessions, gap {gap.gap}" if gap else "")
            detail = f"aggregate{span}"
        case Stateful(processor=processor):
            detail = f"state of {processor}"
        case Deduplicate(columns=columns):
            detail = f"first of each {', '.join(columns)}"
    for each in view.expectations:
        detail += f"; expects {each.condition} or {each.on_violation}"
    return detail


# Pictures.


def as_text(graph: Graph) -> str:
    """A tree for each source. What is made from several is drawn once, and named again."""
    lines: list[str] = []
    drawn: set[Node] = set()
    for node in graph.nodes:
        if node.kind is Kind.SOURCE:
            lines.append(_label(node))
            lines += _branches(graph, node, "", drawn)
    return "\n".join(lines)


def _branches(graph: Graph, node: Node, indent: str, drawn: set[Node]) -> Iterator[str]:
    after = graph.successors(node)
    for each in after:
        is_last = each is after[-1]
        branch = f"{indent}{'└─' if is_last else '├─'}"
        if each in drawn:
            yield f"{branch} {each.name} (see above)"
            continue
        drawn.add(each)
        yield f"{branch} {_label(each)}"
        yield from _branches(graph, each, indent + ("   " if is_last else "│  "), drawn)


def _label(node: Node) -> str:
    kind = node.kind.value if node.is_streaming else "table"
    return f"{node.name} ({kind}: {node.detail})"


def as_mermaid(graph: Graph) -> str:
    """For Markdown pages that draw Mermaid."""
    shapes = {
        Kind.SOURCE: ("[(", ")]"),
        Kind.VIEW: ("[", "]"),
        Kind.SINK: ("([", "])"),
        Kind.DEAD_LETTERS: ("{{", "}}"),
    }
    lines = ["flowchart LR"]
    for node in graph.nodes:
        left, right = shapes[node.kind]
        detail = node.detail.replace('"', "#quot;")
        lines.append(f'    {_mermaid_id(node)}{left}"{node.name}<br/>{detail}"{right}')
    lines += [
        f"    {_mermaid_id(before)} --> {_mermaid_id(after)}" for before, after in graph.edges
    ]
    return "\n".join(lines)


def _mermaid_id(node: Node) -> str:
    return "".join(each if each.isalnum() else "_" for each in node.id)


def as_dot(graph: Graph) -> str:
    """For Graphviz."""
    shapes = {
        Kind.SOURCE: "cylinder",
        Kind.VIEW: "box",
        Kind.SINK: "oval",
        Kind.DEAD_LETTERS: "hexagon",
    }
    lines = ["digraph pipeline {", "    rankdir=LR;"]
    for node in graph.nodes:
        label = _quoted(f"{node.name}\n{node.detail}")
        lines.append(f"    {_quoted(node.id)} [shape={shapes[node.kind]}, label={label}];")
    lines += [f"    {_quoted(before.id)} -> {_quoted(after.id)};" for before, after in graph.edges]
    return "\n".join([*lines, "}"])


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
