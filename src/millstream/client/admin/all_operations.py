"""Everything that an admin can do, in one class."""

from __future__ import annotations

from millstream.client.admin.topics import TopicOperations


class AdminOperations(TopicOperations):
    """All subjects together."""
