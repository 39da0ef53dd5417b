"""The laws of learners, for those of this package and of others.

Needs the extra ``neorl-agents[testing]``::

    import pytest
    from neorl_agents.testing import algorithm_laws, sized

    LAWS = algorithm_laws(lambda: sized(CRR(), hidden=(8, 8), batch_size=32))

    @pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
    def test_law(law):
        law()
"""

from neorl_agents.testing._laws import algorithm_laws as algorithm_laws
from neorl_agents.testing._laws import learner_laws as learner_laws
from neorl_agents.testing._problem import Problem as Problem
from neorl_agents.testing._problem import endless as endless
from neorl_agents.testing._problem import fresh_state as fresh_state
from neorl_agents.testing._problem import make_problem as make_problem
from neorl_agents.testing._problem import sized as sized
from neorl_agents.testing._problem import statistics_of as statistics_of

__all__ = [
    "Problem",
    "algorithm_laws",
    "endless",
    "fresh_state",
    "learner_laws",
    "make_problem",
    "sized",
    "statistics_of",
]
