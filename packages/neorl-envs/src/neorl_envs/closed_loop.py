"""A policy and a plant in closed loop: single steps and whole episodes."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from neorl_core import Environment, Policy, Step, Transition

__all__ = [
    "Loop",
    "LoopStep",
    "Rollout",
    "Start",
    "closed_loop_step",
    "drawn_start",
    "rollout",
    "transition_of",
    "where_over",
]

# The closed loop used throughout this repository: policy, plant, and feedback of the sent action.
#
# Scoring, recording and evaluation run whole episodes with :func:`rollout`; they differ in their
# random keys and in the data that they keep of each step. Loops that start new episodes by
# themselves, such as collection during training, use the same :func:`closed_loop_step`. The
# Gymnasium and gymnax interfaces contain no loop, because the policy runs in the calling code.


Tree = TypeVar("Tree")


class Loop(NamedTuple):
    """A plant and the policy that acts on it, between two steps.

    Attributes:
        state: State of the plant.
        obs: Observation for the next action, shape ``(obs,)``.
        carry: Carry of the policy.
    """

    state: Any
    obs: Float[Array, " obs"]
    carry: Any


class LoopStep(NamedTuple):
    """One step of a closed loop.

    Attributes:
        obs: Observation from which the action was computed, shape ``(obs,)``.
        action: Action requested by the policy, shape ``(act,)``.
        carry: Carry of the policy after it acted and before it is informed of the sent action; it
            contains the report of a guard.
        step: Result of the plant's step; ``step.applied`` is the action that it received.
    """

    obs: Float[Array, " obs"]
    action: Float[Array, " act"]
    carry: Any
    step: Step


class Start(NamedTuple):
    """Everything about an episode that does not depend on the policy.

    Attributes:
        params: Parameters of the plant.
        state: Initial state of the plant.
        obs: First observation, shape ``(obs,)``.
        noise_keys: Keys of disturbances and measurement errors of every step, shape ``(time,)``.
        policy_keys: Keys for random policies, shape ``(time,)``. If ``None``, each of
            ``noise_keys`` is split into one key for the policy and one for the noise.
    """

    params: Any
    state: Any
    obs: Float[Array, "*start obs"]
    noise_keys: PRNGKeyArray
    policy_keys: PRNGKeyArray | None


class Rollout(NamedTuple):
    """One episode, padded to the number of keys.

    Attributes:
        rows: Data kept of every step, with time as the first axis.
        mask: Whether each step belongs to the episode, including its last step, shape ``(time,)``.
        sums: Quantities summed over the steps of the episode.
    """

    rows: Any
    mask: Bool[Array, " time"]
    sums: Any


def closed_loop_step(
    env: Environment,
    policy: Policy,
    params: Any,
    loop: Loop,
    *,
    policy_key: PRNGKeyArray,
    noise_key: PRNGKeyArray,
) -> tuple[Loop, LoopStep]:
    """Simulates one control period: policy, plant, then feedback of the sent action to the policy.

    Args:
        env: A plant.
        policy: A policy in physical units, guarded or not.
        params: Parameters of the plant.
        loop: Plant and policy before the step.
        policy_key: Key of a random policy.
        noise_key: Key of disturbances and measurement errors.

    Returns:
        Plant and policy after the step, and the record of the step. No new episode is started: if
        ``step.terminated | step.truncated``, the caller decides what follows.

    Example:
        >>> import neorl_envs
        >>> env = neorl_envs.make("ChemicalReactor-v0")
        >>> policy, params = env.tunings()[env.reference], env.default_params()
        >>> keys = jax.random.split(jax.random.key(0), 3)
        >>> state, obs = env.reset(params, keys[0])
        >>> loop = Loop(state, obs, policy.initial_carry())
        >>> loop, loop_step = closed_loop_step(
        ...     env, policy, params, loop, policy_key=keys[1], noise_key=keys[2]
        ... )
        >>> loop_step.step.applied.shape
        (3,)
    """
    carry, action = policy(loop.carry, loop.obs, policy_key)
    state, step = env.step(params, loop.state, action, noise_key)
    after = Loop(state, step.obs, policy.sent(carry, step.applied))
    return after, LoopStep(loop.obs, action, carry, step)


def transition_of(loop_step: LoopStep) -> Transition:
    """Converts a step to a row of a log, whose action is the one that the plant received."""
    step = loop_step.step
    return Transition(
        obs=loop_step.obs,
        action=step.applied,
        reward=step.reward,
        cost=step.cost,
        next_obs=step.final_obs,
        terminated=step.terminated,
        truncated=step.truncated,
    )


def rollout(
    env: Environment,
    policy: Policy,
    start: Start,
    *,
    record: Callable[[LoopStep], Any] | None = transition_of,
    sums: Any = (),
    add: Callable[[Any, LoopStep], Any] | None = None,
    hold: bool = False,
) -> Rollout:
    r"""Runs one episode of a policy, with as many steps as the start has keys.

    $$u_t = \pi(o_t), \quad x_{t+1}, o_{t+1}, r_t = f(x_t, u_t, w_t)$$

    After the end of the episode, ``mask`` is false and nothing is added to the sums. This is a pure
    function; apply ``jit``, and ``vmap`` over starts, yourself.

    Args:
        env: A plant.
        policy: A policy in physical units, guarded or not.
        start: A start, such as the result of :func:`drawn_start`.
        record: Function that returns the data to keep of a step; rows of a log by default,
            ``None`` for no rows.
        sums: Sums before the first step, any PyTree of arrays.
        add: Function that adds a step to the sums; ``None`` leaves them unchanged.
        hold: Whether to freeze plant and policy at the end of the episode, so that the rows after
            it can be displayed. Otherwise the plant continues, and these rows are meaningless.

    Returns:
        The rows, the mask and the sums.

    Example:
        >>> import neorl_envs
        >>> env = neorl_envs.make("ChemicalReactor-v0")
        >>> policy = env.tunings()[env.reference]
        >>> def total(env, policy, key):
        ...     def add(so_far, loop_step):
        ...         return so_far + loop_step.step.reward
        ...
        ...     start = drawn_start(env, key)
        ...     nothing = jnp.zeros(())
        ...     return rollout(env, policy, start, record=None, sums=nothing, add=add).sums
        >>> jax.jit(total, static_argnums=0)(env, policy, jax.random.key(0)).shape
        ()
    """

    def row(
        now: tuple[Loop, Any, Array], keys: tuple[PRNGKeyArray, PRNGKeyArray | None]
    ) -> tuple[tuple[Loop, Any, Array], tuple[Any, Array]]:
        loop, so_far, over = now
        noise_key, policy_key = keys
        if policy_key is None:
            policy_key, noise_key = jax.random.split(noise_key)
        after, loop_step = closed_loop_step(
            env, policy, start.params, loop, policy_key=policy_key, noise_key=noise_key
        )
        added = so_far if add is None else add(so_far, loop_step)
        loop = where_over(over, loop, after) if hold else after
        so_far = where_over(over, so_far, added)
        ended = loop_step.step.terminated | loop_step.step.truncated
        recorded = () if record is None else record(loop_step)
        return (loop, so_far, over | ended), (recorded, ~over)

    begin = Loop(start.state, start.obs, policy.initial_carry())
    running = (begin, sums, jnp.zeros((), jnp.bool_))
    (_, total, _), (rows, mask) = jax.lax.scan(row, running, (start.noise_keys, start.policy_keys))
    return Rollout(rows, mask, total)


def where_over(over: Bool[Array, ""], then: Tree, otherwise: Tree) -> Tree:
    """``then`` if the episode is over, else ``otherwise``, leaf by leaf."""
    return jax.tree.map(lambda a, b: jnp.where(over, a, b), then, otherwise)


def drawn_start(env: Any, key: PRNGKeyArray, **draws: Any) -> Start:
    """Samples parameters, initial state and noise keys of an episode.

    Args:
        env: A plant with ``sample_params``.
        key: Random key, which determines the whole start.
        draws: Arguments of ``env.sample_params``: the preset and the relative spread.

    Returns:
        The start, with one key for every step of the horizon.
    """
    for_params, for_reset, for_steps = jax.random.split(key, 3)
    params = env.sample_params(for_params, **draws)
    state, obs = env.reset(params, for_reset)
    keys = jax.random.split(for_steps, env.spec.horizon)
    return Start(params, state, obs, noise_keys=keys, policy_keys=None)
