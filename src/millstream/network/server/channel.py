"""One client connection: bytes in, frames cut, handlers called, answers out in order.

`KafkaChannel` is the asyncio protocol of a connection; an `Acceptor` makes it, a `Processor` owns
it. Per read it makes one pass over all complete frames and one write for their answers. It holds
no timer and, between frames, no buffer: an idle connection costs memory of its own size only.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

from millstream.errors import ProtocolError
from millstream.network.endpoint import host_and_port
from millstream.network.server.gate import CLOSING, InputGate, Mute
from millstream.network.server.header import (
    FRAME_HEADER_BYTES,
    FRAME_SIZE_BYTES,
    REQUEST_BYTES_MIN,
    body_start,
    find_fault,
    unpack_header,
)
from millstream.network.server.liveness import Expiry, Liveness
from millstream.network.server.processor import (
    FULL_PATH_FRAMES,
    PUT_OFF_FRAMES_MAX,
    TURN_FRAMES_MAX,
)
from millstream.network.server.receiver import Receiver
from millstream.network.server.request import (
    CLOSE,
    NO_RESPONSE,
    PENDING,
    Connection,
    Outcome,
    Request,
)
from millstream.network.server.request_channel import InFlight
from millstream.network.server.senders import (
    GATHER_BYTES_MAX,
    Sender,
    SocketSender,
    TransportSender,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from socket import socket

    from millstream._accel.broker.fast_path import Deferred
    from millstream.network.server.processor import ListenerService, Processor
    from millstream.network.server.request import Response, ResponsePart
    from millstream.network.server.request_channel import Unanswered
LINGER_MAX_MS: Final = 1000
"""How long a peer that was said goodbye to may take to say it too."""


class KafkaChannel(Connection, asyncio.BufferedProtocol):
    """The broker's end of one connection."""

    __slots__ = (
        "_gate",
        "_handle",
        "_header_versions",
        "_in_flight",
        "_is_handling",
        "_out",
        "_processor",
        "_receiver",
        "_sender",
        "_socket",
        "is_turn_due",
        "liveness",
        "wake_at_ms",
    )

    def __init__(
        self, processor: Processor, service: ListenerService, sock: socket, connection_id: int
    ) -> None:
        endpoint = service.endpoint
        super().__init__(endpoint.listener_name, endpoint.security_protocol, connection_id)
        self._processor = processor
        self._handle = service.handle
        self._header_versions = service.header_versions
        self._socket = sock
        self._gate = InputGate(self.state)
        self._sender = Sender(self)
        self._receiver = Receiver(processor, self.state)
        self._in_flight = InFlight(processor.requests, self.state)
        self._out: list[bytes] = []
        self._is_handling = False
        self.is_turn_due = False
        self.liveness = Liveness(processor.config, self.state, processor.now_ms())
        self.wake_at_ms = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is ready, after the TLS handshake if there is one."""
        link = cast("asyncio.Transport", transport)
        self._gate.connected(link)
        # A simulated socket has no descriptor, and a transport that does everything.
        if self.security_protocol.is_encrypted or self._socket.fileno() < 0:
            self._sender = TransportSender(self, link)
        else:
            self._sender = SocketSender(self, self._processor.loop, self._socket)
        self._processor.channel_opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone, whoever ended it; what waits for it is dropped."""
        self.state.is_open = False
        self._gate.disconnected()
        self._sender.close()
        self._receiver.close()
        self._in_flight.drop()
        self._out.clear()
        self._processor.channel_closed(self)

    def eof_received(self) -> bool:
        """The peer will send no more: as Kafka does, take it as its goodbye."""
        return False

    def pause_writing(self) -> None:
        """The transport's buffer is full."""
        self._sender.pause()

    def resume_writing(self) -> None:
        """The transport's buffer has drained."""
        self._sender.resume()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the loop's next read goes. Each of them is a turn of its own."""
        self._processor.begin_turn()
        return self._receiver.space()

    def space(self) -> memoryview:
        """Where the selector's next read goes."""
        return self._receiver.space()

    def buffer_updated(self, nbytes: int, begin: int = 0, handled: int = 0) -> None:
        """Handle every complete frame of what was read; for the rest see `Receiver.received`."""
        if self.state.is_open:
            self.take_in(nbytes, begin, handled)
            self._handle_received()

    def take_in(self, nbytes: int, begin: int = 0, handled: int = 0) -> None:
        """Note what was read. A muted connection handles it when it is read again."""
        if nbytes:
            self.state.bytes_in += nbytes
            self.state.last_active_ms = self._processor.now_ms()
            self._receiver.received(nbytes, begin, handled)

    # Requests.

    def _handle_received(self) -> None:
        self._is_handling = True
        try:
            self._handle_frames()
        except ProtocolError as error:
            self._reject("malformed request", str(error))
        except Exception as error:
            self._log_failure(error)
            # What the handler left running with the bytes is not known.
            self._receiver.buffer_is_retained = True
            self._give_up()
        self._is_handling = False
        self.state.turn_frames = 0
        if not self.state.mute_reasons & CLOSING and not self._receiver.keep_rest():
            self._wait_for_memory()
        self._flush()

    def _handle_frames(self) -> None:
        state, receiver = self.state, self._receiver
        buffer, start, end = receiver.buffer, receiver.start, receiver.end
        header_versions = self._header_versions
        size_max = self._processor.config.socket_request_max_bytes
        received_ms = state.last_active_ms
        handle, is_turn_over = self._handle, self._processor.is_turn_over
        frames, count, out_bytes = state.turn_frames, 0, 0
        try:
            while end - start >= FRAME_HEADER_BYTES and not state.mute_reasons:
                size, api, correlation_id, client_id_length = unpack_header(buffer, start)
                frame_end = start + FRAME_SIZE_BYTES + size
                if frame_end > end or not REQUEST_BYTES_MIN <= size <= size_max:
                    break
                if is_turn_over(frames):
                    self._put_off()
                    break
                body = start + FRAME_HEADER_BYTES
                if client_id_length > 0:
                    body += client_id_length
                elif client_id_length < -1:
                    body = frame_end + 1
                version = header_versions.get(api)
                # One byte 0, no tagged fields, ends nearly every header of version 2.
                if version == 2 and body < frame_end and buffer[body] == 0:
                    body += 1
                elif version != 1 or body > frame_end:
                    body = body_start(buffer, start, frame_end, header_versions)
                request = Request(
                    self,
                    buffer,
                    start + FRAME_SIZE_BYTES,
                    body,
                    frame_end,
                    api >> 16,
                    api & 0xFFFF,
                    correlation_id,
                    client_id_length,
                    received_ms,
                )
                start = frame_end
                frames += FULL_PATH_FRAMES
                count += 1
                response = handle(request)
                if type(response) is bytes and not self._in_flight and not request.is_retained:
                    self._out.append(response)
                    out_bytes += len(response)
                    if out_bytes > GATHER_BYTES_MAX:
                        self._write()
                        out_bytes = 0
                else:
                    self._answer_later(request, response)
        finally:
            receiver.start = start
            state.requests += count
        if end - start >= FRAME_SIZE_BYTES and not state.mute_reasons:
            # What has yet to come is refused as soon as it can be seen to be bad.
            fault = find_fault(buffer[start:end], size_max, header_versions)
            if fault is not None:
                self._reject(*fault)

    def _put_off(self) -> None:
        """Leave frames that were received for a later turn, and read no more until then."""
        self._gate.mute(Mute.TURN)
        self._processor.put_off(self)

    def go_on_handling(self) -> None:
        """It is this connection's turn again, after others had theirs."""
        if self._gate.unmute(Mute.TURN):
            self.state.turn_frames = TURN_FRAMES_MAX - PUT_OFF_FRAMES_MAX
            self._resume()

    def _answer_later(self, request: Request, response: Response | Outcome) -> None:
        """Everything but a plain answer to a request with none waiting before it."""
        if request.is_retained:
            self._receiver.buffer_is_retained = True
        if response is NO_RESPONSE:
            return
        if response is CLOSE:
            self._stop_reading()
        if response is not PENDING and not self._in_flight:
            self._emit(response)
            return
        if response is not PENDING:
            request.response = response
        self._in_flight.add(request)
        if request.is_retained and self._processor.requests.is_full:
            self._wait_for_memory()
        self._mute_if_many_in_flight()

    def defer(self, deferred: Deferred) -> None:
        """Keep the place of an answer that the fast path gives later; others wait behind it."""
        deferred.connection = self
        self._in_flight.defer(deferred)
        self._mute_if_many_in_flight()
        self.answered(deferred)

    def _mute_if_many_in_flight(self) -> None:
        if len(self._in_flight) >= self._processor.config.in_flight_requests_max:
            self._mute(Mute.IN_FLIGHT)

    def _reject(self, kind: str, reason: str) -> None:
        self._processor.requests_rejected += 1
        message = "Closed the connection from %s: %s"
        self._processor.log.warning(kind, message, self, reason, **self._log_fields())
        self._give_up()

    # Responses.

    @property
    def was_connected(self) -> bool:
        """Whether it ever became ready."""
        return type(self._sender) is not Sender

    @property
    def is_muted(self) -> bool:
        """Whether it is not being read."""
        return self._gate.is_paused

    def answered(self, request: Unanswered) -> None:
        """Send the response when its turn has come; together with others of this turn."""
        if self._in_flight.is_head_answered and not self._is_handling:
            self._processor.turn_soon(self)

    def turn(self) -> None:
        """Send the responses that are due, then go on where a mute made us stop."""
        self.is_turn_due = False
        self._flush()
        if self._gate.is_paused and not self.state.mute_reasons:
            self._resume()

    def _flush(self) -> None:
        """Send what is due, and close if that was all this connection waited for."""
        if not self.state.is_open:
            return
        if self._in_flight:
            self._emit_answered()
        if self._out:
            self._write()
        if self.state.mute_reasons & CLOSING:
            self._close_if_done()

    def _emit_answered(self) -> None:
        in_flight = self._in_flight
        while in_flight.is_head_answered:
            self._emit(in_flight.take_answer())
        if len(in_flight) < self._processor.config.in_flight_requests_max:
            self._unmute(Mute.IN_FLIGHT)

    def _emit(self, response: Response | Outcome) -> None:
        if isinstance(response, bytes):
            self._out.append(response)
        elif not isinstance(response, Outcome):
            self._write()
            if self.state.is_open:
                self._sender.send_parts(response)
                self._after_send()
        elif response is CLOSE:
            self._give_up()

    def _write(self) -> None:
        out = self._out
        if out and self.state.is_open:
            self._sender.send(out[0] if len(out) == 1 else b"".join(out))
            out.clear()
            if self._sender.is_blocked:
                self._after_send()

    def go_on(self, parts: Sequence[ResponsePart], sent: int) -> None:
        """Send what the compiled selector could not: so many bytes of it have left."""
        if self.state.is_open:
            self._sender.go_on(parts, sent)
            self._after_send()

    def _after_send(self) -> None:
        sender = self._sender
        if sender.is_congested:
            self._mute(Mute.OUTPUT)
        if sender.is_blocked:
            self.liveness.note_progress(self._processor.now_ms())
            self._processor.wake_at(self, self.liveness.stall_deadline_ms)

    def output_drained(self) -> None:
        """The peer took its responses: go on."""
        if self.state.is_open:
            self.state.last_active_ms = self._processor.now_ms()
            self._unmute(Mute.OUTPUT)
            if self.state.mute_reasons & CLOSING:
                self._close_if_done()

    def output_lost(self, error: OSError) -> None:
        """The peer does not exist any more, or a file could not be sent."""
        if not isinstance(error, ConnectionError):
            message = "Closed the connection to %s: cannot send: %s"
            log = self._processor.log
            log.warning("send failed", message, self, error, **self._log_fields())
        self.abort()

    # Muting and closing.

    def _mute(self, reason: Mute) -> None:
        if self._gate.mute(reason):
            self._processor.mutes += 1

    def _unmute(self, reason: Mute) -> None:
        if self._gate.unmute(reason):
            self._processor.turn_soon(self)

    def _resume(self) -> None:
        """Handle what was received before the mute, then read on."""
        if self._receiver.has_unhandled:
            self._receiver.restore()
            self._receiver.skip(self._gate.offer_unhandled())
            if self.state.is_open:
                self._handle_received()
        # Muted and unmuted meanwhile: the turn that is due goes on from here.
        if not self.state.mute_reasons and not self.is_turn_due:
            self._gate.resume()

    def _wait_for_memory(self) -> None:
        self._mute(Mute.MEMORY)
        self._processor.requests.wait(self)

    def room_was_made(self) -> None:
        """The broker has memory for requests again."""
        self._unmute(Mute.MEMORY)

    def mute_until(self, deadline_ms: int) -> None:
        """Read nothing more before a moment of the monotonic clock."""
        self.liveness.throttled_until_ms = max(self.liveness.throttled_until_ms, deadline_ms)
        self._mute(Mute.THROTTLE)
        self._processor.wake_at(self, deadline_ms)

    def hold(self) -> None:
        """Handle no further request before `release`."""
        self._mute(Mute.HELD)

    def release(self) -> None:
        """Go on with what came meanwhile."""
        self._unmute(Mute.HELD)

    def drain(self) -> None:
        """Read no more, answer what was asked, then close."""
        self._stop_reading()
        self._close_if_done()

    def close(self, reason: str) -> None:
        """Close at once; responses that were not sent yet are dropped."""
        message = "Closed the connection from %s: %s"
        self._processor.log.info(reason, message, self, reason, **self._log_fields())
        self.abort()

    def abort(self) -> None:
        """Close at once and say nothing about it."""
        self.state.is_open = False
        self._sender.close()
        self._gate.abort()

    def _stop_reading(self) -> None:
        self._mute(Mute.CLOSING)
        self._receiver.close()

    def _give_up(self) -> None:
        """Send the answers that are there, wait for no others, then close."""
        self._stop_reading()
        self._in_flight.drop()

    def _close_if_done(self) -> None:
        if self._in_flight or self._out or self._is_handling or self.state.unsent_bytes:
            return
        if self.state.is_open:
            self.state.is_open = False
            if self._gate.finish():
                self.liveness.linger_until_ms = self._processor.now_ms() + LINGER_MAX_MS
                self._processor.wake_at(self, self.liveness.linger_until_ms)

    def check(self, now_ms: int) -> Expiry | int:
        """Read on if a throttle has ended; then whether the peer is dead, or when to look again."""
        if now_ms >= self.liveness.throttled_until_ms:
            self._unmute(Mute.THROTTLE)
        is_blocked, is_waiting = self._sender.is_blocked, bool(self._in_flight)
        return self.liveness.check(now_ms, is_blocked=is_blocked, is_waiting=is_waiting)

    # How it is logged.

    def _log_failure(self, error: Exception) -> None:
        message = "A request handler failed; closing the connection from %s"
        kind = f"handler {type(error).__name__}"
        self._processor.log.failure(kind, message, self, error=error, **self._log_fields())

    def _log_fields(self) -> dict[str, object]:
        """The peer and the listener as fields of their own."""
        peer = host_and_port(self.peer_host, self.peer_port)
        return {"peer": peer, "listener": self.listener_name}

    def __str__(self) -> str:
        return f"{host_and_port(self.peer_host, self.peer_port)} on {self.listener_name}"
