"""Groups, transactions and share state: coordinators that keep what they decide as records.

A coordinator owns some partitions of an internal topic. A request becomes a decision: records and
an answer. `runtime` writes the records, replays them into the state, and gives the answer when
they are safe. The state machines in `group`, `transaction` and `share` are told the time, hold no
clock, file or socket, and know nothing of replicas: what they need is stated in `ports`.
"""
