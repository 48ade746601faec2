"""KRaft: the consensus under the metadata log, as a state machine without hands.

`core.RaftCore` decides, `driver.RaftDriver` acts over the `ports`. What lives where is drawn in
`docs/internals/raft.md`. Nothing here opens a file or a socket, or reads a clock.
"""

from __future__ import annotations
