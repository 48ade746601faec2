"""Who coordinates which group, transaction or share partition: looked up in batches, remembered.

`RequestRouter` owns it. From version 4 on one FindCoordinator asks for all keys of a kind, before
for one at a time. A key that was found stays until somebody says that it has moved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.errors import MillstreamError, error_for_code, is_retriable
from millstream.network.client.network_client import VersionedRequest
from millstream.protocol.api import ApiKey
from millstream.protocol.messages import FindCoordinatorRequest, FindCoordinatorResponse
from millstream.protocol.messages.find_coordinator import Coordinator as Found

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from millstream.client.targets import CoordinatorKind
    from millstream.network.client.backoff import Backoff
    from millstream.network.client.network_client import NetworkClient
    from millstream.protocol.message import Message

KEY_TYPES: Final[Mapping[CoordinatorKind, int]] = {"group": 0, "transaction": 1, "share": 2}
_BATCHED_FROM: Final = 4
_SEPARATE_BASE: Final = 1 << 31
"""Above every node id: a coordinator's own connection is a node of this plus the broker's id."""


class _Key(NamedTuple):
    kind: CoordinatorKind
    key: str


class Coordinators:
    """The coordinators by kind and key."""

    def __init__(
        self, network: NetworkClient, backoff: Backoff, random: Random, *, is_separate: bool
    ) -> None:
        self._network = network
        self._backoff = backoff
        self._random = random
        self._is_separate = is_separate
        self._nodes: dict[_Key, int] = {}
        self._errors: dict[_Key, MillstreamError] = {}
        self._wanted: dict[_Key, None] = {}
        self._asking: set[_Key] = set()
        self._failures: dict[_Key, int] = {}
        self._not_before_ms: dict[_Key, int] = {}

    def node_of(self, kind: CoordinatorKind, key: str) -> int | None:
        """The node to send to, if it is known."""
        return self._nodes.get(_Key(kind, key))

    def error_of(self, kind: CoordinatorKind, key: str) -> MillstreamError | None:
        """Why it cannot be found ever; told once, the next `want` asks again."""
        return self._errors.pop(_Key(kind, key), None)

    def want(self, kind: CoordinatorKind, key: str) -> None:
        """Look it up with the next `poll`, unless it is known."""
        wanted = _Key(kind, key)
        if wanted not in self._nodes and wanted not in self._asking:
            self._wanted[wanted] = None

    def forget(self, kind: CoordinatorKind, key: str) -> None:
        """It is not there any more."""
        self._nodes.pop(_Key(kind, key), None)

    def poll(self, now_ms: int) -> int | None:
        """Ask for what is wanted and due; when to look again."""
        due = [each for each in self._wanted if self._not_before_ms.get(each, 0) <= now_ms]
        node_id = self._network.least_loaded(now_ms) if due else None
        if node_id is not None:
            for kind in dict.fromkeys(each.kind for each in due):
                self._ask(node_id, [each for each in due if each.kind == kind], now_ms)
        waits = [self._not_before_ms[each] for each in self._wanted if each in self._not_before_ms]
        return min((each for each in waits if each > now_ms), default=None)

    def _ask(self, node_id: int, keys: list[_Key], now_ms: int) -> None:
        version = self._network.version_of(node_id, ApiKey.FIND_COORDINATOR)
        if version is None or version < _BATCHED_FROM:
            # Also while the version is unknown: it is known when the next key is asked for.
            for each in keys:
                self._ask_for(node_id, [each], now_ms)
        else:
            self._ask_for(node_id, keys, now_ms)

    def _ask_for(self, node_id: int, keys: list[_Key], now_ms: int) -> None:
        self._asking.update(keys)
        for each in keys:
            self._wanted.pop(each, None)

        def build(version: int) -> FindCoordinatorRequest:
            key_type = KEY_TYPES[keys[0].kind]
            if version < _BATCHED_FROM:
                return FindCoordinatorRequest(key=keys[0].key, key_type=key_type)
            names = [each.key for each in keys]
            return FindCoordinatorRequest(key_type=key_type, coordinator_keys=names)

        def on_done(outcome: Message | MillstreamError, done_ms: int) -> None:
            self._asking.difference_update(keys)
            if isinstance(outcome, FindCoordinatorResponse):
                self._take(keys, outcome, done_ms)
            else:
                assert isinstance(outcome, MillstreamError)
                for each in keys:
                    self._on_error(each, outcome, done_ms)

        request = VersionedRequest(ApiKey.FIND_COORDINATOR, build)
        self._network.send(node_id, request, now_ms, on_done)

    def _take(self, keys: list[_Key], answer: FindCoordinatorResponse, now_ms: int) -> None:
        found = {each.key: each for each in answer.coordinators}
        if not found:
            found = {keys[0].key: _single(keys[0].key, answer)}
        for key in keys:
            told = found.get(key.key)
            if told is None:
                self._on_error(key, error_for_code(15), now_ms)
            elif told.error_code:
                error = error_for_code(told.error_code, told.error_message)
                self._on_error(key, error, now_ms)
            else:
                self._nodes[key] = self._node_for(told)
                self._failures.pop(key, None)
                self._not_before_ms.pop(key, None)

    def _node_for(self, told: Found) -> int:
        if not self._is_separate:
            self._network.set_address(told.node_id, told.host, told.port)
            return told.node_id
        node_id = _SEPARATE_BASE + told.node_id
        self._network.set_address(node_id, told.host, told.port, is_member=False)
        return node_id

    def _on_error(self, key: _Key, error: MillstreamError, now_ms: int) -> None:
        if not is_retriable(error):
            self._errors[key] = error
            return
        failures = self._failures.get(key, 0) + 1
        self._failures[key] = failures
        self._not_before_ms[key] = now_ms + self._backoff.after(failures, self._random)
        self._wanted[key] = None


def _single(key: str, answer: FindCoordinatorResponse) -> Found:
    return Found(
        key=key,
        node_id=answer.node_id,
        host=answer.host,
        port=answer.port,
        error_code=answer.error_code,
        error_message=answer.error_message,
    )
