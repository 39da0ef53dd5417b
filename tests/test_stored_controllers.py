"""Controllers of plants as policy artefacts: what acts as the fallback can be sealed."""

from pathlib import Path

import jax
import numpy as np
import pytest

from neorl_agents import load_policy, save_policy
from neorl_agents.artefact import POLICY_KINDS
from neorl_core import highs, lows
from neorl_envs import environment_names, make


@pytest.mark.parametrize("name", environment_names())
def test_the_reference_of_every_plant_is_of_a_stored_kind(name: str) -> None:
    plant = make(name)
    kinds = {kind.policy for kind in POLICY_KINDS.values()}
    assert type(plant.tunings()[plant.reference]) in kinds


@pytest.mark.parametrize("name", ["CSTR-v0", "RobotAssembly-v0"])
def test_a_stored_controller_of_a_plant_acts_as_before(name: str, tmp_path: Path) -> None:
    plant = make(name)
    policy = plant.tunings()[plant.reference]
    low, high = (np.float32(ends(plant.spec.obs)) for ends in (lows, highs))
    shares = np.random.default_rng(0).uniform(0.4, 0.6, (40, len(low)))
    observations = np.float32(low + shares * (high - low))
    path = tmp_path / "controller.policy"
    save_policy(path, policy, plant.spec, observations, {})
    loaded = load_policy(path).policy
    assert jax.tree.structure(loaded) == jax.tree.structure(policy)
    for obs in observations[:3]:
        _, ours = policy(policy.initial_carry(), obs, None)
        _, theirs = loaded(loaded.initial_carry(), obs, None)
        np.testing.assert_allclose(theirs, ours, rtol=1e-6)
