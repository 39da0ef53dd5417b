"""A small rollout, and networks in NumPy, for learners that make their own experience."""

import jax
import jax.numpy as jnp
import numpy as np

from neorl_agents.learning import Networks
from neorl_core import Channel, Spec, Transition, as_arrays
from neorl_core.statistics import range_statistics

SPEC = Spec(
    (Channel("x", "1", -1, 1), Channel("y", "1", -1, 1)),
    tuple(Channel(f"a{i}", "1", 0, 2) for i in range(3)), (), dt=1.0, horizon=5,
)  # fmt: skip
KEY, STEPS, WORLDS = jax.random.key(0), 6, 2
SMALL = Networks(hidden=(4,))


def rollout(actions):
    """Rows with a termination in one world and a time limit in the other."""
    rng = np.random.default_rng(0)
    shape = (STEPS, WORLDS)
    if actions == "choice":
        action = 2 * np.eye(3)[rng.integers(3, size=shape)]
    else:
        action = rng.uniform(0.2, 1.8, (*shape, 3))
    ends = [np.zeros(shape, bool) for _ in range(2)]
    ends[0][2, 0] = ends[1][3, 1] = True
    draws = (rng.uniform(-1, 1, (*shape, 2)) for _ in range(2))
    obs, after = (x.astype(np.float32) for x in draws)
    reward = rng.normal(size=shape).astype(np.float32)
    return Transition(
        obs, action.astype(np.float32), reward, next_obs=after, terminated=ends[0],
        truncated=ends[1],
    )  # fmt: skip


def begun(learner):
    state = as_arrays(learner).init(SPEC, range_statistics(SPEC), KEY)
    return state


def perceptron(net, x):
    x = np.asarray(x, float)
    for i, (weight, bias) in enumerate(zip(net.weights, net.biases, strict=True)):
        x = x @ np.asarray(weight, float) + np.asarray(bias, float)
        x = np.maximum(x, 0) if i + 1 < len(net.weights) else x
    return x


def scaled(state, obs):
    return np.asarray(state.preparation.obs.to_scaled(jnp.asarray(obs)), float)
