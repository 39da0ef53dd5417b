"""The laws of learners on the one of this distribution: ``pytest laws.py``."""

import pytest
from outsider.crr import CRR

from neorl_agents.testing import algorithm_laws, sized

LAWS = algorithm_laws(lambda: sized(CRR(), hidden=(8, 8), batch_size=32))


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_law(law):
    law()
