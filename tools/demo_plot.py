"""The picture at the end of the demo: what was sent and done each second, and what was waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def draw(samples: Sequence[tuple[float, int, int, int]], path: Path) -> None:
    """`samples` are seconds, orders sent so far, orders done so far, and the lag."""
    import matplotlib as mpl

    mpl.use("Agg")  # A file, no window.
    import matplotlib.pyplot as plt

    seconds = [each[0] for each in samples]
    figure, (above, below) = plt.subplots(2, 1, sharex=True, figsize=(8, 5))
    for index, label in ((1, "sent"), (2, "done by all queries")):
        above.plot(seconds, _rates(samples, index), label=label)
    above.set_ylabel("orders per second")
    above.legend()
    below.fill_between(seconds, [each[3] for each in samples], alpha=0.4)
    below.set_ylabel("lag, orders")
    below.set_xlabel("seconds")
    figure.suptitle("Millstream and Spark: throughput and lag")
    for axes in (above, below):
        axes.grid(alpha=0.3)
        axes.set_ylim(bottom=0)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _rates(samples: Sequence[tuple[float, int, int, int]], index: int) -> list[float]:
    rates, before = [], (0.0, 0)
    for sample in samples:
        now: Any = sample[0], sample[index]
        rates.append((now[1] - before[1]) / max(now[0] - before[0], 1e-3))
        before = now
    return rates
