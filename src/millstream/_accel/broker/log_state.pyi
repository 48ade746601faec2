from millstream.storage.log.log_state import (
    EpochState as EpochState,
)
from millstream.storage.log.log_state import (
    FileState as FileState,
)
from millstream.storage.log.log_state import (
    IndexState as IndexState,
)
from millstream.storage.log.log_state import (
    ProducersState as ProducersState,
)
from millstream.storage.log.log_state import (
    ProducerState as ProducerState,
)
from millstream.storage.log.log_state import (
    SegmentIndexState as SegmentIndexState,
)
from millstream.storage.log.log_state import (
    SegmentList as SegmentList,
)
from millstream.storage.log.log_state import (
    SegmentState as SegmentState,
)
from millstream.storage.log.log_state import (
    WakeState as WakeState,
)
