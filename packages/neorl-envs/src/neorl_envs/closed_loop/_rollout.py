"""The loop that everything in this repository steps: policy, plant, and the news of what was sent.

Scoring, recording and evaluation run whole episodes with :func:`rollout`; they differ in their keys
and in what they keep of a step. A loop that begins new episodes by itself, as collection during
training does, is built of the same :func:`closed_loop_step`. The shells of Gymnasium and gymnax
have none: their policy is the caller.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from neorl_core import Environment, Policy, Step, Transition

Tree = TypeVar("Tree")


class Loop(NamedTuple):
    """A plant and the policy that acts on it, between two steps.

    Attributes:
        state: State of the plant.
        obs: Observation to act on next, shape ``(obs,)``.
        carry: Carry of the policy.
    """

    state: Any
    obs: Float[Array, " obs"]
    carry: Any


class Acted(NamedTuple):
    """One step of a closed loop.

    Attributes:
        obs: Observation that was acted on, shape ``(obs,)``.
        action: Action that the policy asked for, shape ``(act,)``.
        carry: Carry of the policy after it acted and before it is told the sent action; the report
            of a guard is in it.
        step: Answer of the plant; ``step.applied`` is the action that it received.
    """

    obs: Float[Array, " obs"]
    action: Float[Array, " act"]
    carry: Any
    step: Step


class Start(NamedTuple):
    """Everything about an episode that no policy can change.

    Attributes:
        params: Parameters of the plant.
        state: Initial state of the plant.
        obs: First observation, shape ``(obs,)``.
        noise_keys: Keys of disturbances and measurement errors of every step, shape ``(time,)``.
        policy_keys: Keys for policies that are random, shape ``(time,)``; ``None`` where each of
            ``noise_keys`` is split in its step, into one for the policy and one for the noise.
    """

    params: Any
    state: Any
    obs: Float[Array, "*start obs"]
    noise_keys: PRNGKeyArray
    policy_keys: PRNGKeyArray | None


class Rollout(NamedTuple):
    """One episode, padded to the number of keys.

    Attributes:
        rows: What was kept of every step, with time as the first axis.
        mask: Whether the step belongs to the episode, shape ``(time,)``; its last one does.
        sums: What was summed over the steps of the episode.
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
) -> tuple[Loop, Acted]:
    """One control period: the policy acts, the plant answers, the policy is told the sent action.

    Args:
        env: A plant.
        policy: Acts in physical units; guarded or not.
        params: Parameters of the plant.
        loop: Plant and policy before the step.
        policy_key: Key of a random policy.
        noise_key: Key of disturbances and measurement errors.

    Returns:
        Plant and policy after the step, and what happened in it. No episode is begun: where
        ``step.terminated | step.truncated``, the caller decides what follows.

    Example:
        >>> import neorl_envs
        >>> env = neorl_envs.make("ChemicalReactor-v0")
        >>> policy, params = env.tunings()[env.reference], env.default_params()
        >>> keys = jax.random.split(jax.random.key(0), 3)
        >>> state, obs = env.reset(params, keys[0])
        >>> loop = Loop(state, obs, policy.initial_carry())
        >>> loop, acted = closed_loop_step(
        ...     env, policy, params, loop, policy_key=keys[1], noise_key=keys[2]
        ... )
        >>> acted.step.applied.shape
        (3,)
    """
    carry, action = policy(loop.carry, loop.obs, policy_key)
    state, step = env.step(params, loop.state, action, noise_key)
    after = Loop(state, step.obs, policy.sent(carry, step.applied))
    return after, Acted(loop.obs, action, carry, step)


def transition_of(acted: Acted) -> Transition:
    """The step as a row of a log: its action is the one that the plant received."""
    step = acted.step
    return Transition(
        obs=acted.obs,
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
    record: Callable[[Acted], Any] | None = transition_of,
    sums: Any = (),
    add: Callable[[Any, Acted], Any] | None = None,
    hold: bool = False,
) -> Rollout:
    r"""One episode of a policy, as many steps as the start has keys.

    .. math:: u_t = \pi(o_t), \quad x_{t+1}, o_{t+1}, r_t = f(x_t, u_t, w_t)

    Behind the end of the episode ``mask`` is false and nothing is summed. A pure function: ``jit``,
    and ``vmap`` over starts, are the caller's.

    Args:
        env: A plant.
        policy: Acts in physical units; guarded or not.
        start: One start, such as one of :func:`drawn_start`.
        record: What is kept of every step; rows of a log by default, ``None`` for no rows.
        sums: Sums before the first step, any PyTree of arrays.
        add: The sums with those of one more step; ``None`` leaves them as they are.
        hold: Whether plant and policy stay as they were at the end of the episode, for whoever
            shows the rows behind it. Otherwise the plant goes on, and those rows mean nothing.

    Returns:
        Rows, mask and sums.

    Example:
        >>> import neorl_envs
        >>> env = neorl_envs.make("ChemicalReactor-v0")
        >>> policy = env.tunings()[env.reference]
        >>> def total(env, policy, key):
        ...     def add(so_far, acted):
        ...         return so_far + acted.step.reward
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
        after, acted = closed_loop_step(
            env, policy, start.params, loop, policy_key=policy_key, noise_key=noise_key
        )
        added = so_far if add is None else add(so_far, acted)
        loop = where_over(over, loop, after) if hold else after
        so_far = where_over(over, so_far, added)
        ended = acted.step.terminated | acted.step.truncated
        kept = () if record is None else record(acted)
        return (loop, so_far, over | ended), (kept, ~over)

    begin = Loop(start.state, start.obs, policy.initial_carry())
    running = (begin, sums, jnp.zeros((), jnp.bool_))
    (_, total, _), (rows, mask) = jax.lax.scan(row, running, (start.noise_keys, start.policy_keys))
    return Rollout(rows, mask, total)


def where_over(over: Bool[Array, ""], then: Tree, otherwise: Tree) -> Tree:
    """``then`` where the episode is over, else ``otherwise``, leaf by leaf."""
    return jax.tree.map(lambda a, b: jnp.where(over, a, b), then, otherwise)


def drawn_start(env: Any, key: PRNGKeyArray, **draws: Any) -> Start:
    """A start with its own parameters, first state and noise; the key decides everything.

    Args:
        env: A plant with ``sample_params``.
        key: Key of this start.
        draws: Passed to ``env.sample_params``: its preset and the relative width of the draw.

    Returns:
        The start, with keys for as many steps as the horizon has.
    """
    for_params, for_reset, for_steps = jax.random.split(key, 3)
    params = env.sample_params(for_params, **draws)
    state, obs = env.reset(params, for_reset)
    keys = jax.random.split(for_steps, env.spec.horizon)
    return Start(params, state, obs, noise_keys=keys, policy_keys=None)
