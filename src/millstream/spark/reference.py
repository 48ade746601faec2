"""The reference page of the format's options, as Markdown, from their declarations.

A test keeps docs/reference/spark-options.md current; `python -m millstream.spark.reference` prints
it. No job uses this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.config import keys_of
from millstream.spark.decoding.options import DecodingOptions
from millstream.spark.sink.sink_options import SinkOptions
from millstream.spark.source.options import SourceOptions

if TYPE_CHECKING:
    from millstream.config import Key

_PARTS: Final = (
    ("Reading", SourceOptions),
    ("Decoding values while reading", DecodingOptions),
    ("Writing", SinkOptions),
)
_HEAD: Final = """\
# Options of format("millstream")

Names are compared without regard to case. Those of Spark's own Kafka connector mean what they mean
there. `kafka.` before the name of a [client's setting](client-settings.md), in Kafka's spelling,
hands it to the client: `kafka.bootstrap.servers` must be given, `kafka.isolation.level` is another.
A name that does not exist is an error that names the nearest one.
"""


def render() -> str:
    """The page."""
    sections = [_HEAD]
    for title, options in _PARTS:
        rows = [_row(each) for each in keys_of(options).values()]
        head = ["| Option | Default | |", "|---|---|---|"]
        sections.append("\n".join([f"## {title}", "", *head, *rows, ""]))
    return "\n".join(sections)


def _row(declared: Key) -> str:
    value = declared.default
    default = "" if value is None or value == "" else f"`{declared.format(value)}`"
    unit = f" {declared.unit}" if default and declared.unit else ""
    return f"| `{declared.name}` | {default}{unit} | {declared.doc.replace('|', chr(92) + '|')} |"


if __name__ == "__main__":
    print(render(), end="")  # noqa: T201  # That is what it is for.
