"""A connection under any sequence of reads, answers, throttles and full memory.

Whatever happens, every request is handled once, with its own bytes, and answered in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.network.server import NO_RESPONSE, PENDING, Outcome, Request, Response
from tests.unit.network.fakes import World, answer, answered_ids, frame, receive

if TYPE_CHECKING:
    from millstream.network.server.channel import KafkaChannel
    from tests.unit.network.fakes import FakeTransport

SIZES = st.sampled_from([0, 1, 50, 3_000, 33_000, 70_000, 300_000])
BEHAVIOURS = st.sampled_from(["answer", "park", "retain", "at once", "silent", "throttle", "parts"])


class Peer:
    """One client: what it sends, what its requests do, what has become of them."""

    def __init__(self, plan: list[tuple[int, str]]) -> None:
        self.plan = plan
        self.stream = b"".join(
            frame(number, bytes([number % 251]) * size) for number, (size, _) in enumerate(plan)
        )
        self.handled: list[int] = []
        self.parked: list[Request] = []
        self.retained: list[tuple[int, memoryview]] = []
        self.channel: KafkaChannel
        self.transport: FakeTransport

    def handle(self, request: Request) -> Response | Outcome:
        """Do what the plan says about this request."""
        number = request.correlation_id
        size, behaviour = self.plan[number]
        body = request.buffer[request.body : request.end]
        assert bytes(body) == bytes([number % 251]) * size
        self.handled.append(number)
        match behaviour:
            case "silent":
                return NO_RESPONSE
            case "parts":
                whole = answer(request, b"parts")
                return [whole[:3], memoryview(whole)[3:]]
            case "throttle":
                request.connection.mute_until(self.channel.state.last_active_ms + 10)
            case "at once":
                request.complete(answer(request))
                return PENDING
            case "retain":
                request.retain()
                self.retained.append((number, body))
                self.parked.append(request)
                return PENDING
            case "park":
                self.parked.append(request)
                return PENDING
        return answer(request)

    def complete(self, index: int) -> None:
        """Answer one of the parked requests."""
        if self.parked:
            request = self.parked.pop(index % len(self.parked))
            request.complete(answer(request))

    def send(self, count: int) -> None:
        """Some more of the stream arrives, if the server reads."""
        self.stream = receive(self.channel, self.stream[:count]) + self.stream[count:]


def settle(world: World, peers: list[Peer]) -> None:
    """Let everything that can happen happen, until nothing is left to do."""
    for _ in range(1000):
        world.advance(20)
        for peer in peers:
            peer.send(100_000)
            peer.complete(0)
        world.loop.run()
        if not any(peer.stream or peer.parked or peer.channel.is_muted for peer in peers):
            break


@settings(max_examples=150)
@given(
    plans=st.lists(st.lists(st.tuples(SIZES, BEHAVIOURS), max_size=12), min_size=1, max_size=3),
    in_flight=st.integers(1, 4),
    retained=st.integers(1, 3),
    memory=st.sampled_from([-1, 1, 100_000]),
    data=st.data(),
)
def test_every_request_is_handled_once_and_answered_in_order(
    plans: list[list[tuple[int, str]]],
    in_flight: int,
    retained: int,
    memory: int,
    data: st.DataObject,
) -> None:
    peers = [Peer(plan) for plan in plans]
    by_connection = dict(enumerate(peers, start=1))
    world = World(
        lambda request: by_connection[request.connection.connection_id].handle(request),
        in_flight_requests_max=in_flight,
        queued_max_requests=retained,
        queued_max_request_bytes=memory,
    )
    for peer in peers:
        peer.channel, peer.transport = world.connect()

    for _ in range(data.draw(st.integers(0, 30))):
        peer = data.draw(st.sampled_from(peers))
        match data.draw(st.sampled_from(["send", "complete", "loop", "time"])):
            case "send":
                peer.send(data.draw(st.integers(1, 200_000)))
            case "complete":
                peer.complete(data.draw(st.integers(0, 10)))
            case "loop":
                world.loop.run()
            case "time":
                world.advance(data.draw(st.integers(0, 30)))
    settle(world, peers)

    for peer in peers:
        assert peer.handled == list(range(len(peer.plan)))
        expected = [n for n, (_, behaviour) in enumerate(peer.plan) if behaviour != "silent"]
        assert answered_ids(peer.transport.written) == expected
        for number, body in peer.retained:
            assert bytes(body) == bytes([number % 251]) * peer.plan[number][0]
        peer.channel.connection_lost(None)
    assert world.processor.pool.taken_bytes == 0
    assert world.processor.requests.bytes_in_memory == 0
    assert world.processor.requests.requests_retained == 0
