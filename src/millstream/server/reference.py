"""The reference page of the APIs that are answered, as Markdown, from what is really served.

A test keeps the committed page, docs/reference/apis.md, current.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.protocol.api import ApiKey, advertised
from millstream.server.absent_features import ANSWERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.protocol.api import Listener
    from millstream.protocol.notation import VersionRange

_REMARKS: Final[Mapping[ApiKey, str]] = {
    ApiKey.PRODUCE: "listed from 0 because librdkafka stops compressing otherwise; 0-2 are refused",
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: "with `millstream.client.telemetry=log`",
    ApiKey.PUSH_TELEMETRY: "with `millstream.client.telemetry=log`",
    ApiKey.DESCRIBE_CLIENT_QUOTAS: "there are none yet",
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: "there are none yet",
    **{
        api: f"refused: {error_class.code}, {reason}"
        for api, (error_class, reason) in ANSWERS.items()
    },
}

_INTRODUCTION: Final = """\
# APIs

The requests of the Kafka protocol that a Millstream node answers, and in which versions. A client
learns the same from ApiVersions: what is not built is not listed, except where Apache Kafka has an
answer for a broker without the feature. A request that is not listed here ends its connection, as
in Apache Kafka.

This page is made from the tables that the node itself uses.
"""


def render_apis(
    broker: Mapping[ApiKey, VersionRange], controller: Mapping[ApiKey, VersionRange]
) -> str:
    """The page, for what brokers and controllers serve."""
    return "\n".join(
        [
            _INTRODUCTION,
            _section("On a broker's listeners", broker, "broker"),
            _section("On a controller's listener", controller, "controller"),
        ]
    )


def _section(title: str, served: Mapping[ApiKey, VersionRange], listener: Listener) -> str:
    rows = [
        f"| {int(api)} | {api.api_name} | {versions} | {_REMARKS.get(api, '')} |"
        for api, versions in sorted(served.items())
    ]
    absent = [api.api_name for api in sorted(advertised(listener)) if api not in served]
    lines = [
        f"## {title}",
        "",
        "| key | API | versions | |",
        "|---|---|---|---|",
        *rows,
        "",
        f"Not yet: {', '.join(absent)}.",
        "",
    ]
    return "\n".join(lines)
