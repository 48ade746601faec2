"""Administration of a cluster: `Admin` blocks, `AsyncAdmin` is awaited; both do the same.

What can be done is written once, as coroutines of the I/O thread, one module per subject; the
faces only say how to wait. Plural calls give `Outcomes`, one per item; singular calls raise.
"""
