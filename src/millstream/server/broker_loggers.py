"""The levels of this broker's loggers, as DescribeConfigs and IncrementalAlterConfigs see them.

A logger is a Python logger; `root` is the one above all. Levels have Kafka's names. Changes last
until the process ends.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from millstream.errors import InvalidConfig, InvalidRequest
from millstream.protocol.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.protocol.messages.incremental_alter_configs import AlterableConfig

ROOT: Final = "root"
_LEVELS: Final = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.DEBUG,
}
_SET, _DELETE = 0, 1
_DYNAMIC_BROKER_LOGGER: Final = 6
_STRING: Final = 2


def describe_loggers(*, with_synonyms: bool) -> list[DescribeConfigsResourceResult]:
    """Every logger with the level that applies to it."""
    described = []
    for name in _logger_names():
        level = _level_name(_logger(name).getEffectiveLevel())
        result = DescribeConfigsResourceResult(
            name=name,
            value=level,
            config_source=_DYNAMIC_BROKER_LOGGER,
            config_type=_STRING,
            documentation=None,
        )
        if with_synonyms:
            result.synonyms = [
                DescribeConfigsSynonym(name=name, value=level, source=_DYNAMIC_BROKER_LOGGER)
            ]
        described.append(result)
    return described


def alter_loggers(changes: Sequence[AlterableConfig], *, validate_only: bool) -> None:
    """Set levels, all or none; a deleted one follows the logger above it again."""
    wanted = {change.name: _wanted_level(change) for change in changes}
    if not validate_only:
        for name, level in wanted.items():
            _logger(name).setLevel(level)


def _wanted_level(change: AlterableConfig) -> int:
    if change.name not in _logger_names():
        raise InvalidConfig(f"there is no logger {change.name}")
    if change.config_operation == _DELETE:
        if change.name == ROOT:
            raise InvalidRequest("the level of the root logger cannot be taken away")
        return logging.NOTSET
    if change.config_operation != _SET:
        raise InvalidRequest("the level of a logger can be set or deleted, nothing else")
    level = _LEVELS.get(change.value or "")
    if level is None:
        raise InvalidConfig(f"{change.name}={change.value}: must be one of {', '.join(_LEVELS)}")
    return level


def _logger_names() -> list[str]:
    """Those above others too, that nothing logs to: a level set there is the others' default."""
    return [ROOT, *sorted(logging.Logger.manager.loggerDict)]


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)


def _level_name(level: int) -> str:
    for name, value in _LEVELS.items():
        if level >= value:
            return name
    return "TRACE"
