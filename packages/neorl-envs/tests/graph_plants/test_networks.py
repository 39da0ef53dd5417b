"""Traffic, swarm and swing networks: equations written again, conservation, bounds."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from neorl_core import InputError, highs, lows
from neorl_envs import environment_names, make
from neorl_envs.graph_plants import robot_swarm, swing_network, traffic_network
from neorl_envs.graph_plants._parts import both_ways, grid_pairs
from neorl_envs.graph_plants._swarm import ARENA, RADIUS, SPACING, SPEED, Motion
from neorl_envs.graph_plants._traffic import STORAGE
from neorl_envs.plants import GRAPH_PLANTS
from neorl_envs.scoring import score_episodes, scores
from neorl_envs.testing import LAWS, check_environment

TRAFFIC = traffic_network(2, 3, horizon=30)
SWARM = robot_swarm(2, 3, horizon=30)
SWING = swing_network(5, horizon=30)
SMALL = {plant.name: plant for plant in (TRAFFIC, SWARM, SWING)}
KEY = jax.random.key(0)
STEP = {name: jax.jit(plant.step_with_noise) for name, plant in SMALL.items()}


@functools.partial(jax.jit, static_argnums=0)
def episode(plant, key, actions):
    params = plant.sample_params(key)
    state, _ = plant.reset(params, jax.random.fold_in(key, 1))

    def one(state, row):
        state, step = plant.step(params, state, *row)
        return state, (state, step)

    keys = jax.random.split(jax.random.fold_in(key, 2), len(actions))
    return jax.lax.scan(one, state, (actions, keys))[1]


def adversarial(plant, kind, rng):
    """Actions that try to drive a network as far as it goes, each an admissible one."""
    low, high = (np.asarray(ends(plant.spec.action), np.float32) for ends in (lows, highs))
    time, n = np.arange(plant.horizon)[:, None], plant.spec.n_action
    signs = {
        "highest": np.ones((plant.horizon, n)),
        "by turns": np.where(time % 2, 1, -1) * np.ones(n),
        "slow swing": np.where(time // 3 % 2, 1, -1) * np.ones(n),
        "against each other": np.where((time // 3 + np.arange(n)) % 2, 1, -1),
        "random ends": rng.choice([-1, 1], size=(plant.horizon, n)),
    }[kind]  # fmt: skip
    return jnp.asarray(np.where(signs > 0, high, low))


@pytest.mark.parametrize(
    "kind",
    ["highest", "by turns", "slow swing", "against each other", "random ends"],
)
@pytest.mark.parametrize("name", SMALL)
def test_states_are_bounded_under_the_worst_admissible_actions(name, kind):
    """Row P05: the states of networks stay bounded under any admissible action."""
    plant = SMALL[name]
    states, steps = episode(plant, KEY, adversarial(plant, kind, np.random.default_rng(0)))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((states, steps)))
    if plant is TRAFFIC:
        assert states.queues.min() >= 0
        assert states.queues.max() <= STORAGE
    elif plant is SWARM:
        assert np.abs(states.motion.place).max() <= ARENA
        assert np.abs(states.motion.speed).max() <= SPEED
    else:
        # Linear and damped, so bounded; these are ends that this small one stays well inside.
        assert np.abs(states.swing.frequency).max() < 1.5
        assert np.abs(states.swing.angle).max() < 3
        assert np.abs(states.swing.generation).max() <= 0.5 + 1e-6


@pytest.mark.nightly
@pytest.mark.parametrize("name", SMALL)
def test_a_network_keeps_the_laws_of_plants(name):
    result = check_environment(SMALL[name], eager=True)
    assert len(result) == len(LAWS) + 1
    assert [finding for finding in result if finding.fault] == []


# Traffic.


def one_cycle(plant, queues, green, arrivals):
    """The cycle again in float64, road by road, from the sentences of its page."""
    pairs = [p for a, b in grid_pairs(plant.rows, plant.columns) for p in ((a, b), (b, a))]
    upright = [abs(a - b) == plant.columns for a, b in pairs]
    saturation, out, share = 27.0, [], []
    for road, (_, end) in enumerate(pairs):
        out.append(
            min(queues[road], saturation * (green[end] if upright[road] else 1 - green[end]))
        )
    for road, (begin, end) in enumerate(pairs):
        onward = {
            other: 6.0 if upright[other] == upright[road] else 1.0
            for other, (s, d) in enumerate(pairs) if s == end and d != begin
        }  # fmt: skip
        share.append({other: 0.85 * w / sum(onward.values()) for other, w in onward.items()})
    room = [40 - q for q in queues]
    wanted = [
        sum(out[z] * share[z].get(w, 0) for z in range(len(pairs))) for w in range(len(pairs))
    ]
    passes = [min(1.0, room[w] / max(wanted[w], 1e-6)) for w in range(len(pairs))]
    out = [out[z] * min(passes[w] for w in share[z]) for z in range(len(pairs))]
    into = [sum(out[z] * share[z].get(w, 0) for z in range(len(pairs))) for w in range(len(pairs))]
    entered = [min(arrivals[w], room[w] - into[w]) for w in range(len(pairs))]
    return [queues[w] - out[w] + into[w] + entered[w] for w in range(len(pairs))]


@pytest.mark.parametrize("fill", [0.3, 0.9, 1.0])
def test_a_cycle_of_traffic_is_the_rules_road_by_road(fill):
    rng = np.random.default_rng(1)
    params = TRAFFIC.default_params("clean")
    queues = fill * STORAGE * rng.uniform(0.5, 1, len(params.arrivals)) ** (fill < 1)
    green = rng.uniform(0.1, 0.9, TRAFFIC.n_nodes)
    state, _ = TRAFFIC.begin(jnp.asarray(queues, jnp.float32))
    quiet = jnp.zeros(len(queues))
    after, step = STEP[TRAFFIC.name](params, state, jnp.asarray(green, jnp.float32), quiet)
    expected = one_cycle(TRAFFIC, queues, green, np.asarray(params.arrivals, float))
    np.testing.assert_allclose(after.queues, expected, atol=2e-4)
    np.testing.assert_allclose(step.reward, -np.mean(expected), rtol=1e-5)


def test_vehicles_are_conserved_where_roads_are_full_too():
    actions = adversarial(TRAFFIC, "slow swing", np.random.default_rng(0))
    states, steps = episode(TRAFFIC, jax.random.key(4), actions)
    total = np.asarray(states.queues, float).sum(axis=1)
    flows = np.asarray(steps.info.entered, float) - np.asarray(steps.info.left, float)
    np.testing.assert_allclose(np.diff(total), flows[1:], atol=2e-3)
    assert np.asarray(steps.info.left).min() > 0


def test_a_full_road_holds_those_before_it():
    """Roads to the right are full, and nothing goes there until they have room again."""
    queues = jnp.where(jnp.arange(14) == 0, 20.0, 40.0)
    state, _ = TRAFFIC.begin(queues)
    after, _ = STEP[TRAFFIC.name](
        TRAFFIC.default_params("clean"), state, jnp.full(6, 0.5), jnp.zeros(14)
    )
    assert after.queues[0] >= 20.0  # what is behind is full: nobody leaves, and more come


# Swarm.


def test_the_swarm_moves_as_scipy_integrates_it():
    rng, params = np.random.default_rng(2), SWARM.default_params("clean")
    place, speed = rng.normal(size=(2, 6, 2)) * 0.8
    thrust = rng.uniform(-1, 1, (6, 2))
    home = SPACING * np.array([[c, r] for r in range(2) for c in range(3)], float)
    near = {
        (i, j): np.linalg.norm(home[i] + place[i] - home[j] - place[j]) < RADIUS
        for a, b in grid_pairs(2, 3) for i, j in ((a, b), (b, a))
    }  # fmt: skip

    def rates(_, x):
        e, v = x.reshape(2, 6, 2)
        a = thrust - 0.2 * v
        for (i, j), there in near.items():
            if there:
                a[i] += 0.5 * (e[j] - e[i]) + 0.2 * (v[j] - v[i])
        return np.concatenate([v, a]).ravel()

    end = solve_ivp(rates, (0, 0.2), np.concatenate([place, speed]).ravel(), rtol=1e-9, atol=1e-10)
    e, v = end.y[:, -1].reshape(2, 6, 2)
    start = Motion(*(jnp.asarray(x, jnp.float32) for x in (place, speed)))
    state, _ = SWARM.begin(start)
    after, _ = STEP[SWARM.name](
        params, state, jnp.asarray(thrust.ravel(), jnp.float32), jnp.zeros((6, 2))
    )
    np.testing.assert_allclose(after.motion.place, e, atol=1e-5)
    np.testing.assert_allclose(after.motion.speed, v, atol=1e-5)


def test_without_thrust_and_drag_momentum_stays_and_energy_falls():
    params = SWARM.default_params("clean")._replace(drag=jnp.float32(0))
    speed = jax.random.normal(KEY, (6, 2)) * 0.5
    state, _ = SWARM.begin(Motion(jnp.zeros((6, 2)), speed))
    energies = []
    for _ in range(10):
        state, step = STEP[SWARM.name](params, state, jnp.zeros(12), jnp.zeros((6, 2)))
        np.testing.assert_allclose(state.motion.speed.sum(axis=0), speed.sum(axis=0), atol=1e-5)
        assert step.info.links == 7  # all are near: the potential below is that of all links
        a, b = np.asarray(grid_pairs(2, 3)).T
        stretch = np.asarray(state.motion.place)[a] - np.asarray(state.motion.place)[b]
        energies.append(0.5 * np.sum(state.motion.speed**2) + 0.25 * np.sum(stretch**2))
    assert (np.diff(energies) < 1e-6).all()
    assert energies[-1] < 0.8 * energies[0]


def test_a_swarm_that_is_torn_apart_loses_its_links_and_gets_them_back():
    place = jnp.zeros((6, 2)).at[0].set(jnp.array([-5.0, -5.0]))
    state, obs = SWARM.begin(Motion(place, jnp.zeros((6, 2))))
    there = dict(zip([channel.name for channel in SWARM.spec.obs], obs.tolist(), strict=True))
    gone = {name for name, value in there.items() if name.endswith("there") and value == 0}
    assert gone == {"link0-1.there", "link1-0.there", "link0-3.there", "link3-0.there"}
    assert there["robot0.stretch_x"] == 0
    home = SWARM.begin(Motion(jnp.zeros((6, 2)), jnp.zeros((6, 2))))[1]
    assert (home[-14:] == 1).all()
    assert state.motion.place[0, 0] == -5


# Swing equations.


def test_the_grid_swings_as_scipy_integrates_it():
    rng, params = np.random.default_rng(3), SWING.sample_params(KEY)
    m, d, b = (np.asarray(x, float) for x in params[:3])
    load, command = rng.uniform(-0.3, 0.3, (2, 5))

    def rates(_, x):
        angle, f, p = x.reshape(3, 5)
        away = np.zeros(5)
        for (i, j), strength in zip(SWING.pairs, b, strict=True):
            away[i] += strength * (angle[i] - angle[j])
            away[j] += strength * (angle[j] - angle[i])
        return np.concatenate(
            [2 * np.pi * (f - f.mean()), (p - load - d * f - away) / m, (command - p) / 0.5]
        )

    x = np.zeros(15)
    state, _ = SWING.begin(params, jnp.asarray(load, jnp.float32))
    still = params._replace(load_sd=jnp.float32(0))
    for _ in range(5):
        x = solve_ivp(rates, (0, 1), x, rtol=1e-9, atol=1e-11).y[:, -1]
        state, _ = STEP[SWING.name](still, state, jnp.asarray(command, jnp.float32), jnp.zeros(5))
        for ours, expected in zip(state.swing, x.reshape(3, 5), strict=True):
            np.testing.assert_allclose(ours, expected, atol=2e-4)


def test_without_damping_and_load_the_energy_stays():
    """``sum M f^2 / 2 + sum b (theta_i - theta_j)^2 / (4 pi)``; the frequencies sum to zero."""
    params = SWING.default_params("clean")._replace(damping=jnp.zeros(5))
    state, _ = SWING.begin(params, jnp.zeros(5))
    kick = jnp.array([0.2, -0.1, -0.1, 0.05, -0.05])
    state = state._replace(swing=state.swing._replace(frequency=kick))

    def energy(swing):
        i, j = np.asarray(SWING.pairs).T
        angle, f = (np.asarray(x, float) for x in swing[:2])
        return np.sum(f**2) / 2 + np.sum((angle[i] - angle[j]) ** 2) / (4 * np.pi)

    first = energy(state.swing)
    for _ in range(10):
        state, _ = STEP[SWING.name](params, state, jnp.zeros(5), jnp.zeros(5))
        np.testing.assert_allclose(energy(state.swing), first, rtol=5e-3)
        np.testing.assert_allclose(state.swing.frequency.sum(), 0, atol=1e-5)


def test_flows_and_balance_of_the_grid_at_rest():
    """At rest every bus sends what it has too much, and the frequency is the common one."""
    params = SWING.default_params("clean")
    load = jnp.array([0.3, -0.2, 0.1, -0.1, 0.1])
    state, _ = SWING.begin(params, load)
    for _ in range(200):
        state, step = STEP[SWING.name](params, state, jnp.zeros(5), jnp.zeros(5))
    np.testing.assert_allclose(state.swing.frequency, -0.04, atol=1e-4)
    into = np.zeros(5)
    np.add.at(into, both_ways(SWING.pairs)[1], np.asarray(step.obs[15:], float))
    np.testing.assert_allclose(into, np.asarray(load) - 0.04, atol=1e-3)


# All three.


def test_networks_are_made_by_name_and_listed_apart():
    assert GRAPH_PLANTS == (
        "LoadBalance-v0", "TrafficNetwork-v0", "RobotSwarm-v0", "SwingNetwork-v0",
    )  # fmt: skip
    assert not set(GRAPH_PLANTS) & set(environment_names())
    for name in GRAPH_PLANTS:
        assert make(name).name == name
    assert make("SwingNetwork-v0") == swing_network()


@pytest.mark.nightly
@pytest.mark.parametrize("name", SMALL)
def test_the_reference_controller_beats_the_ordinary_one(name):
    """Paired over 100 episodes that no controller was chosen on, three standard errors and more."""
    plant, keys = make(name), jax.random.split(jax.random.key(2026), 100)
    low, high = (
        np.asarray(scores(plant, score_episodes(plant, one, keys)), float)
        for one in plant.tunings().values()
    )
    gain = high - low
    assert gain.mean() > 3 * gain.std(ddof=1) / 10


@pytest.mark.parametrize("make_one", [traffic_network, robot_swarm])
def test_sizes_that_make_no_network_are_refused(make_one):
    with pytest.raises(InputError, match="columns must be an integer of at least 2, got 1"):
        make_one(2, 1)
    with pytest.raises(InputError, match="horizon must be an integer of at least 1, got 0"):
        make_one(2, 2, horizon=0)


def test_swing_networks_of_impossible_numbers_are_refused():
    with pytest.raises(InputError, match="n_nodes must be an integer of at least 3, got 2"):
        swing_network(2)
    with pytest.raises(InputError, match="chords must be a number of lines"):
        swing_network(chords=-1.0)
    with pytest.raises(InputError, match="unknown preset 'later'"):
        SWING.default_params("later")
    with pytest.raises(ValueError, match="an action of SwingNetwork-v0 has the shape"):
        SWING.step(SWING.default_params(), SWING.begin(SWING.default_params(), jnp.zeros(5))[0],
                   jnp.zeros(4), KEY)  # fmt: skip
