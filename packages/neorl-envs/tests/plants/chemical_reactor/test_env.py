"""Laws of the reactor as an environment: purity, limits, accounting, endings."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core import Environment, highs, lows
from neorl_core.control import ConstantPolicy
from neorl_core.testing import everywhere, finite_grad, no_recompile
from neorl_envs.plants import ChemicalReactor
from neorl_envs.plants._simulated import State

ENV = ChemicalReactor()
WORLDS = 1024
ACTION = np.float32([8000.0, 360.0, 350.0])
STEP = jax.jit(ENV.step)
STEP_WORLDS = jax.jit(jax.vmap(ENV.step))


def one_step(params: Any, state: State, action: jax.Array, noise: Any) -> Any:
    return ENV.step_with_noise(params, state, action, noise)


@pytest.fixture(scope="module")
def worlds(env: ChemicalReactor) -> tuple[Any, State, jax.Array, jax.Array]:
    """Parameters, states, actions and keys of many plants, 20 random steps into their batches."""
    key, for_params, for_actions = jax.random.split(jax.random.key(8), 3)
    keys = jax.random.split(key, WORLDS)
    params = jax.vmap(env.sample_params)(jax.random.split(for_params, WORLDS))
    low, high = np.float32(lows(env.spec.action)), np.float32(highs(env.spec.action))
    part = np.asarray(jax.random.uniform(for_actions, (21, WORLDS, 3)))
    actions = jnp.asarray(low + (high - low) * part)

    def step(state: State, action: jax.Array) -> tuple[State, None]:
        return jax.vmap(env.step)(params, state, action, keys)[0], None

    state, _ = jax.jit(jax.vmap(env.reset))(params, keys)
    state, _ = jax.jit(lambda s, a: jax.lax.scan(step, s, a))(state, actions[:20])
    return params, state, actions[20], keys


def test_it_keeps_the_environment_contract(env: ChemicalReactor) -> None:
    assert isinstance(env, Environment)
    assert (env.spec.n_obs, env.spec.n_action, env.spec.n_cost) == (12, 3, 2)
    assert env.spec.dt == 50.0
    assert env.spec.horizon == 300
    assert hash(env) == hash(ChemicalReactor())
    assert env == ChemicalReactor()
    assert env != ChemicalReactor(horizon=200)
    assert env.action_rates() == pytest.approx((120.0, 0.08, 0.08))
    assert env.reference in env.tunings()
    assert set(env.bands()) <= {channel.name for channel in env.spec.obs}
    leaves = jax.tree.leaves(
        (env.default_params(), env.reset(env.default_params(), jax.random.key(0)))
    )
    assert all(isinstance(leaf, jax.Array) and not leaf.weak_type for leaf in leaves)


@pytest.mark.nightly
def test_single_jit_and_a_thousand_at_once_agree_from_equal_states(worlds: Any) -> None:
    params, state, action, keys = worlds
    rows = [jax.tree.map(lambda leaf: leaf[:3], each) for each in (params, state, action)]
    noise = jax.vmap(ENV.sample_noise)(rows[0], keys[:3])
    # Eager, jit, vmap and jit of vmap on the same three worlds.
    new, _ = everywhere(one_step, *rows, noise)
    # A thousand worlds at once against every eighth alone.
    many = jax.tree.map(np.asarray, STEP_WORLDS(params, state, action, keys)[0])
    assert_same_plant(new, jax.tree.map(lambda leaf: leaf[:3], many))
    hosted = jax.tree.map(np.asarray, (params, state, action))
    chosen = range(0, WORLDS, 8)
    alone = [STEP(*jax.tree.map(lambda leaf: leaf[i], hosted), keys[i])[0] for i in chosen]  # noqa: B023
    alone = jax.tree.map(lambda *leaves: np.stack(leaves), *alone)
    assert_same_plant(alone, jax.tree.map(lambda leaf: leaf[::8], many))


def assert_same_plant(ours: State, theirs: State) -> None:
    for name in ours.plant._fields:
        mine, other = getattr(ours.plant, name), getattr(theirs.plant, name)
        np.testing.assert_allclose(mine, other, rtol=1e-5, err_msg=name)


def test_every_step_of_a_scan_is_the_single_step_from_its_state(worlds: Any) -> None:
    params, state, _, keys = worlds
    params, state = jax.tree.map(lambda leaf: leaf[5], (params, state))
    low, high = np.float32(lows(ENV.spec.action)), np.float32(highs(ENV.spec.action))
    part = np.random.default_rng(4).uniform(size=(50, 3)).astype(np.float32)
    actions, keys = jnp.asarray(low + (high - low) * part), keys[:50]

    def step(state: State, row: Any) -> Any:
        state, answer = ENV.step(params, state, *row)
        return state, (state, answer)

    scanned = jax.jit(lambda state, rows: jax.lax.scan(step, state, rows)[1])
    states, answers = jax.tree.map(np.asarray, scanned(state, (actions, keys)))
    for t in range(50):
        new, answer = STEP(params, state, actions[t], keys[t])
        state, expected = jax.tree.map(lambda leaf: leaf[t], (states, answers))  # noqa: B023
        assert_same_plant(new, state)
        np.testing.assert_allclose(answer.obs, expected.obs, rtol=1e-5)
        np.testing.assert_allclose(answer.applied, expected.applied, rtol=1e-6)
        assert bool(answer.terminated) == expected.terminated


def test_same_key_gives_the_same_bits(env: ChemicalReactor, worlds: Any) -> None:
    """Row N03: one key gives one trajectory, to the bit."""
    params, state, action, keys = worlds
    once, again = (STEP_WORLDS(params, state, action, keys) for _ in range(2))
    jax.tree.map(np.testing.assert_array_equal, once, again)
    other = STEP_WORLDS(params, state, action, keys[::-1])
    assert (np.asarray(other[1].obs) != np.asarray(once[1].obs)).any()
    assert (np.asarray(other[0].plant.T_R) != np.asarray(once[0].plant.T_R)).any()


def test_a_second_step_does_not_recompile(env: ChemicalReactor) -> None:
    def call(seed: int) -> tuple:
        key = jax.random.key(seed)
        params = env.sample_params(key)
        state, _ = env.reset(params, key)
        return params, env.step(params, state, ACTION, key)[0], ACTION + seed, key

    no_recompile(env.step, call(0), call(1))


def test_mass_is_conserved_and_the_recipe_ends(env: ChemicalReactor, episodes: Any) -> None:
    params = env.default_params("clean")
    state, _ = env.reset(params, jax.random.key(0))
    full = jnp.asarray([30_000.0, 340.0, 340.0])
    before = sum(map(float, state.plant[:3]))
    for _ in range(90):
        state, answer = STEP(params, state, full, jax.random.key(0))
    fed = float(state.plant.m_acc) - 300.0
    assert float(state.plant.m_acc) == pytest.approx(30_000.0, abs=0.05)
    assert sum(map(float, state.plant[:3])) - before == pytest.approx(fed, rel=1e-6)
    assert float(state.actuators.command[0]) <= 0.05 * 3600 / 50
    # Nothing flows from an empty recipe, whatever is asked for: that is what is recorded.
    assert float(answer.applied[0]) <= 0.05 * 3600 / 50


def test_the_batch_sequence_ends_the_dosing(env: ChemicalReactor) -> None:
    params = env.default_params("clean")
    state, _ = env.reset(params, jax.random.key(0))
    idle = jnp.asarray([0.0, 340.0, 340.0])
    for fed, flows in ((26_000.0, 0.0), (28_000.0, 4000.0), (29_990.0, 10 * 3600 / 50)):
        plant = state.plant._replace(m_acc=jnp.asarray(fed))
        _, answer = STEP(params, state._replace(plant=plant), idle, jax.random.key(0))
        assert float(answer.applied[0]) == pytest.approx(flows, rel=1e-4)


HOSTILE = (np.nan, np.inf, -np.inf, 3e38, -3e38, 1e-40, 0.0, -0.0, 360.0)


def test_any_action_leaves_the_plant_finite_and_its_actuators_inside(worlds: Any) -> None:
    params, state, _, keys = worlds
    rng = np.random.default_rng(0)
    action = jnp.asarray(rng.choice(np.float32(HOSTILE), (WORLDS, 3)))
    new, answer = STEP_WORLDS(params, state, action, keys)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((new, answer)))
    applied, last = np.asarray(answer.applied), np.asarray(state.actuators.command)
    low, high = np.float32(lows(ENV.spec.action)), np.float32(highs(ENV.spec.action))
    assert ((applied >= low) & (applied <= high)).all()
    slew = np.multiply(ENV.action_rates(), ENV.spec.dt)
    assert (np.abs(applied - last) <= slew * (1 + 1e-6)).all()
    nothing = np.isnan(np.asarray(action)) & (np.asarray(state.plant.m_acc) < 26_000)[:, None]
    np.testing.assert_array_equal(applied[nothing], last[nothing])
    np.testing.assert_array_equal(np.asarray(new.actuators.command), applied)


def test_observations_stay_inside_their_measuring_ranges(worlds: Any) -> None:
    params, state, action, keys = worlds
    hot = state._replace(plant=state.plant._replace(T_R=state.plant.T_R + 200))
    _, answer = STEP_WORLDS(params, hot, action, keys)
    low, high = np.float32(lows(ENV.spec.obs)), np.float32(highs(ENV.spec.obs))
    obs = np.asarray(answer.obs)
    assert ((obs >= low) & (obs <= high)).all()
    assert (obs[:, 0] == high[0]).any()  # the sensor saturates


def test_sensor_noise_has_the_stated_size(env: ChemicalReactor) -> None:
    clean = env.default_params("clean")
    params = clean._replace(instruments=env.default_params().instruments)
    state, _ = env.reset(params, jax.random.key(0))
    _, obs = jax.vmap(env.reset, (None, 0))(params, jax.random.split(jax.random.key(1), 4000))
    spread = np.asarray(obs).std(axis=0)
    np.testing.assert_allclose(spread[:5], 0.1, rtol=0.05)
    relative = spread[5:9] / np.stack(state.plant)[[0, 1, 2, 8]]
    np.testing.assert_allclose(relative, [0.002, 0.002, 0.002, 0.0002], rtol=0.05)
    np.testing.assert_allclose(spread[10], 0.02, rtol=0.05)
    assert spread[11] == 0
    _, exact = env.reset(clean, jax.random.key(5))
    np.testing.assert_array_equal(exact, env.reset(clean, jax.random.key(6))[1])


def ended(env: ChemicalReactor, **changes: float) -> Any:
    params = env.default_params("clean")
    state, _ = env.reset(params, jax.random.key(0))
    time = jnp.asarray(int(changes.pop("time", 0)), jnp.int32)
    plant = state.plant._replace(**{k: jnp.asarray(v) for k, v in changes.items()})
    state = state._replace(plant=plant, time=time)
    return STEP(params, state, jnp.asarray([0.0, 363.15, 353.15]), jax.random.key(0))[1]


def test_success_trip_and_clock_end_an_episode_each_in_its_way(env: ChemicalReactor) -> None:
    full = {"m_W": 19_900.0, "m_acc": 30_000.0}
    done = ended(env, **full, m_A=30.0, m_P=20_675.0)
    assert bool(done.terminated)
    assert bool(done.info.success)
    assert not bool(done.truncated | done.info.trip)
    hot = ended(env, T_R=420.0)
    assert bool(hot.terminated)
    assert bool(hot.info.trip)
    assert not bool(hot.info.success)
    assert float(hot.reward) < -99
    late = ended(env, time=299)
    assert bool(late.truncated)
    assert not bool(late.terminated)
    # Success in the last step is success.
    both = ended(env, **full, m_A=30.0, m_P=20_675.0, time=299)
    assert bool(both.terminated)
    assert not bool(both.truncated)
    running = ended(env)
    assert not bool(running.terminated | running.truncated)


def test_the_terminal_state_is_charged_too(env: ChemicalReactor) -> None:
    cold = ended(env, m_W=19_900.0, m_acc=30_000.0, m_A=300.0, m_P=20_660.0, T_R=357.0, T_S=357.0)
    assert bool(cold.terminated)
    violation = -float(cold.info.T_R_margin)
    assert violation > 1
    assert float(cold.cost[0]) == pytest.approx(violation * 50 / 60, rel=1e-5)
    assert float(cold.cost[1]) == 0.0


def test_costs_are_the_published_formulas(env: ChemicalReactor, worlds: Any) -> None:
    params, state, action, keys = worlds
    hot = state._replace(plant=state.plant._replace(T_R=state.plant.T_R + 15))
    _, answer = STEP_WORLDS(params, hot, action, keys)
    info, cost = jax.tree.map(np.asarray, answer.info), np.asarray(answer.cost)
    T_R, T_adiab = info.T_R, info.T_adiab
    above = T_R > 363.15
    expected = np.maximum(np.maximum(np.abs(T_R - 363.15) - 2, T_adiab - 382.15), 0) * 50 / 60
    np.testing.assert_allclose(cost[above, 0], expected[above], atol=1e-4)
    P = info.P
    np.testing.assert_allclose(cost[:, 1], np.maximum(P - 3.5, 0), atol=1e-5)
    assert (cost[:, 1] > 0).any()


def test_reward_pays_polymer_and_charges_time(env: ChemicalReactor, worlds: Any) -> None:
    params, state, action, keys = worlds
    new, answer = STEP_WORLDS(params, state, action, keys)
    gained = (np.asarray(new.plant.m_P) - np.asarray(state.plant.m_P)) / 206.8
    quiet = ~np.asarray(answer.info.trip)
    np.testing.assert_allclose(np.asarray(answer.reward)[quiet], (gained - 0.1)[quiet], atol=1e-4)


def heated(reaction_heat: jax.Array, action: jax.Array) -> jax.Array:
    params = ENV.default_params("clean")
    params = params._replace(constants=params.constants._replace(reaction_heat=reaction_heat))
    state, _ = ENV.reset(params, jax.random.key(0))
    return ENV.step(params, state, action, jax.random.key(0))[1].obs[0]


@pytest.mark.nightly
def test_gradients_are_finite_and_reaction_heat_heats() -> None:
    heats = np.float32([900.0, 950.0, 1000.0])
    by_heat, _ = finite_grad(heated, heats, np.tile(ACTION, (3, 1)))
    assert (np.asarray(by_heat) > 0).all()


def test_randomisation_has_the_stated_width(env: ChemicalReactor) -> None:
    keys = jax.random.split(jax.random.key(0), 2000)
    narrow = jax.vmap(env.sample_params)(keys).constants
    wide = jax.vmap(lambda key: env.sample_params(key, spread=0.3))(keys).constants
    for params, spread in ((narrow, 0.15), (wide, 0.3)):
        for values, centre in ((params.reaction_heat, 950.0), (params.rate_constant, 7.0)):
            ratio = np.asarray(values) / centre
            assert (np.abs(ratio - 1) <= spread * (1 + 1e-6)).all()
            assert ratio.std() == pytest.approx(spread / np.sqrt(3), rel=0.05)
    assert abs(np.corrcoef(narrow.reaction_heat, narrow.rate_constant)[0, 1]) < 0.1
    np.testing.assert_array_equal(narrow.sensor_heat, 950.0)  # the soft sensor knows no better


def test_bad_arguments_are_refused_before_tracing(env: ChemicalReactor) -> None:
    with pytest.raises(ValueError, match="preset must be 'plant' or 'clean', got 'dirty'"):
        env.default_params("dirty")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"spread must be in \[0, 1\), got 1.5"):
        env.sample_params(jax.random.key(0), spread=1.5)
    with pytest.raises(ValueError, match=r"horizon must be a positive integer .*, got 0"):
        ChemicalReactor(horizon=0)
    with pytest.raises(
        ValueError, match=r"substeps must be an integer of at least 24, .* unstable; got 10"
    ):
        ChemicalReactor(substeps=10)
    params = env.default_params()
    state, _ = env.reset(params, jax.random.key(0))
    with pytest.raises(ValueError, match=r"shape \(3,\), got \(2,\)"):
        env.step(params, state, jnp.zeros(2), jax.random.key(0))


@pytest.mark.nightly
@pytest.mark.parametrize("n_episodes", [200, 1000])
def test_the_reference_pid_keeps_every_limit_and_bad_policies_do_not(
    env: ChemicalReactor, episodes: Any, n_episodes: int
) -> None:
    keys = jax.random.split(jax.random.key(2024), n_episodes)
    budget = env.spec.cost[0].limit
    kept, exceeded = {}, {}
    for name, pid in env.tunings().items():
        seen = jax.tree.map(np.asarray, episodes(env, pid, keys))
        cost = seen.cost.sum(axis=1)
        finished = seen.success.any(axis=1) & ~seen.trip.any(axis=1)
        kept[name] = np.mean(finished & (cost[:, 0] <= budget) & (seen.cost[:, :, 1] == 0).all(1))
        exceeded[name] = np.mean(cost[:, 0] > budget)
        assert finished.all(), name
    assert kept[env.reference] >= 0.99
    # The documented bad policies: aggressive tunings for temperature, ...
    assert exceeded["PID 106/3000"] >= 0.5
    assert exceeded["PID 108/3000"] >= 0.5
    # ... and heating while feeding for pressure, which trips the relief valve.
    hot = ConstantPolicy(jnp.asarray([30_000.0, 373.15, 373.15]))
    seen = jax.tree.map(np.asarray, episodes(env, hot, keys[:100]))
    assert (seen.cost[:, :, 1] > 0).any(axis=1).mean() >= 0.5
    assert seen.trip.any(axis=1).mean() >= 0.5
