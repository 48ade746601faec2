"""Whole nodes in a simulated world: they elect, lose their leader, stand still and come back."""

from __future__ import annotations

from millstream.testing.simulation import SimCluster


def started(seed: int, nodes: int = 3, controllers: int = 0) -> SimCluster:
    cluster = SimCluster(seed, nodes, controllers=controllers)
    cluster.start()
    return cluster


def test_three_nodes_elect_a_controller_and_serve() -> None:
    cluster = started(1)

    assert cluster.controller_id() in cluster.controller_ids
    assert cluster.serving == [1, 2, 3]


def test_controllers_and_brokers_are_nodes_of_their_own() -> None:
    cluster = started(2, nodes=2, controllers=3)

    assert cluster.controller_id() in (3, 4, 5)
    assert cluster.serving == [1, 2, 3, 4, 5]


def elects_another(cluster: SimCluster, old: int) -> None:
    cluster.run_until(
        lambda: cluster.controller_id() not in (None, old), 30_000, "another node leads"
    )


def test_the_others_elect_a_leader_when_theirs_is_killed_and_it_comes_back() -> None:
    cluster = started(3)
    old = cluster.controller_id()
    assert old is not None
    cluster.machines[old].kill()

    elects_another(cluster, old)
    cluster.start(old)

    assert cluster.serving == [1, 2, 3]


def test_a_machine_that_lost_its_power_comes_back_with_what_was_synced() -> None:
    cluster = started(4)
    for machine in cluster.machines.values():
        machine.lose_power()

    cluster.start()

    assert cluster.serving == [1, 2, 3]


def test_a_leader_that_is_cut_off_is_replaced_and_follows_when_the_way_is_mended() -> None:
    cluster = started(5)
    old = cluster.controller_id()
    assert old is not None
    cluster.isolate(old)
    elects_another(cluster, old)

    cluster.heal()

    follower = cluster.node(old).shared
    assert follower is not None
    cluster.run_until(
        lambda: follower.driver.core.leader_id == cluster.controller_id(), 30_000, "it follows"
    )


def test_a_leader_that_stands_still_is_replaced() -> None:
    cluster = started(6)
    old = cluster.controller_id()
    assert old is not None
    cluster.machines[old].pause()
    elects_another(cluster, old)

    cluster.machines[old].resume()

    cluster.run_for(5000)
    assert cluster.controller_id() != old


def test_a_node_that_stops_in_order_leaves_the_cluster() -> None:
    cluster = started(7)
    cluster.machines[1].stop()

    cluster.run_until(lambda: not cluster.machines[1].is_running, 60_000, "it has stopped")

    assert cluster.machines[1].failure is None
    cluster.start(1)
