"""A consumer's membership in a group: joining, staying, partitions that come and go, offsets.

`membership.Membership` is the whole of it, an actor of the client's runtime that the consumer's
core owns. Its parts are state machines that are told the time; none has a thread, a clock or a
socket, and none runs a listener of the user.

In reading order: `membership`; `machine` (what both protocols need), `classic` with
`classic_messages` and `assignors`, `consumer_protocol` with `consumer_messages` and
`reconciliation`; `handover` and `events` (what the application hears); `heartbeat` and `link` (the
way to the coordinator); `commits` and `offset_fetches` (offsets); `group_view` and `subscription`
(which topics); `port` (what it needs of its consumer).
"""
