"""The wires between nodes that are processes: one proxy in front of each controller.

A connection is known by the client id of its first request, so that cuts have a direction: node 4
may lose node 1 while node 1 still reaches everybody. A cut wire is silent, as a lost cable is;
its connections end when it is mended.
"""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress
from typing import TYPE_CHECKING

from millstream.testing.loop_thread import LoopThread

if TYPE_CHECKING:
    from collections.abc import Iterable

_HEAD = struct.Struct(">ihhih")
_CHUNK = 1 << 16


class Wires:
    """The proxies, on a thread of their own."""

    def __init__(self) -> None:
        self._thread = LoopThread("wires")
        self._cut: set[tuple[int, int]] = set()
        self._servers: list[asyncio.Server] = []
        self._open: dict[tuple[int, int], set[asyncio.StreamWriter]] = {}

    def lead_to(self, node_id: int, port: int) -> int:
        """The port of a proxy in front of a node that listens on a port."""
        return self._thread.run(self._serve(node_id, port))

    def cut(self, ways: Iterable[tuple[int, int]]) -> None:
        """Let nothing pass any more from the first node of each pair to the second."""
        self._cut |= set(ways)

    def mend(self) -> None:
        """Let everything pass; connections that were silent end."""
        cut, self._cut = self._cut, set()
        self._thread.loop.call_soon_threadsafe(self._end, cut)

    def close(self) -> None:
        """End all."""
        self._thread.run(self._close())
        self._thread.close()

    async def _serve(self, node_id: int, port: int) -> int:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError, asyncio.IncompleteReadError):
                await self._connect(node_id, port, reader, writer)
            writer.close()

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def _connect(
        self, target: int, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        head = await reader.readexactly(_HEAD.size)
        client_id = await reader.readexactly(max(0, _HEAD.unpack(head)[-1]))
        source = int(client_id.rpartition(b"-")[2] or 0) if client_id[-1:].isdigit() else 0
        way = (source, target)
        there = self._open.setdefault(way, set())
        there.add(writer)
        try:
            if way in self._cut:
                await reader.read()
                return
            to_reader, to_writer = await asyncio.open_connection("127.0.0.1", port)
            to_writer.write(head + client_id)
            back = asyncio.ensure_future(self._pass((0, 0), to_reader, writer))
            try:
                await self._pass(way, reader, to_writer)
            finally:
                back.cancel()
                to_writer.close()
        finally:
            there.discard(writer)

    async def _pass(
        self, way: tuple[int, int], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(_CHUNK):
                if way not in self._cut:
                    writer.write(data)
                    await writer.drain()
        writer.close()

    def _end(self, ways: set[tuple[int, int]]) -> None:
        for way in ways:
            for writer in self._open.get(way, ()):
                writer.close()

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        self._end(set(self._open))
