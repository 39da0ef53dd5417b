"""Learners, critics and rows made by hand, for rules with closed forms."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from neorl_agents.learning import UnitRows
from neorl_agents.networks import MLP
from neorl_agents.testing import make_problem, sized
from neorl_core import as_arrays

from ..conftest import of_form

SMALL = {"hidden": (8,), "batch_size": 32}
KEY = jax.random.key(0)


def linear(*members, bias=0.0):
    """Critics ``w . (s, a) + bias``, one a row of weights."""
    weights = np.array(members, float)[:, :, None]
    return MLP((jnp.asarray(weights),), (jnp.full((len(members), 1), bias, float),))


def rows_of(obs, action, *, discount=0.99, **columns):
    """Rows in the units of the networks; what is not given is ``None``."""
    given = {"reward": np.zeros(len(obs)), "discount": np.full(len(obs), discount)} | columns
    given |= {"obs": np.asarray(obs, float), "action": np.asarray(action, float)}
    arrays = {name: jnp.asarray(x) for name, x in given.items()}
    return UnitRows(**dict.fromkeys(UnitRows._fields) | arrays)


@cache
def started(kind):
    """A learner with array leaves and a state of it, in float64."""
    learner = sized(kind(), **SMALL)
    return jax.tree.map(wide, (as_arrays(learner), of_form(learner, make_problem())))


def wide(x):
    x = np.asarray(x)
    return x.astype(float) if x.dtype.kind == "f" else x


@cache
def method(name):
    """A method of learners as one compiled function of the learner and its arguments."""
    return jax.jit(lambda learner, *arguments: getattr(learner, name)(*arguments))
