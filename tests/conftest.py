"""What all tests share: Hypothesis profiles, and signals as a terminal's programs have them.

`HYPOTHESIS_PROFILE` picks one: dev (default), ci (reproducible) or night (long).
"""

from __future__ import annotations

import os
import signal

from hypothesis import HealthCheck, settings

# A shell's background job has Ctrl-C ignored, and so would every process that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Shared runners stall now and then; a slow example is not a wrong one.
settings.register_profile("dev", deadline=None, max_examples=100, print_blob=True)
settings.register_profile(
    "ci",
    deadline=None,
    max_examples=100,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("night", deadline=None, max_examples=5_000, print_blob=True)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if "CI" in os.environ else "dev")
)
