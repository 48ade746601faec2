"""Which plain connections are read by the compiled selector, and which by the event loop.

`Acceptor` asks for each new one. The selector needs the compiled kernel and Linux; without either,
and for TLS, the loop's own transports do the same work, and everything behaves alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream import _accel

if TYPE_CHECKING:
    from millstream._accel.broker.selector import Selector
    from millstream.network.server.processor import Processor


def find_selector(processor: Processor) -> Selector | None:
    """The selector of a processor, made at the first call; None where there can be none."""
    if processor.selector is None and (found := _accel.find("broker.selector")) is not None:
        processor.selector = found.Selector(processor.loop, processor)
    return processor.selector
