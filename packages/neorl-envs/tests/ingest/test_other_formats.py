"""Formats are written and read: nothing that matters is lost on the way, costs least of all."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import h5py
import numpy as np
import pytest

from neorl_core import CostChannel, Spec
from neorl_envs import Dataset, DatasetError, read_dataset
from neorl_envs.datasets import dataset_from_columns
from neorl_envs.ingest import (
    Rollout,
    collect_rollouts,
    dataset_from_rollouts,
    rollouts_of,
    spec_of_spaces,
    write_d4rl,
    write_minari,
    write_neorl2,
)


@pytest.fixture
def chained(toy_spec: Spec, toy_columns: dict) -> Dataset:
    """The toy log with next observations that are the next rows', a masked row and NaN."""
    obs = toy_columns["obs"]
    ended = np.isin(np.arange(8), [2, 3, 7])
    following = np.where(ended[:, None], toy_columns["next_obs"], np.roll(obs, -1, axis=0))
    columns = {**toy_columns, "next_obs": np.array(following), "obs": np.array(obs)}
    columns["obs"][5, 1] = columns["next_obs"][4, 1] = np.nan
    return dataset_from_columns(
        toy_spec,
        **columns,
        mask=~np.isin(np.arange(8), [4, 5]),
        time=60.0 * np.arange(8),
        mode=np.arange(8)[:, None] > 4,
        setpoint=np.full((8, 1), 1.5),
        attributes={"name": "toy", "setpoints": [{"name": "level", "unit": "m"}]},
    )


WRITERS: dict[str, Callable[[Path, Dataset], Path]] = {
    "log.npz": write_neorl2,
    "log.hdf5": write_d4rl,
    "log-v0": write_minari,
}


@pytest.mark.parametrize("name", WRITERS)
def test_what_is_written_is_read_again(chained: Dataset, tmp_path: Path, name: str) -> None:
    path = WRITERS[name](tmp_path / name, chained)
    back = read_dataset(path)
    assert back.content_hash == chained.content_hash
    assert (back.spec, back.attributes) == (chained.spec, chained.attributes)
    assert sorted(p.name for p in tmp_path.iterdir()) == [name]


@pytest.mark.parametrize("name", ["log.npz", "log.hdf5"])
def test_labels_and_all_optional_columns_survive(toy: Dataset, tmp_path: Path, name: str) -> None:
    back = read_dataset(WRITERS[name](tmp_path / name, toy))
    assert back.content_hash == toy.content_hash


def minari(folder: Path, **changes: Any) -> Path:
    """Two episodes as Minari 0.5.4 writes them (tools/studies/oracles/minari_layout.py)."""
    with h5py.File(folder / "main_data.hdf5", "w", track_order=True) as file:
        for index, n in enumerate((3, 4)):
            rows = np.arange(n + 1, dtype=np.float32) + 10 * index
            group = file.create_group(f"episode_{index}")
            group.attrs.update({"id": index, "seed": 7, "total_steps": n})
            ended = np.arange(n) == n - 1
            arrays = {
                "observations": np.stack([rows / 100, -rows / 100], axis=1),
                "actions": rows[:-1, None] / 20,
                "rewards": rows[:-1].astype(np.float64),
                "terminations": ended & (index == 0),
                "truncations": ended & (index == 1),
                "infos/cost": rows / 8,
                **(changes if index == 1 else {}),
            }
            for name, array in arrays.items():
                if array is not None:
                    array = np.asarray(array)
                    group.create_dataset(
                        name, data=array, chunks=True, maxshape=(None, *array.shape[1:])
                    )
    space = {"type": "Box", "dtype": "float32", "shape": [1], "low": [-1.0], "high": [2.0]}
    metadata = {"total_episodes": 2, "data_format": "hdf5", "action_space": json.dumps(space)}
    (folder / "metadata.json").write_text(json.dumps(metadata))
    return folder


def test_a_dataset_of_minari_is_read_by_the_stated_rules(tmp_path: Path) -> None:
    dataset = read_dataset(minari(tmp_path))
    rows: Any = dataset.transitions
    np.testing.assert_array_equal(dataset.episode_lengths, [3, 4])
    expected = np.array([0, 1, 2, 10, 11, 12, 13], np.float32)
    np.testing.assert_array_equal(rows.reward, expected)
    np.testing.assert_array_equal(rows.obs[:, 0], expected / 100)
    np.testing.assert_array_equal(rows.next_obs[:, 1], -(expected + 1) / 100)
    np.testing.assert_array_equal(rows.action[:, 0], expected / 20)
    np.testing.assert_array_equal(rows.cost[:, 0], (expected + 1) / 8)  # behind that of the reset
    np.testing.assert_array_equal(np.flatnonzero(rows.terminated), [2])
    np.testing.assert_array_equal(np.flatnonzero(rows.truncated), [6])
    (action,) = dataset.spec.action
    assert (action.low, action.high) == (-1.0, 2.0)


FAULTS = {
    "short actions": ({"actions": np.zeros((2, 1))}, "episode_1: field 'actions': expected 4 rows"),
    "few observations": (
        {"observations": np.zeros((4, 2))},
        "field 'observations': expected 5 rows",
    ),
    "no rewards": ({"rewards": None}, "episode_1: field 'rewards' is missing"),
    "text": ({"rewards": np.array([b"a"] * 4)}, "episode_1: column 'rewards': expected numbers"),
    "goes on": ({"terminations": [0, 1, 0, 0]}, "episode_1, row 1: it is terminated or truncated"),
    "few costs": ({"infos/cost": np.zeros(2)}, r"'cost': expected 4 or 5 rows, got shape \(2,\)"),
    "wide costs": (
        {"infos/cost": np.zeros((4, 2))},
        "episode 1: field 'infos/cost': expected rows",
    ),
    "wide actions": ({"actions": np.zeros((4, 2))}, "episode 1: field 'actions': expected rows of"),
    "a flag of two": (
        {"truncations": [0, 0, 0, 2]},
        "episode_1: column 'truncations', row 3: .* got 2",
    ),
    "no costs": ({"infos/cost": None}, "episode_1: infos hold"),
    "NaN": ({"rewards": [0, np.nan, 0, 0]}, "column 'reward', row 4: expected a finite number"),
    "nothing": (
        {"rewards": np.zeros(0), "infos/cost": np.zeros(1)},
        "episode_1: field 'rewards' is empty",
    ),
}


@pytest.mark.parametrize("case", FAULTS)
def test_faults_in_minari_are_named(tmp_path: Path, case: str) -> None:
    changes, message = FAULTS[case]
    with pytest.raises(DatasetError, match=message) as caught:
        read_dataset(minari(tmp_path, **changes))
    assert "\n" not in str(caught.value)


def test_an_episode_of_minari_that_only_stops_is_truncated(tmp_path: Path) -> None:
    dataset = read_dataset(minari(tmp_path, truncations=np.zeros(4, bool)))
    assert np.flatnonzero(np.asarray(dataset.transitions.truncated)).tolist() == [6]


def test_costs_of_a_collection_for_safe_control(tmp_path: Path, toy_columns: dict) -> None:
    """A file with ``costs`` of one axis and no description, as such collections are published."""
    names = {"obs": "observations", "action": "actions", "reward": "rewards"}
    with h5py.File(tmp_path / "safe.hdf5", "w") as file:
        for ours, theirs in names.items():
            file[theirs] = toy_columns[ours]
        file["next_observations"] = toy_columns["next_obs"]
        file["terminals"], file["timeouts"] = toy_columns["terminated"], toy_columns["truncated"]
        file["costs"] = toy_columns["cost"][:, 0]
    dataset = read_dataset(tmp_path / "safe.hdf5")
    np.testing.assert_array_equal(dataset.transitions.cost, np.float32(toy_columns["cost"]))
    assert dataset.spec.cost == (CostChannel("cost_0", "?", 0.0, "step"),)


class Pendulum(gymnasium.Env):
    """An angle that is kicked; it trips beyond 3 and costs beyond 2."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        super().reset(seed=seed)
        self.angle, self.time = float(self.np_random.uniform(-1, 1)), 0
        return np.float32([self.angle]), {}

    def step(self, action: Any) -> Any:
        self.angle, self.time = self.angle + float(action[0]), self.time + 1
        info = {"slip": max(abs(self.angle) - 2, 0)}
        ended = abs(self.angle) > 3, self.time >= 12
        return np.float32([self.angle]), -(self.angle**2), *ended, info


def test_rollouts_of_gymnasium_become_a_dataset_and_back(tmp_path: Path) -> None:
    env = Pendulum()
    slip = CostChannel("slip", "rad", 0.0, "step")
    spec = spec_of_spaces(env, dt=0.05, horizon=12, costs=(slip,))
    random = np.random.default_rng(0)
    episodes = list(
        collect_rollouts(
            env, lambda obs: random.uniform(-1, 1, 1), n_steps=100, seed=3, costs=("slip",)
        )
    )
    dataset = dataset_from_rollouts(spec, episodes)
    rows: Any = dataset.transitions
    assert dataset.n_rows == 100
    np.testing.assert_allclose(rows.obs + rows.action, rows.next_obs, atol=1e-6)
    np.testing.assert_allclose(rows.reward, -(rows.next_obs[:, 0] ** 2), rtol=1e-5, atol=1e-6)
    over = np.maximum(np.abs(rows.next_obs) - 2, 0)
    np.testing.assert_allclose(rows.cost, over, atol=1e-6)
    np.testing.assert_array_equal(rows.terminated, np.abs(rows.next_obs[:, 0]) > 3)
    assert rows.truncated.sum() > 0
    again = dataset_from_rollouts(spec, rollouts_of(dataset))
    assert again.content_hash == dataset.content_hash
    assert read_dataset(write_minari(tmp_path / "p", dataset)).content_hash == dataset.content_hash
    with pytest.raises(DatasetError, match=r"no 'heat', only \['slip'\]"):
        list(collect_rollouts(env, lambda obs: obs, n_steps=3, seed=3, costs=("heat",)))


def test_rollouts_that_do_not_fit_are_named(chained: Dataset, toy: Dataset) -> None:
    good = list(rollouts_of(chained))
    short = good[0]._replace(actions=good[0].actions[:-1])
    with pytest.raises(DatasetError, match="episode 1: field 'actions': expected 3 rows"):
        dataset_from_rollouts(chained.spec, [good[0], short])
    likely = good[0]._replace(truncations=np.array([0.0, 0.99, 1.0]))
    with pytest.raises(DatasetError, match=r"'truncations', row 1: .* got 0\.99"):
        dataset_from_rollouts(chained.spec, [likely])
    with pytest.raises(DatasetError, match="there is no episode"):
        dataset_from_rollouts(chained.spec, [])
    lies = toy.transitions._replace(next_obs=np.array(toy.transitions.next_obs) + 1)
    with pytest.raises(DatasetError, match="episode 0, row 0: next_obs differs from the obs"):
        list(rollouts_of(dataclasses.replace(toy, transitions=lies)))
    box = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    env = Pendulum()
    env.action_space = box
    with pytest.raises(DatasetError, match="the action space must have finite bounds"):
        spec_of_spaces(env, dt=1, horizon=2)
    env = Pendulum()
    assert [c.name for c in spec_of_spaces(env, dt=1, horizon=2).obs] == ["obs_0"]
    env.metadata = {"observation_names": ("angle",), "action_names": ("torque", "brake")}
    with pytest.raises(DatasetError, match="has 2 action_names, and its action space has 1"):
        spec_of_spaces(env, dt=1, horizon=2)
    env.metadata = {"observation_names": ("angle",)}
    spec = spec_of_spaces(env, dt=1, horizon=2)
    assert [c.name for c in (*spec.obs, *spec.action)] == ["angle", "action_0"]
    assert Rollout._fields[0] == "observations"


def test_a_description_that_was_changed_is_refused(chained: Dataset, tmp_path: Path) -> None:
    path = write_neorl2(tmp_path / "log.npz", chained)
    with np.load(path) as archive:
        arrays = dict(archive)
    arrays["neorl_description"] = np.frombuffer(b'{"spec": 3}', np.uint8)
    np.savez(path, **arrays)
    with pytest.raises(DatasetError, match="neorl_description is not a valid description"):
        read_dataset(path)
