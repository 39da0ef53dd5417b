"""A learner with two phases in one training: no part of the protocol."""

from collections.abc import Mapping
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from neorl_agents import BC, BaseLearner
from neorl_agents.learning import for_run, only_batch
from neorl_agents.networks import tanh
from neorl_agents.testing import sized
from neorl_core import as_arrays


def squared_error(actor, rows):
    return jnp.mean(jnp.square(actor(rows.obs) - rows.action)), None


class Phases(BaseLearner):
    """Two clones of the log, one after the other; ``first_updates`` says when."""

    learning_rate: float = 3e-4
    first_updates: int = -1

    reads = BC().reads
    rates: ClassVar[Mapping[str, str]] = {"first": "learning_rate", "second": "learning_rate"}
    schedules: ClassVar[tuple[str, ...]] = ("first_updates",)

    def fresh(self, spec, key):
        names = zip(("first", "second"), jax.random.split(key), strict=True)
        return {
            name: self.networks.obs_network(spec, spec.n_action, one, output=tanh)
            for name, one in names
        }, {}

    def learn(self, state, rows, key):
        def clone(name):
            def step(state):
                state, loss, _ = self.descend(state, name, squared_error, only_batch(rows))
                return state, {"loss": loss}

            return step

        first = state.updates < self.first_updates
        return jax.lax.cond(first, clone("first"), clone("second"), state)


def test_a_phase_is_the_counter_of_updates_and_its_length_a_schedule(problem):
    plain = for_run(sized(Phases(), hidden=(8,), batch_size=32), 3)
    assert plain.first_updates == 3
    state = plain.init(problem.spec, problem.statistics, jax.random.key(0))
    batch = problem.batch(plain)
    traces = []

    @jax.jit
    def update(learner, state):
        traces.append(1)
        return learner.update(state, batch, jax.random.key(1))[0]

    moved = []
    for _ in range(5):
        new = update(as_arrays(plain), state)
        after, before = new.parameters, state.parameters
        moved.append(
            tuple(
                not np.array_equal(after[name].weights[0], before[name].weights[0])
                for name in ("first", "second")
            )
        )
        state = new
    assert moved == [(True, False)] * 3 + [(False, True)] * 2
    assert len(traces) == 1
