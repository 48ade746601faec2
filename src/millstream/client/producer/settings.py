"""From what a caller gives to a producer to its `ProducerConfig`: both APIs read it here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.client.config import settings_from_dotted, settings_from_kwargs
from millstream.client.foreign_settings import as_text_acks
from millstream.client.producer.config import ProducerConfig

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def config_from_kwargs(
    bootstrap: str | Iterable[str], settings: Mapping[str, Any]
) -> ProducerConfig:
    """Settings in Python's names and units."""
    given = {**settings, "bootstrap_servers": _listed(bootstrap)}
    return settings_from_kwargs(ProducerConfig, _with_text_acks(given))


def config_from_dotted(properties: Mapping[str, Any]) -> ProducerConfig:
    """Settings in Kafka's names and units."""
    return settings_from_dotted(ProducerConfig, properties)


def _listed(bootstrap: str | Iterable[str]) -> str | list[str]:
    return bootstrap if isinstance(bootstrap, str) else list(bootstrap)


def _with_text_acks(settings: dict[str, Any]) -> dict[str, Any]:
    """`acks=1` reads better than `acks="1"`."""
    if "acks" in settings:
        settings["acks"] = as_text_acks(settings["acks"])
    return settings
