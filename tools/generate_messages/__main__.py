"""`python -m tools.generate_messages [--check | --show MESSAGE VERSION]`."""

from __future__ import annotations

import argparse
import sys

from tools import fresh
from tools.generate_messages.target import write_files


def main() -> int:
    """Write the messages, or only look."""
    parser = argparse.ArgumentParser(prog="python -m tools.generate_messages", description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if the messages are stale")
    parser.add_argument(
        "--show",
        nargs=2,
        metavar=("MESSAGE", "VERSION"),
        help="print the code that is compiled for a message version",
    )
    arguments = parser.parse_args()
    if arguments.check:
        return fresh.main()
    if arguments.show:
        _show(arguments.show[0], int(arguments.show[1]))
        return 0
    for name in write_files():
        print(f"wrote {name}")
    return 0


def _show(name: str, version: int) -> None:
    from millstream.protocol import messages
    from millstream.protocol.decoding import DecoderCompiler
    from millstream.protocol.encoding import EncoderCompiler
    from millstream.protocol.layout import layout_of

    layout = layout_of(getattr(messages, name), version)
    print(EncoderCompiler(layout).source())
    print(DecoderCompiler(layout, from_view=False).source())


if __name__ == "__main__":
    sys.exit(main())
