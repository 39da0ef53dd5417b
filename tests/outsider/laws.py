"""The laws of learners on the one of this distribution: ``pytest laws.py``."""

import pytest
from outsider.crr import CRR

from neorl_agents.learning import Networks, Steps
from neorl_agents.testing import algorithm_laws

SMALL = {"networks": Networks(hidden=(8, 8)), "steps": Steps(batch_size=32)}
LAWS = algorithm_laws(lambda: CRR(**SMALL))


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_law(law):
    law()
