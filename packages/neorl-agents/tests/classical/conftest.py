"""Logs of small plants whose truth is known, and closed loops in one compiled program."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents.classical import Loop, Task
from neorl_core import Channel, Policy, Spec, Transition


def log_of(obs, action, next_obs, length: int, reward: Any = None) -> Transition:
    """Columns of episodes that all have one length."""
    rows = len(obs)
    ends = np.arange(rows) % length == length - 1
    reward = np.zeros(rows) if reward is None else reward
    return Transition(
        obs, action, reward, next_obs=next_obs, terminated=np.zeros(rows, bool), truncated=ends
    )


class Plant(NamedTuple):
    """``x' = A x + sum_i b_i u_{i, t - delay_i} + load``, ``y = x`` in scaled numbers.

    Attributes:
        a: Shape ``(state, state)``.
        b: Shape ``(state, act)``.
        delay: Dead time of each input in periods.
        spec: Channels; setpoints are fixed by the task.
        task: Loops.
        load: What drives the state besides, shape ``(state,)``.
    """

    a: np.ndarray
    b: np.ndarray
    delay: tuple[int, ...]
    spec: Spec
    task: Task
    load: np.ndarray

    def log(self, episodes: int, length: int, *, noise: float = 0.0, seed: int = 0) -> Transition:
        """Held random inputs over the whole range; ``noise`` is added to what is measured."""
        rng = np.random.default_rng(seed)
        low = np.array([c.low for c in self.spec.action])
        high = np.array([c.high for c in self.spec.action])
        u = low + (high - low) * np.repeat(
            rng.uniform(size=(episodes, length // 5 + 1, len(low))), 5, axis=1
        )
        u = u[:, :length]
        states = np.zeros((episodes, length + 1, len(self.a)))
        before = np.broadcast_to((low + high) / 2, (episodes, max(self.delay), len(low)))
        sent = np.concatenate([before, u], axis=1)
        for t in range(length):
            late = [sent[:, t + max(self.delay) - d, i] for i, d in enumerate(self.delay)]
            states[:, t + 1] = (
                states[:, t] @ self.a.T + np.stack(late, axis=1) @ self.b.T + self.load
            )
        states += noise * rng.normal(size=states.shape)
        flat = (-1, len(self.a))
        return log_of(
            states[:, :-1].reshape(flat),
            u.reshape(-1, len(low)),
            states[:, 1:].reshape(flat),
            length,
        )

    def run(self, policy: Policy, steps: int, load: np.ndarray | None = None) -> Any:
        """States and actions of a closed loop from rest, and the last carry."""
        extra = self.load if load is None else load
        return closed_loop(
            policy,
            jnp.asarray(self.a, jnp.float32),
            jnp.asarray(self.b, jnp.float32),
            jnp.asarray(extra, jnp.float32),
            self.delay,
            steps,
        )


@jax.jit(static_argnums=(4, 5))
def closed_loop(policy: Policy, a: Any, b: Any, load: Any, delay: tuple[int, ...], steps: int):
    """One episode from the origin with nothing on its way."""

    def step(state, _):
        carry, x, past = state
        carry, action = policy(carry, x, None)
        carry = policy.sent(carry, action)
        past = jnp.concatenate([action[None], past[:-1]])
        late = jnp.stack([past[d, i] for i, d in enumerate(delay)])
        return (carry, a @ x + b @ late + load, past), (x, action)

    start = jnp.zeros(len(a)), jnp.zeros((max(delay) + 1, b.shape[1]))
    (carry, _, _), (states, actions) = jax.lax.scan(
        step, (policy.initial_carry(), *start), None, length=steps
    )
    return states, actions, carry


def single(pole: float, gain: float, delay: int, *, load: float = 0.0, setpoint: float = 1.0):
    """One loop: level by valve."""
    spec = Spec(
        (Channel("level", "m", -20.0, 20.0),), (Channel("valve", "%", -2.0, 2.0),), (), 2.0, 100
    )
    task = Task((Loop("level", "valve", setpoint),))
    return Plant(np.array([[pole]]), np.array([[gain]]), (delay,), spec, task, np.array([load]))


@pytest.fixture(scope="module")
def lag() -> Plant:
    """A lag of ten periods with a dead time of four."""
    return single(0.9, 0.3, 4)


@pytest.fixture(scope="module")
def integrator() -> Plant:
    """An integrating loop with a dead time of three and a load."""
    return single(1.0, 0.2, 3, load=0.05)


@pytest.fixture(scope="module")
def coupled() -> Plant:
    """Two inputs with dead times of their own on two outputs."""
    spec = Spec(
        (Channel("top", "K", -10.0, 10.0), Channel("bottom", "K", -10.0, 10.0)),
        (Channel("reflux", "%", -1.0, 1.0), Channel("steam", "%", -1.0, 1.0)),
        (),
        1.0,
        100,
    )
    task = Task((Loop("top", "reflux", 1.0), Loop("bottom", "steam", -0.5)))
    a = np.array([[0.9, 0.05], [-0.1, 0.8]])
    b = np.array([[0.5, 0.1], [-0.2, 0.6]])
    return Plant(a, b, (2, 0), spec, task, np.zeros(2))


@pytest.fixture(scope="session")
def in_other_units() -> Callable:
    """The same log, specification and task with other units of every channel."""

    def moved(channel: Channel, offset: float, scale: float) -> Channel:
        return Channel(
            channel.name, "other", scale * channel.low + offset, scale * channel.high + offset
        )

    def change(plant: Plant, log: Transition, obs=(1e4, 273.0), act=(1e-3, -5.0)):
        (y, y0), (u, u0) = obs, act
        spec = dataclasses.replace(
            plant.spec,
            obs=tuple(moved(c, y0, y) for c in plant.spec.obs),
            action=tuple(moved(c, u0, u) for c in plant.spec.action),
        )
        loops = tuple(
            dataclasses.replace(
                loop,
                setpoint=y * loop.setpoint + y0,
                low=y * loop.low + y0,
                high=y * loop.high + y0,
                rate=u * loop.rate,
            )
            for loop in plant.task.loops
        )
        log = log._replace(
            obs=y * log.obs + y0, next_obs=y * log.next_obs + y0, action=u * log.action + u0
        )
        return log, spec, Task(loops, plant.task.measured)

    return change


def by_recursion(a, b, q, r, cross):
    """Riccati's solution: the cost of a horizon so long that one period more changes nothing."""
    x = np.eye(len(a))
    for _ in range(20_000):
        gain = np.linalg.solve(r + b.T @ x @ b, b.T @ x @ a + cross.T)
        before, x = x, a.T @ x @ a - (a.T @ x @ b + cross) @ gain + q
        if np.max(np.abs(x - before)) <= 1e-14 * np.max(np.abs(x)):
            break
    return x, gain
