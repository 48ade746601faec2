from typing import Final

from millstream._accel.broker.poller import Poller

class LargeFrames(Poller):
    lent: Final[int]
