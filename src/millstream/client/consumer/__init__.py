"""The consumer: subscriptions, fetching, offsets, membership in a group, and bounded reads.

In reading order: `consumer`, `async_consumer` and `consumer_api` (what users call), `consuming`
(opening and using, also of share consumers), `config`; `session` and `steps` (the half on the
application's thread); `fetch_buffer`, `completed_fetches` and `mailbox` (where the halves meet);
`core`, `subscription_state`, `positions`, `starting_point`, `offset_lookup`, `topic_lookup` and
`validation` (the I/O thread: where to read); `fetcher`, `fetch_session` and `fetch_answers` (the
I/O thread: reading); `membership` (the group); `listeners` and `interceptors` (the user's hooks);
`read_topic`, `topic_read`, `range_reading`, `bounds` and `arrow` (bounded reads and columns).
"""
