# cython: language_level=3, freethreading_compatible=True
"""Who answers the most frequent requests of a listener from the bytes of the frame.

`selector` offers every whole frame to the listener's `ExpressHandler` before anybody makes an
object of it. A handler works in two steps, so that what several connections ask for in one turn of
the loop can be done together: `stage` looks at a frame and writes the answer that will be right if
all goes well; `commit` does the work, and changes the answers it cannot stand by. Nothing is sent
before `commit` has returned, and no Python handler is called between the two.

What it declines is offered to its `ExpressReader`, if it has one: requests that change no log are
answered at once, with records that the selector sends from their file.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize

from libc.stdint cimport int64_t, uint8_t

cdef enum:
    FRAME_BYTES_MIN = 14


cdef class Deferred:
    """An answer that comes later."""

    cpdef complete(self, bytes answer):
        """Here it is: a whole frame, its size in front. Called once."""
        self.answer = answer


cdef class ExpressReader:
    """Answers with records; this one has none."""

    def answer(self, bytes frame):
        """The parts of the answer to a frame; None if it is declined. For who has no selector."""
        cdef ms_answer answer
        if len(frame) < FRAME_BYTES_MIN or not self.read(
                <const uint8_t*><const char*>frame, len(frame), &answer):
            return None
        return self.parts(&answer)

    cdef bint read(self, const uint8_t* frame, int64_t size, ms_answer* answer) except -1:
        """Answer a frame, its size in front. Nothing has changed if it is declined."""
        return False

    cdef list parts(self, const ms_answer* answer):
        """The answer that was given last, for who sends it otherwise."""
        return [
            PyBytes_FromStringAndSize(<const char*>answer.head, answer.head_size),
            self.region_of(self.file, answer.position, answer.length),
            PyBytes_FromStringAndSize(<const char*>answer.tail, answer.tail_size),
        ]


cdef class ExpressHandler:
    """One that takes nothing."""

    def answer_all(self, frames, *, are_checked=False):
        """The answers to frames that arrive in one turn, up to the first one it declines.

        In place of one that comes later there is its `Deferred`.
        For whoever has frames but no selector, such as a test. The frames are bytearrays and are
        changed. They may be checked before, as on another thread.
        """
        cdef bytearray frame
        cdef object answer
        cdef int64_t size, checked = 0
        cdef list answers = [], sizes = []
        self.may_defer = True
        self.begin()
        for frame in frames:
            answer = bytearray(EXPRESS_ANSWER_BYTES_MAX)
            if len(frame) < FRAME_BYTES_MIN:
                break
            if are_checked and self.check != NULL:
                checked = self.check(<const uint8_t*><const char*>frame, len(frame))
            size = self.stage(
                <uint8_t*><char*>frame, len(frame), checked,
                <uint8_t*><char*><bytearray>answer)
            if size == EXPRESS_DECLINED:
                break
            if size == EXPRESS_DEFERRED:
                answers.append(self.deferred)
                self.deferred = None
            else:
                answers.append(answer)
            sizes.append(size)
        self.commit()
        return [
            bytes(answer[:size]) if size else answer for answer, size in zip(answers, sizes)]

    cdef int begin(self) except -1:
        """A turn begins."""
        return 0

    cdef int64_t stage(
            self, uint8_t* frame, int64_t size, int64_t checked, uint8_t* answer) except -2:
        """Take a frame, its size in front; how long the answer is, or EXPRESS_DECLINED.

        `checked` is what its `check` has found out about this frame, or 0. A handler that declines
        has changed nothing. The frame may be changed; it and the answer
        stay where they are until `commit`.
        """
        return EXPRESS_DECLINED

    cdef int commit(self) except -1:
        """Do what was staged. It raises nothing that concerns a single request."""
        return 0
