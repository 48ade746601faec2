"""A node as a process: `millstream server start`.

Reads the settings, runs a `Node` until a signal comes, and leaves with a code that says how it
went. The first SIGTERM or SIGINT stops in order, a second one at once: what was acknowledged is
safe either way, the next start only takes longer.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING, Final

from millstream.clock import SystemClock
from millstream.errors import MillstreamError
from millstream.node.config import known_keys, node_config
from millstream.node.logs import configure
from millstream.node.properties import from_environment, parse_assignments, read_properties

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.node.config import NodeConfig
    from millstream.node.node import Node

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_FORCED: Final = 130

_logger = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code."""
    parsed = _parser().parse_args(arguments)
    try:
        config = _read_config(parsed, os.environ)
    except MillstreamError as error:
        sys.stderr.write(f"millstream: {error}\n")
        return EXIT_USAGE
    configure(config.process.log_format, config.process.log_level)
    try:
        return asyncio.run(_run(config))
    except MillstreamError as error:
        sys.stderr.write(f"millstream: {error}\n")
        return EXIT_FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="millstream")
    server = parser.add_subparsers(required=True, metavar="server").add_parser("server")
    commands = server.add_subparsers(required=True, metavar="start")
    start = commands.add_parser("start", help="run a node until it is told to stop")
    start.add_argument("--data", metavar="DIR", help="where to keep everything (log.dirs)")
    start.add_argument("--listen", metavar="HOST:PORT", help="where clients connect")
    start.add_argument("--config", metavar="FILE", help="a server.properties")
    start.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="settings",
        help="a setting by Kafka's key; may be given several times and wins over all others",
    )
    return parser


def _read_config(parsed: argparse.Namespace, environment: Mapping[str, str]) -> NodeConfig:
    """The file, then the environment, then the arguments."""
    given = read_properties(parsed.config) if parsed.config else {}
    from_variables, unknown = from_environment(environment, known_keys())
    given |= from_variables
    if parsed.data is not None:
        given["log.dirs"] = parsed.data
    if parsed.listen is not None:
        given["listeners"] = f"PLAINTEXT://{parsed.listen}"
    given |= parse_assignments(parsed.settings)
    given.setdefault("log.dirs", given.get("log.dir", "millstream-data"))
    return node_config(given, unknown)


async def _run(config: NodeConfig) -> int:
    from millstream.node.node import Node  # A wrong setting is told at once.

    clock = SystemClock()
    finished: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def on_fatal(error: Exception) -> None:
        if not finished.done():
            finished.set_result(EXIT_FAILED)

    node = Node(config, clock=clock, on_fatal=on_fatal)
    await node.start()
    signals = _Signals(finished)
    _announce(node)
    # What a start leaves behind stays for good: no collection need look at it again.
    gc.collect()
    gc.freeze()
    code = await finished
    await node.stop()
    signals.remove()
    _logger.info("stopped")
    return code


def _announce(node: Node) -> None:
    where = ", ".join(str(each) for each in (*node.advertised, *node.controller_endpoints))
    _logger.info(
        "ready: %s (cluster %s, node %d, data in %s)",
        where,
        node.cluster_id,
        node.config.process.node_id,
        ", ".join(node.config.directories),
    )
    sys.stdout.write(f"millstream is ready: {node.bootstrap_servers}\n")
    sys.stdout.flush()


class _Signals:
    """The first signal asks for an orderly end, the second one ends the process."""

    SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

    def __init__(self, finished: asyncio.Future[int]) -> None:
        self._finished = finished
        self._loop = asyncio.get_running_loop()
        for each in self.SIGNALS:
            self._loop.add_signal_handler(each, self._received, each)

    def remove(self) -> None:
        """Leave signals to the system again."""
        for each in self.SIGNALS:
            self._loop.remove_signal_handler(each)

    def _received(self, received: signal.Signals) -> None:
        if not self._finished.done():
            _logger.info("%s: stopping; once more to stop at once", received.name)
            self._finished.set_result(EXIT_OK)
            # From now on the signal ends the process even if the loop is busy.
            for each in self.SIGNALS:
                self._loop.remove_signal_handler(each)
                signal.signal(each, _exit_at_once)


def _exit_at_once(number: int, _: object) -> None:
    os.write(2, b"millstream: stopped at once\n")
    os._exit(EXIT_FORCED)
