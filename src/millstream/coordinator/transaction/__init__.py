"""Transactions: who may write, what a transaction holds, and how it ends, all or nothing.

`TransactionCoordinator` is the facade; `TransactionShard` the state machine of one partition of
`__transaction_state`; `initialization`, `membership` and `ending` are its rules, as functions from
a transaction's state to its next. `markers` says which partitions must still hear of an end.
"""
