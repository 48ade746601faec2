"""Every API is answered in every version that it is listed in, and fails in its own shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.errors import (
    ApiError,
    GroupIdNotFound,
    InvalidProducerIdMapping,
    InvalidRequest,
    KafkaStorageError,
    MemberIdRequired,
    ShareSessionNotFound,
    UnknownMemberId,
    UnknownServerError,
)
from millstream.protocol.api import ApiKey
from millstream.protocol.frame import encode_request
from millstream.protocol.message import Struct
from millstream.server import absent_features
from tests.unit.server.fakes import Call
from tests.unit.server.harness import Broker, frame_request
from tests.unit.server.requests import request_for

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVED = [
    (api, version)
    for api in Broker().apis.apis
    for version in range(api.released.lowest, api.released.highest + 1)
]
"""Every version that is answered; Produce is listed from 0 but answered from 3."""

ABSENT: dict[ApiKey, tuple[type[ApiError], ...]] = {
    api: (error_class,) for api, (error_class, _) in absent_features.ANSWERS.items()
}
"""What is said about features that are not there."""

STRANGERS: dict[ApiKey, tuple[type[ApiError], ...]] = {
    **ABSENT,
    ApiKey.UNREGISTER_BROKER: (InvalidRequest,),
    ApiKey.JOIN_GROUP: (MemberIdRequired,),
    ApiKey.SYNC_GROUP: (UnknownMemberId,),
    ApiKey.HEARTBEAT: (UnknownMemberId,),
    ApiKey.LEAVE_GROUP: (UnknownMemberId,),
    ApiKey.OFFSET_DELETE: (GroupIdNotFound,),
    ApiKey.ADD_OFFSETS_TO_TXN: (InvalidProducerIdMapping,),
    ApiKey.END_TXN: (InvalidProducerIdMapping,),
    ApiKey.SHARE_ACKNOWLEDGE: (ShareSessionNotFound,),
    ApiKey.SHARE_GROUP_DESCRIBE: (GroupIdNotFound,),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (GroupIdNotFound,),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: (GroupIdNotFound,),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: (GroupIdNotFound,),
    ApiKey.READ_SHARE_GROUP_STATE: (InvalidRequest,),
    ApiKey.WRITE_SHARE_GROUP_STATE: (InvalidRequest,),
}
"""What a coordinator says to somebody it does not know."""

every_version = pytest.mark.parametrize(
    ("api", "version"), SERVED, ids=[f"{api.api_name}-{version}" for api, version in SERVED]
)


def error_codes(struct: Struct) -> Iterator[int]:
    """Every error anywhere in a message."""
    for name in type(struct).__slots__:
        value = getattr(struct, name)
        if name == "error_code" and value:
            yield value
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Struct):
                yield from error_codes(each)


@every_version
def test_a_request_is_answered_in_its_version(api: ApiKey, version: int) -> None:
    broker = Broker()
    broker.create()

    call = broker.call(request_for(api, version, broker), version)

    if call.is_pending:
        broker.pass_time(3_000)  # The first rebalance of a group waits for more members.
    assert type(call.response) is api.response
    assert set(error_codes(call.response)) <= {each.code for each in STRANGERS.get(api, ())}


@every_version
def test_a_failure_has_the_shape_of_the_answer(
    api: ApiKey, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker()
    broker.create()
    request = request_for(api, version, broker)
    break_everything(broker, monkeypatch)

    answer = broker.call(request, version).response

    assert type(answer) is api.response
    assert set(error_codes(answer)) <= {UnknownServerError.code}


@every_version
def test_a_request_can_be_refused_without_being_done(api: ApiKey, version: int) -> None:
    broker = Broker()
    broker.create()
    message = request_for(api, version, broker)
    request = frame_request(encode_request(message, version, 3))

    answer = Call(request, broker.apis.refuse(request, KafkaStorageError("on purpose"))).response

    assert set(error_codes(answer)) <= {KafkaStorageError.code}
    assert broker.partition().log.log_end_offset == 0


def break_everything(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a handler does next fails."""

    def broken(*_: object, **__: object) -> object:
        raise RuntimeError("broken on purpose")

    for handler in broker.apis._handlers.values():
        object.__setattr__(handler, "handle", broken)
    for hot in (broker.apis._produce, broker.apis._fetch):
        monkeypatch.setattr(type(hot), "handle", broken)
