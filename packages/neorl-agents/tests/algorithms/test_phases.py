"""A learner that first fits the behaviour and then something else: no part of the protocol."""

from dataclasses import replace
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from neorl_agents import BC
from neorl_agents.algorithms import BCState, for_run
from neorl_core import as_arrays


class Phases(eqx.Module):
    """Two clones of the log, one after the other; ``first_updates`` says when."""

    first_updates: int = -1
    inner: BC = eqx.field(static=True, default=BC(hidden=(8,), batch_size=32))

    schedules: ClassVar[tuple[str, ...]] = ("first_updates",)
    batches_per_update: ClassVar[int] = 1

    def init(self, spec, statistics, key):
        return PhasesState(
            self.inner.init(spec, statistics, key),
            self.inner.init(spec, statistics, key),
            jnp.zeros((), jnp.int32),
        )

    def update(self, state, batch, key):
        def one(state):
            first, metrics = self.inner.update(state.first, batch, key)
            return replace(state, first=first), metrics

        def other(state):
            second, metrics = self.inner.update(state.second, batch, key)
            return replace(state, second=second), metrics

        new, metrics = jax.lax.cond(state.step < self.first_updates, one, other, state)
        return replace(new, step=state.step + 1), metrics


class PhasesState(eqx.Module):
    first: BCState
    second: BCState
    step: Int[Array, ""]


def test_a_phase_is_a_counter_in_the_state_and_its_length_a_schedule(problem):
    plain = for_run(Phases(), 3)
    assert plain.first_updates == 3
    state = plain.init(problem.spec, problem.statistics, jax.random.key(0))
    batch = problem.batch(plain.inner)
    traces = []

    @jax.jit
    def update(learner, state):
        traces.append(1)
        return learner.update(state, batch, jax.random.key(1))[0]

    moved = []
    for _ in range(5):
        new = update(as_arrays(plain), state)
        moved.append(
            tuple(
                not np.array_equal(
                    getattr(new, n).actor.weights[0], getattr(state, n).actor.weights[0]
                )
                for n in ("first", "second")
            )
        )
        state = new
    assert moved == [(True, False)] * 3 + [(False, True)] * 2
    assert len(traces) == 1
