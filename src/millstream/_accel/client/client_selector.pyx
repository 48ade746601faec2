# cython: language_level=3, freethreading_compatible=True
# cython: boundscheck=False, wraparound=False, cdivision=True
"""A client's sockets on a thread of their own that never needs the GIL; for Linux.

`network.client.native_selector` makes a `ClientSelector` of it; the plain version is
`SocketSelector`. What runs on the thread is in client_sockets.c: it sends, receives, cuts frames
and sends periodic requests on time, whatever Python is doing. Here is the side of Python threads.
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer)
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals, PyErr_SetFromErrno
from cpython.memoryview cimport PyMemoryView_FromObject
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

import atexit
import threading
import weakref

from millstream.errors import ClientClosed, ForkedClient

cdef extern from *:
    """
    #include "client/frame_pool.h"

    /* How many forks this process is away from the one that loaded the module. */
    static int ms_process_number = 0;
    static void ms_count_fork(void)
    {
        ms_process_number++;
        ms_pool_after_fork();
    }
    static void ms_watch_forks(void) { pthread_atfork(NULL, NULL, ms_count_fork); }
    """
    int ms_process_number
    void ms_watch_forks()

cdef enum:
    # Up to here one copy is cheaper than views that must be given back.
    COPY_BYTES_MAX = 8 * 1024
    # Up to here the caller sends by itself; above, the copy into the kernel is worth a thread.
    DIRECT_BYTES_MAX = 64 * 1024
    CORRELATION_ID_END = 12

cdef const char* TRANSPORTS = "millstream.client_transports"

ms_watch_forks()

_alive = weakref.WeakSet()


@atexit.register
def _shut_down_all():
    """The interpreter ends: no thread may touch the memory of Python objects any more."""
    for selector in list(_alive):
        selector.shutdown()


cdef class Frame:
    """The bytes of one large response; they go back to the pool when the last view is gone."""

    cdef ms_pool* pool
    cdef ms_block* block
    cdef int64_t size

    def __init__(self):
        raise TypeError("Frames come from a selector")

    def __getbuffer__(self, Py_buffer* view, int flags):
        if self.block is NULL:
            raise BufferError("Frames come from a selector")
        PyBuffer_FillInfo(view, self, self.block.data, self.size, True, flags)

    def __dealloc__(self):
        if self.pool is not NULL:
            ms_block_release(self.pool, self.block)


cdef object take_frame(ms_selector* state, ms_event* event):
    """The frame of an event: small ones as bytes, large ones in place."""
    cdef Frame frame
    if event.block is NULL:
        return PyBytes_FromStringAndSize(<const char*>event.data, event.size)
    frame = Frame.__new__(Frame)
    frame.pool = state.pool
    frame.block = event.block
    frame.size = event.size
    event.block = NULL
    return PyMemoryView_FromObject(frame)


cdef int process_number() noexcept nogil:
    """Another one in every process that came from this one by forking."""
    return ms_process_number


cdef void release_views(ms_outgoing* out) noexcept:
    cdef int i
    for i in range(out.view_count):
        PyBuffer_Release(&out.views[i])
    free(out)


cdef void release_spent(ms_selector* state, ms_outgoing* out) noexcept:
    cdef ms_outgoing* following
    while out is not NULL:
        following = out.next
        if out.kept_count:
            state.driver.release(state.driver, out.kept, out.kept_count)
        release_views(out)
        out = following


cdef ms_outgoing* to_outgoing(parts) except NULL:
    """The parts as one frame on its way out: a copy if it is small, else views."""
    cdef tuple all_parts = tuple(parts)
    cdef int count = <int>min(len(all_parts), 1 << 20)
    cdef int i
    cdef uint8_t* data = NULL
    cdef ms_outgoing* copy
    cdef ms_outgoing* out = ms_outgoing_new(count, count, 0)
    if out is NULL:
        raise MemoryError
    try:
        for i in range(count):
            PyObject_GetBuffer(all_parts[i], &out.views[i], PyBUF_SIMPLE)
            out.view_count = i + 1
            out.vectors[i].iov_base = out.views[i].buf
            out.vectors[i].iov_len = out.views[i].len
            out.bytes += out.views[i].len
        if out.bytes > COPY_BYTES_MAX:
            return out
        copy = ms_outgoing_copy(out.bytes, &data)
        if copy is NULL:
            raise MemoryError
    except BaseException:
        release_views(out)
        raise
    for i in range(count):
        memcpy(data, out.views[i].buf, out.views[i].len)
        data += out.views[i].len
    release_views(out)
    return copy


@cython.no_gc_clear
cdef class SelectorLoop:
    """What the thread runs on. It lives until both the selector and the thread have let it go."""

    def __cinit__(self, int64_t frame_bytes_max, int64_t received_bytes_max, transports):
        cdef const ms_transports* made = &ms_plain_transports
        if transports is not None:
            made = <const ms_transports*>PyCapsule_GetPointer(transports, TRANSPORTS)
        self.process = ms_process_number
        self.transports = transports
        self.state = ms_selector_new(frame_bytes_max, received_bytes_max, made)
        if self.state is NULL:
            PyErr_SetFromErrno(OSError)

    def run(self):
        """Until it is stopped."""
        with nogil:
            ms_run(self.state)

    def stop(self):
        ms_stop(self.state)

    def __dealloc__(self):
        if self.state is NULL:
            return
        if self.process != ms_process_number:
            ms_close_all(self.state)  # The rest may be locked, half changed, or the parent's.
            return
        ms_selector_clear(self.state)
        release_spent_of(self.state)
        ms_selector_free(self.state)


cdef void release_spent_of(ms_selector* state) noexcept:
    cdef ms_outgoing* spent = NULL
    cdef ms_event* event = ms_take_events(state, &spent)
    cdef ms_event* following
    while event is not NULL:
        following = event.next
        ms_event_free(state, event)
        event = following
    release_spent(state, spent)


cdef class SelectorCore:
    """All of a `ClientSelector` but `connect`, which needs names resolved: see `begin`."""

    def __init__(
        self, connected, received, disconnected, repeated, dispatched, *,
        int64_t frame_bytes_max, int64_t received_bytes_max, transports=None,
    ):
        """Takes the classes of its events. `disconnected` is called with the errnos, or negative
        codes, of all attempts, and the size that the peer claimed for a frame.

        `received_bytes_max`: what may wait for `poll` before the sockets are read no more.
        `transports`: a capsule of an `ms_transports` (client_transport.h); plain sockets without.
        """
        if self._loop is not None:
            raise TypeError("a selector is made once")
        if not 0 < frame_bytes_max < 1 << 31:
            raise ValueError(f"frame_bytes_max must be between 1 and 2^31 - 1: {frame_bytes_max}")
        self._connected = connected
        self._received = received
        self._disconnected = disconnected
        self._repeated = repeated
        self._dispatched = dispatched
        self._loop = SelectorLoop(frame_bytes_max, received_bytes_max, transports)
        # It knows the loop only, so that a selector that nobody uses can end.
        self._thread = threading.Thread(
            target=self._loop.run, name="millstream-sockets", daemon=True)
        self._thread.start()
        self._finalizer = weakref.finalize(self, _stop, self._loop)
        self._finalizer.atexit = False
        _alive.add(self)

    cdef int _check(self) except -1:
        if self._loop is None:
            raise TypeError("this selector was not initialised")
        if self._loop.process != ms_process_number:
            raise ForkedClient(
                "the connections belong to the process that made them: make a new client after "
                "the fork")
        if self._is_shut_down:
            raise ClientClosed("the selector is shut down")
        return 0

    # ---- connections ----

    def begin(self, int64_t connection_id):
        """Make a connection known that will have addresses soon; the number to give them with."""
        self._check()
        cdef int64_t serial = ms_open(self._loop.state, connection_id)
        if serial < 0:
            raise ValueError(f"there is a connection {connection_id}: close it first")
        if serial == 0:
            raise MemoryError
        return serial

    def give_addresses(self, int64_t connection_id, int64_t serial, addresses):
        """Connect to the first (family, (host, port, ...)) that answers. From any thread.

        Nothing happens if the connection was closed meanwhile.
        """
        if self._is_shut_down:
            return
        self._check()
        cdef list wanted = list(addresses)
        cdef int count = <int>len(wanted)
        cdef int i
        cdef sockaddr_storage* out = <sockaddr_storage*>calloc(count + 1, sizeof(sockaddr_storage))
        if out is NULL:
            raise MemoryError
        try:
            for i in range(count):
                family, address = wanted[i]
                host = address[0].partition("%")[0].encode("ascii")
                scope = address[3] if len(address) > 3 else 0
                if not ms_fill_address(&out[i], family, host, address[1], scope):
                    raise ValueError(f"no address that a socket can connect to: {address[0]!r}")
        except BaseException:
            free(out)
            raise
        ms_give_addresses(self._loop.state, connection_id, serial, out, count)

    def send(self, int64_t connection_id, parts):
        """Queue bytes; they go out in order. The parts must not change afterwards."""
        self._check()
        cdef ms_outgoing* out = to_outgoing(parts)
        ms_send(self._loop.state, connection_id, out, out.bytes <= DIRECT_BYTES_MAX)

    def close(self, int64_t connection_id):
        """Close a connection and cancel its periodic requests; no event follows."""
        if self._is_shut_down:
            return
        self._check()
        ms_close(self._loop.state, connection_id)

    # ---- periodic requests ----

    def repeat(self, int64_t connection_id, int64_t periodic_id, periodic):
        """Send a frame regularly from now on; replaces one of the same id."""
        self._check()
        frame, first_ms, every_ms, until_ms, correlation_id = periodic
        cdef bytes data = bytes(frame)
        cdef ms_periodic* made
        if len(data) < CORRELATION_ID_END:
            raise ValueError(f"a request has at least {CORRELATION_ID_END} bytes, not {len(data)}")
        if every_ms < 1:
            raise ValueError(f"a request is repeated every millisecond at most, not {every_ms}")
        made = <ms_periodic*>malloc(sizeof(ms_periodic) + len(data))
        if made is NULL:
            raise MemoryError
        try:
            made.id = periodic_id
            made.connection_id = connection_id
            made.next_ms = first_ms
            made.every_ms = every_ms
            made.until_ms = until_ms
            made.correlation_id = correlation_id
            made.size = len(data)
        except BaseException:
            free(made)
            raise
        memcpy(made.frame, <const char*>data, len(data))
        ms_repeat(self._loop.state, made)

    def cancel(self, int64_t periodic_id):
        """End a periodic request; fine if it has ended."""
        if self._is_shut_down:
            return
        self._check()
        ms_cancel(self._loop.state, periodic_id)

    # ---- events ----

    cdef object _to_event(self, ms_event* event):
        cdef int i
        if event.kind == MS_RECEIVED:
            return self._received(event.connection_id, take_frame(self._loop.state, event))
        if event.kind == MS_CONNECTED:
            return self._connected(event.connection_id)
        if event.kind == MS_REPEATED:
            return self._repeated(
                event.connection_id, event.periodic_id, event.correlation_id, event.sent_ms)
        if event.kind == MS_DISPATCHED:
            return self._dispatched(event.connection_id, event.correlation_id, event.sent_ms)
        codes = [event.codes[i] for i in range(event.code_count)]
        return self._disconnected(event.connection_id, codes, event.size)

    cdef list _take_events(self):
        cdef ms_outgoing* spent = NULL
        cdef ms_event* event = ms_take_events(self._loop.state, &spent)
        cdef ms_event* following
        cdef list events = []
        release_spent(self._loop.state, spent)
        try:
            while event is not NULL:
                events.append(self._to_event(event))
                following = event.next
                ms_event_free(self._loop.state, event)
                event = following
        finally:
            while event is not NULL:
                following = event.next
                ms_event_free(self._loop.state, event)
                event = following
        return events

    def poll(self, timeout_ms):
        """Wait for events up to the timeout, or until woken; None waits for as long as it takes."""
        self._check()
        cdef SelectorLoop loop = self._loop
        cdef int64_t deadline_ms = MS_NEVER
        cdef bint is_over = False
        if timeout_ms is not None:
            deadline_ms = ms_monotonic_ms() + max(0, min(timeout_ms, 1 << 40))
        while not is_over:
            with nogil:
                is_over = ms_await_events(loop.state, deadline_ms)
            if not is_over:
                PyErr_CheckSignals()
        self._check()
        return self._take_events()

    def wake(self):
        """Let `poll` return at once, from any thread."""
        if not self._is_shut_down:
            self._check()
            ms_wake(self._loop.state)

    def shutdown(self):
        """Close everything; again is fine."""
        if self._loop is None or self._is_shut_down:
            return
        self._is_shut_down = True
        if self._loop.process != ms_process_number:
            return
        ms_stop(self._loop.state)
        if self._thread is not threading.current_thread():
            self._thread.join()
        ms_selector_clear(self._loop.state)
        release_spent_of(self._loop.state)
        # It keeps the loop, which keeps its driver, by which the whole client lives: for ever.
        self._finalizer.detach()


def _stop(SelectorLoop loop):
    """A selector that nobody shut down is gone: its thread must not go on."""
    if loop.process == ms_process_number:
        ms_stop(loop.state)
