"""Checks of the laws that every environment must satisfy, applicable to any plant class.

    from neorl_envs.testing import check_environment

    def test_my_plant_keeps_the_laws() -> None:
        assert [finding for finding in check_environment(MyPlant()) if finding.fault] == []

``neorl-envs check my_package.plant:MyPlant`` does the same on the command line.
"""

from neorl_envs.testing._check import LAWS as LAWS
from neorl_envs.testing._check import Finding as Finding
from neorl_envs.testing._check import check_environment as check_environment
from neorl_envs.testing._evidence import evidence as evidence

__all__ = [
    "LAWS",
    "Finding",
    "check_environment",
    "evidence",
]
