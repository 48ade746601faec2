"""The producer: records from any thread or event loop to the leaders of their partitions.

`Producer` and `AsyncProducer` are its two APIs. Both append to one `RecordAccumulator`, from
which the `Sender` takes batches on the client's I/O thread; the `TransactionManager` decides what
may be sent when (`transactions/`). Importing this package imports none of them.
"""

from __future__ import annotations
