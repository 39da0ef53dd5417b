"""Every plant keeps every law."""

import pytest

from neorl_envs import environment_names, make
from neorl_envs.testing import LAWS, check_environment


@pytest.mark.parametrize("name", environment_names())
def test_a_plant_keeps_the_laws(name: str) -> None:
    found = check_environment(make(name), eager=False)
    assert len(found) == len(LAWS)  # and whether it is a plant, less the eager one
    assert [finding for finding in found if finding.fault] == []


@pytest.mark.nightly
@pytest.mark.parametrize("name", environment_names())
def test_a_plant_keeps_the_laws_eagerly_and_with_other_seeds(name: str) -> None:
    for seed, eager in ((1, True), (2, False), (3, False)):
        found = check_environment(make(name), seed=seed, eager=eager)
        assert [finding for finding in found if finding.fault] == []
