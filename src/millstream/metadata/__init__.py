"""Cluster metadata: immutable images of the metadata log, and who is told when they change.

`image` and `delta` turn records into images, `loader` feeds them to publishers, `cache` answers
the broker's questions, `answers` keeps large answers, `snapshots` turns an image back into records.
Nothing here decides what the metadata should be (that is `controller`) and nothing here touches a
socket, a file or a clock.
"""

from __future__ import annotations
