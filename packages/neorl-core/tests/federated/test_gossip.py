"""Gossip: contraction at the stated rate, and exact averages after the stated rounds."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core.federated import (
    averaging_rounds,
    gossip_step,
    hierarchical_mixing,
    metropolis_mixing,
    mixing_rate,
    ring_mixing,
    star_mixing,
)

RNG = np.random.default_rng(5)


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


@jax.jit
def after(updates, rounds):
    def step(updates, mixing):
        return gossip_step(updates, mixing).value, None

    return jax.lax.scan(step, updates, rounds)[0]


def random_links(clients):
    links = RNG.random((clients, clients)) < 0.3
    ring = np.asarray(ring_mixing(clients)) > 0
    return links | links.T | ring


@pytest.mark.parametrize(
    "mixing",
    [
        pytest.param(ring_mixing(16), id="ring"),
        pytest.param(star_mixing(7), id="star", marks=pytest.mark.nightly),
        pytest.param(metropolis_mixing(random_links(12)), id="random", marks=pytest.mark.nightly),
    ],
)
def test_disagreement_shrinks_at_the_stated_rate_and_the_mean_stays(mixing):
    """Row P06: the mean stays, and disagreement shrinks at the rate of the second eigenvalue."""
    clients = mixing.shape[0]
    mixing = jnp.asarray(mixing, jnp.float64)
    updates = RNG.normal(size=(clients, 50))
    mean = updates.mean(axis=0)
    rate = float(mixing_rate(mixing))
    assert rate < 1
    start = np.linalg.norm(updates - mean)
    current = {"x": updates}
    for k in range(1, 41):
        current = after(current, mixing[None])
        left = np.linalg.norm(np.asarray(current["x"]) - mean)
        assert left <= rate**k * start * (1 + 1e-5) + 1e-6
        np.testing.assert_allclose(np.mean(current["x"], axis=0), mean, atol=1e-6)
    # The bound is met by the slowest mode.
    slowest = np.linalg.eigh(np.asarray(mixing))[1]
    modes = np.abs(np.linalg.eigvalsh(np.asarray(mixing)))
    mode = slowest[:, np.argsort(modes)[-2]][:, None]
    once = np.linalg.norm(gossip_step(mode, mixing).value) / np.linalg.norm(mode)
    np.testing.assert_allclose(once, rate, rtol=1e-5)


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        *[(averaging_rounds(ring_mixing(n)), n // 2) for n in (2, 3, 8, 15, 24)],
        *[(averaging_rounds(star_mixing(n)), 2) for n in (3, 9)],
        (averaging_rounds(ring_mixing(60)), 30),
        (hierarchical_mixing((4, 3)), 2),
        (hierarchical_mixing((2, 3, 2)), 3),
        (hierarchical_mixing((5,)), 1),
        (averaging_rounds(np.full((4, 4), 0.25)), 1),
        (averaging_rounds(np.ones((1, 1))), 1),
    ],
)
def test_the_average_is_exact_after_the_stated_rounds(rounds, expected):
    """Row P07: ring, levels and star reach the exact average after so many rounds."""
    assert len(rounds) == expected
    clients = rounds.shape[1]
    updates = {"w": RNG.normal(size=(clients, 3, 2)), "b": RNG.normal(size=clients)}
    result = after(updates, rounds)
    for name, leaf in updates.items():
        expected_leaf = np.broadcast_to(leaf.mean(axis=0), leaf.shape)
        np.testing.assert_allclose(result[name], expected_leaf, atol=2e-5)


def test_links_are_those_of_the_graph():
    ring = np.asarray(ring_mixing(6))
    assert ((ring > 0).sum(axis=1) == 3).all()
    np.testing.assert_allclose(ring[0, [0, 1, 5]], 1 / 3, rtol=1e-6)
    star = np.asarray(star_mixing(5))
    assert not np.any(star[1:, 1:][~np.eye(4, dtype=bool)])
    np.testing.assert_allclose(star[0], 0.2, rtol=1e-6)
    assert np.asarray(ring_mixing(1)).tolist() == [[1.0]]
    assert np.asarray(star_mixing(1)).tolist() == [[1.0]]
    for rounds in (averaging_rounds(ring_mixing(8)), averaging_rounds(star_mixing(8))):
        links = np.asarray(ring_mixing(8) if len(rounds) == 4 else star_mixing(8)) > 0
        assert not np.any(np.abs(np.asarray(rounds))[:, ~links] > 1e-9)
    groups = np.asarray(hierarchical_mixing((4, 3)))
    assert set(np.flatnonzero(groups[0, 5])) == {4, 5, 6, 7}
    assert set(np.flatnonzero(groups[1, 5])) == {1, 5, 9}


def test_a_deaf_and_a_broken_client():
    """A broken client sends nothing and takes what its neighbours send; one alone keeps its own."""
    updates = jnp.asarray([[1.0], [jnp.nan], [4.0]])
    mixing = jnp.asarray([[0.5, 0.5, 0.0], [0.5, 0.25, 0.25], [0.0, 0.25, 0.75]])
    result = gossip_step(updates, mixing)
    assert result.usable.tolist() == [True, False, True]
    np.testing.assert_allclose(result.value, [[1.0], [2.0], [4.0]], rtol=1e-12)
    alone = gossip_step(updates, jnp.eye(3))
    np.testing.assert_array_equal(alone.value, updates)


def test_a_graph_in_two_parts_never_agrees():
    halves = np.kron(np.eye(2), np.full((2, 2), 0.5))
    np.testing.assert_allclose(mixing_rate(halves), 1.0)
    with pytest.raises(ValueError, match="not connected"):
        averaging_rounds(halves)


@pytest.mark.parametrize(
    ("links", "rounds"),
    [(np.eye(30, k=1) + np.eye(30, k=-1), 29), (np.asarray(ring_mixing(40)) > 0, 20)]
    + [
        pytest.param(np.asarray(ring_mixing(k)) > 0, k // 2, marks=pytest.mark.nightly)
        for k in (20, 30, 60)
    ],
)
def test_many_rounds_are_exact_in_float32(links, rounds):
    """In order of size, twenty rounds of a ring blew rounding up to 113."""
    with jax.enable_x64(False):
        matrices = averaging_rounds(metropolis_mixing(links > 0))
        assert (matrices.dtype, len(matrices)) == (jnp.float32, rounds)
        value = jnp.arange(len(links), dtype=jnp.float32)
        mean = (len(links) - 1) / 2
        value = after(value, matrices)
        # The rounding of a round is amplified by the later ones, and differs between processors.
        np.testing.assert_allclose(value, mean, atol=3e-5 * len(links))


NOBODY = "clients must be 1 or more, got 0; leave mixing out without a graph"
GROUPS = "give the members of a group, level by level"
BOTH_WAYS = "list every link both ways, as links | links.T does"
MAKE = "make it with metropolis_mixing"
NEGATIVE = np.asarray([[1.5, -0.5], [-0.5, 1.5]])
MISUSES = [
    (ring_mixing, 0, NOBODY),
    (star_mixing, 0, NOBODY),
    (hierarchical_mixing, (), f"sizes must be one level or more, got none; {GROUPS}"),
    (hierarchical_mixing, (3, 0), f"every entry of sizes must be 1 or more, got 0; {GROUPS}"),
    *(
        (
            metropolis_mixing,
            links,
            f"adjacency must be square and symmetric, got shape {links.shape}; {BOTH_WAYS}",
        )
        for links in (np.ones((2, 3), bool), np.triu(np.ones((3, 3), bool)))
    ),
    (
        averaging_rounds,
        np.full((2, 2), 0.6),
        f"rows and columns of mixing must sum to one, got 1.2 to 1.2; {MAKE}",
    ),
    (averaging_rounds, NEGATIVE, f"mixing must not be negative, got -0.5; {MAKE}"),
    (
        averaging_rounds,
        np.roll(np.eye(3), 1, axis=0),
        "mixing must be symmetric for exact rounds; mix with metropolis_mixing",
    ),
]


@pytest.mark.parametrize(("make", "given", "message"), MISUSES)
def test_misuse_is_refused_in_words(make, given, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        make(given)


def test_a_group_of_one_and_levels_of_levels_average():
    values = np.arange(12.0)
    for sizes in ((2, 3, 2), (3, 2, 2), (1, 12), (12, 1), (2, 1, 6)):
        mixed = values
        for mixing in hierarchical_mixing(sizes):
            mixed = mixing @ mixed
        np.testing.assert_allclose(mixed, np.full(12, values.mean()), rtol=1e-5)


def test_links_of_a_star_are_of_its_centre_alone():
    mixing = np.asarray(star_mixing(5))
    off = mixing[~np.eye(5, dtype=bool)].reshape(5, 4)
    assert np.all(off[0] > 0)
    np.testing.assert_array_equal(off[1:, 1:], np.zeros((4, 3)))


@pytest.mark.parametrize("step", [gossip_step, lambda _, mixing: mixing_rate(mixing)])
def test_a_traced_mixing_whose_sums_are_not_one_gives_nan(step):
    call = jax.jit(lambda mixing: jax.tree.leaves(step(jnp.eye(2), mixing))[0])
    rows_only = jnp.asarray([[1.0, 0.0], [1.0, 0.0]])
    for mixing in (rows_only, rows_only.T, jnp.ones((2, 2)), jnp.full((2, 2), jnp.nan)):
        assert np.isnan(call(mixing)).all()
    steep = jnp.asarray([[301.0, -300.0], [-300.0, 301.0]])
    for mixing in (jnp.eye(2), jnp.full((2, 2), 0.5), steep, steep.at[0, 0].add(1e-3)):
        assert np.isfinite(call(mixing)).all()
    assert np.isnan(call(steep.at[0, 0].add(1e-1))).all()
