"""The composition root: what a Millstream process is made of, in the order in which it starts.

`node.Node` is a broker, a controller or both on one event loop; `main` is the process around it.
Nothing imports this package but the command line and `testing`. docs/internals/node.md has the
order of start and stop.
"""

from __future__ import annotations
