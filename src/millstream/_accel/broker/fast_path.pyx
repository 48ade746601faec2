# cython: language_level=3, freethreading_compatible=True
"""What answers the most frequent requests of a listener from the bytes of the frame.

`selector` offers every whole frame to the listener's `FastHandler` before an object is made of it.
A handler works in two steps, so that what several connections ask for in one turn of the loop can
be done together: `prepare` looks at a frame and writes the answer that will be right if all goes
well; `append` does the work, and changes the answers that it cannot stand by. Nothing is sent
before `append` has returned, and no Python handler is called between the two.

A handler may also take a frame and answer it later, through a `Deferred`; the connection keeps the
answer's place. What a handler declines is offered to its `FastReader`, if it has one: requests that
change no log are answered at once, with records that the selector sends from their file. What that
declines too takes the full path, and nothing has changed.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize

from libc.stdint cimport int64_t, uint8_t, uint64_t

from millstream._accel.wire cimport ms_read_big_endian

cdef enum:
    FRAME_BYTES_MIN = 14
    API_KEY_AT = 4
    # Of the word of declined APIs; this one stands for all API keys from here on.
    LAST_API_BIT = 63


cdef class Deferred:
    """The place of an answer that comes later, among the other answers of its connection.

    A handler makes one for the frame it takes, and keeps it for as long as it owes the answer.
    """

    cpdef complete(self, bytes answer):
        """Answer with a whole frame, its size in front. On the loop's thread only, and once.

        The answer leaves when those before it have left. On a connection that is gone, this does
        nothing.
        """
        self.response = answer
        if self.connection is not None:
            self.connection.answered(self)


cdef class FastReader:
    """Answers with records; this one has none."""

    def answer(self, bytes frame):
        """The parts of the answer to a frame; None if it is declined. For tests."""
        cdef ms_answer answer
        if len(frame) < FRAME_BYTES_MIN or not self.read(
                <const uint8_t*><const char*>frame, len(frame), &answer):
            return None
        return self.parts(&answer)

    cdef bint read(self, const uint8_t* frame, int64_t size, ms_answer* answer) except -1:
        """Answer a frame, its size in front. Nothing has changed if it is declined."""
        return False

    cdef list parts(self, const ms_answer* answer):
        """The answer that was given last, for a sender that does not send it in one call."""
        return [
            PyBytes_FromStringAndSize(<const char*>answer.head, answer.head_size),
            self.region_of(self.file, answer.position, answer.length),
            PyBytes_FromStringAndSize(<const char*>answer.tail, answer.tail_size),
        ]


cdef class FastHandler:
    """One that takes nothing."""

    def answer_all(self, frames):
        """The answers to frames that arrive in one turn, up to the first one it declines.

        For a caller that has frames but no selector, such as a test. The frames are bytearrays and
        are changed. An answer is bytes, or the `Deferred` whose `response` it will be.
        """
        cdef bytearray frame, answer
        cdef int64_t size
        cdef list answers = []
        self.begin()
        for frame in frames:
            answer = bytearray(FAST_ANSWER_BYTES_MAX)
            if len(frame) < FRAME_BYTES_MIN:
                break
            size = self.prepare(<uint8_t*><char*>frame, len(frame), <uint8_t*><char*>answer)
            if size == FAST_DECLINED:
                break
            answers.append(
                (self.take_deferred(), 0) if size == FAST_DEFERRED else (answer, size))
        self.append()
        return [
            given if isinstance(given, Deferred) else bytes(given[:size])
            for given, size in answers
        ]

    cdef bint declines_api(self, const uint8_t* frame) noexcept:
        """Whether a frame's API is declined; one comparison while none is."""
        cdef uint64_t api
        if self.declined_apis == 0:
            return False
        api = ms_read_big_endian(frame + API_KEY_AT, 2)
        return (self.declined_apis >> min(api, <uint64_t>LAST_API_BIT)) & 1

    cdef Deferred take_deferred(self):
        """The answer that `prepare` has deferred."""
        deferred, self.deferred = self.deferred, None
        return deferred

    cdef int begin(self) except -1:
        """A turn begins."""
        return 0

    cdef int64_t prepare(self, uint8_t* frame, int64_t size, uint8_t* answer) except -3:
        """Take a frame, its size in front: how long the answer is that was written.

        FAST_DECLINED instead if the frame is not for it: nothing has changed then. FAST_DEFERRED if
        the answer comes later, through `deferred`: the memory of the answer is not its any more.
        The frame may be changed; it and the answer stay where they are until `append`.
        """
        return FAST_DECLINED

    cdef int append(self) except -1:
        """Do what was prepared. It raises nothing that concerns a single request."""
        return 0
