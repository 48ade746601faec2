"""docs/reference/broker-settings.md and topic-settings.md have every setting, as it is."""

from __future__ import annotations

import re

import pytest

from millstream.config import keys_of
from millstream.node.config import NodeConfig
from millstream.storage.log.config import LogConfig
from tools.settings_pages import PAGES, REFERENCE, broker_page, topic_page


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_current(name: str) -> None:
    assert (REFERENCE / name).read_text(encoding="utf-8") == PAGES[name](), (
        f"docs/reference/{name} is stale: python -m tools.settings_pages writes it"
    )


def test_every_key_that_a_broker_takes_is_told_once() -> None:
    declared = {
        each.name
        for settings in NodeConfig.CLASSES
        for each in keys_of(settings).values()
        if not each.is_internal
    }

    assert sorted(re.findall(r"^### (\S+)$", broker_page(), re.MULTILINE)) == sorted(declared)


def test_every_default_of_topics_is_told_by_the_brokers_key_too() -> None:
    rows = set(re.findall(r"^\| `(\S+)` \|", broker_page(), re.MULTILINE))

    assert rows == {s.name for each in keys_of(LogConfig).values() for s in each.synonyms}


def test_a_default_that_follows_from_others_is_the_one_that_holds() -> None:
    assert "- Default: `PLAINTEXT://localhost:9092,CONTROLLER://localhost:0`" in broker_page()


def test_groups_and_topics_are_told() -> None:
    page = topic_page()

    assert "### retention.ms\n" in page
    assert "- Broker default from: `log.retention.ms`" in page
    assert "### share.auto.offset.reset\n" in page
