import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from neorl_core.statistics import normalise_reward, reward_normaliser
from neorl_core.testing import (
    Edge,
    Refusal,
    Row,
    assert_close,
    flags,
    in_units,
    mapped,
    reals,
    rows,
)

TIME, ENVS = 6, 2
OPTIONS = st.fixed_dictionaries(
    {"discount": reals(0, 1).map(float), "clip": reals(0.5, 20).map(float)}
)


@jax.jit
def over_a_log(rewards, ended, *, discount, clip):
    wide = rewards.dtype in (jnp.float64, np.float64)
    start = reward_normaliser(rewards.shape[1:], jnp.float64 if wide else jnp.float32)

    def step(normaliser, at):
        return normalise_reward(normaliser, *at, discount=discount, clip=clip)

    final, scaled = jax.lax.scan(step, start, (rewards, ended))
    return scaled, final.discounted


def by_loops(rewards, ended, *, discount, clip):
    running, seen, scaled = np.zeros(rewards.shape[1]), [], np.empty(rewards.shape)
    for t, reward in enumerate(rewards):
        running = discount * running + reward
        seen.extend(running)
        square = np.mean(np.square(seen))
        square = np.var(seen) + 1e-8 * square if len(seen) > 1 else square
        spread = np.sqrt(square) if square > 0 else 1.0
        scaled[t] = np.clip(reward / spread, -clip, clip)
        running = np.where(ended[t], 0.0, running)
    return scaled, running


def the_unit_of_the_reward_cancels(rewards, ended, *, discount, clip):
    plain, _ = mapped(over_a_log, rewards, ended, discount=discount, clip=clip)
    for unit in (1e-9, 1e6):
        scaled, _ = mapped(over_a_log, unit * rewards, ended, discount=discount, clip=clip)
        assert_close(scaled, plain, atol=1e-3, rtol=1e-3)


def one_step(rewards, ended, *, discount):
    return normalise_reward(reward_normaliser(rewards.shape), rewards, ended, discount=discount)


SPREAD = rows(TIME, ENVS, elements=st.integers(-40, 40).map(lambda number: number / 4))

ROWS = [
    Row(
        over_a_log,
        name="normalise_reward",
        sample=in_units(st.tuples(SPREAD, flags(TIME, ENVS)), low=0),
        options=OPTIONS,
        oracle=by_loops,
        laws=[the_unit_of_the_reward_cancels],
        edges=[Edge((np.zeros((3, 1)), np.ones((3, 1), bool)), {"discount": 1.0, "clip": 10.0})],
        # The spread of sums that nearly agree is what rounding leaves of them.
        rtol=1e-3,
        atol=1e-3,
        dtypes=("float32", "float64"),
    ),
    Row(
        one_step,
        name="reward_normaliser",
        sample=in_units(st.tuples(rows(ENVS), flags(ENVS))),
        options={"discount": 0.9},
        oracle=None,
        laws=[
            lambda rewards, ended, **_: assert_close(
                reward_normaliser((2,)).discounted, jnp.zeros(2)
            )
        ],
        refuses=[
            Refusal("one shape", (jnp.ones(2), jnp.ones(3, bool)), {"discount": 0.9}),
            Refusal("discount", (jnp.ones(2), jnp.ones(2, bool)), {"discount": 1.5}),
        ],
        differentiable=False,
        exempt={
            "oracle": "normalise_reward has it",
            "dtype": "what it carries has a dtype of its own",
        },
    ),
]
