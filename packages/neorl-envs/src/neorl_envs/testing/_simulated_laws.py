"""Laws about true state, randomness and time, for plants whose parts are declared.

They call the functions of a :class:`neorl_envs.plants.SimulatedPlant` with one change: different
instrument noise, a different key, or the applied action instead of the demanded one.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray
from scipy.integrate import solve_ivp
from scipy.stats import rankdata

from neorl_envs.blocks import _limits as lim
from neorl_envs.blocks._constants import named_constants
from neorl_envs.plants import Moment, SimulatedPlant
from neorl_envs.plants._simulated import _physics
from neorl_envs.testing._evidence import Evidence, NotCheckable, first_difference, probes

RELATIVE = 1e-4
"""Tolerance for float32 results of a different order of operations."""
ROUNDING = 1e-6
"""Tolerance for the same operations twice in one program, which may be fused differently."""
TOGETHER = 0.95
"""Rank correlation above which two random numbers count as dependent."""
DRAWS = 256
"""Draws of the noise whose correlations are tested, but for a last round of probes."""
OFF_IN_TIME = 0.1
"""Allowed difference between a period and the integral of the balances, relative to the change."""


Law = Callable[[Evidence], str | NotCheckable]


def restrict_to_simulated_plants(law: Callable[[Evidence], str | NotCheckable]) -> Law:
    """Restricts a law to simulated plants; for any other plant it returns that it is unchecked."""

    @functools.wraps(law)
    def checked(evidence: Evidence) -> str | NotCheckable:
        if isinstance(evidence.env, SimulatedPlant):
            return law(evidence)
        return NotCheckable("this needs the declarations of a SimulatedPlant; test it yourself")

    return checked


@restrict_to_simulated_plants
def instruments_only_show(evidence: Evidence) -> str:
    """Instrument noise changes only readings, not rewards, costs, ends of episodes or states.

    The value of an episode depends on the true state, never on its readings.
    """
    probe = probes(evidence)
    noise = probe.noise(probe.params, probe.key)
    other = probe.with_other_instruments(probe.params, noise, _keys(evidence, 11, probe.number))
    answers = []
    for one in (noise, other):
        after, step = probe.repeated(noise=one)
        answers.append(
            {
                "reward": step.reward,
                "cost": step.cost,
                "terminated": step.terminated,
                "truncated": step.truncated,
                "applied": step.applied,
                "state.plant": after.plant,
                "state.disturbance": after.disturbance,
            }
        )
    first, second = answers
    for name, value in first.items():
        if first_difference(value, second[name], ROUNDING):
            return (
                f"{name} changes with the noise of the instruments; compute it from the true "
                "state, not from readings"
            )
    return ""


@restrict_to_simulated_plants
def rewards_and_costs_follow_the_declarations(evidence: Evidence) -> str:
    """The reward of a step is :meth:`reward` of the true state; limits give its costs and trips."""
    step, ours = probes(evidence).step, _declared(evidence)
    answered = step.reward, step.cost, step.info.trip
    declared = ours.reward, ours.cost, ours.trip
    for name, a, b in zip(("reward", "cost", "info.trip"), answered, declared, strict=True):
        if first_difference(a, b, RELATIVE):
            return f"{name} of a step is not what the plant's reward and limits make of its state"
    return ""


@restrict_to_simulated_plants
def a_trip_has_its_price(evidence: Evidence) -> str | NotCheckable:
    """If a limit ends the episode, this lowers the reward of that step."""
    env = evidence.env
    if not any(limit.trip for limit in env.limits):
        return ""
    without, tripped = _declared(evidence).with_and_without_trip
    if (np.asarray(tripped) < np.asarray(without)).all():
        return ""
    return "a trip takes nothing off the reward, so that ending an episode early is free"


@restrict_to_simulated_plants
def another_key_gives_other_draws(evidence: Evidence) -> str:
    """Declared noise, initial states and uncertain constants differ between keys."""
    env, probe = evidence.env, probes(evidence)
    keys = _keys(evidence, 12, probe.number)
    params = env.default_params()
    fault = _constants_that_stay(env, evidence.params)
    if fault:
        return fault
    middle = evidence.actions[0, 0]
    starts = [jax.device_get(evidence.opening(params, key, middle)) for key in keys[:8]]
    states, first = ([start[i] for start in starts] for i in range(2))
    first = np.stack(first)
    plants = jax.tree.map(lambda *x: np.stack(x), *(state.plant for state in states))
    noisy = np.asarray((params.instruments.sd > 0) | (params.instruments.relative > 0))
    spread = any(np.any(np.asarray(leaf) > 0) for leaf in jax.tree.leaves(params.initial_spread))
    if spread and all(_alike(leaf) for leaf in jax.tree.leaves(plants)):
        return "reset starts in the same state for every key, although initial_spread is declared"
    if noisy.any() and _alike(first[:, noisy]):
        return "reset shows the same readings for every key, although noise is declared"
    if first_difference(probe.step.obs, probe.repeated()[1].obs, RELATIVE):
        return "step is not step_with_noise of what sample_noise draws with its key"
    params, start, middle = probe.of_all((params, states[0], middle))
    noise = probe.noise(params, keys)
    obs = probe.repeated(params=params, state=start, action=middle, noise=noise)[1].obs
    for path, leaf in jax.tree_util.tree_leaves_with_path(noise):
        if _alike(leaf):
            return f"sample_noise draws the same noise{jax.tree_util.keystr(path)} for every key"
    if noisy.any() and _alike(obs[:, noisy]):
        return "step shows the same readings for every key, although noise is declared"
    return ""


@restrict_to_simulated_plants
def draws_do_not_go_together(evidence: Evidence) -> str:
    """No two numbers of :meth:`sample_noise` are correlated over many keys."""
    probe = probes(evidence)
    params = probe.of_all(evidence.env.default_params())
    rounds = range(13, 13 + DRAWS // probe.number)
    drawn = [probe.noise(params, _keys(evidence, i, probe.number)) for i in rounds]
    drawn, names, columns = jax.tree.map(lambda *x: np.concatenate(x), *drawn), [], []
    for path, leaf in jax.tree_util.tree_leaves_with_path(drawn):
        flat = np.asarray(leaf, np.float64).reshape(len(rounds) * probe.number, -1)
        names += [f"noise{jax.tree_util.keystr(path)}"] * flat.shape[1]
        columns.append(flat)
    table = np.concatenate(columns, axis=1) if columns else np.zeros((1, 0))
    moving = np.flatnonzero(table.std(axis=0) > 0)
    if len(moving) < 2:
        return ""
    ranks = np.apply_along_axis(rankdata, 0, table[:, moving])
    together = np.triu(np.abs(np.corrcoef(ranks, rowvar=False)), 1)
    a, b = np.unravel_index(np.argmax(together), together.shape)
    if together[a, b] < TOGETHER:
        return ""
    one, other = names[moving[a]], names[moving[b]]
    return f"draws of {one} and {other} are correlated: they come from one draw or one key"


@restrict_to_simulated_plants
def clean_has_no_chance(evidence: Evidence) -> str:
    """``"clean"`` has no noise, dead time, lag or random start, and has its declared constants."""
    env = evidence.env
    params = env.default_params("clean")

    probe = probes(evidence)
    all_clean = probe.of_all(params)
    noise = probe.noise(all_clean, probe.key)
    other = probe.with_other_instruments(all_clean, noise, _keys(evidence, 11, probe.number))
    first, second = (probe.repeated(params=all_clean, noise=one)[1].obs for one in (noise, other))
    if first_difference(first, second, ROUNDING):
        return "the readings of the preset 'clean' are noisy"
    silent = {
        "a dead time of an instrument": params.instruments.dead_time,
        "a dead time of an actuator": params.actuators.dead_time,
        "a lag of an actuator": params.actuators.lag,
        "a random start": params.initial_spread,
    }
    for name, tree in silent.items():
        if any(np.any(np.asarray(leaf) != 0) for leaf in jax.tree.leaves(tree)):
            return f"the preset 'clean' has {name}"
    for name, leaf, value in named_constants(env.constants, params.constants):
        if leaf.clean is not None and not np.allclose(value, leaf.clean, rtol=RELATIVE):
            return f"constant {name!r} is {value} in the preset 'clean', declared as {leaf.clean}"
    return ""


@restrict_to_simulated_plants
def a_period_takes_dt(evidence: Evidence) -> str | NotCheckable:
    """:meth:`evolve` changes the plant as its :meth:`derivative` does in ``dt`` seconds.

    SciPy integrates the derivative from states inside the episodes. The median of the relative
    differences counts, since some periods contain events (a backwash, a new coil).
    """
    env, probe = evidence.env, probes(evidence)
    if type(env).derivative is SimulatedPlant.derivative:
        return NotCheckable(
            "no derivative is declared, so nothing here knows how far the plant moves in dt; "
            "define SimulatedPlant.derivative, or integrate one period yourself and compare"
        )

    positions, worlds = probe.after.actuators.position, probe.after.disturbance
    ends = _declared(evidence).end
    ratios = []
    for i in range(probe.number):
        row = jax.tree.map(
            lambda leaf, i=i: np.asarray(leaf)[i],
            (probe.params, probe.state.plant, positions, worlds, probe.state.time, ends),
        )
        ratios.append(_off_in_time(env, *row))
    shares, differences = np.asarray(ratios).T
    if np.median(differences) <= OFF_IN_TIME:
        return ""
    return (
        f"evolve moves the plant {np.median(shares):.3g} times as far as its derivative does in "
        f"dt = {env.dt:g} s"
    )


def _off_in_time(
    env: Any, params: Any, start: Any, inputs: Any, world: Any, time: Any, end: Any
) -> Any:
    """The plant's change projected on SciPy's (1 if correct), and its relative difference."""
    with jax.enable_x64(True):
        exact = jax.tree.map(_float64, (params, start, inputs, world))
        params, start, inputs, world = exact
        c = _physics(params)
        leaves, structure = jax.tree.flatten(start)
        sizes = [np.shape(leaf) for leaf in leaves]
        cuts = np.cumsum([int(np.prod(size)) for size in sizes])[:-1]

        def rates(_: float, flat: np.ndarray) -> np.ndarray:
            pieces = np.split(flat, cuts)
            state = structure.unflatten(
                piece.reshape(size) for piece, size in zip(pieces, sizes, strict=True)
            )
            return np.asarray(_flat(_derivative(env, c, state, inputs, world, time)))

        begin, moved = _flat(start), _flat(end)
        evidence = solve_ivp(rates, (0.0, env.dt), begin, method="LSODA", rtol=1e-6, atol=1e-9)
    expected, actual = evidence.y[:, -1] - begin, moved - begin
    size = np.maximum(np.abs(begin), 1e-3)
    expected, actual = expected / size, actual / size
    length = float(np.linalg.norm(expected))
    if length < 1e-4:  # at rest, where float32 has no significant digits left
        return 1.0, 0.0
    return float(expected @ actual) / length**2, float(np.linalg.norm(actual - expected)) / length


@functools.partial(jax.jit, static_argnums=0)
def _derivative(env: Any, c: Any, state: Any, inputs: Any, world: Any, time: Any) -> Any:
    return env.derivative(c, state, inputs, world, time)


def _float64(leaf: Any) -> Any:
    kind = np.asarray(leaf).dtype
    if np.issubdtype(kind, np.floating):
        return jnp.asarray(leaf, jnp.float64)
    if np.issubdtype(kind, np.complexfloating):
        return jnp.asarray(leaf, jnp.complex128)
    return jnp.asarray(leaf)


def _flat(tree: Any) -> np.ndarray:
    return np.concatenate(
        [np.ravel(np.asarray(leaf, np.float64)) for leaf in jax.tree.leaves(tree)]
    )


class _Declared(NamedTuple):
    """What the declarations make of the true states before and after every probe."""

    reward: Any
    cost: Any
    trip: Any
    with_and_without_trip: tuple[Any, Any]
    end: Any


@functools.lru_cache(maxsize=1)
def _declared(evidence: Evidence) -> _Declared:
    """One program, for all laws about them."""
    env, probe = evidence.env, probes(evidence)
    has_derivative = type(env).derivative is not SimulatedPlant.derivative

    def of_probe(params: Any, state: Any, after: Any) -> _Declared:
        c = _physics(params)
        before = Moment(state.plant, state.actuators.position, state.disturbance, state.time)
        now = Moment(after.plant, after.actuators.position, after.disturbance, after.time)
        margin = lim.margins(env.limits, env.quantities(c, now))
        trip = lim.tripped(env.limits, margin)
        reward = env.reward(c, before, now, trip)
        cost = lim.violation_costs(env.limits, env.costs, margin, reward)
        without, tripped = (env.reward(c, before, now, jnp.asarray(t)) for t in (False, True))
        inputs, world = after.actuators.position, after.disturbance
        end = env.evolve(c, state.plant, inputs, world, state.time) if has_derivative else ()
        return _Declared(reward, cost, trip, (without, tripped), end)

    return jax.device_get(jax.jit(jax.vmap(of_probe))(probe.params, probe.state, probe.after))


def _keys(evidence: Evidence, purpose: int, number: int) -> PRNGKeyArray:
    return jax.random.split(jax.random.fold_in(evidence.key, purpose), number)


def _constants_that_stay(env: Any, drawn: Any) -> str:
    """Constants with a spread that are not randomised, or without one that are."""
    for name, leaf, values in named_constants(env.constants, drawn.constants):
        if leaf.spread and _alike(values):
            return f"sample_params draws the same {name!r} for every key, although it has a spread"
        if not leaf.spread and not _alike(values):
            return f"sample_params draws {name!r}, of which no spread is declared"
    return ""


def _alike(values: Any) -> bool:
    """Whether all rows are equal."""
    rows = np.asarray(values)
    return bool(np.array_equal(rows, np.broadcast_to(rows[:1], rows.shape)))
