"""Whatever is encoded is decoded, for every message in every version, by both codecs."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millstream.protocol import reference
from tests.strategies.messages import message_class, message_names, messages, versions_of

# Every example goes through every version of the message, so a few of them go a long way.
EXAMPLES = max(6, settings.default.max_examples // 16) if settings.default else 6


@pytest.mark.parametrize("name", message_names())
@settings(
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
def test_every_version_round_trips(name: str, data: st.DataObject) -> None:
    cls = message_class(name)
    for version in versions_of(cls):
        message = data.draw(messages(cls, version))

        encoded = message.encode(version)

        assert encoded == reference.encode(message, version)
        assert b"".join(message.encode_parts(version)) == encoded
        assert cls.decode(encoded, version) == message
        assert cls.decode(bytearray(encoded), version) == message
        assert cls.decode_from(memoryview(b"?" + encoded + b"!"), version, 1) == (
            message,
            len(encoded) + 1,
        )
        assert reference.decode(cls, encoded, version, 0) == (message, len(encoded))
