"""What all tests share: Hypothesis profiles.

`HYPOTHESIS_PROFILE` picks one: dev (default), ci (reproducible) or night (long).
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

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
