"""A consumer's membership in a group: joining, staying, giving up and getting partitions, offsets.

`membership.Membership` is the whole of it, an actor of the client's runtime that the consumer's
core owns. Its parts are state machines that are told the time; none has a thread, a clock or a
socket, and none runs a listener of the user.
"""
