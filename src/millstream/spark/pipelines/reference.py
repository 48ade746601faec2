"""The reference page of pipelines, as Markdown, from the declarations of their keys.

A test keeps docs/reference/pipeline.md current; `python -m millstream.spark.pipelines.reference`
prints it. No pipeline uses this.
"""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Mapping
from typing import Any, Final

from millstream.spark.pipelines.definition import (
    Aggregate,
    Cluster,
    Deduplicate,
    Join,
    Pipeline,
    Restart,
    SessionGap,
    Stateful,
    View,
    Window,
)
from millstream.spark.pipelines.expectations import Expectation
from millstream.spark.pipelines.reading import type_hints, without_none
from millstream.spark.pipelines.schema import is_required, settings_of
from millstream.spark.pipelines.sinks import SINKS, Sink
from millstream.spark.pipelines.sources import SOURCES, Source, Watermark

_HEAD: Final = """\
# Keys of a pipeline's definition

A definition is a YAML file, `pipeline.yaml` unless it is named otherwise; the tutorial is
[Pipelines](../topics/pipelines.md). A key that does not exist is an error that names the nearest
one, and `millstream pipeline validate` lists everything that is wrong at once. `${NAME}` is a
variable of the environment, `${NAME:-default}` has a default, `$${` is a plain `${`. Paths are
relative to the definition. Durations are texts such as `10 seconds` or `1 hour`.
"""
_WORDS: Final = {str: "text", int: "whole number", float: "number", bool: "true or false"}
_SECTIONS: Final = (
    ("The pipeline", Pipeline),
    ("cluster", Cluster),
    ("restart", Restart),
    ("views", View),
    ("aggregate", Aggregate),
    ("window", Window),
    ("session_gap", SessionGap),
    ("join", Join),
    ("stateful", Stateful),
    ("deduplicate", Deduplicate),
    ("watermark", Watermark),
    ("expectations", Expectation),
)


def render() -> str:
    """The page."""
    sections = [_HEAD]
    sections += [_section(f"## {title}", cls, ()) for title, cls in _SECTIONS]
    for title, base, formats in (
        ("sources", Source, SOURCES.known()),
        ("sinks", Sink, SINKS.known()),
    ):
        shared = settings_of(base)
        sections.append(
            _section(
                f"## {title}",
                base,
                (),
                f"{base.__doc__} `format` says what it is: "
                + ", ".join(f"`{name}`" for name in formats)
                + ". All have:",
            )
        )
        sections += [
            _section(f"### {title}: {name}", cls, tuple(shared)) for name, cls in formats.items()
        ]
    return "\n".join(sections)


def _section(heading: str, cls: type, left_out: tuple[str, ...], text: str | None = None) -> str:
    hints = type_hints(cls)
    rows = [
        _row(key, hints[field.name], field, declared.doc)
        for key, (field, declared) in settings_of(cls).items()
        if key not in left_out
    ]
    about = text or (cls.__doc__ or "").strip()
    lines = [heading, "", about, ""]
    if rows:
        lines += ["| Key | Value | Default | |", "|---|---|---|---|", *rows, ""]
    return "\n".join(lines)


def _row(key: str, hint: Any, field: dataclasses.Field[Any], doc: str) -> str:
    cells = (f"`{key}`", _type(hint), _default(field), doc)
    return "| " + " | ".join(each.replace("|", "\\|") for each in cells) + " |"


def _type(hint: Any) -> str:
    hint, _ = without_none(hint)
    origin = typing.get_origin(hint)
    if origin is tuple:
        return f"list: {_type(typing.get_args(hint)[0])}"
    if origin is Mapping:
        value = typing.get_args(hint)[1]
        return "names to texts" if value is str else "names to definitions"
    if dataclasses.is_dataclass(hint):
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", getattr(hint, "__name__", "")).lower()
        return f"text, or see {name}" if hasattr(hint, "only_key") else f"see {name}"
    return _WORDS[hint]


def _default(field: dataclasses.Field[Any]) -> str:
    if is_required(field):
        return "must be given"
    value = field.default
    if value is None or value in ((), "") or value is dataclasses.MISSING:
        return ""
    if dataclasses.is_dataclass(value):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


if __name__ == "__main__":
    print(render())  # noqa: T201  # That is what it is for.
