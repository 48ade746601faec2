"""Whole clusters in one thread under virtual time, from one seed.

`SimCluster` runs real nodes in a simulated `World` of machines, disks, clocks and a network. The
same seed gives the same run, event by event.
"""

from millstream.testing.simulation.cluster import SimCluster
from millstream.testing.simulation.machine import SimMachine
from millstream.testing.simulation.network import SimNetwork
from millstream.testing.simulation.world import World

__all__ = ["SimCluster", "SimMachine", "SimNetwork", "World"]
