"""Wrappers against what they say, computed by hand from the plant inside."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core import InputError, Policy, highs, lows
from neorl_envs import environment_names, make
from neorl_envs.plants import Plant
from neorl_envs.recording import quality
from neorl_envs.wrappers import (
    constrained,
    delayed,
    disturbed,
    randomised,
    shifted,
)

HELD = 50.0  # what the tank's valve holds before any command


def run(env: Any, actions: np.ndarray, params: Any = None, key: int = 0) -> tuple[Any, Any]:
    """First observation and all steps of one episode under given actions."""
    params = env.default_params() if params is None else params

    @jax.jit
    def drive(actions: Any, key: Any) -> Any:
        state, obs = env.reset(params, key)

        def one(state: Any, row: Any) -> Any:
            return env.step(params, state, *row)

        _, steps = jax.lax.scan(one, state, (actions, jax.random.split(key, len(actions))))
        return obs, steps

    answer = drive(jnp.asarray(actions, jnp.float32)[:, None], jax.random.key(key))
    return jax.tree.map(np.asarray, answer)


ACTIONS = np.asarray([80.0, 20.0, 130.0, np.nan, 60.0, 60.0])
SENT = np.asarray([80.0, 20.0, 100.0, 100.0, 60.0, 60.0])


def level(first: float, arrived: np.ndarray) -> np.ndarray:
    """The tank by hand: 0.01 m a period for every per cent above 50, between 0 and 2 m."""
    levels = [first]
    for valve in arrived:
        levels.append(np.clip(levels[-1] + 0.01 * (valve - 50), 0, 2))
    return np.asarray(levels)


def test_delays_of_commands_and_readings(tank: Any) -> None:
    env = delayed(tank(), action=2, obs=1)
    assert isinstance(env, Plant)
    first, steps = run(env, ACTIONS)
    truth = level(first[0], np.append([HELD, HELD], SENT[:-2]))
    np.testing.assert_allclose(steps.obs[:, 0], truth[:-1], rtol=1e-6)
    np.testing.assert_array_equal(steps.obs, steps.final_obs)
    # What is applied is the command as it was sent; a NaN kept the last one.
    np.testing.assert_allclose(steps.applied[:, 0], SENT)
    np.testing.assert_allclose(steps.reward, -abs(truth[1:] - 1), rtol=1e-5)
    plain = run(tank(), ACTIONS)[1]
    np.testing.assert_allclose(run(delayed(tank()), ACTIONS)[1].obs[:3], plain.obs[:3])
    for wrong in ({"action": -1}, {"obs": 1.5}):
        with pytest.raises(ValueError, match="delay must be"):
            delayed(tank(), **wrong)


def test_a_load_disturbance_is_felt_and_not_seen(tank: Any) -> None:
    env = disturbed(tank(), sd=0.1, memory=100.0)
    keys = range(3)
    runs = [run(env, np.full(24, 50.0), key=key) for key in keys]
    for first, steps in runs:
        np.testing.assert_allclose(steps.applied, 50.0)
        assert np.ptp(np.append(first, steps.obs)) > 0.01
    quiet = run(disturbed(tank(), sd=0.0), np.full(24, 50.0))[1]
    assert np.ptp(quiet.obs) < 1e-6
    # Stationary with the declared standard deviation and memory.
    plain = jax.jit(jax.vmap(lambda key: env.reset(0.01, key)[0]))
    states = plain(jax.random.split(jax.random.key(0), 4000))
    loads = np.asarray(states.load)[:, 0]
    assert abs(loads.std() - 10.0) < 0.5
    advance = jax.jit(
        jax.vmap(lambda s, key: env.step(0.01, s, jnp.asarray([50.0]), key)[0].load[0])
    )
    later = np.asarray(advance(states, jax.random.split(jax.random.key(1), 4000)))
    assert abs(np.corrcoef(loads, later)[0, 1] - np.exp(-0.1)) < 0.02
    assert abs(later.std() - 10.0) < 0.5
    for wrong in ({"sd": -1.0}, {"memory": 0.0}, {"sd": float("nan")}):
        with pytest.raises(InputError, match="must be a"):
            disturbed(tank(), **wrong)


def follow(env: Any, policy: Policy) -> np.ndarray:
    """Levels of an episode in physical units under a controller."""
    params, key = env.default_params(), jax.random.key(4)

    def one(carry: Any, key: Any) -> Any:
        state, obs, memory = carry
        memory, action = policy(memory, obs, key)
        state, step = env.step(params, state, action, key)
        return (state, step.obs, policy.sent(memory, step.applied)), step

    state, obs = env.reset(params, key)
    carry = (state, obs, policy.initial_carry())
    _, steps = jax.lax.scan(one, carry, jax.random.split(key, 20))
    return np.asarray(steps.reward)


def test_controllers_do_the_same_behind_a_wrapper(tank: Any) -> None:
    plant = tank()
    expected = follow(plant, plant.tunings()["steady"])
    wrapped = delayed(plant)
    np.testing.assert_allclose(follow(wrapped, wrapped.tunings()["steady"]), expected, atol=1e-5)


def test_randomised_episodes_have_their_own_parameters(tank: Any) -> None:
    env = randomised(tank(), spread=0.3)
    states, _ = jax.vmap(lambda key: env.reset(None, key))(jax.random.split(jax.random.key(0), 50))
    drawn = np.asarray(states.params)
    assert len(np.unique(drawn)) == 50
    assert ((drawn >= 0.007) & (drawn <= 0.013)).all()
    assert np.ptp(drawn) > 0.004
    with pytest.raises(ValueError, match="preset must be 'plant'"):
        randomised(tank(), preset="dirty")


def test_a_shifted_plant_is_refused_where_it_cannot_be(tank: Any) -> None:
    with pytest.raises(InputError, match="only a plant that declares its constants"):
        shifted(tank(), {"area": 2.0})


def test_further_limits_are_costs_by_the_reading(tank: Any) -> None:
    env = constrained(tank(), {"level": (0.7, 1.2)}, penalty=3.0)
    assert isinstance(env, Plant)
    assert [(c.name, c.unit, c.limit, c.per) for c in env.spec.cost] == [
        ("level_limit", "m", 0.0, "step")
    ]
    assert env.penalty_weights() == {"level_limit": 3.0}
    assert env.bands() == {"level": (0.7, 1.2)}
    _, steps = run(env, np.asarray([100.0] * 4 + [0.0] * 6))
    levels = steps.final_obs[:, 0]
    assert levels.max() > 1.2 > 0.7 > levels.min()
    beyond = np.maximum(np.maximum(0.7 - levels, levels - 1.2), 0)
    np.testing.assert_allclose(steps.cost[:, 0], beyond, atol=1e-6)
    plain = run(tank(), np.asarray([100.0] * 4 + [0.0] * 6))[1]
    np.testing.assert_array_equal(steps.reward, plain.reward)
    # Late readings are judged when they arrive; one side alone.
    late = run(constrained(delayed(tank(), obs=1), {"level": (-np.inf, 1.2)}), np.full(6, 100.0))[1]
    np.testing.assert_allclose(late.cost[:, 0], np.maximum(late.obs[:, 0] - 1.2, 0), atol=1e-6)
    cases = {
        "unknown measured channel 'levl'; did you mean 'level'": {"levl": (0.0, 1.0)},
        "must have low below high and a part of its range, 0 to 2 m, got 1 and 1": {
            "level": (1, 1)
        },
        "a part of its range": {"level": (2.5, 3.0)},
    }
    for message, limits in cases.items():
        with pytest.raises(InputError, match=message):
            constrained(tank(), limits)
    with pytest.raises(InputError, match="is limited already"):
        constrained(env, {"level": (0.0, 1.0)})
    with pytest.raises(InputError, match="penalty must be a number of at least 0, got nan"):
        constrained(tank(), {"level": (0.0, 1.0)}, penalty=float("nan"))


@pytest.mark.parametrize("name", environment_names())
def test_every_plant_has_every_challenge(name: str) -> None:
    """Delay, disturbance and limits together on each plant, traced; its data and size are free.

    Row R02: delays, exogenous signals and limits are switches that every plant has.
    """
    plant: Any = make(name)
    channel = plant.spec.obs[0]
    limits = {channel.name: (channel.low, (channel.low + channel.high) / 2)}
    env = constrained(disturbed(delayed(plant, action=2, obs=1), sd=0.1), limits)
    assert isinstance(env, Plant)

    def one(key: Any) -> Any:
        params = env.default_params()
        state, obs = env.reset(params, key)
        return obs, env.step(params, state, jnp.zeros(env.spec.n_action), key)[1]

    obs, step = jax.eval_shape(one, jax.random.key(0))
    assert obs.shape == step.obs.shape == (plant.spec.n_obs,)
    assert step.cost.shape == (plant.spec.n_cost + 1,) == (env.spec.n_cost,)
    assert step.applied.shape == (plant.spec.n_action,)
    assert list(quality(env, "mixed").controllers) == list(plant.tunings())


@pytest.mark.nightly
@pytest.mark.parametrize("name", environment_names())
def test_every_challenge_makes_itself_felt(name: str) -> None:
    """One program a plant: what is delayed arrives later, a load moves the plant, limits cost."""
    plant: Any = make(name)
    low, high = (jnp.asarray(ends(plant.spec.action)) for ends in (lows, highs))
    sent = jnp.tile((low + high) / 2 + (high - low) * jnp.asarray(0.3), (12, 1))

    def readings(env: Any, key: Any) -> Any:
        params = plant.default_params("clean")
        state, first = env.reset(params, key)

        def one(state: Any, action: Any) -> Any:
            state, step = env.step(params, state, action, key)
            return state, (step.obs, step.cost)

        return first, jax.lax.scan(one, state, sent)[1]

    first, (plain, _) = jax.jit(lambda key: readings(plant, key))(jax.random.key(0))
    late = jax.jit(lambda key: readings(delayed(plant, obs=3), key))(jax.random.key(0))[1][0]
    np.testing.assert_allclose(late[3:], plain[:-3], rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(late[:3], jnp.tile(first, (3, 1)), rtol=1e-5, atol=1e-4)
    moved = jax.jit(lambda key: readings(disturbed(plant, sd=0.2), key))(jax.random.key(0))[1][0]
    assert float(jnp.abs(moved - plain).max()) > 0
    channel = plant.spec.obs[0]
    top = float(plain[:, 0].min())
    limited = constrained(plant, {channel.name: (top - 2e6, top - 1e-3 * abs(top) - 1e-3)})
    cost = jax.jit(lambda key: readings(limited, key))(jax.random.key(0))[1][1][:, -1]
    assert float(cost.min()) > 0


def test_a_shifted_plant_computes_what_derives_from_its_constants(vessel: Any) -> None:
    env = shifted(vessel, {"area": 1.5})
    for params in (env.default_params(), env.sample_params(jax.random.key(0))):
        np.testing.assert_allclose(params.constants.area, 3.0)
        np.testing.assert_allclose(params.derived, 0.01 / 3, rtol=1e-6)
        env.check_params(params)
    with pytest.raises(ValueError, match="constant 'area' must be finite and positive, got -2 m2"):
        shifted(vessel, {"area": -1.0})
    with pytest.raises(InputError, match="unknown constant 'aera'; did you mean 'area'"):
        shifted(vessel, {"aera": 1.0})
    with pytest.raises(InputError, match="the factor of 'area' must be finite"):
        shifted(vessel, {"area": float("nan")})
