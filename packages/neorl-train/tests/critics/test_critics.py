"""Both critics of a log, the promise of their monitors, and the command that leaves them."""

import dataclasses
import json

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import beta

from neorl_agents.critics import EnsembleLearner, critic_scores, load_critic
from neorl_agents.learning import Networks
from neorl_core import Channel, CostChannel, InputError, Spec
from neorl_core.control import ConstantPolicy
from neorl_envs import write_dataset
from neorl_envs.datasets import data_statistics, dataset_from_columns, split_episodes
from neorl_safety.constraints import action_constraints
from neorl_safety.filters import Flag
from neorl_safety.guards import guard
from neorl_safety.monitoring import Monitor
from neorl_train import configure, start
from neorl_train._command.main import main
from neorl_train.choosing import CriticOptions, TrainingHooks, critics_text, fit_critics
from neorl_train.choosing._critic_fit import NO_HOOKS, _train
from neorl_train.runs._checkpoints import Checkpoints
from neorl_train.runs._names import CRITIC_METRICS
from neorl_train.training import Watcher

SPEC = Spec(
    (Channel("level", "m", 0.0, 2.0),),
    (Channel("inflow", "l/s", 0.0, 10.0),),
    (CostChannel("overflow", "1", 0.0, "step"),),
    dt=10.0,
    horizon=20,
)
FEW = CriticOptions(
    horizon=4, updates=400, ensemble_updates=300, members=3, hidden=(16,), false_alarms=0.2
)


def tank_log(episodes=240, seed=0, costs=True):
    """A tank that fills by chance; it overflows above 1.5 m."""
    rng, rows = np.random.default_rng(seed), []
    level = rng.uniform(0.6, 1.3, episodes)
    for _ in range(20):
        inflow = rng.uniform(0, 10, episodes)
        after = np.clip(level + 0.03 * (inflow - 5) + 0.03 * rng.normal(size=episodes), 0, 2)
        rows.append((level, inflow, after))
        level = after
    level, inflow, after = (
        np.stack(column, axis=1).ravel().astype(np.float32)[:, None]
        for column in zip(*rows, strict=True)
    )
    spec = SPEC if costs else Spec(SPEC.obs, SPEC.action, (), SPEC.dt, SPEC.horizon)
    ends = np.arange(len(level)) % 20 == 19
    return dataset_from_columns(
        spec, obs=level, action=inflow, reward=-level[:, 0], next_obs=after,
        cost=(after > 1.5).astype(np.float32)[:, : spec.n_cost],
        terminated=np.zeros(len(level), bool), truncated=ends,
    )  # fmt: skip


@pytest.fixture(scope="module")
def fitted():
    return fit_critics(*split_episodes(tank_log(), 0.6, jax.random.key(0)), options=FEW)


def test_what_is_measured_keeps_what_is_promised(fitted):
    assessment = fitted.report["safety_critic"]["assessment"]["overflow"]
    assert assessment["area_under_roc"][0] > 0.9
    assert assessment["calibration_error"][1] <= 0.05
    # The held-out episodes of calibration are 36: so far from 90 % may a draw of them lie.
    assert 0.84 < fitted.report["ensemble"]["coverage_measured"]["level"][0] < 0.96
    for name in ("safety_critic", "ensemble"):
        monitor = fitted.report[name]["monitor"]
        result, of, low, _ = monitor["false_alarms"]
        # At most 20 % in the mean over draws of the episodes; this draw's interval admits it.
        assert low <= 0.2
        assert 0 <= result <= of
        assert isinstance(fitted.monitors[name], Monitor)
    result, of, *_ = fitted.report["safety_critic"]["monitor"]["alarmed_over_limit"]
    assert result > 0.7 * of > 0


def test_the_monitor_calls_the_fallback_in_a_guard_and_in_its_exported_program(fitted):
    off, on = ConstantPolicy(jnp.zeros(1)), ConstantPolicy(jnp.full(1, 9.0))
    monitors = (fitted.monitors["safety_critic"],)
    guarded = guard(on, action_constraints(SPEC), off, SPEC, monitors=monitors)

    def step(obs):
        carry, action = guarded(guarded.initial_carry(), obs, None)
        return carry.scores, carry.report.flags, action

    exported = jax.export.export(jax.jit(step))(jax.ShapeDtypeStruct((1,), jnp.float32))
    program = jax.export.deserialize(exported.serialize())
    for level, alarm in ((0.7, False), (1.49, True)):
        scores, flags, action = program.call(jnp.full(1, level, jnp.float32))
        assert bool(int(flags) & Flag.MONITOR_ALARM) == alarm
        assert bool(action[0] == 0) == alarm
        expected = critic_scores(fitted.safety_critic, np.full((1, 1), level), np.full((1, 1), 9.0))
        np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-6)


def test_what_few_threshold_episodes_are_worth_is_the_quantile_of_a_beta_variate(fitted):
    """The rate beyond the k-th smallest of n exchangeable scores is Beta(n + 1 - k, k)."""
    for name in ("safety_critic", "ensemble"):
        monitor = fitted.report[name]["monitor"]
        n = monitor["threshold_episodes"]
        k = int(np.ceil((n + 1) * (1 - FEW.false_alarms)))
        expected = beta.ppf(0.95, n + 1 - k, k)
        np.testing.assert_allclose(monitor["rate_of_19_in_20_thresholds"], expected, rtol=1e-3)


def test_an_action_that_never_moves_is_named_first():
    log = tank_log(120, costs=False)
    still = np.full_like(np.asarray(log.transitions.action), 4.5)
    log = dataclasses.replace(log, transitions=log.transitions._replace(action=still))
    few = CriticOptions(ensemble_updates=5, members=2, hidden=(4,), false_alarms=0.3)
    result = fit_critics(*split_episodes(log, 0.6, jax.random.key(0)), options=few)
    first, *_ = critics_text(result.report).splitlines()
    assert first.startswith("inflow never moves: it is 4.5 l/s in every row")


def test_the_text_has_the_numbers(fitted):
    report = json.loads(json.dumps(fitted.report))
    text = critics_text(report)
    assert "never moves" not in text
    assert "never alarm" not in text
    report["safety_critic"]["monitor"]["threshold"] = 1.0
    assert "it can never alarm" in critics_text(report).splitlines()[-1]
    for words in ("risk of a violation within 4 steps", "calibration error", "promised 20 %"):
        assert words in text


def test_a_log_without_costs_has_an_ensemble_alone():
    few = CriticOptions(ensemble_updates=5, members=2, hidden=(4,), false_alarms=0.3)
    parts = split_episodes(tank_log(120, costs=False), 0.6, jax.random.key(0))
    result = fit_critics(*parts, options=few)
    assert result.safety_critic is None
    assert "no cost channel" in critics_text(result.report)
    assert list(result.monitors) == ["ensemble"]
    with pytest.raises(InputError, match="3 held-out episodes are too few"):
        fit_critics(parts[0], parts[1].select_episodes(np.arange(3)), options=few)


def test_too_few_episodes_for_the_promise_are_refused_before_anything_is_fitted(monkeypatch):
    def fitted(*_, **__):
        raise AssertionError("a fit began")

    monkeypatch.setattr("neorl_train.choosing._critic_fit.fit_ensemble", fitted)
    training, held_out = split_episodes(tank_log(120, costs=False), 0.6, jax.random.key(0))
    eight = held_out.select_episodes(np.arange(8))
    words = r"4 of 8 held-out .* 0.1 false alarms an episode require 9; allow .* --false-alarms 0.2"
    with pytest.raises(InputError, match=words + r" or above, or .* data\.held_out of a new run"):
        fit_critics(training, eight)
    with pytest.raises(AssertionError, match="a fit began"):
        fit_critics(training, eight, options=CriticOptions(false_alarms=0.2))
    broken = tank_log(20)
    np.asarray(broken.transitions.cost)[:] = 1.0
    with pytest.raises(
        InputError, match=r"0 of 20 held-out .* require 9; hold out a larger fraction"
    ):
        fit_critics(training, broken)


def test_a_fit_that_was_interrupted_continues_to_the_same_bits(tmp_path):
    log = tank_log(30, costs=False)
    learner = EnsembleLearner(members=2, networks=Networks(hidden=(4,)))
    statistics, key = data_statistics(log), jax.random.key(0)

    def trained(followed):
        of = (learner, log.spec, log.transitions, statistics, 1500, key)
        return _train("ensemble", 3, followed, *of)

    def checkpoints(name):
        return Checkpoints(
            tmp_path / name, identity={"critic": name}, interval=750, keep=1, print_line=print
        )

    class Stopping(Watcher):
        def chunk(self, step, metrics):
            if step > 750:
                raise KeyboardInterrupt

    expected, metrics = trained(NO_HOOKS)
    assert set(metrics) == {"loss", "disagreement"}
    with pytest.raises(KeyboardInterrupt):
        trained(TrainingHooks(checkpoints, lambda name: Stopping(), lambda name: {}))
    begun = []

    class Noting(Watcher):
        def begin(self, step):
            begun.append(step)
            return False

    resumed = TrainingHooks(checkpoints, lambda name: Noting(), lambda name: {"loss": 7.0})
    for after, loss in ((750, metrics["loss"]), (1500, 7.0)):
        state, last = trained(resumed)
        assert begun.pop() == after
        assert last["loss"] == loss
        for a, b in zip(jax.tree.leaves(state), jax.tree.leaves(expected), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.nightly
def test_the_command_leaves_both_in_the_run(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("neorl_train._job.run.prepare_process", lambda: None)
    write_dataset(tmp_path / "log.h5", tank_log())
    config = configure(
        data={"source": tmp_path / "log.h5", "held_out": 0.4},
        training={"algorithms": ["bc"], "seeds": [0], "updates": 2, "chunk": 1},
        checkpoints={"interval": 1},
        penalty={"overflow": 1.0},
        output={"directory": str(tmp_path / "runs"), "tracking": False},
        algorithms={"bc": {"steps": {"batch_size": 16}, "networks": {"hidden": [8]}}},
    )
    run = start(config, quiet=True)
    sizes = ["--horizon", "4", "--updates", "400", "--ensemble-updates", "300", "--members", "3"]
    words = ["critic", str(run.path), *sizes, "--hidden", "16", "--false-alarms"]
    before = set(run.path.rglob("*"))
    assert main([*words, "0.001"]) == 2
    assert "false alarms an episode require 999" in capsys.readouterr().err
    assert set(run.path.rglob("*")) == before, "a refusal leaves nothing"
    assert main([*words, "0.2"]) == 0
    assert "safety critic: risk of a violation within 4 steps" in capsys.readouterr().out
    assert main([*words, "0.2", "--json"]) == 0
    stored = json.loads((run.path / "critics.json").read_text())
    assert json.loads(capsys.readouterr().out) == {**stored, "folder": str(run.path / "critics")}
    assert stored["format"] == "neorl-critics"
    lines = [json.loads(line) for line in (run.path / CRITIC_METRICS).read_text().splitlines()]
    assert {(line["algorithm"], line["step"]) for line in lines} == {
        ("ensemble", 300),
        ("safety_critic", 400),
    }
    assert not (run.path / "checkpoints/critics").exists()
    for name in ("safety_critic", "ensemble"):
        result = load_critic(run.path / f"critics/{name}.safetensors")
        scores = critic_scores(result.critic, result.parity_obs, result.parity_actions)
        np.testing.assert_array_equal(scores, result.parity_scores)
    assert main(["critic", "--horizon", "4"]) == 2
    assert main(["critic", str(run.path), "--horizon", "0"]) == 2
    assert "horizon must be an integer of at least 1, got 0" in capsys.readouterr().err
