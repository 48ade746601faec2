"""The JVM's stderr as it is passed on."""

from __future__ import annotations

import os

from millstream.spark.jvm import NOISE, pass_on


def test_the_noise_of_a_start_is_left_out_and_everything_else_is_passed_on() -> None:
    reading, writing = os.pipe()
    shown, to = os.pipe()
    for noise in NOISE:
        os.write(writing, b"26/11/18 WARN " + noise + b" and more\n")
    os.write(writing, b"26/11/18 ERROR disk full\nno newline")
    os.close(writing)

    pass_on(reading, to)
    os.close(to)

    with os.fdopen(shown, "rb") as lines:
        assert lines.read() == b"26/11/18 ERROR disk full\nno newline"


def test_a_closed_stderr_holds_nobody_up() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"lines\n" * 3)
    os.close(writing)
    shown, to = os.pipe()
    os.close(shown)

    pass_on(reading, to)

    os.close(to)
