"""What a broker does for ordinary Produce and Fetch requests: sockets, frames, logs.

`network`, `storage`, `replica` and `server` choose it where it was built. It declines whatever is
unusual, and has changed nothing then.
"""
