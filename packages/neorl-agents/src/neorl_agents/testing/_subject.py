"""Learners under test: a state, an update compiled once, other rates, masked rows."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import jax
import numpy as np

from neorl_agents.learning import BaseLearner, Learner
from neorl_agents.learning._contract import updated_once
from neorl_agents.testing._problem import Problem, make_problem
from neorl_core import Transition, as_arrays

traces: list[int] = []
"""One entry for each time that an update was traced."""


@jax.jit
def updated(algorithm: Learner, state: Any, batch: Any, key: Any) -> Any:
    traces.append(1)
    return updated_once(algorithm, state, batch, key)


@jax.jit
def side_by_side(algorithms: Any, state: Any, batch: Any, keys: Any) -> Any:
    return jax.vmap(lambda one, key: one.update(state, batch, key)[0])(algorithms, keys)


class Subject:
    """A learner with a state, which is made on first use."""

    def __init__(self, make: Callable[[], Learner]) -> None:
        self.make = make
        self.problem = make_problem()
        self._started: tuple[Any, Any, Any] | None = None
        self.hardened: Any = None

    def started(self) -> tuple[Any, Any, Any]:
        """The learner, the same with array leaves, and a fresh state."""
        if self._started is None:
            plain = self.make()
            self._started = plain, as_arrays(plain), self.fresh(plain, self.problem)
        return self._started

    @staticmethod
    def fresh(plain: Any, problem: Problem, seed: int = 0, **given: Any) -> Any:
        """A fresh state; learners that must be fitted first are fresh too."""
        fits = plain.fits()
        context = {name: Subject.fresh(fits[name].learner, problem) for name in fits}
        key = jax.random.key(seed)
        return plain.init(problem.spec, problem.statistics, key, context=context, **given)


def with_rates(algorithm: Any, factor: float) -> Any:
    named = algorithm.rates.values() if isinstance(algorithm, BaseLearner) else ()
    names = set(named) or {f.name for f in fields(algorithm) if f.name.endswith("learning_rate")}
    return replace(algorithm, **{name: factor * getattr(algorithm, name) for name in names})


def with_rows(batch: Any, change: Callable[[Transition], Transition]) -> Any:
    if isinstance(batch, Transition):
        return change(batch)
    return batch._replace(rows=change(batch.rows))


def masked(batch: Any, mask: Any) -> Any:
    return with_rows(batch, lambda rows: rows._replace(mask=mask))


def batch_of(problem: Problem, plain: Any, seed: int = 0) -> Any:
    """A batch with a mask of which every row counts, so that one program serves all laws.

    One law compares it with a batch without a mask. It is on the host, where laws change it without
    compiling anything.
    """
    batch = jax.device_get(problem.batch(plain, seed=seed))
    return masked(batch, np.ones((plain.batches_per_update, plain.batch_size), bool))


def equal(left: Any, right: Any) -> bool:
    # In NumPy: JAX would compile a few programs for every shape.
    same = jax.tree.map(
        lambda a, b: np.array_equal(a, b, equal_nan=a.dtype.kind == "f"),
        *jax.device_get((left, right)),
    )
    return all(jax.tree.leaves(same))
