"""Share groups below the membership: which records are with whom, and how that is remembered.

`ShareCoordinator` keeps the state of share partitions in `__share_group_state`; `SharePartition`
is the leader's half, which hands records out, locks them and takes acknowledgements; `sessions`
knows which partitions a member fetches.
"""
