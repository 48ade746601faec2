"""The consumer: subscriptions, fetching, offsets, and membership in a group."""
