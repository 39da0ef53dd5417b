"""One agent behind the methods of Sorrel's models, beside numbers recorded from Sorrel's own."""

import inspect
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from neorl_agents.optimisers import init_optimiser
from neorl_agents.populations import SorrelModel, _sorrel
from neorl_core import InputError

from .source_record import RECORD, draws, recorded

SIZES: dict[str, Any] = {
    "input_size": (6,), "action_space": 4, "layer_size": 16, "epsilon": 0.0, "device": "cpu",
    "seed": 3, "n_frames": 5, "batch_size": 8, "memory_size": 64, "LR": 2.5e-3, "TAU": 0.1,
}  # fmt: skip


def filled() -> SorrelModel:
    """Four epochs of 20 turns, as the recording filled its ring."""
    model, rng = SorrelModel(**SIZES), np.random.default_rng(7)
    for epoch in range(1, 5):
        model.start_epoch_action(epoch=epoch)
        for _ in range(20):
            obs = rng.integers(0, 3, 6).astype(np.float32)
            model.memory.add(obs, int(rng.integers(4)), float(rng.integers(-1, 11)), False)
        model.end_epoch_action(epoch=epoch)
    return model


def test_its_arguments_are_those_of_the_source() -> None:
    """Of ``iRainbowModel`` in release 1.4.0."""
    given = inspect.signature(SorrelModel).parameters
    assert list(given) == [
        "input_size", "action_space", "layer_size", "epsilon", "device", "seed", "n_frames",
        "n_step", "sync_freq", "model_update_freq", "batch_size", "memory_size", "LR", "TAU",
        "GAMMA", "n_quantiles",
    ]  # fmt: skip
    defaults = [p.default for p in given.values() if p.default is not inspect.Parameter.empty]
    assert defaults == [3, 200, 4, 64, 1024, 0.001, 0.001, 0.99, 12]


def test_ring_and_three_train_steps_equal_those_of_the_source(monkeypatch) -> None:
    model = filled()
    sizes = np.load(Path(__file__).parent / "sorrel_head.npz")["filled"]
    assert (model.memory.idx, model.memory.size) == tuple(sizes[-1])
    np.testing.assert_array_equal(model.memory.states, RECORD["ring_state"])
    np.testing.assert_array_equal(model.memory.actions, RECORD["ring_action"])
    np.testing.assert_array_equal(model.memory.rewards, RECORD["ring_reward"])
    np.testing.assert_array_equal(model.memory.current_state(), RECORD["current"])
    online, target = recorded("start/local"), recorded("start/target")
    model.agent = model.agent._replace(
        network=online, target=target, optimiser=init_optimiser("iqn", online, 1.0)
    )

    class Recorded:
        """The rows that the recording drew."""

        def choice(self, windows, batch, replace):
            assert (batch, replace) == (8, False)
            return RECORD[f"{step}/rows"]

    monkeypatch.setattr(model, "_random", Recorded())
    monkeypatch.setattr(_sorrel, "_draws", lambda learner, network, key: draws(step))
    for step in range(3):
        np.testing.assert_allclose(model.train_step(), RECORD[f"{step}/loss"], rtol=1e-4)
    for mine, end in ((model.agent.network, "end/local"), (model.agent.target, "end/target")):
        for a, b in zip(jax.tree.leaves(mine), jax.tree.leaves(recorded(end)), strict=True):
            np.testing.assert_allclose(a, b, atol=2e-5)


def test_it_acts_copies_explores_less_and_comes_back_from_a_file(tmp_path) -> None:
    model, again = filled(), filled()
    state = RECORD["eval_obs"]
    best = [model.take_action(state) for _ in range(3)]
    assert best == [again.take_action(state) for _ in range(3)]  # One seed, one run.
    model.set_epsilon(1.0)
    assert {model.take_action(state) for _ in range(60)} == {0, 1, 2, 3}
    model.epsilon_decay(0.25)
    assert model.epsilon == 0.75
    before = jax.tree.leaves(model.agent.target)
    model.start_epoch_action(epoch=7)
    assert all(map(np.array_equal, before, jax.tree.leaves(model.agent.target)))
    model.start_epoch_action(epoch=200)
    networks = map(jax.tree.leaves, (model.agent.network, model.agent.target))
    assert all(map(np.array_equal, *networks))
    path = tmp_path / "checkpoints" / "agent-0.pkl"
    model.save(path)
    again.load(path)
    pairs = zip(jax.tree.leaves(model.agent), jax.tree.leaves(again.agent), strict=True)
    assert all(np.array_equal(a, b) for a, b in pairs)


def test_what_does_not_fit_is_refused_in_one_line_and_nothing_is_lost(tmp_path) -> None:
    with pytest.raises(InputError, match="capacity must be at least batch_size = 8, got 4"):
        SorrelModel(**{**SIZES, "memory_size": 4})
    model = filled()
    rows, place = model.memory.states.copy(), model.memory.idx
    with pytest.raises(InputError, match=r"an observation must have 6 numbers, .* got 5"):
        model.memory.add(np.ones(5), 0, 1.0, False)
    np.testing.assert_array_equal(model.memory.states, rows)
    assert model.memory.idx == place
    other = SorrelModel(**{**SIZES, "layer_size": 12})
    other.save(tmp_path / "other.npz")
    held = [np.array(leaf) for leaf in jax.tree.leaves(model.agent)]
    with pytest.raises(InputError, match=r"other\.npz: the arrays have the shapes"):
        model.load(tmp_path / "other.npz")
    assert all(map(np.array_equal, held, jax.tree.leaves(model.agent)))


def test_it_waits_until_a_batch_is_there() -> None:
    model = SorrelModel(**SIZES)
    for turn in range(13):  # 13 rows give 7 windows of 6.
        model.memory.add(np.full(6, turn), 0, 1.0, False)
    assert model.train_step() == 0
    assert int(model.agent.updates) == 0
    model.memory.add(np.full(6, 13), 0, 1.0, False)
    assert model.train_step() > 0
    assert int(model.agent.updates) == 1
