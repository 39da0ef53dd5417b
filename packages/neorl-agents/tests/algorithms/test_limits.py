"""Logs and their limits: what is cloned, what is refused before anything is compiled, units."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from neorl_agents import ALGORITHMS, BCSafe
from neorl_agents.learning import (
    counted_costs,
    critic_limit_units,
    critic_limits,
    episode_costs,
    log_tables,
    require_limits_in_log,
)
from neorl_agents.policies import prepare
from neorl_agents.testing import endless, make_problem, statistics_of
from neorl_core import CostChannel, InputError, Transition

SAFE = sorted(
    name for name, kind in ALGORITHMS.items() if kind.keeps_limits and not kind.needs_rollouts
)
# Four episodes, of two, two, one and three rows; below, what limits compare.
COST = np.array([[1, 0], [2, 0.5], [0, 2], [0, 0], [4, 0], [1, 1], [1, 1], [1, 0]], np.float32)
ENDS = np.array([0, 1, 0, 1, 1, 0, 0, 1], bool)
SUMS, WORST = np.array([3, 0, 4, 3]), np.array([0.5, 2, 0, 1])
RETURNS = np.array([1, 5, 9, 2])


def plant(*limits):
    """The plant of the tests with costs of given limits, and what each of them bounds."""
    costs = tuple(CostChannel(f"c{i}", "bar", *limit) for i, limit in enumerate(limits))
    return replace(make_problem().spec, cost=costs)


def log(cost=COST, ends=ENDS, mask=None):
    rows = make_problem().log
    number = np.arange(len(ends), dtype=np.float32)
    episode = np.concatenate([[0], np.cumsum(ends)[:-1]])
    return Transition(
        obs=np.repeat(number[:, None], 4, 1),
        action=np.asarray(rows.action[: len(ends)]),
        reward=(RETURNS / np.bincount(episode))[episode].astype(np.float32),
        cost=cost,
        terminated=ends & (number > 4),
        truncated=ends & (number <= 4),
        mask=mask,
    )


def cloned(learner, spec, rows):
    return sorted(np.asarray(log_tables(learner, spec, rows).obs[:, 0], int))


def test_the_limited_quantity_of_an_episode_is_its_sum_or_its_worst_step():
    episode, quantities = episode_costs(plant((1.0, "episode"), (1.0, "step")), log())
    np.testing.assert_array_equal(episode, [0, 0, 1, 1, 2, 3, 3, 3])
    np.testing.assert_array_equal(quantities, np.stack([SUMS, WORST], 1))
    _, swapped = episode_costs(plant((1.0, "step"), (1.0, "episode")), log())
    np.testing.assert_array_equal(swapped, [[2, 0.5], [0, 2], [4, 0], [1, 2]])


def test_a_masked_row_costs_nothing_whatever_it_holds():
    mask, cost = np.arange(8) != 4, COST.copy()
    cost[4] = np.nan
    _, quantities = episode_costs(plant((1.0, "episode"), (1.0, "step")), log(cost, mask=mask))
    np.testing.assert_array_equal(quantities[2], [0, 0])


@pytest.mark.parametrize(
    ("limits", "settings", "expected"),
    [
        (((3.0, "episode"), (1.0, "step")), {}, [0, 1, 5, 6, 7]),  # equality keeps a limit
        (((2.9, "episode"), (9.0, "step")), {}, [2, 3]),
        (((9.0, "episode"), (0.5, "step")), {}, [0, 1, 4]),
        (((6.0, "episode"), (2.0, "step")), {"margin": 0.5}, [0, 1, 5, 6, 7]),
        (((3.0, "episode"), (2.0, "step")), {"fraction": 0.3}, [2, 3]),  # best of three
    ],
)
def test_only_episodes_that_kept_every_limit_are_cloned(limits, settings, expected):
    assert cloned(BCSafe(**settings), plant(*limits), log()) == expected


def test_what_is_cloned_is_given_to_memory_as_whole_episodes():
    learner = BCSafe(networks=replace(BCSafe().networks, encoder="history", history_steps=2))
    tables = log_tables(learner, plant((3.0, "episode"), (1.0, "step")), log())
    rows = jax.tree.leaves(tables)[0]
    assert len(rows) == 5


ONE = np.array([0, 0, 0, 0, 0, 0, 0, 1], bool)


@pytest.mark.parametrize(
    ("spec", "rows", "words"),
    [
        (plant(), log(), "but the plant has no costs; declare them with their limits under"),
        (plant((1.0, "step")), log()._replace(cost=None), "the log has no costs; give every row"),
        (plant((1.0, "step")), log(COST[:, :1], ONE), "the log is one episode; log more, or split"),
        (plant((1.0, "step")), log(0 * COST[:, :1]), "no logged cost is above zero, .* check the"),
        (
            plant((9.0, "episode"), (0.1, "episode")),
            log(COST + np.float32(0.3)),
            r"keep the limit of c1, 0\.1 bar per episode, but no logged episode does: "
            r"the sum over an episode is at least 0\.3; raise the limit, or log episodes that keep",
        ),
        (
            plant((0.5, "step")),
            log(COST[:, :1] + 1),
            r"limit of c0, 0\.5 bar per step, but .* the worst step of an episode is at least 1;",
        ),
    ],
)
@pytest.mark.parametrize("name", SAFE)
def test_a_log_that_cannot_teach_limits_is_refused_by_every_learner_of_them(
    name, spec, rows, words
):
    with pytest.raises(InputError, match=words) as refused:
        log_tables(ALGORITHMS[name](), spec, rows)
    assert ALGORITHMS[name].__name__ in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_constant_cost_and_one_that_never_rises_beside_another_are_taken():
    both = np.stack([np.full(8, 0.5), np.zeros(8)], 1).astype(np.float32)
    require_limits_in_log("X", plant((2.0, "episode"), (0.0, "step")), log(both))


def test_limits_that_are_kept_one_by_one_but_never_together_leave_nothing_to_clone():
    spec = plant((0.0, "episode"), (1.0, "step"))
    words = "no logged episode stays within 1 times the limits of c0, c1 at once, so BCSafe has"
    with pytest.raises(InputError, match=words):
        log_tables(BCSafe(), spec, log())


@pytest.mark.parametrize(
    ("limit", "horizon", "expected"),
    [(10, 300, 3.170), (20, 1000, 2.000), (80, 1000, 8.000), (10, 200, 4.330), (10, 100, 6.340)],
)
def test_the_limit_of_a_discounted_critic_is_that_of_the_published_codes(limit, horizon, expected):
    """Of OSRL and FISOR, discount 0.99, in the unit of the critic's cost."""
    spec = replace(plant((float(limit), "episode"), (float(limit), "step")), horizon=horizon)
    statistics = statistics_of(make_problem(n_cost=2).log)
    preparation = prepare(spec, statistics)
    actual = jax.jit(lambda p: critic_limits(p, discount=0.99, allowed_violations=limit))(
        preparation
    )
    in_cost = np.asarray(actual) * [float(preparation.cost_unit[0]), 1]
    np.testing.assert_allclose(in_cost, expected, atol=6e-4)
    # At every step the same, undiscounted: the limit itself.
    # Critics of a log without terminations value episodes that never end.
    never = replace(preparation, endless=np.ones((), bool))
    factor = critic_limits(never, discount=0.99, allowed_violations=limit) / actual
    np.testing.assert_allclose(factor, 1 / (1 - 0.99**horizon), rtol=1e-4)
    units = critic_limit_units(never, discount=0.99)
    np.testing.assert_allclose(units, 1 / (horizon * 0.01), rtol=1e-4)
    spread = sum(0.99**k * limit / horizon for k in range(3000))
    np.testing.assert_allclose(factor * in_cost, spread, rtol=1e-3)
    undiscounted = critic_limits(never, discount=1.0, allowed_violations=0.1)
    np.testing.assert_allclose(undiscounted[0] * preparation.cost_unit[0], limit, rtol=1e-5)
    np.testing.assert_allclose(undiscounted[1], 0.1, rtol=1e-5)


def test_a_log_is_endless_if_it_is_known_that_no_row_is_terminated():
    problem = make_problem()
    assert not prepare(problem.spec, problem.statistics).endless
    never = endless(problem)
    assert prepare(never.spec, never.statistics).endless
    assert not prepare(never.spec, never.statistics._replace(terminated=None)).endless


def test_a_limit_per_step_counts_steps_above_it_and_one_per_episode_adds_up():
    problem = make_problem(n_cost=2)
    spec = plant((0.5, "episode"), (0.5, "step"))
    preparation = prepare(spec, statistics_of(problem.log))
    cost = np.array([[0.5, 0.5], [0.6, 0.6], [0.0, 0.0]], np.float32)
    counted = counted_costs(preparation, cost / np.asarray(preparation.cost_unit)[None])
    np.testing.assert_array_equal(counted[:, 1], [0, 1, 0])
    np.testing.assert_allclose(counted[:, 0] * preparation.cost_unit[0], cost[:, 0], rtol=1e-6)


MODELS = {"mopo", "mobile", "combo", "rambo", "morel"}
NAMES = sorted({*SAFE} | MODELS | {"dt", "cdt"})


def learner_of(name):
    """What reads the log first: the model, of a learner that has one."""
    learner = ALGORITHMS[name]()
    return learner.fitted_model() if name in MODELS else learner


@pytest.fixture(scope="module")
def problem():
    """Limits that some episodes keep."""
    return make_problem(n_cost=1)


def refused(name, problem, rows):
    learner = learner_of(name)
    with pytest.raises(InputError) as raised:
        log_tables(learner, problem.spec, rows)
    message = str(raised.value)
    assert "\n" not in message
    assert type(learner).__name__ in message or "a model" in message
    return message


@pytest.fixture
def kept(problem):
    """The log of the problem, with costs that one episode keeps."""
    cost = np.array(problem.log.cost)
    cost[:64] = 0
    return jax.tree.map(np.asarray, problem.log)._replace(cost=cost)


@pytest.mark.parametrize("name", NAMES)
def test_one_episode_is_refused(name, problem, kept):
    never = np.zeros(len(kept.reward), bool)
    message = refused(name, problem, kept._replace(terminated=never, truncated=never))
    assert "one episode" in message
    assert "log more, or split" in message or "record more episodes, split this one" in message


@pytest.mark.parametrize("name", [*NAMES, "fql"])
def test_actions_that_never_move_are_refused_by_name(name, problem, kept):
    still = np.repeat(kept.action[:1], len(kept.action), axis=0)
    message = refused(name, problem, kept._replace(action=still))
    assert all(channel.name in message for channel in problem.spec.action)
    assert "constant in the log" in message


@pytest.mark.parametrize("name", ["fisor", "dt", "fql", "mopo"])
def test_a_masked_row_that_is_not_known_does_not_hide_that_actions_never_move(name, problem, kept):
    mask = np.arange(len(kept.action)) != 5
    still = np.repeat(kept.action[:1], len(kept.action), axis=0)
    lost = np.where(mask[:, None], still, np.nan).astype(np.float32)
    assert "constant in the log" in refused(name, problem, kept._replace(action=lost, mask=mask))


@pytest.mark.parametrize("name", NAMES)
def test_a_constant_observation_is_taken(name, problem, kept):
    """Its scale is a thousandth of its measuring range, so that nothing becomes infinite."""
    assert np.ptp(kept.obs[:, -1]) == 0
    assert jax.tree.leaves(log_tables(learner_of(name), problem.spec, kept))
    maps = prepare(problem.spec, statistics_of(problem.log))
    assert float(maps.obs.scale[-1]) > 0
    assert np.isfinite(np.asarray(maps.obs.to_scaled(kept.obs[0]))).all()
