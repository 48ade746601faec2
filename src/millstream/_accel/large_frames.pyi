from typing import Final

from millstream._accel.poller import Poller

class LargeFrames(Poller):
    lent: Final[int]
