"""What a client does for every record and every request: batches, deliveries, sockets.

`millstream.client.producer.kernel` and `millstream.network.client.selector_factory` choose it. Its
sockets belong to a thread that never takes the GIL, on Linux only.
"""
