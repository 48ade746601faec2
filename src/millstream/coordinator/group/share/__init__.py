"""Share groups: members that read the same partitions, each record by one of them.

`ShareGroups` decides about heartbeats and about which topics begin; `ShareGroup` is what the
records say; `ShareGroupCoordinator` is what the request handlers call. The records that members
read are the business of `coordinator.share`.
"""
