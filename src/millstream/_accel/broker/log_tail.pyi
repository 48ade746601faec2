from millstream.storage.log import log_tail

class LogTail(log_tail.LogTail):
    def append_fast(self, records: bytearray, leader_epoch: int, now_ms: int) -> int | None: ...
