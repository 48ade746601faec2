"""The producer: records from any thread or event loop to the leaders of their partitions.

`Producer` and `AsyncProducer` are the two faces. Both append to one `RecordAccumulator`, from
which the `Sender` takes batches on the client's I/O thread; the `TransactionManager` decides what
may be sent when. Importing this package imports none of them.
"""

from __future__ import annotations
