"""What a node answers: requests in, responses out, for broker and controller listeners.

`node` makes a `KafkaApis` or a `ControllerApis` and gives its `handle` to the network. There is one
module per API under `handlers`. Nothing here opens a socket or a file, starts a thread or waits;
what must wait is `PENDING` and is answered later. docs/internals/server.md tells more.
"""
