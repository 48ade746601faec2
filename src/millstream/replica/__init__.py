"""The replicas of this broker: the leader's rules, appends, fetches, and who waits for what.

`ReplicaManager` is the door for request handlers and for metadata changes; `Partition` holds the
rules of one partition and has no hands. It knows logs (`storage`) and cluster images (`metadata`),
not the controller, the coordinators or the network. docs/internals/replication.md tells more.
"""
