"""The dynamics model against least squares, SciPy's densities and the laws of learners."""

from pathlib import Path
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy
from scipy import stats

from neorl_agents.learning import unit_rows
from neorl_agents.models import TERMINATIONS, Calibration, DynamicsModel, Moments
from neorl_agents.models._model_check import held_out_rows
from neorl_agents.models._predictions import (
    coefficients,
    no_rows,
    percentiles_of,
    spread,
    uncertainty_of,
    with_rows,
)
from neorl_agents.testing import learner_laws, sized, statistics_of
from neorl_core import Channel, CostChannel, InputError, Spec, Transition, as_arrays

KEY = jax.random.key(0)
SMALL = {"hidden": (8,), "batch_size": 32, "members": 2}
LEARNERS = {
    "gaussian": lambda: sized(DynamicsModel(), **SMALL),
    "deterministic": lambda: sized(DynamicsModel(variant="deterministic"), **SMALL),
    "with_costs": lambda: sized(DynamicsModel(predicts_costs=True), **SMALL),
    "windows": lambda: sized(DynamicsModel(), encoder="history", history_steps=3, **SMALL),
    "without_a_linear_part": lambda: sized(DynamicsModel(linear=False), **SMALL),
}
LAWS = {
    f"{name}-{law}": check
    for name, make in LEARNERS.items()
    for law, check in learner_laws(make).items()
}
# By day those of the form that most learners take.
BY_DAY = {name for name in LAWS if name.startswith("gaussian-")}


@pytest.mark.parametrize("law", [LAWS[name] for name in sorted(BY_DAY)], ids=sorted(BY_DAY))
def test_law(law):
    law()


@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted(set(LAWS) - BY_DAY))
def test_law_by_night(name):
    LAWS[name]()


# Two levels with an input each, in units far apart: x' = A x + B u + c + noise, r and d linear too.
SPEC = Spec(
    (Channel("level", "m", -5.0, 5.0), Channel("flow", "l/h", 2e3, 4e3)),
    (Channel("valve", "%", 0.0, 100.0),),
    (CostChannel("loss", "kg", 1.0, "step"),),
    dt=1.0,
    horizon=32,
)
A = np.array([[0.9, 1e-4], [-20.0, 0.8]])
B = np.array([[0.01], [2.0]])
C = np.array([-0.2, 520.0])
NOISE = np.array([0.05, 20.0])


def linear_log(rows=1024, *, ends=False, seed=0):
    """Rows of the linear plant, each from its own start; some end, where the level is high."""
    rng = np.random.default_rng(seed)
    obs = np.array([0.0, 3e3]) + np.array([1.0, 200.0]) * rng.normal(size=(rows, 2))
    action = rng.uniform(0, 100, (rows, 1))
    following = obs @ A.T + action @ B.T + C + NOISE * rng.normal(size=(rows, 2))
    f32 = lambda x: jnp.asarray(x, jnp.float32)  # noqa: E731
    high = obs[:, 0] > 0.8
    return Transition(
        obs=f32(obs),
        action=f32(action),
        reward=f32(obs[:, 0] - 0.02 * action[:, 0]),
        cost=f32(np.abs(action / 100)),
        next_obs=f32(following),
        next_action=f32(action),
        terminated=jnp.asarray(high & ends),
        truncated=jnp.asarray(~high | (not ends)),
    )


def trained(model, log, rates, updates):
    """Full-batch updates at one rate after the other."""
    state = model.init(SPEC, statistics_of(log), KEY)
    batch = jax.tree.map(lambda x: x[None], log)

    @jax.jit
    def several(learner, state):
        def step(state, _):
            return learner.update(state, batch, KEY)

        return jax.lax.scan(step, state, length=updates)

    for rate in rates:
        state, metrics = several(as_arrays(sized(model, learning_rate=rate)), state)
    return state, jax.tree.map(lambda x: x[-1], metrics)


def started(log):
    model = DynamicsModel(members=2, predicts_costs=True)
    return (model.init(SPEC, statistics_of(log), KEY),)


def in_units(state, log):
    """Inputs and targets as the model sees them, float64."""
    maps = jax.tree.map(lambda x: np.asarray(x, np.float64), state.preparation)
    obs = (np.asarray(log.obs, np.float64) - maps.obs.offset) / maps.obs.scale
    action = (np.asarray(log.action, np.float64) - maps.action.offset) / maps.action.scale
    change = (
        np.asarray(log.next_obs, np.float64) - np.asarray(log.obs, np.float64)
    ) / maps.obs.scale
    reward = np.asarray(log.reward, np.float64) / maps.reward_unit
    cost = np.asarray(log.cost, np.float64) / maps.cost_unit
    return np.hstack([obs, action]), np.hstack([change, reward[:, None], cost])


def test_the_linear_part_is_the_least_squares_solution_of_all_batches():
    """Batch by batch, beside SciPy's solution of all rows at once in float64."""
    log = linear_log()
    inputs, targets = (x.astype(np.float32) for x in in_units(*started(log), log))
    fit = no_rows(inputs.shape[1], targets.shape[1])
    for rows in np.split(np.arange(len(inputs)), 8):
        fit = with_rows(fit, jnp.asarray(inputs[rows]), jnp.asarray(targets[rows]), None)
    design = np.hstack([inputs, np.ones((len(inputs), 1))]).astype(np.float64)
    solution, squares, *_ = scipy.linalg.lstsq(design, targets.astype(np.float64))
    np.testing.assert_allclose(coefficients(fit, targets.shape[1]), solution, atol=2e-4)
    left = np.sqrt(np.maximum(squares, 0) / len(inputs))
    np.testing.assert_allclose(spread(fit, targets.shape[1]), left, rtol=1e-3, atol=1e-4)


def test_without_noise_the_linear_part_is_the_matrix_of_the_plant():
    log = linear_log()
    obs, action = (np.asarray(x, np.float64) for x in (log.obs, log.action))
    following = jnp.asarray(obs @ A.T + action @ B.T + C, jnp.float32)
    log = log._replace(next_obs=following)
    (state,) = started(log)
    inputs, targets = in_units(state, log)
    fit = no_rows(inputs.shape[1], targets.shape[1])
    fit = with_rows(fit, jnp.asarray(inputs, jnp.float32), jnp.asarray(targets, jnp.float32), None)
    maps = jax.tree.map(lambda x: np.asarray(x, np.float64), state.preparation)
    # Coefficients are of scaled changes by scaled inputs, a row for every input.
    rows = np.asarray(coefficients(fit, targets.shape[1]), np.float64)[:3, :2]
    units = np.concatenate([maps.obs.scale, maps.action.scale])
    matrix = (rows / units[:, None] * maps.obs.scale[None]).T
    in_parts = np.hstack([A, B]) / maps.obs.scale[:, None] * units[None]
    recovered = (matrix + np.eye(2, 3)) / maps.obs.scale[:, None] * units[None]
    np.testing.assert_allclose(recovered, in_parts, atol=1e-3)


def test_masked_rows_are_in_no_linear_part():
    rng = np.random.default_rng(0)
    inputs, targets = (jnp.asarray(rng.normal(size=(16, n)), jnp.float32) for n in (3, 2))
    mask = jnp.arange(16) < 9
    fit = with_rows(no_rows(3, 2), inputs, jnp.where(mask[:, None], targets, 1e6), mask)
    alone = with_rows(no_rows(3, 2), inputs[:9], targets[:9], None)
    np.testing.assert_allclose(coefficients(fit, 2), coefficients(alone, 2), rtol=1e-4, atol=1e-5)
    nothing = with_rows(fit, inputs, targets, jnp.zeros(16, bool))
    np.testing.assert_allclose(coefficients(nothing, 2), coefficients(fit, 2), rtol=1e-4, atol=1e-6)
    assert int(nothing.batches) == 1


def answers(network, inputs):
    """Two layers with SiLU between them, float64."""
    (first, last), (one, two) = jax.tree.map(np.float64, (network.weights, network.biases))
    hidden = np.clip(inputs, -8, 8) @ first + one
    return hidden / (1 + np.exp(-hidden)) @ last + two


def test_the_losses_are_the_log_likelihood_of_scipy_and_half_the_squared_error():
    log = linear_log(64, ends=True)
    model = sized(
        DynamicsModel(members=3, predicts_costs=True, linear=False), hidden=(8,), batch_size=64
    )
    state = model.init(SPEC, statistics_of(log), KEY)
    batch = jax.tree.map(lambda x: x[None], log)
    update = jax.jit(model.update)
    for i in range(40):  # away from the first, nearly constant outputs
        state, metrics = update(state, batch, jax.random.key(i))
    after, metrics = update(state, batch, KEY)
    inputs, targets = in_units(state, log)
    members = jax.tree.map(lambda x: np.asarray(x, np.float64), state.parameters["change"])
    low, high = members.low, members.high
    total = model.bound_weight * np.sum(high - low)
    softplus = lambda x: np.logaddexp(0, x)  # noqa: E731
    for i in range(3):
        out = answers(jax.tree.map(lambda x, i=i: x[i], members.networks), inputs)
        mean, raw = np.split(out, 2, axis=1)
        upper = high - softplus(high - raw)
        log_variance = low + (high - low) * softplus(upper - low) / softplus(high - low)
        total -= stats.norm.logpdf(targets[:, :2], mean, np.exp(log_variance / 2)).sum(1).mean()
        networks = jax.tree.map(lambda x, i=i: x[i], state.parameters["outcome"].networks)
        seen = np.hstack([inputs, inputs[:, :2] + targets[:, :2]])
        out = answers(networks, seen)
        total += (np.square(out[:, :2] - targets[:, 2:]) / 2).sum(1).mean()
        chance = 1 / (1 + np.exp(-out[:, 2]))
        total -= stats.bernoulli.logpmf(log.terminated, chance).mean()
    np.testing.assert_allclose(metrics["loss"], total, rtol=1e-4)
    assert int(after.updates) == 41


def test_a_log_without_an_end_has_no_predicted_end_and_a_termination_may_be_given():
    log = linear_log(128)
    model = sized(DynamicsModel(members=2), hidden=(8,))
    state = model.init(SPEC, statistics_of(log), KEY)
    draws = jax.jit(jax.vmap(model.predict, in_axes=(None, None, None, 0)))
    obs, action = np.array([1.4, 3e3], np.float32), np.array([50.0], np.float32)
    keys = jax.random.split(KEY, 64)
    assert not np.any(draws(state, obs, action, keys).terminated)
    learned = model.init(SPEC, statistics_of(linear_log(128, ends=True)), KEY)
    assert 0 < np.mean(draws(learned, obs, action, keys).terminated) < 1
    if "overflows" not in TERMINATIONS:
        TERMINATIONS.register("overflows", overflows)
    predict = jax.jit(sized(model, termination="overflows").predict)
    for level, ends in ((1.4, True), (-1.4, False)):
        step = predict(learned, np.array([level, 3e3], np.float32), action, KEY)
        assert bool(step.terminated) == ends == bool(step.next_obs[0] > 0.5)


def overflows(obs, action, next_obs):
    return next_obs[0] > 0.5


def test_exogenous_observations_are_taken_as_they_are_given():
    log = linear_log(128)
    model = sized(DynamicsModel(members=2, exogenous=("flow",)), hidden=(8,))
    state = model.init(SPEC, statistics_of(log), KEY)
    batch = jax.tree.map(lambda x: x[None], log)
    state, _ = jax.jit(model.update)(state, batch, KEY)
    obs, action = np.array([0.3, 3e3], np.float32), np.array([50.0], np.float32)
    predict = jax.jit(model.predict)
    still = predict(state, obs, action, KEY)
    moved = predict(state, obs, action, KEY, None, np.array([9.0, 3.2e3], np.float32))
    np.testing.assert_allclose(still.next_obs[1], 3e3)
    np.testing.assert_allclose(moved.next_obs[1], 3.2e3, rtol=1e-6)
    np.testing.assert_allclose(moved.next_obs[0], still.next_obs[0])


def test_elites_are_the_members_with_the_least_error_on_held_out_rows():
    log = linear_log(256)
    model = sized(DynamicsModel(members=4, elites=2, linear=False), hidden=(8,))
    state = model.init(SPEC, statistics_of(log), KEY)
    worse = jnp.array([4.0, 0.0, -5.0, 0.1])[:, None]
    change = state.parameters["change"]
    biases = change.networks.biases
    networks = eqx.tree_at(lambda n: n.biases, change.networks, (*biases[:-1], biases[-1] + worse))
    state = state.with_parameters(change=eqx.tree_at(lambda c: c.networks, change, networks))
    rows = unit_rows(state.preparation, log)
    result = jax.jit(model.calibrate)(state, rows, jnp.arange(256) >= 200)
    assert sorted(result.elites.tolist()) == [1, 3]
    assert 0 < result.mean < result.largest
    assert result.percentiles[-1] == result.largest
    assert (np.diff(result.percentiles) >= 0).all()


@pytest.mark.parametrize("share", [0.0, 0.25, 0.505, 0.99, 1.0])
def test_a_quantile_is_that_of_the_valid_rows(share):
    """NumPy's, at whole per cents exactly, with the others between two of them."""
    random = np.random.default_rng(0)
    values, valid = random.exponential(size=300).astype(np.float32), random.random(300) < 0.7
    values[~valid] = np.where(random.random((~valid).sum()) < 0.5, 1e6, 0.0)
    known = np.quantile(values[valid], np.linspace(0, 1, 101))
    of = Calibration(jnp.arange(1), jnp.zeros(()), jnp.zeros(()), percentiles_of(values, valid))
    expected = np.interp(share, np.linspace(0, 1, 101), known)
    assert float(of.quantile(share)) == pytest.approx(expected, rel=1e-4)
    levels = jnp.linspace(0, 1, 7)
    np.testing.assert_allclose(
        jax.jit(jax.vmap(of.quantile))(levels), of.quantile(levels), rtol=1e-6
    )


@pytest.mark.nightly
def test_a_gaussian_model_knows_noise_ends_costs_and_the_plants_units():
    log = linear_log(2048, ends=True)
    model = sized(DynamicsModel(), hidden=(32,), members=3, predicts_costs=True)
    state, _ = trained(model, log, (1e-2, 1e-3), 600)
    draws = jax.vmap(model.predict, in_axes=(None, None, None, 0))
    action = np.array([50.0], np.float32)
    for level, ends in ((-0.5, False), (1.4, True)):
        obs = np.array([level, 3e3], np.float32)
        step = draws(state, obs, action, jax.random.split(KEY, 2000))
        expected = A @ obs + B @ action + C
        off = (np.mean(step.next_obs, 0) - expected) / NOISE
        np.testing.assert_allclose(off, 0, atol=0.25)
        np.testing.assert_allclose(np.std(step.next_obs, 0), NOISE, rtol=0.2)
        np.testing.assert_allclose(np.mean(step.reward), level - 1.0, atol=0.1)
        np.testing.assert_allclose(np.mean(step.cost, 0), [0.5], atol=0.02)
        assert np.mean(step.terminated) == pytest.approx(float(ends), abs=0.1)


@pytest.mark.nightly
@pytest.mark.parametrize("uncertainty", ["disagreement", "discrepancy"])
def test_members_agree_on_the_log_and_differ_off_it(uncertainty):
    log = linear_log()
    model = sized(
        DynamicsModel(
            variant="deterministic", members=5, linear=False, uncertainty=uncertainty
        ),
        hidden=(32,),
    )  # fmt: skip
    state, metrics = trained(model, log, (1e-2, 1e-3), 400)
    near, far = (
        model.predict(state, np.array([level, 3e3], np.float32), np.float32([50]), KEY)
        for level in (0.0, 20.0)
    )
    assert far.disagreement > 3 * near.disagreement
    assert near.cost.shape == (0,)
    assert 0 < metrics["disagreement"] < metrics["error"]


@pytest.mark.nightly
def test_a_window_shows_a_dead_time():
    """``x' = 0.9 x + u`` three steps late: the linear part of a window has it exactly."""
    rng = np.random.default_rng(0)
    u = rng.uniform(-1, 1, (4000, 1))
    x = np.zeros((4001, 1))
    for t in range(4000):
        x[t + 1] = 0.9 * x[t] + (u[t - 3] if t % 200 >= 3 else 0)
        if t % 200 == 199:
            x[t + 1] = rng.normal()
    after = x[1:].copy()
    ends = np.arange(4000) % 200 == 199
    after[ends] = 0.9 * x[:-1][ends] + u[np.flatnonzero(ends) - 3]
    spec = Spec((Channel("x", "m", -20.0, 20.0),), (Channel("u", "m", -1.0, 1.0),), (), 1.0, 200)
    f32 = lambda v: np.asarray(v, np.float32)  # noqa: E731
    log = Transition(
        f32(x[:-1]), f32(u), f32(-np.abs(after[:, 0])), next_obs=f32(after),
        next_action=f32(u), terminated=ends & False, truncated=ends,
    )  # fmt: skip
    errors = {}
    for steps in (1, 6):
        model = sized(
            DynamicsModel(members=2), hidden=(8,), batch_size=256, encoder="history",
            history_steps=steps,
        )  # fmt: skip
        state = model.init(spec, statistics_of(log._replace(cost=np.zeros((4000, 0)))), KEY)
        tables = jax.tree.map(jnp.asarray, model.log_tables(spec, log))
        update = jax.jit(model.update)
        for i in range(60):
            batch = model.sampler.draw(tables, jnp.int32(i), KEY, (1, 256))
            state, metrics = update(state, batch, KEY)
        errors[steps] = float(metrics["error"])
    assert errors[1] > 0.05
    assert errors[6] < 1e-3


def test_bad_settings_are_refused(problem):
    for settings, words in (
        ({"elites": 9}, "DynamicsModel.elites must be at most 5"),
        ({"termination": "later"}, "DynamicsModel.termination must be one of learned, never"),
    ):
        with pytest.raises(ValueError, match=words):
            sized(DynamicsModel(), **settings).validate()


def test_what_cannot_teach_a_model_is_refused_in_one_line():
    log = jax.tree.map(np.asarray, linear_log(64))
    model = DynamicsModel()
    still = {"action": np.full((64, 1), 40.0, np.float32)}
    one = {"truncated": np.arange(64) == 63, "terminated": np.zeros(64, bool)}
    for changes, words in (
        (
            still,
            "the action valve is constant in the log, so a model cannot learn its effect; give a",
        ),
        ({"next_obs": log.obs}, "the observations that the model predicts never change in the log"),
        (one, "the log has one episode, but DynamicsModel holds out whole episodes to compare"),
    ):
        with pytest.raises(InputError, match=words) as refused:
            model.log_tables(SPEC, log._replace(**changes))
        assert "\n" not in str(refused.value)
    sized(model, held_out=0.0).log_tables(SPEC, log._replace(**one))
    with pytest.raises(InputError, match="needs at least 4 rows, but the log has 3 outside the"):
        model.log_tables(SPEC, jax.tree.map(lambda x: x[:4], log))
    with pytest.raises(InputError, match="'flo'"):
        sized(model, exogenous=("flo",)).log_tables(SPEC, log)


def test_every_tenth_episode_is_held_out_and_at_least_the_last():
    ends = np.arange(60) % 2 == 1
    nothing = np.zeros(60, bool)
    for xp in (np, jnp):
        held = np.asarray(held_out_rows(nothing, ends, 0.1, xp=xp))
        assert np.flatnonzero(held).tolist() == [18, 19, 38, 39, 58, 59]
        held = np.asarray(held_out_rows(nothing[:6], ends[:6], 0.1, xp=xp))
        assert np.flatnonzero(held).tolist() == [4, 5]
        assert not np.any(held_out_rows(nothing, ends, 0.0, xp=xp))


def test_the_measures_of_doubt_are_those_of_offlinerl_kit():
    path = Path(__file__).parents[1] / "algorithms/fixtures/rollout_terms.npz"
    with np.load(path) as arrays:
        terms = SimpleNamespace(**arrays)
    with jax.enable_x64(True):
        whole = Moments(jnp.asarray(terms.mean), jnp.exp(jnp.asarray(terms.log_variance) / 2))
        obs = Moments(whole.mean[..., :-1], whole.std[..., :-1])
        aleatoric = uncertainty_of(whole, "aleatoric")
        spread, farthest = (uncertainty_of(obs, kind) for kind in ("disagreement", "discrepancy"))
    np.testing.assert_allclose(aleatoric, terms.aleatoric, rtol=1e-6)  # theirs is float32
    np.testing.assert_allclose(spread, terms.ensemble_std, rtol=1e-6)
    farthest = np.asarray(farthest)
    # Theirs is the distance from the mean of all members, ours, as in MOReL's paper, between two.
    assert (farthest >= terms.pairwise_diff * (1 - 1e-6)).all()
    assert (farthest <= 2 * terms.pairwise_diff).all()
