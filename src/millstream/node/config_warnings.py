"""What a user should know about settings that were given and do nothing, or are not known.

`node_config` asks for it. Nothing is refused here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from millstream.config import nearest_key
from millstream.network.server.listener_limits import limited_listener
from millstream.node.protection import only_tunes_protection

if TYPE_CHECKING:
    from collections.abc import Iterable, Set

WITHOUT_EFFECT: Final = frozenset(
    {
        "allow.everyone.if.no.acl.found",
        "auto.include.jmx.reporter",
        "background.threads",
        "confluent.support.metrics.enable",
        "connection.failed.authentication.delay.ms",
        "connections.max.reauth.ms",
        "group.coordinator.threads",
        "log.cleaner.dedupe.buffer.load.factor",
        "log4j.configuration",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "num.io.threads",
        "num.network.threads",
        "num.replica.alter.log.dirs.threads",
        "principal.builder.class",
        "security.providers",
    }
)
"""Settings of Apache Kafka whose subject does not exist here, such as thread pools."""
_OF_LISTENER: Final = re.compile(r"listener\.name\.[^.]+\.(.+)")


def warnings_of(
    given: Iterable[str],
    unknown_variables: Iterable[str],
    known: Set[str],
    listeners: Set[str],
) -> Iterable[str]:
    """A sentence for each setting and variable that has no effect."""
    for name in given:
        if name not in known and (warning := _warning_of(name, known, listeners)):
            yield warning
    for variable in unknown_variables:
        yield f"the environment variable {variable} names no setting and is ignored"


def _warning_of(name: str, known: Set[str], listeners: Set[str]) -> str:
    if name in WITHOUT_EFFECT or only_tunes_protection(name):
        return f"{name} has no effect here"
    if (listener := limited_listener(name)) is not None:
        is_there = listener in listeners
        return "" if is_there else f"{name} has no effect: there is no listener {listener}"
    if (match := _OF_LISTENER.fullmatch(name)) and match[1] in known:
        return f"{name} has no effect here: {match[1]} holds for all listeners together"
    near = nearest_key(name, known)
    hint = f": did you mean {near}?" if near else " and is ignored"
    return f"the setting {name} is not known{hint}"
