"""The controller: decides what the cluster's metadata becomes.

`QuorumController` takes requests and time and gives records to the metadata log; each `*_control`
module decides for one kind of metadata. A decision changes nothing: only replaying its records
does, with the same code that brokers replay with. No sockets, no files, no clock.
"""

from __future__ import annotations
