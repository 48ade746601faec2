"""One contender of `benchmarks.clients` in a process of its own: takes jobs, tells time and CPU.

A line of JSON in, a line of JSON out, until standard input ends. Each contender has its own
process, so that its threads, its memory and its interpreter lock are its own.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from typing import Any

from benchmarks.clients_contenders import CONTENDERS


def run(contender: Any, job: dict[str, Any]) -> dict[str, Any]:
    """Do a job and measure it: wall and CPU seconds of the process, all threads."""
    method = getattr(contender, job["job"].replace("-", "_"))
    arguments = job["topic"], job["size"], job["count"]
    contender.open(job["job"], *arguments)
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    found = method(*arguments)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    if isinstance(found, list):
        return {"latencies": found, "cpu": cpu, "wall": wall, "records": len(found)}
    return {"records": found, "cpu": cpu, "wall": wall}


def main() -> None:
    """Answer until nobody asks."""
    name, bootstrap = sys.argv[1:]
    contender = CONTENDERS[name](bootstrap)
    for line in sys.stdin:
        print(json.dumps(run(contender, json.loads(line))), flush=True)
