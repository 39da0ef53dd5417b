"""Laws about form and values; each returns the fault that it finds, or an empty text."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from neorl_core import Step, highs, lows
from neorl_envs.plants._protocol import check_plant
from neorl_envs.testing._evidence import (
    WORLDS,
    Evidence,
    NotCheckable,
    first_difference,
    first_steps,
    probes,
    until_the_end,
)

# Laws about values; each returns the fault that it finds, or an empty text.


RELATIVE = 1e-4
"""Tolerance for float32 results of a different order of operations."""


def finite_under_hostile_actions(evidence: Evidence) -> str:
    """Observations, rewards, costs, applied actions and states are finite in every world."""
    columns = {name: getattr(evidence.steps, name) for name in ("obs", "reward", "cost", "applied")}
    columns["final_obs"] = evidence.steps.final_obs
    for name, values in columns.items():
        bad = ~np.isfinite(values)
        if bad.any():
            world, t = np.argwhere(bad)[0][:2]
            return f"{name} is not finite in step {t} of the actions {WORLDS[world]!r}"
    for path, leaf in jax.tree_util.tree_leaves_with_path(evidence.state):
        if np.issubdtype(np.asarray(leaf).dtype, np.floating) and np.isnan(leaf).any():
            return f"state{jax.tree_util.keystr(path)} is NaN at the end of an episode"
    return ""


def reward_and_endings_are_scalars(evidence: Evidence) -> str:
    """A step has a real scalar reward, and two boolean scalar flags for the end of the episode."""
    for name, kind in (("reward", np.floating), ("terminated", np.bool_), ("truncated", np.bool_)):
        values = np.asarray(getattr(evidence.steps, name))
        if values.shape[2:] or not np.issubdtype(values.dtype, kind):
            return (
                f"{name} of a step is {values.dtype}{values.shape[2:]}, "
                f"expected one {'truth value' if kind is np.bool_ else 'real number'}, shape ()"
            )
    return ""


def observations_respect_the_spec(evidence: Evidence) -> str:
    """There are as many readings as declared, and they stay inside the measuring ranges."""
    low, high = (np.asarray(ends(evidence.spec.obs)) for ends in (lows, highs))
    shape = (len(WORLDS), evidence.spec.horizon, evidence.spec.n_obs)
    if evidence.steps.obs.shape != shape or evidence.first.shape != (shape[0], shape[2]):
        return f"obs has shape {evidence.steps.obs.shape[2:]}, the spec has {evidence.spec.n_obs}"
    slack = RELATIVE * (high - low)
    for values in (evidence.steps.obs, evidence.steps.final_obs, evidence.first[:, None]):
        bad = (values < low - slack) | (values > high + slack)
        if bad.any():
            world, t, i = np.argwhere(bad)[0]
            channel = evidence.spec.obs[i]
            return (
                f"{channel.name} is {values[world, t, i]:g} {channel.unit}, outside its range "
                f"{channel.low:g} to {channel.high:g}, under the actions {WORLDS[world]!r}"
            )
    return ""


def applied_is_inside_range_and_rate(evidence: Evidence) -> str:
    """The applied action respects the ranges and rate limits of the actuators.

    A plant's own interlocks (``admit``) may exceed the rate limits.
    """
    low, high = (np.asarray(ends(evidence.spec.action)) for ends in (lows, highs))
    applied, slack = evidence.steps.applied, RELATIVE * (high - low)
    if applied.shape[2:] != (evidence.spec.n_action,):
        return f"applied has shape {applied.shape[2:]}, the spec has {evidence.spec.n_action}"
    bad = (applied < low - slack) | (applied > high + slack)
    if bad.any():
        world, t, i = np.argwhere(bad)[0]
        return (
            f"{evidence.spec.action[i].name} was applied as {applied[world, t, i]:g}, out of range"
        )
    rates = np.asarray(evidence.env.action_rates()) * evidence.spec.dt
    moved = np.abs(np.diff(applied, axis=1)) * evidence.alive[:, 1:, None]
    if (moved > rates + slack).any() and not _has_interlocks(evidence.env):
        world, t, i = np.argwhere(moved > rates + slack)[0]
        return (
            f"{evidence.spec.action[i].name} moved by {moved[world, t, i]:g} in one period, "
            f"its speed allows {rates[i]:g}"
        )
    return ""


def endings_exclude_each_other(evidence: Evidence) -> str:
    """No step is both terminated and truncated."""
    both = np.asarray(evidence.steps.terminated) & np.asarray(evidence.steps.truncated)
    if (both & evidence.alive).any():
        world, t = np.argwhere(both & evidence.alive)[0]
        return f"step {t} is terminated and truncated under the actions {WORLDS[world]!r}"
    return ""


def the_last_observation_is_that_of_the_step(evidence: Evidence) -> str:
    """``final_obs`` equals ``obs`` unless an episode ends, where a reset may change ``obs``."""
    steps = evidence.steps
    ended = np.asarray(steps.terminated) | np.asarray(steps.truncated)
    low, high = (np.asarray(ends(evidence.spec.obs)) for ends in (lows, highs))
    difference = np.abs(np.asarray(steps.obs) - np.asarray(steps.final_obs))
    # The compiler may compute both separately and round them differently.
    differs = np.any(difference > RELATIVE * (high - low), axis=-1) & ~ended
    if differs.any():
        world, t = np.argwhere(differs)[0]
        return (
            f"final_obs differs from obs in step {t} of the actions {WORLDS[world]!r}, in which "
            "no episode ended"
        )
    return ""


def the_plant_receives_what_is_logged(evidence: Evidence) -> str:
    """A step with the applied action leads to the same state, reward and readings."""
    probe = probes(evidence)
    demanded = probe.repeated()
    logged = probe.repeated(action=demanded[1].applied)
    path = first_difference(demanded, logged, RELATIVE)
    if path:
        return (
            "the plant responds differently to the demanded than to the applied action, which is "
            f"what a log holds; they differ in (state, step){path}"
        )
    return ""


def ending_early_does_not_pay(evidence: Evidence) -> str:
    """No world that trips under hostile actions scores higher than with every actuator held.

    Both have the same parameters, start and noise. The score is the return minus the declared
    penalties.
    """
    if not hasattr(evidence.steps.info, "trip"):
        return ""
    with_nan = until_the_end(evidence.with_nan)
    trips = np.any(np.asarray(evidence.steps.info.trip) & evidence.alive, axis=1)
    stays = ~np.any(np.asarray(evidence.with_nan.info.trip) & with_nan, axis=1)
    tripped, idle = (
        _scores(evidence, evidence.steps, evidence.alive),
        _scores(evidence, evidence.with_nan, with_nan),
    )
    for world in np.flatnonzero(trips & stays):
        if tripped[world] > idle[world]:
            return (
                f"tripping under the actions {WORLDS[world]!r} scores {tripped[world]:.4g}, doing "
                f"nothing in the same world {idle[world]:.4g}: a trip must cost more than the "
                "rest of the episode can"
            )
    return ""


def terms_add_up_to_the_reward(evidence: Evidence) -> str:
    """Declared terms have unique names, and the sum of amounts times worth gives every reward."""
    terms = getattr(evidence.env, "terms", ())
    if not terms:
        return ""
    names = [term.name for term in terms]
    if len(set(names)) < len(names):
        return f"two terms have one name: {sorted(names)}"
    amounts = np.asarray(getattr(evidence.steps.info, "terms", np.zeros(())), np.float64)
    if amounts.shape[2:] != (len(names),):
        return f"info.terms of a step has shape {amounts.shape[2:]}, the plant declares {names}"
    parts = amounts * [term.worth for term in terms]
    reward = np.asarray(evidence.steps.reward, np.float64)
    slack = RELATIVE * (1 + np.abs(parts).sum(axis=2))
    differing = (np.abs(parts.sum(axis=2) - reward) > slack) & evidence.alive
    if differing.any():
        world, t = np.argwhere(differing)[0]
        return (
            f"the terms of step {t} come to {parts[world, t].sum():.6g}, the reward is "
            f"{reward[world, t]:.6g}, under the actions {WORLDS[world]!r}"
        )
    return ""


def an_end_has_its_reason(evidence: Evidence) -> str:
    """A step is terminated if and only if ``info`` reports a trip or a success.

    The law does not apply if ``info`` has neither field.
    """
    named = [r for r in ("success", "trip") if hasattr(evidence.steps.info, r)]
    if not named:
        return ""
    reasons = [np.asarray(getattr(evidence.steps.info, reason)) for reason in named]
    differing = (np.any(reasons, axis=0) != np.asarray(evidence.steps.terminated)) & evidence.alive
    if differing.any():
        world, t = np.argwhere(differing)[0]
        kind = "is" if evidence.steps.terminated[world, t] else "is not"
        reasons_given = ", ".join(
            f"{r} {bool(x[world, t])}" for r, x in zip(named, reasons, strict=True)
        )
        return (
            f"step {t} {kind} terminated with {reasons_given} under the actions {WORLDS[world]!r}"
        )
    return ""


def the_clock_truncates(evidence: Evidence) -> str:
    """An episode that the plant does not end is truncated exactly at the horizon."""
    horizon, steps = evidence.spec.horizon, evidence.steps
    for world, name in enumerate(WORLDS):
        truncated = np.flatnonzero(steps.truncated[world] & evidence.alive[world])
        ended = (steps.terminated[world] & evidence.alive[world]).any()
        if not ended and truncated.tolist() != [horizon - 1]:
            return (
                f"an episode of horizon {horizon} was truncated in the steps "
                f"{truncated[:3].tolist()} under the actions {name!r}"
            )
        if ended and truncated.size:
            return f"an episode that the plant ended was truncated under the actions {name!r}"
    return ""


def costs_are_declared_and_not_negative(evidence: Evidence) -> str | NotCheckable:
    """The cost vector has the declared length, is never negative, and is not always zero.

    If hostile actions never violate the limit of one cost among several, this is reported.
    """
    cost, names = evidence.steps.cost, [channel.name for channel in evidence.spec.cost]
    if cost.shape[2:] != (len(names),):
        return f"the cost has shape {cost.shape[2:]}, the spec names {names}"
    if (cost < 0).any():
        return f"the cost {names[np.argwhere(cost < 0)[0][2]]!r} is negative"
    unknown = sorted(set(evidence.env.penalty_weights()) - set(names))
    if unknown:
        return f"penalty_weights names the cost {unknown[0]!r}, the spec {names}"
    never = [name for i, name in enumerate(names) if not (cost[..., i] > 0).any()]
    exceeded = [name for name in never if _is_exceeded(evidence, name)]
    if exceeded or (never and len(never) == len(names)):
        return (
            f"the cost {(exceeded or never)[0]!r} is zero in every step of {len(WORLDS)} worlds, "
            f"{'although its limit is exceeded' if exceeded else 'as is every other'}"
        )
    if never:
        return NotCheckable(
            f"no action that was tried exceeds the limit of {never[0]!r}; test it with a policy "
            "that does"
        )
    return ""


def _is_exceeded(evidence: Evidence, cost: str) -> bool:
    """Whether ``info`` has a negative margin of a limit with this cost."""
    limits = [limit for limit in getattr(evidence.env, "limits", ()) if limit.cost == cost]
    margins = [getattr(evidence.steps.info, limit.label, np.zeros(1)) for limit in limits]
    return any((np.asarray(margin) < 0).any() for margin in margins)


def a_nan_action_keeps_the_last_command(evidence: Evidence) -> str:
    """A NaN channel leaves its actuator where it is."""
    middle = np.asarray(evidence.steps.applied[0])
    if len(middle) > 1 and evidence.alive[0, 1] and not _close(middle[1], middle[0]):
        return f"NaN moved the actuators from {middle[0].tolist()} to {middle[1].tolist()}"
    return ""


def equal_keys_give_equal_episodes(evidence: Evidence) -> str:
    """A second call with the same keys gives identical bits; another key gives other results."""
    for name in ("obs", "reward", "cost", "applied", "terminated", "truncated"):
        first, second = getattr(evidence.steps, name), getattr(evidence.again, name)
        if not np.array_equal(first, second):
            return f"{name} differs between two calls with the same key"
    first, steps = evidence.other
    same = np.array_equal(evidence.first, first) and np.array_equal(
        evidence.steps.obs, steps.obs[::-1]
    )
    return "another key gives the same episode" if same else ""


def _scores(evidence: Evidence, steps: Step, alive: np.ndarray) -> np.ndarray:
    """Return minus the declared penalties of every world."""
    weights = evidence.env.penalty_weights()
    penalty = np.asarray([weights.get(channel.name, 0.0) for channel in evidence.spec.cost])
    score = np.reshape(steps.reward, alive.shape) - np.asarray(steps.cost) @ penalty
    return np.sum(score * alive, axis=1)


def _close(actual: np.ndarray, expected: np.ndarray) -> bool:
    return bool(np.allclose(actual, expected, rtol=RELATIVE, atol=RELATIVE))


def _has_interlocks(env: object) -> bool:
    from neorl_envs.plants import SimulatedPlant

    admit = getattr(type(env), "admit", None)
    return admit is not None and admit is not SimulatedPlant.admit


# Laws about form: requirements of JAX and of the protocol on the functions themselves.


def it_is_a_plant(env: Any) -> str:
    """The plant has all members, is hashable and has no arrays among its fields."""
    try:
        check_plant(env.name, env)
        hash(env)
    except (AttributeError, TypeError, ValueError) as error:
        return str(error)
    if jax.tree.leaves(env):
        return "its fields hold arrays; make them static, or part of the parameters"
    names = {channel.name for channel in env.spec.obs}
    unknown = sorted(set(env.bands()) - names)
    return f"bands names {unknown[0]!r}, which is not observed" if unknown else ""


def a_wrong_shape_is_refused(evidence: Evidence) -> str:
    """An action of a wrong length is refused during tracing and not broadcast."""
    params = jax.tree.map(lambda leaf: leaf[0], evidence.params)
    start = jax.tree.map(lambda leaf: leaf[0], evidence.start)
    n = evidence.spec.n_action
    for shape in ((n + 1,), (), (1, n)):
        wrong_action = jnp.zeros(shape)
        try:
            jax.eval_shape(evidence.env.step, params, start, wrong_action, evidence.key)
        except (ValueError, TypeError):
            continue
        return f"an action of shape {shape} is accepted, expected ({n},)"
    return ""


def an_unknown_preset_is_refused(evidence: Evidence) -> str:
    """``default_params`` accepts ``"plant"`` and refuses unknown presets."""
    evidence.env.default_params("plant")
    try:
        evidence.env.default_params("no such preset")
    except ValueError:
        return ""
    return "default_params accepts an unknown preset; raise ValueError"


def its_own_parameters_are_physical(evidence: Evidence) -> str:
    """``check_params``, if defined, accepts the plant's own default and sampled parameters."""
    check = getattr(evidence.env, "check_params", None)
    if check is None:
        return ""
    drawn = jax.tree.map(lambda leaf: leaf[0], evidence.params)
    try:
        check(evidence.env.default_params())
        check(drawn)
    except ValueError as error:
        return str(error)
    return ""


def the_state_keeps_its_form(env: Any) -> str:
    """Structure, shapes and dtypes of the state never change, so that loops can carry it."""

    def both(key: Any) -> Any:
        params = env.sample_params(key)
        start, _ = env.reset(params, key)
        return start, env.step(params, start, jnp.zeros(env.spec.n_action), key)[0]

    start, after = jax.eval_shape(both, jax.random.key(0))
    if jax.tree.structure(start) != jax.tree.structure(after):
        return "step returns a state of another structure than reset"
    for (path, a), b in zip(
        jax.tree_util.tree_leaves_with_path(start), jax.tree.leaves(after), strict=True
    ):
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            return (
                f"state{jax.tree_util.keystr(path)} is {a.dtype}{a.shape} after reset and "
                f"{b.dtype}{b.shape} after step"
            )
    return ""


def a_second_call_does_not_trace_again(evidence: Evidence) -> str:
    """Three calls with different keys and actions use one compiled program."""
    return "" if evidence.traces == 1 else f"three calls were traced {evidence.traces} times"


def a_key_is_used_once(evidence: Evidence) -> str:
    """No key is used for two random numbers, which would be dependent; checked during tracing."""
    params = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), evidence.params)
    start = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), evidence.start)
    action = jnp.zeros(evidence.spec.n_action)

    def draw(key: PRNGKeyArray) -> Any:
        return evidence.env.sample_params(key)

    def reset(key: PRNGKeyArray) -> Any:
        return evidence.env.reset(params, key)

    def step(key: PRNGKeyArray) -> Any:
        return evidence.env.step(params, start, action, key)

    for name, call in {"sample_params": draw, "reset": reset, "step": step}.items():
        try:
            with jax.debug_key_reuse(True):
                jax.jit(call).trace(evidence.key)
        except jax.errors.KeyReuseError:
            return f"{name} uses a key twice, so that draws are correlated; split it"
    return ""


def a_batch_equals_single_steps(evidence: Evidence) -> str:
    """``vmap`` over worlds and ``scan`` over time give the numbers of single compiled steps."""
    return _compare(evidence, compiled=True)


def compiled_equals_eager(evidence: Evidence) -> str:
    """Results without ``jit`` are the same, and the functions keep no state between calls."""
    fault = _compare(evidence, compiled=False)
    if fault:
        return fault
    (_, first), (_, second) = first_steps(evidence, (0, 0), compiled=False)
    same = all(np.array_equal(a, b) for a, b in zip(first[:5], second[:5], strict=True))
    fault = "two eager calls with the same arguments differ: a function keeps state between calls"
    return "" if same else fault


def _compare(evidence: Evidence, *, compiled: bool) -> str:
    form = "a compiled" if compiled else "an eager"
    worlds = (0, 1)
    answers = first_steps(evidence, worlds, compiled=compiled)
    for world, (first, step) in zip(worlds, answers, strict=True):
        if not _near(first, evidence.first[world], evidence.first[world]):
            return f"the first observation differs from that of {form} call"
        for name in ("obs", "reward", "cost", "applied"):
            batch = getattr(evidence.steps, name)
            if not _near(getattr(step, name), batch[world, 0], batch[world]):
                return f"{name} of the first step differs from that of {form} single step"
    return ""


def _near(actual: Any, expected: Any, scale: Any) -> bool:
    size = np.max(np.abs(np.asarray(scale, np.float64)), initial=1.0)
    return bool(np.allclose(actual, expected, rtol=RELATIVE, atol=RELATIVE * 1e-2 * size))
