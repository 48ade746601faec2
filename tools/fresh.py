"""Is generated code current? `python -m tools.fresh` says so and fails if it is not."""

from __future__ import annotations

import sys

from tools.generate_messages.target import stale_files


def main() -> int:
    """Print what is stale; 1 if anything is."""
    stale = stale_files()
    for name in stale:
        print(f"stale: src/millstream/protocol/messages/{name} (run `make generate`)")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
