"""A batch without a field that a learner reads is refused by the field's name."""

import jax
import pytest

from neorl_agents import IQL
from neorl_agents.testing import make_problem
from neorl_core import InputError

from ..making import made


@pytest.mark.parametrize("field", ["next_obs", "terminated"])
def test_the_missing_field_is_named(field):
    problem, learner = make_problem(), made(IQL, hidden=(4,), batch_size=8)
    state = learner.init(problem.spec, problem.statistics, jax.random.key(0))
    batch = problem.batch(learner)._replace(**{field: None})
    with pytest.raises(InputError, match=rf"^the batch has no {field}, which .*; give .*"):
        jax.eval_shape(learner.update, state, batch, jax.random.key(1))
