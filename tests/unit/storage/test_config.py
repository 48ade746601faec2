"""The settings of storage: Kafka's keys, defaults and limits, and the rules between them."""

from __future__ import annotations

import pytest

from millstream.config import from_synonyms, keys_of, parse, render_reference, replace
from millstream.errors import InvalidConfig
from millstream.storage.log.config import LogConfig
from millstream.storage.manager.broker_config import CleanerConfig, LogManagerConfig

# The topic settings of Apache Kafka 4.3 with their defaults, as its documentation lists them.
KAFKA_TOPIC_DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "follower.replication.throttled.replicas": "",
    "index.interval.bytes": "4096",
    "leader.replication.throttled.replicas": "",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "remote.storage.enable": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}


def test_a_topic_has_kafkas_settings_and_two_of_ours() -> None:
    public = {
        declared.name: declared.format(declared.default)
        for declared in keys_of(LogConfig).values()
        if not declared.is_internal
    }

    assert public.pop("millstream.durability") == "page-cache"
    assert public.pop("millstream.max.decompressed.bytes") == str(64 << 20)
    assert public == KAFKA_TOPIC_DEFAULTS


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("segment.bytes", "1048575", "at least 1048576"),
        ("retention.ms", "-2", "at least -1"),
        ("local.retention.ms", "-3", "at least -2"),
        ("cleanup.policy", "compact,shred", "a list of compact, delete"),
        ("compression.gzip.level", "0", "from 1 to 9, or -1"),
        ("compression.type", "none", "one of uncompressed, zstd, lz4, snappy, gzip, producer"),
        ("compression.zstd.level", "23", "from -131072 to 22"),
        ("flush.messages", "0", "at least 1"),
        ("min.cleanable.dirty.ratio", "1.1", "from 0 to 1"),
        ("millstream.durability", "tape", "one of page-cache, disk"),
        ("leader.replication.throttled.replicas", "0:1,x", "partition:broker"),
        ("segment.index.bytes", "9999999999", "a whole number of 32 bits"),
    ],
)
def test_an_invalid_value_is_refused_with_key_value_and_range(
    name: str, value: str, allowed: str
) -> None:
    with pytest.raises(InvalidConfig) as caught:
        parse(LogConfig, {name: value})

    assert f"{name}={value}: must be " in str(caught.value)
    assert allowed in str(caught.value)


@pytest.mark.parametrize(
    "properties",
    [
        {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "9"},
        {"retention.ms": "10", "local.retention.ms": "11"},
        {"retention.ms": "10", "local.retention.ms": "-1"},
        {"retention.bytes": "10", "local.retention.bytes": "11"},
        {"remote.storage.enable": "true", "cleanup.policy": "compact"},
    ],
)
def test_settings_that_contradict_each_other_are_refused(properties: dict[str, str]) -> None:
    with pytest.raises(InvalidConfig):
        parse(LogConfig, properties)


def test_local_retention_falls_back_to_the_total() -> None:
    config = LogConfig(retention_ms=100, retention_bytes=-1, local_retention_bytes=50)

    assert config.local_retention_ms_effective == 100
    assert config.local_retention_bytes_effective == 50


def test_a_change_while_running_is_checked_as_a_whole() -> None:
    config = LogConfig(min_compaction_lag_ms=100)

    assert replace(config, {"retention.ms": "5"}).min_compaction_lag_ms == 100
    with pytest.raises(InvalidConfig, match=r"max\.compaction\.lag\.ms=99"):
        replace(config, {"max.compaction.lag.ms": "99"})


def test_the_brokers_keys_give_a_topic_its_defaults() -> None:
    config = from_synonyms(
        LogConfig,
        {"log.retention.hours": "2", "log.segment.bytes": "2097152", "log.roll.hours": "1"},
    )

    assert (config.retention_ms, config.segment_bytes) == (7_200_000, 2_097_152)
    assert config.segment_ms == 3_600_000
    assert from_synonyms(LogConfig, {"log.retention.hours": "-1"}).retention_ms == -1


def test_the_internal_segment_size_goes_below_the_public_limit() -> None:
    assert LogConfig(internal_segment_bytes=1000).segment_size_max == 1000
    assert LogConfig().segment_size_max == 1 << 30


def test_the_policies_answer_as_claims() -> None:
    config = LogConfig(cleanup_policy=("compact",), durability="disk")

    assert config.is_compacted
    assert not config.deletes_old_segments
    assert config.waits_for_disk


@pytest.mark.parametrize(
    ("codec", "level"), [("gzip", -1), ("lz4", 9), ("zstd", 3), ("snappy", None)]
)
def test_the_level_follows_the_codec(codec: str, level: int | None) -> None:
    assert LogConfig(compression_type=codec).compression_level == level


def test_the_brokers_own_settings_have_kafkas_defaults() -> None:
    manager, cleaner = LogManagerConfig(), CleanerConfig()

    assert manager.retention_check_interval_ms == 300_000
    assert manager.num_recovery_threads_per_data_dir == 2
    assert cleaner.dedupe_buffer_size == 134_217_728
    with pytest.raises(InvalidConfig, match="at least 1 MiB for each of the 200"):
        CleanerConfig(threads=200)
    with pytest.raises(InvalidConfig, match=r"log\.dirs=: must be non-empty"):
        parse(LogManagerConfig, {"log.dirs": ""})


@pytest.mark.parametrize("settings_class", [LogConfig, LogManagerConfig, CleanerConfig])
def test_every_setting_has_a_sentence_for_the_reference(settings_class: type) -> None:
    assert all(declared.doc.endswith(".") for declared in keys_of(settings_class).values())
    assert "internal." not in render_reference(settings_class)
