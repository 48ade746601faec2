"""Calls to other brokers: collected per destination, in order, tried again with pauses."""

from __future__ import annotations

from millstream.coordinator import broker_calls
from millstream.coordinator.broker_calls import BrokerCalls, Call


class Calls:
    """Calls about names, whose first letter is their key."""

    def __init__(self, tries_max: int = 1) -> None:
        self.calls: BrokerCalls[str, str] = BrokerCalls(
            lambda asked: asked[0], tries_max=tries_max, wait_ms=lambda failures: 10 * failures
        )

    def add(self, asked: str, now_ms: int = 0) -> Call[str, str]:
        call: Call[str, str] = Call(asked, lambda _: None, now_ms)
        self.calls.add(call)
        return call

    def route(self, destination: str, now_ms: int = 0) -> list[str]:
        found = self.calls.take_unrouted(now_ms)
        for call in found:
            self.calls.collect(destination, call)
        return [call.asked for call in found]

    def batches(self) -> list[tuple[object, list[str]]]:
        return [
            (destination, [call.asked for call in batch])
            for destination, batch in self.calls.take_batches()
        ]


def test_what_comes_while_a_request_is_under_way_goes_together_in_the_next() -> None:
    calls = Calls()
    calls.add("a1")
    calls.route("one")
    assert calls.batches() == [("one", ["a1"])]
    calls.add("b1")
    calls.add("c1")
    calls.route("one")

    assert calls.batches() == []
    calls.calls.answered("one")

    assert calls.batches() == [("one", ["b1", "c1"])]


def test_destinations_do_not_wait_for_each_other() -> None:
    calls = Calls()
    calls.add("a1")
    calls.route("one")
    calls.batches()
    calls.add("b1")
    calls.route("two")

    assert calls.batches() == [("two", ["b1"])]


def test_calls_of_one_key_are_asked_one_after_the_other() -> None:
    calls = Calls(tries_max=3)
    first, _second = calls.add("a1"), calls.add("a2")
    assert calls.route("one") == ["a1"]
    calls.batches()
    calls.calls.answered("one")
    # The first is tried again elsewhere; the second still waits for it.
    assert calls.calls.try_again(first, 100)
    assert calls.route("two", 105) == []
    assert calls.calls.next_deadline_ms() == 110
    assert calls.route("two", 110) == ["a1"]
    calls.calls.finished(first)

    assert calls.route("two", 110) == ["a2"]


def test_a_call_is_given_up_after_so_many_tries() -> None:
    calls = Calls(tries_max=3)
    call = calls.add("a1")

    assert [calls.calls.try_again(call, 0) for _ in range(3)] == [True, True, False]


def test_a_call_that_was_asked_at_once_is_tried_again_behind_the_others() -> None:
    calls = Calls(tries_max=2)
    calls.add("a1")
    late: Call[str, str] = Call("a2", lambda _: None, 0)
    assert calls.calls.add_failed(late, 0)
    assert calls.calls.is_pending("a3")

    assert [call.asked for call in calls.calls.take_all()] == ["a1", "a2"]
    assert calls.calls.next_deadline_ms() is None


def test_a_request_has_a_limit() -> None:
    calls = Calls()
    for number in range(broker_calls.BATCH_MAX + 1):
        calls.add(chr(number + 0x4E00))
    calls.route("one")
    ((_, batch),) = calls.batches()
    calls.calls.answered("one")

    assert len(batch) == broker_calls.BATCH_MAX
    assert len(calls.batches()) == 1
