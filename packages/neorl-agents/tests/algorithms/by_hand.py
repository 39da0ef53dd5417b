"""Learners, critics and rows made by hand, for rules with closed forms."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from neorl_agents.networks import MLP
from neorl_agents.testing import make_problem
from neorl_core import Transition, as_arrays

SMALL = {"hidden": (8,), "batch_size": 32}
KEY = jax.random.key(0)


def linear(*members, bias=0.0):
    """Critics ``w . (s, a) + bias``, one a row of weights."""
    weights = np.array(members, float)[:, :, None]
    return MLP((jnp.asarray(weights),), (jnp.full((len(members), 1), bias, float),))


def rows_of(obs, action, **columns):
    columns = {"reward": np.zeros(len(obs))} | columns
    floats = {name: jnp.asarray(x) for name, x in columns.items()}
    return Transition(jnp.asarray(obs, float), jnp.asarray(action, float), **floats)


@cache
def started(kind):
    """A learner with array leaves and a state of it, in float64."""
    problem, learner = make_problem(), kind(**SMALL)
    state = learner.init(problem.spec, problem.statistics, KEY)
    return jax.tree.map(wide, (as_arrays(learner), state))


def wide(x):
    x = np.asarray(x)
    return x.astype(float) if x.dtype.kind == "f" else x


@cache
def method(name):
    """A method of learners as one compiled function of the learner and its arguments."""
    return jax.jit(lambda learner, *arguments: getattr(learner, name)(*arguments))


@cache
def slope_of(name):
    """The gradient of a loss method in its first argument."""

    def slope(learner, *arguments):
        return jax.grad(getattr(learner, name), has_aux=True)(*arguments)[0]

    return jax.jit(slope)
