"""What becomes of values that cannot be decoded, and where the columns come from."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pytest

from millstream.errors import InvalidArgument, SerializationFailed

pa = pytest.importorskip("pyarrow", reason="columns are Arrow's")
pytest.importorskip("pyspark", reason="types are Spark's")

from pyspark.sql.types import LongType, StringType, StructField, StructType  # noqa: E402

from millstream.spark.decoding import dead_letters  # noqa: E402
from millstream.spark.decoding.ddl import parse_ddl  # noqa: E402
from millstream.spark.decoding.decoder import make_decoder  # noqa: E402
from millstream.spark.decoding.options import OPTION_NAMES  # noqa: E402

if TYPE_CHECKING:
    from pathlib import Path

JSON = {"valueFormat": "json", "valueSchema": "id BIGINT"}


def batch_of(*values: bytes | None) -> Any:
    count = len(values)
    return pa.record_batch(
        {
            "value": pa.array(values, pa.binary()),
            "key": pa.array([b"k"] * count, pa.binary()),
            "topic": ["orders"] * count,
            "partition": [0] * count,
            "offset": list(range(count)),
            "timestamp": pa.array([1_000_000] * count, pa.timestamp("us", "UTC")),
            "headers": [[{"key": "own", "value": b"1"}]] * count,
        }
    )


def test_without_a_format_there_is_no_decoder() -> None:
    assert make_decoder({"subscribe": "orders"}) is None


def test_names_are_taken_in_any_case_and_travel_to_executors() -> None:
    decoder = make_decoder({"valueformat": "JSON", "VALUESCHEMA": "id BIGINT"})
    assert decoder is not None
    decoder.decode(batch_of(b'{"id":1}'))

    again = pickle.loads(pickle.dumps(decoder))

    assert again.decode(batch_of(b'{"id":2}')).column("value").to_pylist() == [{"id": 2}]
    assert [field.name for field in again.fields] == ["value", "_error"]
    assert again.needs == ("value",)


def test_a_struct_in_the_readers_schema_names_the_fields() -> None:
    wanted = StructType([StructField("value", StructType([StructField("id", LongType())]))])

    decoder = make_decoder({"valueFormat": "json"}, wanted)

    assert decoder is not None
    assert decoder.fields[0] == wanted["value"]


def test_bytes_in_the_readers_schema_leave_the_given_one() -> None:
    decoder = make_decoder(JSON, StructType([StructField("value", StringType())]))

    assert decoder is not None
    assert decoder.fields[0].dataType == parse_ddl("id BIGINT")


def test_drop_leaves_bad_records_out() -> None:
    decoder = make_decoder({**JSON, "onDecodeError": "drop"})
    assert decoder is not None

    batch = decoder.decode(batch_of(b'{"id":1}', b"bad", None))

    assert batch.column("offset").to_pylist() == [0, 2]
    assert "_error" not in batch.schema.names
    assert [field.name for field in decoder.fields] == ["value"]


def test_a_batch_of_nothing_but_bad_records_becomes_empty() -> None:
    decoder = make_decoder({**JSON, "onDecodeError": "drop"})
    assert decoder is not None

    batch = decoder.decode(batch_of(b"bad", b"worse"))

    assert batch.num_rows == 0
    assert batch.schema == decoder.decode(batch_of(b'{"id":1}')).schema


def test_fail_says_where_and_how_to_go_on() -> None:
    decoder = make_decoder({**JSON, "onDecodeError": "fail"})
    assert decoder is not None

    with pytest.raises(SerializationFailed, match=r"1 of 2 values.*'offset': 1.*onDecodeError="):
        decoder.decode(batch_of(b'{"id":1}', b"bad"))
    assert decoder.decode(batch_of(b'{"id":1}')).num_rows == 1


def test_dead_letters_carry_cause_and_place(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[Any, ...]] = []
    monkeypatch.setattr(
        "millstream.spark.worker_clients.borrowed", lambda kind, settings: _Fake(sent)
    )
    decoder = make_decoder(
        {**JSON, "onDecodeError": "deadletter", "deadLetterTopic": "orders.dead"},
        client={"bootstrap.servers": "h:1", "max.poll.records": "5"},
    )
    assert decoder is not None

    batch = decoder.decode(batch_of(b'{"id":1}', b"bad"))

    assert batch.num_rows == 1
    assert set(decoder.needs) <= set(batch_of().schema.names)
    [(topic, value, key, headers)] = sent
    assert (topic, value, key) == ("orders.dead", b"bad", b"k")
    assert headers["own"] == b"1"
    assert headers["millstream.retry.topic"] == b"orders"
    assert headers["millstream.retry.offset"] == b"1"
    assert headers["millstream.retry.timestamp"] == b"1000"
    assert headers["millstream.retry.error.message"]


def test_a_dead_letter_has_the_record_s_time_to_the_millisecond(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[tuple[Any, ...]] = []
    monkeypatch.setattr(
        "millstream.spark.worker_clients.borrowed", lambda kind, settings: _Fake(sent)
    )
    times = (4_252_207_844, 8_553_340_438)  # Seconds as a float would cut these.
    batch = batch_of(*[b"bad"] * len(times)).set_column(
        5, "timestamp", pa.array([each * 1000 for each in times], pa.timestamp("us", "UTC"))
    )

    dead_letters.bury(batch, dict.fromkeys(range(len(times)), "why"), "dead", {})

    assert [int(headers["millstream.retry.timestamp"]) for *_, headers in sent] == [*times]


def test_dead_letters_are_written_with_the_shared_settings_only() -> None:
    given = {"bootstrap.servers": "h:1", "max.poll.records": "5"}

    assert dead_letters.producer_settings(given) == {"bootstrap.servers": "h:1"}


class _Fake:
    """A producer that remembers."""

    def __init__(self, sent: list[tuple[Any, ...]]) -> None:
        self._sent = sent

    def __enter__(self) -> _Fake:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._sent.pop() == ("flushed",)

    def send(self, topic: str, value: bytes, *, key: bytes, headers: Any) -> None:
        self._sent.append((topic, value, key, dict(headers)))

    def flush(self) -> None:
        self._sent.append(("flushed",))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"valueFormat": "xml"}, "valueFormat='xml': must be one of json, avro, protobuf"),
        ({"valueSchema": "id INT"}, "valueSchema: without valueFormat"),
        ({"valueFormat": "json"}, "needs valueSchema"),
        ({**JSON, "valueSchemaFile": "x"}, "not both"),
        ({**JSON, "valueSubject": "x"}, "needs schemaRegistryUrl"),
        ({**JSON, "onDecodeError": "deadLetter"}, "need each other"),
        ({**JSON, "deadLetterTopic": "x"}, "need each other"),
        ({"valueFormat": "json", "valueSchemaFile": "/no/such"}, "No such file"),
        ({**JSON, "valueSchema": '{"type":'}, "the JSON schema is no JSON"),
        ({**JSON, "valueSchema": '{"properties": {"a": true}, "type": "object"}'}, "no type for"),
        ({**JSON, "valueSchema": '{"$ref": "#/no/where"}'}, "refers to #/no/where"),
        ({"valueFormat": "avro", "valueSchema": "7"}, "the Avro schema is not well formed: 7"),
        ({"valueFormat": "avro", "valueSchema": '{"type": "array"}'}, "lacks 'items'"),
    ],
)
def test_faulty_options_say_what_is_wrong(options: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        make_decoder(options)


def test_a_schema_may_be_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "schema.ddl"
    path.write_text("id BIGINT")

    decoder = make_decoder({"valueFormat": "json", "valueSchemaFile": str(path)})

    assert decoder is not None
    assert decoder.fields[0].dataType == parse_ddl("id BIGINT")
    assert "valueSchemaFile" in OPTION_NAMES


def test_a_schema_file_that_is_no_text_says_so(tmp_path: Path) -> None:
    path = tmp_path / "schema.ddl"
    path.write_bytes(b"\xff\xfe")

    with pytest.raises(InvalidArgument, match=r"valueSchemaFile=.*schema\.ddl: .*no UTF-8"):
        make_decoder({"valueFormat": "json", "valueSchemaFile": str(path)})
