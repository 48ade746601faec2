"""ISO 8601 durations of days and less."""

from __future__ import annotations

import pytest

from millstream.config.durations import duration_ms
from millstream.errors import InvalidConfig


@pytest.mark.parametrize(
    ("text", "ms"),
    [("PT1H", 3_600_000), ("P1DT2H30M", 95_400_000), ("PT0.5S", 500), ("pt10m", 600_000)],
)
def test_durations_are_read(text: str, ms: int) -> None:
    assert duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "P", "PT", "1h", "P1Y", "-PT1H", "PT1H ", "PTS"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match="ISO 8601"):
        duration_ms(text)
