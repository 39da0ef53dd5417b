"""Plants whose values are known in closed form, for tests of fitted Q evaluation."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from neorl_agents.learning import Networks
from neorl_agents.models import FittedQEvaluation
from neorl_agents.networks import NETWORKS, init_mlp
from neorl_agents.sampling import as_batch
from neorl_agents.testing import sized, statistics_of
from neorl_core import Channel, CostChannel, Spec, Transition, as_arrays

KEY = jax.random.key(0)

# A level that is filled: x' = a x + b u, r = 2 x - u / 25, one cost |u|; the policy holds u.
A, B, DISCOUNT = 0.8, 0.01, 0.9
SPEC = Spec(
    (Channel("level", "m", -5.0, 5.0),),
    (Channel("valve", "%", 0.0, 100.0),),
    (CostChannel("flow", "kg", 1.0, "step"),),
    dt=1.0,
    horizon=32,
)


def linear_log(rows=512, seed=0):
    rng = np.random.default_rng(seed)
    obs, action = rng.normal(size=(rows, 1)), rng.uniform(0, 100, (rows, 1))
    f32 = lambda x: np.asarray(x, np.float32)  # noqa: E731
    flags = np.zeros(rows, bool)
    return Transition(
        obs=f32(obs),
        action=f32(action),
        reward=f32(2 * obs[:, 0] - action[:, 0] / 25),
        cost=f32(action),
        next_obs=f32(A * obs + B * action),
        next_action=f32(action),
        terminated=flags,
        truncated=~flags,
    )


def values_of_holding(held, obs, action):
    """Q(x, u) = r(x, u) + discount V(a x + b u), V(x) = (2 x + c) / (1 - discount a)."""
    steady = (2 * DISCOUNT * B * held / (1 - DISCOUNT * A) - held / 25) / (1 - DISCOUNT)
    after = 2 * (A * obs + B * action) / (1 - DISCOUNT * A) + steady
    cost = action + DISCOUNT * held / (1 - DISCOUNT)
    return 2 * obs - action / 25 + DISCOUNT * after, cost


@cache
def affine_learner():
    """A learner with one affine layer as network, which holds the values of both plants exactly."""
    name = "one_affine_layer_of_values"
    affine = lambda widths, key, **options: init_mlp((widths[0], widths[-1]), key)  # noqa: E731
    NETWORKS.register(name, NETWORKS.find("mlp")._replace(init=affine))
    return sized(
        FittedQEvaluation(
            discount=DISCOUNT, evaluates_costs=True, tau=0.05, networks=Networks(kind=name)
        ),
        batch_size=512,
    )


def trained(learner, log, spec, rates, length):
    """The state after some gradient steps on the whole log at every learning rate."""
    batch = jax.tree.map(lambda x: jnp.asarray(x)[None], log)
    state = learner.init(spec, statistics_of(as_batch(log).rows), KEY)

    @jax.jit
    def several(learner, state):
        return jax.lax.scan(lambda s, _: learner.update(s, batch, KEY), state, length=length)

    for rate in rates:
        state, metrics = several(as_arrays(sized(learner, learning_rate=rate)), state)
    return state, metrics


# Three states in a row. A step earns 0 or 1 and stays with a quarter, else goes on; behind the last
# state the plant ends the episode. The cost is one in the middle state.
STAY, LUCK, CHAIN_DISCOUNT = 1 / 4, (0.5, 0.25, 0.75), 0.8
CHAIN = Spec(
    tuple(Channel(f"state {i}", "1", 0.0, 1.0) for i in range(3)),
    (Channel("held", "1", -1.0, 1.0),),
    (CostChannel("middle", "1", 1.0, "episode"),),
    dt=1.0,
    horizon=32,
)


def chain_log():
    """Every outcome of every state as often as its probability says."""
    columns = []
    for state, luck in enumerate(LUCK):
        for number in range(32):
            columns.append((state, number % 8 < 8 * luck, number // 8 == 0))
    state, lucky, stays = (np.asarray(c) for c in zip(*columns, strict=True))
    one_hot = np.eye(3, dtype=np.float32)
    after = np.where(stays, state, state + 1)
    ended = after == 3
    return Transition(
        obs=one_hot[state],
        action=np.zeros((len(state), 1), np.float32),
        reward=lucky.astype(np.float32),
        cost=(state == 1).astype(np.float32)[:, None],
        next_obs=one_hot[np.minimum(after, 2)],
        next_action=np.zeros((len(state), 1), np.float32),
        terminated=ended,
        truncated=~ended,
    )
