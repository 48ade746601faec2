class ConnectionState:
    is_open: bool
    mute_reasons: int
    full_path: int
    in_flight: int
    deferred: int
    unsent_bytes: int
    carried_bytes: int
    start: int
    end: int
    turn_frames: int
    own: memoryview | None
    last_active_ms: int
    requests: int
    bytes_in: int
    bytes_out: int
    grants_version: int
    byte_allowance: int
