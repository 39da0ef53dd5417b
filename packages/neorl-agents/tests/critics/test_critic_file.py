"""A critic survives its file to the bit; a damaged or foreign file is refused."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents import EDAC, ArtefactError, save_policy
from neorl_agents.artefact._artefact import read_sealed, write_sealed
from neorl_agents.critics import (
    SafetyCriticLearner,
    critic_ensemble,
    critic_scores,
    fit_safety_critic,
    load_critic,
    save_critic,
)
from neorl_agents.testing import sized
from neorl_core.control import ConstantPolicy

from . import chain

KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A file, its critic and rows of its log."""
    log = chain.episodes(60, seed=0)
    few = sized(SafetyCriticLearner(horizon=5, members=2), hidden=(8,))
    fitted = fit_safety_critic(log, chain.SPEC, KEY, learner=few, updates=3)
    path = tmp_path_factory.mktemp("critic") / "critic.safetensors"
    rows = log.obs[:40], log.action[:40]
    digest = save_critic(path, fitted.critic, chain.SPEC, *rows, fitted.report)
    return path, fitted.critic, rows, digest


def test_a_safety_critic_comes_back_to_the_bit(stored):
    path, critic, rows, digest = stored
    actual = load_critic(path)
    assert (actual.kind, actual.digest, actual.spec) == ("safety_critic", digest, chain.SPEC)
    assert jax.tree.structure(actual.critic) == jax.tree.structure(critic)
    np.testing.assert_array_equal(actual.parity_scores, critic_scores(critic, *rows))
    np.testing.assert_array_equal(critic_scores(actual.critic, *rows), actual.parity_scores)
    assert actual.metadata["limits"][0]["name"] == "full"


def test_critics_of_a_learner_come_back_to_the_bit(tmp_path, problem, few):
    state = sized(EDAC(), **few).init(problem.spec, problem.statistics, KEY)
    rows = problem.log.obs[:32], problem.log.action[:32]
    plain = critic_ensemble(state)
    beside_priors = dataclasses.replace(
        plain, priors=jax.tree.map(jnp.sin, plain.members), prior_scale=jnp.ones(())
    )
    for critic in (plain, beside_priors):
        save_critic(tmp_path / "c.safetensors", critic, problem.spec, *rows)
        result = load_critic(tmp_path / "c.safetensors")
        assert result.kind == "ensemble"
        assert jax.tree.structure(result.critic) == jax.tree.structure(critic)
        np.testing.assert_array_equal(critic_scores(result.critic, *rows), result.parity_scores)


def test_an_array_of_another_shape_than_the_header_says_is_refused(stored, tmp_path):
    _, critic, rows, _ = stored
    save_critic(tmp_path / "c.safetensors", critic, chain.SPEC, *rows)
    arrays, header, _ = read_sealed(tmp_path / "c.safetensors", 2**20)
    arrays["critic/shift"] = np.zeros(7, np.float32)
    write_sealed(tmp_path / "c.safetensors", arrays, header)
    with pytest.raises(
        ArtefactError, match="critic/shift differs from its description in the header"
    ):
        load_critic(tmp_path / "c.safetensors")
    header["version"] = 1
    write_sealed(tmp_path / "c.safetensors", arrays, header)
    with pytest.raises(ArtefactError, match="has version 1 of neorl-critic"):
        load_critic(tmp_path / "c.safetensors")


def test_what_is_no_critic_is_refused(stored, tmp_path):
    path, critic, (obs, action), _ = stored
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    (tmp_path / "flipped").write_bytes(data)
    with pytest.raises(ArtefactError, match="changed or damaged"):
        load_critic(tmp_path / "flipped")
    save_policy(tmp_path / "policy", ConstantPolicy(np.ones(1, np.float32)), chain.SPEC, obs)
    with pytest.raises(ArtefactError, match="expected 'neorl-critic'"):
        load_critic(tmp_path / "policy")
    (tmp_path / "text").write_text("no artefact at all")
    with pytest.raises(ArtefactError, match=r"is not an artefact: .* save_policy or save_critic"):
        load_critic(tmp_path / "text")
    with pytest.raises(ValueError, match="at least 32 observations of 5 channels"):
        save_critic(tmp_path / "c", critic, chain.SPEC, obs[:31], action[:31])
    with pytest.raises(TypeError, match="expected a SafetyCritic or an Ensemble, got a dict"):
        save_critic(tmp_path / "c", {}, chain.SPEC, obs, action)
