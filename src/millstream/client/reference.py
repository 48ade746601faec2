"""The reference page of the clients' settings, as Markdown, from their declarations.

A test keeps docs/reference/client-settings.md current; `python -m millstream.client.reference`
prints it. No client uses this.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from millstream.client.admin.config import AdminConfig
from millstream.client.config import ClientConfig, keyword_of, object_settings
from millstream.client.consumer.config import ConsumerConfig
from millstream.client.producer.config import ProducerConfig
from millstream.client.share_consumer.config import ShareConsumerConfig
from millstream.config import REQUIRED, Key, keys_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_CLIENTS: Final = (
    ("Every client", ClientConfig),
    ("Producer and AsyncProducer", ProducerConfig),
    ("Consumer, AsyncConsumer and read_topic", ConsumerConfig),
    ("ShareConsumer and AsyncShareConsumer", ShareConsumerConfig),
    ("Admin and AsyncAdmin", AdminConfig),
)
_HEAD: Final = """\
# Settings of the clients

As keyword arguments they have Python's names, and durations are seconds (`linger=0.005`). As a
dictionary for `from_config` they have Kafka's names and units (`{"linger.ms": 5}`), or librdkafka's
(`queue.buffering.max.ms`); settings of those clients that have no effect here are named in one line
of the log. A name that does not exist is an error that names the nearest one. The first argument of
every client is `bootstrap`, the `bootstrap.servers` of Kafka.
"""


def render() -> str:
    """The page."""
    common = set(keys_of(ClientConfig))
    sections = [_HEAD]
    for title, settings in _CLIENTS:
        own = settings is ClientConfig
        rows = [row for name, row in _rows(settings) if own or name not in common]
        if rows:
            head = ["| Keyword | Kafka's name | Default | |", "|---|---|---|---|"]
            sections.append("\n".join([f"## {title}", "", *head, *rows, ""]))
    return "\n".join(sections)


def _rows(settings: type) -> Iterator[tuple[str, str]]:
    keys, objects = keys_of(settings), object_settings(settings)
    for field in dataclasses.fields(settings):
        if field.name in keys:
            declared = keys[field.name]
            keyword = keyword_of(field.name, declared)
            yield field.name, _row(keyword, declared.name, _default(declared), declared.doc)
        elif field.name in objects:
            name, doc = objects[field.name]
            yield field.name, _row(field.name, name, "", doc)


def _row(keyword: str, name: str, default: str, doc: str) -> str:
    return f"| `{keyword}` | `{name}` | {default} | {doc.replace('|', chr(92) + '|')} |"


def _default(declared: Key) -> str:
    value = declared.default
    if value is REQUIRED:
        return "must be given"
    if value is None or value in ("", ()):
        return ""
    if declared.unit == "ms" and isinstance(value, int):
        return f"{value / 1000:g} s" if value >= 0 else str(value)
    if isinstance(value, bool):
        return str(value)
    if declared.unit == "bytes" and isinstance(value, int):
        return f"{value:,} bytes"
    return declared.format(value)


if __name__ == "__main__":
    print(render())  # noqa: T201  # That is what it is for.
