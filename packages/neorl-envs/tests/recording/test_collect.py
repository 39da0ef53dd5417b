"""The plant log: what operators do, what is recorded, and that it can be made again."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core import InputError, highs, lows
from neorl_core.control import ConstantPolicy
from neorl_envs import Dataset, collect_log, make
from neorl_envs.plants import ChemicalReactor
from neorl_envs.recording import _collect, quality


def test_the_log_is_whole_episodes_of_every_tuning_in_turn(
    env: ChemicalReactor, log: Dataset
) -> None:
    assert log.n_rows >= 1000
    assert log.n_episodes % 4 == 0
    assert log.behaviour is not None
    np.testing.assert_array_equal(log.behaviour, np.arange(log.n_episodes) % 4)
    assert log.attributes["behaviours"] == list(env.tunings())
    rows: Any = log.transitions
    ends = log.episode_ends - 1
    np.testing.assert_array_equal(np.flatnonzero(rows.terminated | rows.truncated), ends)
    np.testing.assert_array_equal(rows.obs[log.episode_starts, 11], 0.0)  # batch time
    inside = np.setdiff1d(np.arange(log.n_rows), ends)
    np.testing.assert_array_equal(rows.next_obs[inside], rows.obs[inside + 1])
    # The last observation is the episode's own: the batch is complete, not begun.
    assert (rows.next_obs[ends[rows.terminated[ends]], 7] > 20_400).all()


def test_recorded_actions_are_what_the_plant_received(env: ChemicalReactor, log: Dataset) -> None:
    """Replaying a log's actions in the pure environment applies exactly those actions.

    Row N07: logged actions lie in their box and are what the plant received.
    """
    rows: Any = log.transitions
    low, high = np.float32(lows(env.spec.action)), np.float32(highs(env.spec.action))
    assert ((rows.action >= low) & (rows.action <= high)).all()
    params = env.default_params("clean")

    def step(state: Any, action: Any) -> Any:
        state, answer = env.step(params, state, action, jax.random.key(0))
        return state, answer.applied

    replay = jax.jit(lambda state, actions: jax.lax.scan(step, state, actions)[1])
    state, _ = env.reset(params, jax.random.key(0))
    longest = int(log.episode_lengths.max())
    for index in range(log.n_episodes):
        action = np.asarray(log.episode(index).action)
        padded = np.pad(action, ((0, longest - len(action)), (0, 0)), mode="edge")
        np.testing.assert_array_equal(replay(state, padded)[: len(action)], action)


@pytest.mark.nightly
def test_a_longer_log_begins_with_the_shorter_one(env: ChemicalReactor, log: Dataset) -> None:
    short = collect_log(env, n_steps=1, key=jax.random.key(3))
    assert short.n_episodes == 4
    for ours, theirs in zip(short.transitions, log.transitions, strict=True):
        np.testing.assert_array_equal(ours, theirs[: short.n_rows])
    again = collect_log(env, n_steps=1000, key=jax.random.key(3))
    assert again.content_hash == log.content_hash
    other = collect_log(env, n_steps=1, key=jax.random.key(4))
    assert other.content_hash != short.content_hash


@pytest.mark.nightly
def test_a_log_of_several_blocks_is_one_compiled_program(env: ChemicalReactor) -> None:
    """The program is called block by block; neither block, length nor key makes another one."""
    called, collect = [], _collect._collect_block

    def counted(*arguments: Any) -> Any:
        called.append(arguments)
        return collect(*arguments)

    collect.clear_cache()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_collect, "_collect_block", counted)
        collect_log(env, n_steps=25_000, key=jax.random.key(3))
        collect_log(env, n_steps=1, key=jax.random.key(4))
    assert len(called) == 3
    assert collect._cache_size() == 1


def test_every_channel_is_excited_and_the_file_says_how(log: Dataset) -> None:
    excitation = log.attributes["excitation"]
    assert [c["channel"] for c in excitation["channels"]] == ["feed", "T_in_M", "T_in_EK"]
    assert [c["prbs_amplitude"] for c in excitation["channels"]] == [3000.0, 3.0, 3.0]
    for channel in excitation["channels"]:
        assert channel["prbs_mean_dwell_s"] == 500.0
        assert 0.8 < channel["prbs_fraction_of_steps"] < 1
        assert 0 < channel["manual_fraction_of_steps"] < 0.2
        active = channel["prbs_fraction_of_steps"] + channel["manual_fraction_of_steps"]
        assert active == pytest.approx(1)
    assert excitation["manual_hold_s"] == [300.0, 1800.0]
    assert excitation["setpoint_fraction_of_steps"] > 0.5
    assert log.attributes["provenance"]["key"] == [0, 3]
    assert log.attributes["provenance"]["episodes"] == log.n_episodes


def test_bad_requests_are_refused(env: ChemicalReactor) -> None:
    with pytest.raises(ValueError, match="n_steps must be at least 1, got 0"):
        collect_log(env, n_steps=0, key=jax.random.key(0))
    with pytest.raises(ValueError, match="at least one controller, got none"):
        collect_log(env, {}, key=jax.random.key(0))


@pytest.mark.nightly
def test_qualities_say_who_acts_and_what_operators_add(env: ChemicalReactor) -> None:
    acting = {name: quality(env, name) for name in ("random", "medium", "mixed", "expert")}
    assert [list(result.controllers) for result in acting.values()] == [
        ["random"],
        ["PID 100/1500"],
        list(env.tunings()),
        [env.reference],
    ]
    assert [bool(result.plan.amplitude.any()) for result in acting.values()] == [0, 1, 1, 0]
    who, plan = acting["expert"]
    log = collect_log(env, who, plan=plan, n_steps=1, key=jax.random.key(0))
    assert log.mode is not None
    assert not log.mode.any()
    with pytest.raises(InputError, match="unknown quality 'exprt'; did you mean 'expert'"):
        quality(env, "exprt")


def test_any_policies_take_turns_and_modes_signals_and_set_points_are_recorded(
    env: ChemicalReactor,
) -> None:
    pid = env.tunings()[env.reference]
    steady = ConstantPolicy(jnp.asarray([9000.0, 350.0, 350.0]))
    log = collect_log(env, {"PID": pid, "steady": steady}, n_steps=200, key=jax.random.key(1))
    assert log.attributes["behaviours"] == ["PID", "steady"]
    assert log.attributes["setpoints"] == ["feed.SP", "T_in_M.SP", "T_in_EK.SP"]
    assert log.setpoint is not None
    assert log.test_signal is not None
    assert log.mode is not None
    first, second = (
        slice(*rows) for rows in zip(log.episode_starts, log.episode_ends, strict=True)
    )
    moved = log.setpoint[first] - np.asarray(pid.setpoint)
    assert 0 < np.abs(moved).max() <= 2.0
    assert np.isnan(log.setpoint[second]).all()  # a constant has none
    rows: Any = log.transitions
    free = ~log.mode[second] & (np.abs(log.test_signal[second]) > 0)
    requested = np.float32([9000.0, 350.0, 350.0]) + log.test_signal[second]
    late = np.arange(free.shape[0])[:, None] > 20
    feeding = rows.obs[second][:, 8:9] < 29_000
    same = free & late & feeding & np.isclose(rows.action[second], requested)
    assert same.sum() > 0.8 * (free & late & feeding).sum()


@pytest.mark.nightly
def test_a_log_of_100_000_rows_is_safe_and_tells_the_tunings_apart(env: ChemicalReactor) -> None:
    log = collect_log(env, n_steps=100_000, key=jax.random.key(0))
    assert 100_000 <= log.n_rows < 102_000
    rows: Any = log.transitions
    assert not rows.truncated.any()  # every batch was finished
    assert (log.episode_returns() > 50).all()  # and none tripped
    assert (log.episode_costs()[:, 1] == 0).all()  # nobody came near the pressure limit
    by_tuning = [log.episode_returns()[log.behaviour == i].mean() for i in range(4)]
    assert by_tuning == sorted(by_tuning)
    costs = [log.episode_costs()[log.behaviour == i, 0].mean() for i in range(4)]
    assert costs == sorted(costs)


def test_a_random_policy_has_the_density_of_its_request() -> None:
    """Uniform in ±30 N on two actuators without limits of their own: ``-2 log 60`` everywhere.

    Row N08: a generated log holds the density of its actions.
    """
    env = make("DMSD-v0")
    who, plan = quality(env, "random")
    log = collect_log(env, who, plan=plan, n_steps=50, key=jax.random.key(0), log_prob=True)
    assert log.behaviour_log_prob is not None
    expected = np.full(log.n_rows, -2 * np.log(60.0))
    np.testing.assert_allclose(log.behaviour_log_prob, expected, rtol=1e-6)


def test_operators_have_the_density_of_what_they_drew() -> None:
    """Recomputed from the columns of a log whose operators hold nothing in manual.

    Row N08: test signals have densities too, of the request beside the applied action.
    """
    env = make("CSTR-v0")
    plan = env.operator_plan()._replace(hold_every=jnp.asarray(jnp.inf))
    first = dict([next(iter(env.tunings().items()))])
    log = collect_log(env, first, plan=plan, n_steps=200, key=jax.random.key(1), log_prob=True)
    rows: Any = log.transitions
    assert log.requested is not None
    assert log.behaviour_log_prob is not None
    assert log.test_signal is not None
    assert np.isinf(plan.setpoint_every)
    flip, excited = 1 / float(plan.dwell), np.asarray(plan.amplitude) > 0
    for start, end in zip(log.episode_starts, log.episode_ends, strict=True):
        changed = np.diff(np.sign(log.test_signal[start:end])[:, excited], axis=0) != 0
        expected = np.where(changed, np.log(flip), np.log1p(-flip)).sum(axis=1)
        expected = np.append(excited.sum() * np.log(0.5), expected)
        np.testing.assert_allclose(log.behaviour_log_prob[start:end], expected, rtol=1e-5)
    assert (log.requested != rows.action).any()  # the plant's own limits
    plain = collect_log(env, first, plan=plan, n_steps=200, key=jax.random.key(1))
    assert plain.requested is None
    np.testing.assert_array_equal(plain.transitions.action, rows.action)


def test_a_random_controller_that_operators_hold_is_refused(env: ChemicalReactor) -> None:
    controllers, _ = quality(env, "random")
    with pytest.raises(ValueError, match="'random' is random, and a manual hold hides"):
        collect_log(env, controllers, n_steps=10, key=jax.random.key(0), log_prob=True)
