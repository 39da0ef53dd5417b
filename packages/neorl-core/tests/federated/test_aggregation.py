"""What faulty clients can do to each rule, at its bound and one beyond.

Honest updates scatter around a truth; ``spread`` is the largest distance of one of them from
their mean. A rule holds if its result stays within a stated multiple of the spread.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

from neorl_core.federated import (
    Aggregate,
    bulyan,
    centred_clipping,
    clip_update,
    coordinate_median,
    geometric_median,
    krum,
    multi_krum,
    private_mean,
    trimmed_mean,
    weighted_mean,
)
from neorl_core.federated._client_updates import squared_distances

# An eager call would compile every operation by itself.
coordinate_median, weighted_mean = jax.jit(coordinate_median), jax.jit(weighted_mean)
clip_update, private_mean = jax.jit(clip_update), jax.jit(private_mean)
centred_clipping = jax.jit(centred_clipping, static_argnames="iterations")
geometric_median = jax.jit(geometric_median, static_argnames="iterations")
trimmed_mean, krum, bulyan = (
    jax.jit(rule, static_argnames="num_byzantine") for rule in (trimmed_mean, krum, bulyan)
)
multi_krum = jax.jit(multi_krum, static_argnames=("num_byzantine", "selected"))

CLIENTS, COORDINATES = 15, 40
PRIVATE = {"clip_norm": 1.0, "noise_multiplier": 1.0}
RNG = np.random.default_rng(3)
HONEST = (1.0 + 0.3 * RNG.normal(size=(CLIENTS, COORDINATES))).astype(np.float32)

ATTACKS = {
    "sign flipped": lambda row: -row,
    "sign flipped and larger": lambda row: -10 * row,
    "times 1e30": lambda row: 1e30 * row,
    "one point far away": lambda row: np.full_like(row, -50),
    "nan": lambda row: np.where(np.arange(row.size) == 0, np.nan, row),
    "infinite": lambda row: np.where(np.arange(row.size) == 1, -np.inf, row),
}

# Rule, clients it may lose of fifteen, and the multiple of the spread that it stays within.
RULES = {
    "median": (coordinate_median, 7, 2.0),
    "trimmed": (functools.partial(trimmed_mean, num_byzantine=7), 7, 2.0),
    "krum": (functools.partial(krum, num_byzantine=6), 6, 1.0),
    "multi-krum": (functools.partial(multi_krum, num_byzantine=6, selected=9), 6, 0.7),
    "bulyan": (functools.partial(bulyan, num_byzantine=3), 3, 0.7),
    "geometric": (geometric_median, 7, 2.0),
}


def attacked(faulty, attack):
    updates = HONEST.copy()
    for client in range(faulty):
        updates[client] = attack(HONEST[client])
    return {"w": updates[:, 1:].reshape(CLIENTS, -1, 3), "b": updates[:, 0]}


def error(result, faulty):
    """Distance from the mean of the honest, in units of their spread."""
    honest = HONEST[faulty:].astype(np.float64)
    mean = honest.mean(axis=0)
    spread = np.linalg.norm(honest - mean, axis=1).max()
    value = np.append(np.asarray(result.value["b"]), np.asarray(result.value["w"]).ravel())
    return np.linalg.norm(value.astype(np.float64) - mean) / spread


@pytest.mark.parametrize("name", RULES)
def test_at_its_bound_a_rule_stays_within_the_honest_spread(name):
    """Row P08: robust rules bear f faulty clients of n, as many as they promise."""
    rule, bound, multiple = RULES[name]
    for attack in ATTACKS.values():
        result = rule(attacked(bound, attack))
        assert isinstance(result, Aggregate)
        assert error(result, bound) <= multiple, attack
        left_out = np.flatnonzero(~np.asarray(result.usable))
        finite = np.isfinite(attack(HONEST[0])).all()
        assert left_out.tolist() == ([] if finite else list(range(bound)))


@pytest.mark.parametrize("name", RULES)
def test_one_more_that_is_not_finite_breaks_no_rule(name):
    """Why ``f + 1`` does not break here: such a client is seen, left out, and counted as faulty."""
    rule, bound, multiple = RULES[name]
    for attack in ("nan", "infinite"):
        for faulty in (bound + 1, CLIENTS - 4):
            result = rule(attacked(faulty, ATTACKS[attack]))
            assert np.flatnonzero(~np.asarray(result.usable)).tolist() == list(range(faulty))
            assert error(result, faulty) <= max(multiple, 1.0), (attack, faulty)


@pytest.mark.parametrize("name", ["median", "trimmed", "geometric"])
def test_with_one_more_than_half_of_them_flipping_or_blowing_up_wins(name):
    rule, bound, _ = RULES[name]
    for attack in ("sign flipped and larger", "times 1e30"):
        assert error(rule(attacked(bound + 1, ATTACKS[attack])), bound + 1) > 2, attack


@pytest.mark.parametrize("name", ["krum", "multi-krum", "bulyan"])
def test_rules_that_choose_by_distance_bear_one_more_that_is_alone(name):
    """Why ``f + 1`` does not break Krum and Bulyan here: these do not even agree with each other.

    Multi-Krum averages ``n - f`` clients, so one of ``f + 1`` faulty ones is among them.
    """
    rule, bound, multiple = RULES[name]
    for attack in ("sign flipped and larger", "times 1e30"):
        result = error(rule(attacked(bound + 1, ATTACKS[attack])), bound + 1)
        assert result > 0.9 if name == "multi-krum" else result <= max(multiple, 1.0), attack


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["median", "trimmed", "geometric"])
def test_with_one_more_than_half_of_them_a_point_far_away_wins(name):
    rule, bound, _ = RULES[name]
    assert error(rule(attacked(bound + 1, ATTACKS["one point far away"])), bound + 1) > 20


def test_with_one_more_averaging_the_rest_takes_a_faulty_client_in():
    """Multi-Krum averages ``n - f`` clients; of ``f + 1`` faulty ones it must take one."""
    assert error(RULES["multi-krum"][0](attacked(7, ATTACKS["one point far away"])), 7) > 5


def test_krum_and_bulyan_bear_one_more_that_is_far_away_but_not_a_majority_of_neighbours():
    """Krum asks for ``n - f - 2 = 7`` near neighbours: seven that agree have only six, eight do.

    So the bound is sharp against clients that hide among the honest, not against far ones. Bulyan
    picks ``n - 2 f = 9`` clients with ``n - f - 2 = 10`` neighbours at first: four or five far
    ones are never among them, eleven of fifteen are.
    """
    far = ATTACKS["one point far away"]
    assert error(RULES["krum"][0](attacked(7, far)), 7) <= 1
    assert error(RULES["krum"][0](attacked(8, far)), 8) > 20
    assert error(RULES["bulyan"][0](attacked(4, far)), 4) <= 0.7
    assert error(RULES["bulyan"][0](attacked(11, far)), 11) > 20


def test_a_plain_mean_falls_to_one_client():
    """It bears none: the bound is zero. Only what is not finite is left out, as everywhere."""
    assert error(weighted_mean(attacked(1, ATTACKS["one point far away"])), 1) > 5
    assert error(weighted_mean(attacked(1, ATTACKS["times 1e30"])), 1) > 1e20
    assert error(weighted_mean(attacked(1, ATTACKS["nan"])), 1) < 1e-5


def test_clipping_gives_a_faulty_client_no_more_than_its_share():
    """``f`` clients move the centre by at most ``f radius / n`` a step more than honest ones."""
    start = {"w": np.ones((13, 3), np.float32), "b": np.float32(1)}
    radius = float(np.linalg.norm(HONEST - 1, axis=1).max())
    honest = centred_clipping(attacked(0, None), start, radius=radius, iterations=1)
    for faulty in (1, 3, 7, 14):
        for name in ("sign flipped and larger", "times 1e30", "one point far away"):
            result = centred_clipping(
                attacked(faulty, ATTACKS[name]), start, radius=radius, iterations=1
            )
            moved = jax.tree.map(lambda a, b: np.asarray(a - b), result.value, honest.value)
            distance = np.linalg.norm(np.append(moved["b"], moved["w"].ravel()))
            assert distance <= 2 * faulty * radius / CLIENTS * 1.001


def test_clipping_leaves_out_what_is_not_finite():
    """The rest is averaged as if it were all: no client of ``f`` or ``f + 1`` moves it at all."""
    start = {"w": np.ones((13, 3), np.float32), "b": np.float32(1)}
    clip = functools.partial(centred_clipping, radius=1.0, iterations=3)
    for faulty in (7, 8):
        alone = jax.tree.map(lambda leaf, n=faulty: leaf[n:], attacked(0, None))
        expected = clip(alone, start)
        for name in ("nan", "infinite"):
            result = clip(attacked(faulty, ATTACKS[name]), start)
            assert int(np.sum(result.usable)) == CLIENTS - faulty
            for leaf in ("w", "b"):
                np.testing.assert_allclose(
                    result.value[leaf], expected.value[leaf], rtol=1e-5, atol=1e-6
                )


def test_no_faulty_client_and_no_caution_is_the_mean():
    mean = weighted_mean(HONEST).value
    np.testing.assert_allclose(trimmed_mean(HONEST, num_byzantine=0).value, mean, rtol=1e-5)
    everyone = multi_krum(HONEST, num_byzantine=0, selected=CLIENTS).value
    np.testing.assert_allclose(everyone, mean, rtol=1e-5)
    np.testing.assert_allclose(bulyan(HONEST, num_byzantine=0).value, mean, rtol=1e-5)


@pytest.mark.parametrize("name", RULES)
def test_the_order_of_the_clients_does_not_matter(name):
    rule, order = RULES[name][0], RNG.permutation(CLIENTS)
    here, there = rule({"x": HONEST}), rule({"x": HONEST[order]})
    np.testing.assert_allclose(there.value["x"], here.value["x"], rtol=1e-4)


def test_the_geometric_median_turns_with_the_coordinates():
    turn = np.linalg.qr(RNG.normal(size=(COORDINATES, COORDINATES)))[0].astype(np.float32)
    turned = geometric_median(HONEST @ turn).value
    np.testing.assert_allclose(turned, geometric_median(HONEST).value @ turn, atol=1e-4)


def test_the_geometric_median_rests_on_a_client_that_outweighs_the_others():
    corners = jnp.asarray([[0.0, 0.0], [0.1, 0.0], [0.0, 0.1], [-4.0, -4.0], [0.0, 0.0]])
    np.testing.assert_allclose(geometric_median(corners).value, [0, 0], atol=1e-6)


# The coordinate median, where the iteration starts, is the client at the origin; the others pull
# with 1.78 of it to the right.
CROSS = jnp.array([[0, 0], [5.0, 0.5], [5, -0.5], [-0.5, 5], [-0.5, -5]])


def test_the_geometric_median_leaves_a_client_that_it_starts_on():
    clients = np.asarray(CROSS, np.float64)
    best = scipy.optimize.minimize(
        lambda point: np.linalg.norm(clients - point, axis=1).sum(),
        [1.0, 0.0],
        method="Nelder-Mead",
        options={"xatol": 1e-10, "fatol": 1e-12},
    )
    assert best.x[0] > 0.1
    np.testing.assert_allclose(geometric_median(CROSS).value, best.x, atol=1e-4)


def test_its_first_step_off_a_client_is_as_published():
    # Vardi and Zhang 2000, equations 2.5 and 2.6: the mean of the others with weights one over
    # distance, less the share of the clients on the spot in the pull.
    others = np.asarray(CROSS[1:], np.float64)
    away = np.linalg.norm(others, axis=1)
    goal = (others / away[:, None]).sum(axis=0) / (1 / away).sum()
    pull = np.linalg.norm((others / away[:, None]).sum(axis=0))
    moved = geometric_median(CROSS, iterations=1).value
    np.testing.assert_allclose(moved, (1 - 1 / pull) * goal, rtol=1e-5, atol=1e-6)


def test_two_clients_on_the_spot_outweigh_that_pull():
    twice = jnp.concatenate([CROSS, CROSS[:1]])
    np.testing.assert_array_equal(geometric_median(twice).value, [0, 0])


@pytest.mark.parametrize("rule", [coordinate_median, geometric_median])
def test_the_median_of_one_usable_client_is_that_client(rule):
    clients = jnp.array([[jnp.nan, 0.0], [3.0, -7.0]])
    np.testing.assert_array_equal(rule(clients).value, [3, -7])


def test_distances_late_in_training_do_not_cancel():
    """Updates of size 1000 that differ by 1e-3: the expanded square would see only rounding."""
    updates = (1000 + 1e-3 * RNG.normal(size=(9, 5))).astype(np.float32)
    exact = updates.astype(np.float64)
    squared = ((exact[:, None] - exact[None]) ** 2).sum(axis=-1)
    scores = np.sort(squared, axis=1)[:, 1:6].sum(axis=1)
    np.testing.assert_array_equal(krum(updates, num_byzantine=2).value, updates[scores.argmin()])


def test_the_distances_of_many_coordinates_are_those_of_all_their_blocks():
    updates = RNG.normal(size=(5, 2 * 2048 + 3)).astype(np.float32)
    exact = updates.astype(np.float64)
    squared = ((exact[:, None] - exact[None]) ** 2).sum(axis=-1)
    actual = squared_distances({"a": updates[:, :100], "b": updates[:, 100:]})
    np.testing.assert_allclose(actual, squared, rtol=1e-5)
    best = np.sort(squared, axis=1)[:, 1:3].sum(axis=1).argmin()
    np.testing.assert_array_equal(krum(updates, num_byzantine=1).value, updates[best])


@pytest.mark.nightly
def test_when_no_client_is_usable_the_result_says_so():
    nothing = jnp.full((7, 2), jnp.nan)
    centre = jnp.ones(2)
    rules = (
        weighted_mean,
        coordinate_median,
        functools.partial(trimmed_mean, num_byzantine=1),
        functools.partial(krum, num_byzantine=1),
        functools.partial(bulyan, num_byzantine=1),
        geometric_median,
    )
    for rule in rules:
        result = rule(nothing)
        assert np.isnan(result.value).all(), rule
        assert not np.any(result.usable)
    assert centred_clipping(nothing, centre, radius=1.0).value.tolist() == [1, 1]
    # What the noise protects does not say so; it is noise alone.
    private = functools.partial(private_mean, key=jax.random.key(0), **PRIVATE)
    np.testing.assert_array_equal(private(nothing).value, private(jnp.zeros((7, 2))).value)


@pytest.mark.nightly
def test_the_noise_of_the_private_mean_has_the_stated_size():
    updates = np.zeros((10, 20_000), np.float32)
    updates[3, 0] = np.inf
    mean = functools.partial(private_mean, clip_norm=2.0, noise_multiplier=1.5)
    result = mean(updates, jax.random.key(1))
    assert np.std(result.value) == pytest.approx(1.5 * 2 / 10, rel=0.03)
    assert abs(np.mean(result.value)) < 0.01
    other = mean(updates, jax.random.key(2))
    assert abs(np.corrcoef(result.value, other.value)[0, 1]) < 0.05
    both = {"a": jnp.zeros((3, 50)), "b": jnp.zeros((3, 50))}
    tree = private_mean(both, jax.random.key(1), **PRIVATE)
    assert not np.array_equal(tree.value["a"], tree.value["b"])


def test_clipping_keeps_the_direction():
    update = {"a": jnp.asarray([3.0, 0.0]), "b": jnp.asarray(4.0)}
    cut = clip_update(update, clip_norm=2.5)
    np.testing.assert_allclose(cut["a"], [1.5, 0], rtol=1e-6)
    np.testing.assert_allclose(cut["b"], 2.0, rtol=1e-6)
    assert np.isnan(clip_update(jnp.asarray([jnp.nan, 1.0]), clip_norm=1.0)).any()


@pytest.mark.nightly
def test_leaves_keep_their_own_dtype():
    updates = {"a": jnp.ones((7, 2), jnp.bfloat16), "b": jnp.ones((7, 3), jnp.float32)}
    for rule in (
        weighted_mean,
        coordinate_median,
        functools.partial(bulyan, num_byzantine=1),
        geometric_median,
    ):
        value = rule(updates).value
        assert (value["a"].dtype, value["b"].dtype) == (jnp.bfloat16, jnp.float32)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_an_update_without_a_length_cannot_be_clipped(value):
    """Beside an infinity, a number of any size came back as it was."""
    update = {"a": jnp.asarray([value, 1e30]), "b": jnp.ones(2)}
    assert all(np.isnan(leaf).all() for leaf in clip_update(update, clip_norm=1.0).values())
    pair = jnp.asarray([[value, 1.0], [3.0, 4.0]])
    rest = private_mean(pair, jax.random.key(0), clip_norm=1.0, noise_multiplier=0.0)
    np.testing.assert_allclose(rest.value, [0.3, 0.4], rtol=1e-6)


def test_no_client_moves_a_private_mean_by_more_than_its_share():
    """One whose numbers were not finite changed what the others were divided by."""
    updates = jnp.asarray([[0.0, 6.0], [8.0, 0.0], [0.0, 2.0]])
    mean = functools.partial(private_mean, key=jax.random.key(3), clip_norm=2.0)
    for options, n in (({}, 3), ({"expected_clients": 10.0}, 10)):
        nothing = mean(updates.at[1].set(0.0), noise_multiplier=0.5, **options).value
        for sent in ([jnp.nan, 1.0], [jnp.inf, -jnp.inf], [1e30, 0.0], [0.0, -3.0]):
            other = mean(updates.at[1].set(jnp.asarray(sent)), noise_multiplier=0.5, **options)
            assert np.linalg.norm(other.value - nothing) <= 2 / n * 1.0001
        exact = mean(updates, noise_multiplier=0.0, **options).value
        np.testing.assert_allclose(exact, np.asarray([2.0, 4.0]) / n, rtol=1e-6)


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sums_of_short_floats_are_taken_in_float32(dtype):
    """Weights of 3e4 and updates of 6e4 are float16, their sums are not."""
    updates = jnp.asarray([[6e4, 1.0], [5e4, 2.0], [4e4, 3.0]], dtype)
    exact = np.asarray(updates, np.float64)
    weights = np.asarray([3e4, 3e4, 2e4], np.float32)
    near = {"rtol": 2 * float(jnp.finfo(dtype).eps)}
    for given in (jnp.asarray(weights), jnp.asarray(weights, dtype)):
        mean = weighted_mean(updates, given).value
        expected = np.average(exact, axis=0, weights=np.asarray(given, np.float64))
        np.testing.assert_allclose(np.asarray(mean, np.float64), expected, **near)
    many = jnp.concatenate([updates] * 3)
    plain = np.asarray(many, np.float64).mean(axis=0)
    for rule in (
        functools.partial(trimmed_mean, num_byzantine=0),
        functools.partial(multi_krum, num_byzantine=1, selected=9),
        functools.partial(bulyan, num_byzantine=0),
        functools.partial(private_mean, key=jax.random.key(0), clip_norm=1e9, noise_multiplier=0.0),
        lambda x: centred_clipping(x, x[0], radius=1e9, iterations=1),
    ):
        value = rule(many).value
        assert value.dtype == dtype
        np.testing.assert_allclose(np.asarray(value, np.float64), plain, **near)
    one = krum(jnp.asarray([[0.0], [600.0], [610.0], [620.0], [5e4]], dtype), num_byzantine=1)
    assert float(one.value[0]) == float(jnp.asarray(610.0, dtype))
