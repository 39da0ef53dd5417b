"""A constrained decision process of three states, its log, and its optimum by linear programming.

An action in [-1, 1] takes the second of two options with the chance ``(1 + a) / 2``, so that a
deterministic policy of one real action is a random one over two options, and the optimum of the
linear program (Altman, Constrained Markov decision processes, 1999) is one of them.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import scipy.optimize

from neorl_agents.testing import Problem, statistics_of
from neorl_core import Channel, CostChannel, Spec, Transition

STATES, HORIZON = 3, 100
# By state and option: chances of the next state, rewards, costs.
MOVES = np.array(
    [[[0.8, 0.1, 0.1], [0.1, 0.8, 0.1]], [[0.7, 0.2, 0.1], [0.1, 0.2, 0.7]], [[0.5, 0.3, 0.2]] * 2]
)
REWARD = np.array([[0.0, 0.4], [0.1, 1.0], [0.2, 1.2]])
COST = np.array([[0.0, 0.1], [0.0, 0.3], [0.2, 1.0]])


class Optimum(NamedTuple):
    """Discounted value and cost of the best policy that keeps the limit, and the limit's price."""

    value: float
    cost: float
    price: float


def optimum(limit: float, discount: float) -> Optimum:
    """From states drawn evenly; ``limit`` is one of the discounted cost."""
    flow = np.zeros((STATES, STATES, 2))
    for s in range(STATES):
        flow[s, s] += 1
        flow[s] -= discount * MOVES[:, :, s]
    result = scipy.optimize.linprog(
        -REWARD.ravel(), A_ub=[COST.ravel()], b_ub=[limit],
        A_eq=flow.reshape(STATES, -1), b_eq=np.full(STATES, 1 / STATES),
    )  # fmt: skip
    return Optimum(-result.fun, float(COST.ravel() @ result.x), -result.ineqlin.marginals[0])


def value_and_cost(action: Any, discount: float) -> tuple[float, float]:
    """Exact, of one action in [-1, 1] for every state."""
    second = (1 + np.asarray(action, np.float64)) / 2
    chances = np.stack([1 - second, second], axis=1)
    moves = np.einsum("sa,sat->st", chances, MOVES)
    occupancy = np.linalg.solve(np.eye(STATES) - discount * moves.T, np.full(STATES, 1 / STATES))
    return tuple(float(occupancy @ (chances * table).sum(1)) for table in (REWARD, COST))


def tabular_problem(limit: float, rows: int = 8192) -> Problem:
    """A log of actions drawn evenly from states drawn evenly; ``limit`` is one of an episode."""
    rng = np.random.default_rng(0)
    state = rng.integers(STATES, size=rows)
    action = rng.uniform(-1, 1, size=rows)
    option = (rng.uniform(size=rows) < (1 + action) / 2).astype(int)
    chances = MOVES[state, option].cumsum(1)
    following = (rng.uniform(size=(rows, 1)) > chances).sum(1)
    weight = np.stack([1 - action, 1 + action], axis=1) / 2
    one_hot = np.eye(STATES)

    def f32(x: np.ndarray) -> Any:
        return jnp.asarray(x, jnp.float32)

    ends = np.arange(rows) % 32 == 31
    log = Transition(
        obs=f32(one_hot[state]),
        action=f32(action[:, None]),
        reward=f32((weight * REWARD[state]).sum(1)),
        cost=f32((weight * COST[state]).sum(1)[:, None]),
        next_obs=f32(one_hot[following]),
        next_action=f32(np.zeros((rows, 1))),
        terminated=jnp.zeros(rows, bool),
        truncated=jnp.asarray(ends),
    )
    spec = Spec(
        obs=tuple(Channel(f"s{i}", "1", 0.0, 1.0) for i in range(STATES)),
        action=(Channel("u", "1", -1.0, 1.0),),
        cost=(CostChannel("c", "1", limit, "episode"),),
        dt=1.0,
        horizon=HORIZON,
    )
    return Problem(spec, log, statistics_of(log))
