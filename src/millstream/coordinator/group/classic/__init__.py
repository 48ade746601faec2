"""Groups of the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

`group.ClassicGroup` is the state of one group, `rebalance` its way from one generation to the
next, `joining` who may enter, and `manager.ClassicGroups` what the shard calls. State that only
concerns members who wait is changed at once; what is written is there to be loaded again.
"""
