"""The group coordinator: who is in a group, who reads what, and how far everybody has read.

`coordinator.GroupCoordinator` is what requests come to; `shard.GroupShard` is the state of one
partition of `__consumer_offsets`. A kind of group (`classic`, later `consumer` and `share`) brings
its `Group` and says which records it replays; `offsets` belong to groups of every kind.
"""
