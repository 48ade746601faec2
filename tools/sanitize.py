"""The kernel's tests, fuzzers and a load under a sanitizer of the compiler: `make sanitize`.

`python -m tools.sanitize address` builds the package with AddressSanitizer and
UndefinedBehaviorSanitizer into build/address, `thread` with ThreadSanitizer into build/thread, and
both run what finds most there. The first report ends the run with an error. Needs Linux and gcc;
the interpreter itself is an ordinary one, so the sanitizer's library is loaded before it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

FLAGS = {
    "address": "-fsanitize=address,undefined -fno-sanitize-recover=undefined",
    "thread": "-fsanitize=thread",
}
PRELOADED = {"address": ("libasan.so", "libubsan.so"), "thread": ("libtsan.so",)}
# The interpreter keeps memory to its end, which is no leak of ours.
OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1:exitcode=66",
}
TESTS = {
    "address": ["tests/unit/accel", "tests/unit/records", "tests/properties/records"],
    "thread": ["tests/unit/accel"],
}
FUZZERS = {"address": ["batches", "arrow", "answers"], "thread": ["answers"]}
LOAD = "tests.integration.faults.memory"
"""Clients and a broker process, both on the sanitized kernel, with damaged and large requests."""
MEMORY_BYTES_MAX = 1 << 40  # A sanitizer keeps what was freed.


def build(kind: str) -> Path:
    """Build the package for a sanitizer; where it is."""
    place = Path("build", kind)
    environment = {
        **os.environ,
        "MILLSTREAM_CFLAGS": f"-O1 -g -fno-omit-frame-pointer {FLAGS[kind]}",
        "LDFLAGS": FLAGS[kind],
    }
    command = [sys.executable, "setup.py", "--quiet", "build", "--build-base", str(place)]
    subprocess.run([*command, "--build-lib", str(place / "lib")], env=environment, check=True)
    return place / "lib"


def library(name: str) -> str:
    """Where the compiler keeps one of its libraries."""
    compiler = sysconfig.get_config_var("CC").split()[0]
    command = [compiler, f"-print-file-name={name}"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def run(kind: str, place: Path, arguments: list[str]) -> None:
    """Run `python -m ...` on the sanitized kernel."""
    environment = {
        **os.environ,
        **OPTIONS,
        "LD_PRELOAD": " ".join(map(library, PRELOADED[kind])),
        "MILLSTREAM_IMPL": "compiled",
        "PYTHONMALLOC": "malloc",  # Python's own pools would hide what is wrong in objects.
        "PYTHONPATH": str(place.resolve()),
    }
    # ThreadSanitizer wants its addresses where they are without randomisation.
    command = ["setarch", "-R"] if kind == "thread" else []
    subprocess.run([*command, sys.executable, "-m", *arguments], env=environment, check=True)


def main() -> None:
    """Build and run, as asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=FLAGS)
    parser.add_argument("--seconds", type=int, default=20, help="for each fuzzer and the load")
    parser.add_argument("--tests", nargs="*", help="instead of the usual ones")
    given = parser.parse_args()
    place = build(given.kind)
    tests = TESTS[given.kind] if given.tests is None else given.tests
    run(given.kind, place, ["pytest", "-q", "-x", "-p", "no:cacheprovider", *tests])
    for fuzzer in FUZZERS[given.kind]:
        run(given.kind, place, [f"tests.fuzz.{fuzzer}", "--seconds", str(given.seconds)])
    load = [LOAD, "--seconds", str(given.seconds), "--growth-bytes", str(MEMORY_BYTES_MAX)]
    run(given.kind, place, load)


if __name__ == "__main__":
    main()
