"""Signals that are not what they say: two tags that were exchanged, a mode that lies."""

from typing import Any

import numpy as np
import pytest

from neorl_core import Channel, Spec
from neorl_envs import Dataset
from neorl_envs.datasets import dataset_from_columns
from neorl_envs.inspection import dataset_report, signal_warnings
from neorl_envs.inspection._signals import _exchanged_errors

STEPS, EPISODES = 100, 30
N = STEPS * EPISODES
START = 1_700_000_000.0


def tanks(exchanged_from: int | None = None, *, stamped: bool = True) -> Dataset:
    """Two tanks in a row, both measured in metres; the valve fills the first."""
    random = np.random.default_rng(2)
    level, valve = np.zeros((N + 1, 2)), 50 + 10 * np.sign(random.normal(size=N))
    valve = np.repeat(valve[::10], 10)
    for row in range(N):
        first, second = level[row] if row % STEPS else random.normal(size=2)
        level[row] = first, second
        noise = 0.05 * random.normal(size=2)
        level[row + 1, 0] = 0.9 * first + 0.02 * (valve[row] - 50) + noise[0]
        level[row + 1, 1] = 0.9 * second + 0.1 * first + noise[1]
    obs, after = level[:-1].copy(), level[1:].copy()
    if exchanged_from is not None:
        for column in (obs, after):
            column[exchanged_from:] = column[exchanged_from:, ::-1]
    columns: dict[str, Any] = {"obs": obs, "action": valve[:, None], "next_obs": after}
    return _dataset(columns, ("LI_1", "LI_2"), stamped=stamped)


def loop(kind: str) -> Dataset:
    """A loop with a mode: half of its episodes by a controller, half by an operator."""
    random = np.random.default_rng(3)
    measured, action = random.normal(size=N + 1), np.zeros(N)
    by_hand = np.repeat(np.arange(EPISODES) % 2 == 1, STEPS)
    for row in range(N):
        start = row % STEPS == 0
        held = 0.0 if start else action[row - 1]
        if by_hand[row]:
            action[row] = held if random.random() < 0.97 else random.normal()
        else:
            action[row] = -0.5 * measured[row]
    mode = {"true": by_hand, "always automatic": by_hand & False, "wrong way": ~by_hand}[kind]
    obs = measured[:-1, None]
    columns: dict[str, Any] = {
        "obs": obs,
        "action": action[:, None],
        "next_obs": measured[1:, None],
    }
    return _dataset({**columns, "mode": mode[:, None]}, ("TI_1",), stamped=True)


def _dataset(columns: dict[str, Any], names: tuple[str, ...], *, stamped: bool) -> Dataset:
    spec = Spec(
        tuple(Channel(name, "m", -50, 50) for name in names),
        (Channel("valve", "%", -100, 100),), (), 60.0, STEPS,
    )  # fmt: skip
    ends = np.arange(N) % STEPS == STEPS - 1
    more: dict[str, Any] = {"time": START + 60 * np.arange(N)} if stamped else {}
    return dataset_from_columns(
        spec, **columns, **more, reward=-np.abs(columns["obs"][:, 0]), cost=np.zeros((N, 0)),
        terminated=ends & False, truncated=ends,
        attributes={"time_origin": "1970-01-01T00:00:00Z"},
    )  # fmt: skip


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9])
def test_two_tags_that_were_exchanged_are_named_with_the_moment(part: float) -> None:
    row = STEPS * int(part * EPISODES)
    log = tanks(row)
    (pair,) = dataset_report(log)["swapped"]
    assert pair["names"] == ["LI_1", "LI_2"]
    assert abs(pair["row"] - row) <= 2
    assert pair["start"] == START + 60 * pair["row"]
    (warning,) = signal_warnings(log)
    assert warning.startswith("LI_1 and LI_2 appear to be exchanged from 2023-11-1")
    assert warning in dataset_report(log)["warnings"]


@pytest.mark.parametrize("pair", [(0, 1), (1, 4), (0, 5)])
def test_errors_with_two_channels_exchanged_are_those_of_the_exchanged_rows(pair) -> None:
    rng = np.random.default_rng(4)
    obs, after, weight = rng.normal(size=(30, 6)), rng.normal(size=(30, 6)), rng.normal(size=(6, 6))
    order = np.arange(6)
    order[list(pair)] = pair[::-1]
    exchanged = np.square(after[:, order] - obs[:, order] @ weight)[:, list(pair)].sum(axis=1)
    errors = _exchanged_errors(weight, obs, after, obs @ weight, pair)
    np.testing.assert_allclose(errors, exchanged, rtol=1e-9)


def test_a_log_without_stamps_names_the_row() -> None:
    (warning,) = signal_warnings(tanks(1500, stamped=False))
    assert warning.startswith("LI_1 and LI_2 appear to be exchanged from row 1")


def test_what_was_not_exchanged_is_not_reported() -> None:
    """Also where another thing changes half-way, which an exchange would not explain."""
    log = tanks()
    assert signal_warnings(log) == []
    columns: Any = log.transitions
    columns.obs[N // 2 :, 0] += 3.0
    columns.next_obs[N // 2 :, 0] += 3.0
    assert signal_warnings(log) == []


def test_a_mode_that_lies_is_reported() -> None:
    assert signal_warnings(loop("true")) == []
    (warning,) = signal_warnings(loop("always automatic"))
    assert warning.startswith("valve stands still for long, inside its range, in ")
    assert "of the steps that its mode calls automatic" in warning
    warnings = signal_warnings(loop("wrong way"))
    assert warnings[0].startswith(
        "valve is in manual in 50% of the steps by its mode, yet moves in 9"
    )
    assert "check which words its mode has under automatic" in warnings[0]
