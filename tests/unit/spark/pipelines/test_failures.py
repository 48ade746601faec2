"""The heart of an error, and whether starting again may help."""

from __future__ import annotations

import pytest

from millstream.spark.pipelines.failures import explain, may_help_to_restart

STREAM_ERROR = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted
Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
millstream.errors.client.BrokerUnreachable: no broker answers at localhost:1
 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: x
"""


class AnalysisException(Exception):
    """Called as Spark's."""


def test_the_error_of_python_is_the_heart() -> None:
    found = explain(RuntimeError(STREAM_ERROR))

    assert found == "BrokerUnreachable: no broker answers at localhost:1"
    assert may_help_to_restart(RuntimeError(STREAM_ERROR))


def test_an_expectation_is_told_in_its_own_words() -> None:
    error = RuntimeError(
        "Job aborted: [USER_RAISED_EXCEPTION] a row of orders does not fulfil the expectation "
        "paid: amount > 0 SQLSTATE: P0001\n\tat org.apache"
    )

    assert explain(error) == "a row of orders does not fulfil the expectation paid: amount > 0"
    assert not may_help_to_restart(error)


def test_other_errors_keep_their_first_lines() -> None:
    assert explain(ValueError("a\n\n  at x\nb\nc\nd")) == "a b c"
    assert explain(ValueError("")) == "ValueError"


def test_a_plan_that_cannot_be_streamed_is_not_tried_again() -> None:
    assert not may_help_to_restart(AnalysisException("no such column"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "Job aborted\nTraceback (most recent call last):\n  File 'worker.py'\n"
            "ModuleNotFoundError: No module named 'millstream'\n",
            "the Python of a task has no module millstream. Spark's executors need",
        ),
        (
            'java.io.IOException: Cannot run program "/opt/env/bin/python": error=2, No such file',
            "there is no /opt/env/bin/python where a task runs. Spark's executors need",
        ),
    ],
)
def test_what_executors_lack_is_told_and_not_tried_again(text: str, says: str) -> None:
    error = RuntimeError(text)

    assert explain(error).startswith(says)
    assert not may_help_to_restart(error)


def test_a_refusal_of_the_sink_is_not_tried_again() -> None:
    refused = "millstream.errors.sinks.SinkRefused: batch 7 is written already, but not with these"

    assert not may_help_to_restart(RuntimeError(f"Job aborted\n{refused}\n"))
