"""Mixing matrices are made on the host: their rows judge what they do to clients' updates."""

import numpy as np
from hypothesis import strategies as st

from neorl_core.federated import (
    averaging_rounds,
    gossip_step,
    hierarchical_mixing,
    metropolis_mixing,
    ring_mixing,
    star_mixing,
)
from neorl_core.testing import ROWS as DRAWS
from neorl_core.testing import Edge, Refusal, Row, assert_close, in_units, mapped, rows

CLIENTS, SIZES = 6, (2, 3)
UPDATES = in_units(st.tuples(rows(CLIENTS, 2)))
EDGES = [Edge((np.zeros((CLIENTS, 2)),)), Edge((np.ones((CLIENTS, 0)),))]
PATH = ((0, 1), (1, 2), (2, 3), (3, 4), (4, 5))
LOOP = (*PATH, (5, 0), (0, 3))
COUNTS = st.sampled_from([2, CLIENTS]).map(lambda count: {"count": count})
LINKS = st.sampled_from([PATH, LOOP, ()]).map(lambda links: {"links": links})


def adjacency(links):
    matrix = np.zeros((CLIENTS, CLIENTS), bool)
    for i, j in links:
        matrix[i, j] = matrix[j, i] = True
    return matrix


def on_links(updates, *, links):
    return gossip_step(updates, metropolis_mixing(adjacency(links))).value


def by_metropolis(updates, *, links):
    degree = adjacency(links).sum(axis=1)
    mixed = updates.copy()
    for i, j in links:
        moved = (updates[j] - updates[i]) / (1 + max(degree[i], degree[j]))
        mixed[i] += moved
        mixed[j] -= moved
    return mixed


def the_mean_stays(updates, *, links):
    mixed = np.asarray(mapped(on_links, updates, links=links))
    assert_close(mixed.mean(axis=1), updates.mean(axis=1), atol=1e-5)


def on_a_ring(updates, *, count):
    return gossip_step(updates[:count], ring_mixing(count)).value


def by_neighbours(updates, *, count):
    near = [{i, (i - 1) % count, (i + 1) % count} for i in range(count)]
    return np.stack([np.mean([updates[j] for j in sorted(who)], axis=0) for who in near])


def it_does_not_matter_who_is_first(updates, *, count):
    turned = np.concatenate([np.roll(updates[:, :count], 1, axis=1), updates[:, count:]], axis=1)
    expected = np.roll(mapped(on_a_ring, updates, count=count), 1, axis=1)
    assert_close(mapped(on_a_ring, turned, count=count), expected, atol=1e-5)


def on_a_star(updates, *, count):
    return gossip_step(updates[:count], star_mixing(count)).value


def by_the_centre(updates, *, count):
    near = updates[:count]
    outer = near + (near[:1] - near) / count
    return np.concatenate([near.mean(axis=0, keepdims=True), outer[1:]])


def the_centre_hears_all(updates, *, count):
    mixed = np.asarray(mapped(on_a_star, updates, count=count))
    assert_close(mixed[:, 0], updates[:, :count].mean(axis=1), atol=1e-5)


def level_by_level(updates):
    """What the clients hold after every level."""
    after = []
    for mixing in hierarchical_mixing(SIZES):
        updates = gossip_step(updates, mixing).value
        after.append(updates)
    return after


def groups_by_reshape(updates):
    low, high = SIZES
    groups = updates.reshape(high, low, -1).mean(axis=1, keepdims=True)
    first = np.broadcast_to(groups, (high, low, updates.shape[1])).reshape(updates.shape)
    return [first, np.broadcast_to(updates.mean(axis=0), updates.shape)]


def one_level_is_the_mean(updates):
    alone = np.asarray(hierarchical_mixing((CLIENTS,)))
    np.testing.assert_array_equal(alone, np.full((1, CLIENTS, CLIENTS), np.float32(1 / CLIENTS)))


def after_all_rounds(updates, *, links):
    for mixing in averaging_rounds(by_metropolis(np.eye(CLIENTS), links=links)):
        updates = gossip_step(updates, mixing).value
    return updates


def mean_for_all(updates, *, links):
    return np.broadcast_to(updates.mean(axis=0), updates.shape)


def no_round_leaves_the_links(updates, *, links):
    apart = ~(adjacency(links) | np.eye(CLIENTS, dtype=bool))
    rounds = np.asarray(averaging_rounds(by_metropolis(np.eye(CLIENTS), links=links)))
    assert len(rounds) < CLIENTS
    assert not np.any(np.abs(rounds[:, apart]) > 1e-6)
    for total in (rounds.sum(axis=1), rounds.sum(axis=2)):
        assert_close(total, np.ones_like(total), atol=1e-5)
    assert len(updates) == DRAWS


def refused(words, links):
    return Refusal(words, (np.zeros((CLIENTS, 2)),), {"links": links})


NOBODY = Refusal(
    "clients must be 1 or more, got 0; leave mixing out without a graph",
    (np.zeros((1, 1)),),
    {"count": 0},
)

ROWS = [
    Row(
        on_links,
        name="metropolis_mixing",
        sample=UPDATES,
        options=LINKS,
        oracle=by_metropolis,
        laws=[the_mean_stays],
        edges=[Edge(edge.args, {"links": LOOP}) for edge in EDGES],
    ),
    Row(
        on_a_ring,
        name="ring_mixing",
        sample=UPDATES,
        options=COUNTS,
        oracle=by_neighbours,
        laws=[it_does_not_matter_who_is_first],
        edges=[Edge(edge.args, {"count": count}) for edge in EDGES for count in (1, CLIENTS)],
        refuses=[NOBODY],
    ),
    Row(
        on_a_star,
        name="star_mixing",
        sample=UPDATES,
        options=COUNTS,
        oracle=by_the_centre,
        laws=[the_centre_hears_all],
        edges=[Edge(edge.args, {"count": count}) for edge in EDGES for count in (1, CLIENTS)],
        refuses=[NOBODY],
    ),
    Row(
        level_by_level,
        name="hierarchical_mixing",
        sample=UPDATES,
        oracle=groups_by_reshape,
        laws=[one_level_is_the_mean],
        edges=EDGES,
    ),
    Row(
        after_all_rounds,
        name="averaging_rounds",
        sample=UPDATES,
        options=st.sampled_from([PATH, LOOP]).map(lambda links: {"links": links}),
        oracle=mean_for_all,
        laws=[no_round_leaves_the_links],
        edges=[Edge(edge.args, {"links": LOOP}) for edge in EDGES],
        refuses=[refused("not connected", ()), refused("not connected", PATH[1:])],
    ),
]
