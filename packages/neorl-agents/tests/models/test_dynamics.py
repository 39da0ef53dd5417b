"""The dynamics model against least squares, SciPy's densities and the laws of learners."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from neorl_agents.learning import Networks
from neorl_agents.models import DynamicsModel
from neorl_agents.networks import NETWORKS, init_mlp
from neorl_agents.testing import learner_laws, sized, statistics_of
from neorl_core import Channel, CostChannel, Spec, Transition, as_arrays

KEY = jax.random.key(0)
SMALL = {"hidden": (8, 8), "batch_size": 32, "members": 2}
LEARNERS = {
    "gaussian": lambda: sized(DynamicsModel(), **SMALL),
    "deterministic": lambda: sized(DynamicsModel(variant="deterministic"), **SMALL),
    "with_costs": lambda: sized(DynamicsModel(predicts_costs=True), **SMALL),
}
LAWS = {
    f"{name}-{law}": check
    for name, make in LEARNERS.items()
    for law, check in learner_laws(make).items()
}


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_law(law):
    law()


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


@pytest.fixture(scope="module")
def linear_networks():
    """A kind of network that is one affine layer, so that least squares have a closed form."""
    affine = lambda widths, key, **options: init_mlp((widths[0], widths[-1]), key)  # noqa: E731
    NETWORKS.register("one_affine_layer", NETWORKS.find("mlp")._replace(init=affine))
    return Networks(kind="one_affine_layer")


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


def test_a_deterministic_linear_model_is_the_least_squares_solution(linear_networks):
    log = linear_log()
    model = DynamicsModel(
        variant="deterministic", members=2, predicts_costs=True, networks=linear_networks
    )
    state, _ = trained(model, log, (1e-1, 1e-2, 1e-3, 1e-5), 400)
    inputs, targets = in_units(state, log)
    design = np.hstack([inputs, np.ones((len(inputs), 1))])
    solution = np.linalg.lstsq(design, targets, rcond=None)[0]
    networks = state.parameters["members"].networks
    for member in range(2):
        np.testing.assert_allclose(networks.weights[0][member, :, :-1], solution[:-1], atol=2e-4)
        np.testing.assert_allclose(networks.biases[0][member, :-1], solution[-1], atol=2e-4)


def test_the_loss_of_a_gaussian_model_is_the_log_likelihood_of_scipy(in_numpy):
    log = linear_log(64, ends=True)
    model = sized(DynamicsModel(), hidden=(8,), batch_size=64, members=3, predicts_costs=True)
    state = model.init(SPEC, statistics_of(log), KEY)
    batch = jax.tree.map(lambda x: x[None], log)
    for i in range(40):  # away from the first, nearly constant outputs
        state, metrics = jax.jit(model.update)(state, batch, jax.random.key(i))
        before, state_before = metrics["loss"], state
    loss = jax.jit(model.update)(state_before, batch, KEY)[1]["loss"]
    assert loss < before
    inputs, targets = in_units(state_before, log)
    members = jax.tree.map(lambda x: np.asarray(x, np.float64), state_before.parameters["members"])
    low, high = members.low, members.high
    total = model.bound_weight * np.sum(high - low)
    for i in range(3):
        out = in_numpy(jax.tree.map(lambda x, i=i: x[i], members.networks), inputs)
        mean, raw, odds = out[:, :4], out[:, 4:8], out[:, 8]
        softplus = lambda x: np.logaddexp(0, x)  # noqa: E731
        upper = high - softplus(high - raw)
        log_variance = low + (high - low) * softplus(upper - low) / softplus(high - low)
        density = stats.norm.logpdf(targets, mean, np.exp(log_variance / 2)).sum(1)
        chance = 1 / (1 + np.exp(-odds))
        total -= np.mean(density + stats.bernoulli.logpmf(log.terminated, chance))
    np.testing.assert_allclose(loss, total, rtol=1e-5)


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
        np.testing.assert_allclose(np.mean(step.reward), level - 1.0, atol=0.05)
        np.testing.assert_allclose(np.mean(step.cost, 0), [0.5], atol=0.02)
        assert np.mean(step.terminated) == pytest.approx(float(ends), abs=0.1)


@pytest.mark.nightly
def test_members_agree_on_the_log_and_differ_off_it():
    log = linear_log()
    model = sized(DynamicsModel(variant="deterministic"), hidden=(32,), members=5)
    state, metrics = trained(model, log, (1e-2, 1e-3), 400)
    near, far = (
        model.predict(state, np.array([level, 3e3], np.float32), np.float32([50]), KEY)
        for level in (0.0, 20.0)
    )
    assert far.disagreement > 5 * near.disagreement
    assert near.cost.shape == (0,)
    assert 0 < metrics["disagreement"] < metrics["error"]


def test_a_model_with_memory_and_bad_settings_are_refused(problem):
    for settings, words in (
        ({"encoder": "history"}, "DynamicsModel.networks.encoder must be 'none'"),
        ({"members": 0}, "DynamicsModel.members"),
        ({"variant": "mixture"}, "DynamicsModel.variant must be one of gaussian, deterministic"),
        ({"bound_weight": -1.0}, "DynamicsModel.bound_weight must be at least 0"),
    ):
        with pytest.raises(ValueError, match=words):
            sized(DynamicsModel(), **settings).validate()
