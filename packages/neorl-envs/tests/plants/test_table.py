import pytest

from neorl_core import Environment
from neorl_envs import environment_names, make


def test_make_knows_its_names() -> None:
    for name in environment_names():
        env = make(name)
        assert isinstance(env, Environment)
        assert env.name == name
        assert make(name) == env
    for wrong in ("ChemicalReactor", "chemicalreactor-v0", "chemical", ""):
        with pytest.raises(ValueError, match="did you mean 'ChemicalReactor-v0'"):
            make(wrong)
