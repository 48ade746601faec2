"""A node as a process: `millstream server start`, `stop` and `status`.

Reads the settings, runs a `Node` until a signal comes, and leaves with a code that says how it
went. The first SIGTERM, SIGINT or SIGHUP (unless `nohup` said to ignore it) stops in order, a
second one at once: what was acknowledged is safe either way, the next start only takes longer.
SIGUSR1 stops in order without asking the controller, for who stops the whole cluster.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib.util
import json
import logging
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Final, NoReturn

from millstream.clock import SystemClock
from millstream.errors import InvalidConfig, MillstreamError
from millstream.network.server.descriptors import ENOUGH, raise_limit
from millstream.node.config import known_keys, node_config
from millstream.node.formatting import storage_info
from millstream.node.listen_option import with_advertise, with_listen
from millstream.node.logs import configure
from millstream.node.processes import find_process, stop_processes
from millstream.node.properties import from_environment, parse_assignments, read_properties
from millstream.storage.disk import DiskFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.node.config import NodeConfig
    from millstream.node.node import Node

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_NOT_RUNNING: Final = 3
"""As init scripts have it, and as commands that find no broker."""
EXIT_FORCED: Final = 130

DEFAULT_DATA: Final = "millstream-data"
STOP_TIMEOUT_S: Final = 30.0
END_OF_CLUSTER: Final = signal.SIGUSR1
"""Stops a node whose controllers stop as well, so that none is left to be asked."""
_SECONDS_MAX: Final = 1e9

_logger = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `server start`, `stop` or `status`; the exit code."""
    parsed = parser().parse_args(arguments)
    try:
        config = read_config(
            os.environ,
            file=parsed.config,
            data=parsed.data,
            listen=getattr(parsed, "listen", None),
            advertise=getattr(parsed, "advertise", None),
            override_dynamic=getattr(parsed, "override_dynamic", ()),
            settings=parsed.settings,
            as_json=parsed.as_json,
        )
    except MillstreamError as error:
        return _complain(error, EXIT_USAGE)
    try:
        match parsed.command:
            case "stop":
                timeout_ms = int(parsed.timeout * 1000)
                return _stop(config, timeout_ms, force=parsed.force, as_json=parsed.as_json)
            case "status":
                return _show_status(config, as_json=parsed.as_json)
            case _:
                configure(config.process.log_format, config.process.log_level)
                _raise_descriptor_limit()
                with asyncio.Runner(loop_factory=loop_factory(config)) as runner:
                    return runner.run(_run(config, as_json=parsed.as_json))
    except MillstreamError as error:
        return _complain(error, EXIT_FAILED)


def loop_factory(config: NodeConfig) -> Callable[[], asyncio.AbstractEventLoop] | None:
    """What makes the event loop: uvloop if it may be and is installed, else asyncio's own."""
    wanted = config.process.event_loop
    if wanted == "asyncio" or (wanted == "auto" and importlib.util.find_spec("uvloop") is None):
        return None
    try:
        from uvloop import new_event_loop
    except ImportError as error:
        raise InvalidConfig(
            "millstream.event.loop=uvloop needs it: pip install 'millstream[fast]'"
        ) from error
    return new_event_loop


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, as all other commands do."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_USAGE, f"millstream: {message} (see --help)\n")


def parser() -> argparse.ArgumentParser:
    """What `server` understands."""
    root = _Parser(prog="millstream")
    server = root.add_subparsers(required=True, metavar="server").add_parser("server")
    commands = server.add_subparsers(required=True, dest="command", metavar="start|stop|status")
    start = commands.add_parser("start", help="run a node until it is told to stop")
    _add_settings(start)
    start.add_argument("--listen", metavar="HOST:PORT", help="where clients connect")
    start.add_argument(
        "--advertise",
        metavar="HOST[:PORT]",
        help="what clients are told to connect to, where it differs from --listen",
    )
    start.add_argument(
        "--override-dynamic",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a dynamic setting of the broker for this process, whatever the cluster says",
    )
    _add_json(start)
    stop = commands.add_parser("stop", help="stop the node that runs on a directory, in order")
    _add_settings(stop)
    stop.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=_seconds,
        default=STOP_TIMEOUT_S,
        help="how long to wait for it",
    )
    stop.add_argument("--force", action="store_true", help="then end it at once")
    _add_json(stop)
    status = commands.add_parser("status", help="whether a node runs on a directory")
    _add_settings(status)
    _add_json(status)
    return root


def _add_json(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", dest="as_json", help="print JSON")


def _add_settings(command: argparse.ArgumentParser) -> None:
    command.add_argument("--data", metavar="DIR", help="where it keeps everything (log.dirs)")
    command.add_argument("--config", metavar="FILE", help="a server.properties")
    command.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="settings",
        help="a setting by Kafka's key; may be given several times and wins over all others",
    )


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= _SECONDS_MAX:
        raise argparse.ArgumentTypeError(f"{text}: must be a number of seconds above 0")
    return seconds


def read_config(
    environment: Mapping[str, str],
    *,
    file: str | None = None,
    data: str | None = None,
    listen: str | None = None,
    advertise: str | None = None,
    settings: Sequence[str] = (),
    override_dynamic: Sequence[str] = (),
    as_json: bool = False,
) -> NodeConfig:
    """The file, then the environment, then the arguments; `as_json` is for the log, too."""
    given = read_properties(file) if file else {}
    from_variables, unknown = from_environment(environment, known_keys())
    given |= from_variables
    if data is not None:
        given["log.dirs"] = data
    assigned = parse_assignments(settings)
    if listen is not None and "listeners" not in assigned:
        given = with_listen(listen, {**given, **assigned})
    if advertise is not None and "advertised.listeners" not in assigned:
        given = with_advertise(advertise, {**given, **assigned})
    given |= assigned
    given.setdefault("log.dirs", given.get("log.dir", DEFAULT_DATA))
    if as_json:
        given.setdefault("millstream.log.format", "json")
    return node_config(given, unknown, parse_assignments(override_dynamic))


def _complain(error: MillstreamError, code: int) -> int:
    sys.stderr.write(f"millstream: {error}\n")
    return code


# Seen from outside.


def _stop(config: NodeConfig, timeout_ms: int, *, force: bool, as_json: bool) -> int:
    where = ", ".join(config.directories)
    process = find_process(config)
    if process is None:
        sys.stderr.write(
            f"millstream: no server runs on {where}; if it has another directory, name it with "
            "--data or --config\n"
        )
        return EXIT_FAILED
    if not as_json:
        sys.stdout.write(f"stopping process {process.pid} on {where}\n")
        sys.stdout.flush()
    clock = SystemClock()
    still_running = stop_processes(
        [process],
        timeout_ms=timeout_ms,
        force=force,
        clock=clock,
        sleep_ms=lambda ms: time.sleep(ms / 1000),
    )
    if still_running:
        sys.stderr.write(
            f"millstream: process {process.pid} is still stopping after {timeout_ms / 1000:g} s; "
            "wait, or end it at once with --force\n"
        )
        return EXIT_FAILED
    sys.stdout.write(json.dumps({"stopped": process.pid}) + "\n" if as_json else "stopped\n")
    return EXIT_OK


def _show_status(config: NodeConfig, *, as_json: bool) -> int:
    process = find_process(config)
    info = storage_info(config, DiskFileSystem())
    meta = next(iter(info.metas.values()), None)
    status = {
        "running": process is not None,
        "pid": None if process is None else process.pid,
        "data": list(config.directories),
        "cluster_id": info.cluster_id,
        "node_id": None if meta is None else meta.node_id,
    }
    if as_json:
        sys.stdout.write(json.dumps(status, indent=2) + "\n")
    else:
        state = "not running" if process is None else f"running, process {process.pid}"
        whose = f"cluster {info.cluster_id}, node {status['node_id']}" if meta else "not formatted"
        sys.stdout.write(f"{state}\n{', '.join(config.directories)}: {whose}\n")
    return EXIT_OK if process is not None else EXIT_NOT_RUNNING


# The process itself.


def _raise_descriptor_limit() -> None:
    limit = raise_limit()
    if limit < ENOUGH:
        _logger.warning(
            "this process may have %d files and sockets open, which are few: raise the limit "
            "(ulimit -Hn)",
            limit,
        )


async def _run(config: NodeConfig, *, as_json: bool) -> int:
    from millstream.node.node import Node  # A wrong setting is told at once.

    finished: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def on_fatal(error: Exception) -> None:
        if not finished.done():
            finished.set_result(EXIT_FAILED)

    node = Node(config, on_fatal=on_fatal)
    await node.start()
    signals = _Signals(finished)
    _announce(node, as_json=as_json)
    # What a start leaves behind stays for good: no collection need look at it again. There is
    # hardly any garbage in it, and to look for that would keep the first client waiting.
    gc.freeze()
    gc.enable()
    code = await finished
    await node.stop(is_controlled=not signals.is_end_of_cluster)
    signals.remove()
    _logger.info("stopped")
    return code


def _announce(node: Node, *, as_json: bool) -> None:
    facts = {
        "bootstrap_servers": node.bootstrap_servers,
        "cluster_id": node.cluster_id,
        "node_id": node.config.process.node_id,
    }
    where = ", ".join(str(each) for each in (*node.advertised, *node.controller_endpoints))
    _logger.info(
        "ready: %s (cluster %s, node %d, data in %s)",
        where,
        node.cluster_id,
        node.config.process.node_id,
        ", ".join(node.config.directories),
        extra={"fields": facts},
    )
    if as_json:
        ready = {"ready": True, "pid": os.getpid(), **facts, "data": list(node.config.directories)}
        sys.stdout.write(json.dumps(ready) + "\n")
    else:
        everywhere = " (listens on every address)" if node.is_everywhere else ""
        sys.stdout.write(f"millstream is ready: {node.bootstrap_servers}{everywhere}\n")
    sys.stdout.flush()


class _Signals:
    """The first signal asks for an orderly end, the second one ends the process."""

    SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, END_OF_CLUSTER)

    def __init__(self, finished: asyncio.Future[int]) -> None:
        self.is_end_of_cluster = False
        self._finished = finished
        self._loop = asyncio.get_running_loop()
        self._taken = [each for each in self.SIGNALS if signal.getsignal(each) != signal.SIG_IGN]
        for each in self._taken:
            self._loop.add_signal_handler(each, self._received, each)

    def remove(self) -> None:
        """Leave signals to the system again."""
        for each in self._taken:
            self._loop.remove_signal_handler(each)

    def _received(self, received: signal.Signals) -> None:
        if not self._finished.done():
            _logger.info("%s: stopping; once more to stop at once", received.name)
            self.is_end_of_cluster = received == END_OF_CLUSTER
            self._finished.set_result(EXIT_OK)
            # From now on the signal ends the process even if the loop is busy.
            for each in self._taken:
                self._loop.remove_signal_handler(each)
                signal.signal(each, _exit_at_once)


def _exit_at_once(number: int, _: object) -> None:
    os.write(2, b"millstream: stopped at once\n")
    os._exit(EXIT_FORCED)
