"""Learners on rollouts in a model: refusals, the same bits after a stop, a linear plant."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from neorl_agents import MOPO, RAMBO
from neorl_agents.artefact import policy_actions
from neorl_agents.testing import sized
from neorl_core import Channel, InputError, Spec
from neorl_envs import collect_log, make, write_dataset
from neorl_envs.datasets import dataset_from_columns
from neorl_train import Agent, train
from neorl_train.data import streamed_data
from neorl_train.runs import Checkpoints, tree_digest
from neorl_train.training import Plan


@pytest.fixture(scope="module")
def log():
    return collect_log(make("DMSD-v0"), n_steps=400, key=jax.random.key(0))


def small(kind=MOPO, **settings):
    """A learner whose model, rollouts and networks are tiny."""
    learner = sized(kind(), hidden=(8,), batch_size=16, model_updates=20, **settings)
    rollouts = replace(learner.rollouts, length=2, starts=8, every=10, capacity=64)
    model = sized(learner.model, hidden=(8,), batch_size=16, members=2, elites=1)
    exogenous = ("target1", "target2")
    return replace(learner, rollouts=rollouts, model=sized(model, exogenous=exogenous))


def test_what_cannot_be_rolled_out_is_refused_before_anything_is_compiled(tmp_path, log):
    with pytest.raises(InputError, match=r"multiple of 10, after which MOPO makes new rollouts \("):
        train(small(), log, plan=Plan(30, 15, 30))
    path = write_dataset(tmp_path / "log.h5", log)
    with pytest.raises(InputError, match="MOPO starts model rollouts from rows of the log, which"):
        train(small(), streamed_data(path), plan=Plan(20, 10, 20))
    rows = log.transitions._asdict()
    columns = {name: rows[name][:100] for name in rows if name not in ("mask", "next_action")}
    one = dataset_from_columns(log.spec, **columns | {"truncated": np.arange(100) == 99})
    with pytest.raises(InputError, match="the log has one episode, but DynamicsModel holds out"):
        train(small(), one, plan=Plan(20, 10, 20))
    with pytest.raises(InputError, match="must be a positive multiple of 10, got 25"):
        Agent(small()).train(log, updates=25)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", [MOPO, RAMBO])
def test_stopped_anywhere_it_continues_to_the_same_bits(tmp_path, log, kind):
    """Stopped in the model, then in the learner; the length of a chunk is no part of the result."""
    through = train(small(kind), log, (0,), Plan(40, 10, 10))
    longer = train(small(kind), log, (0,), Plan(40, 20, 20))
    assert tree_digest(through.snapshot) == tree_digest(longer.snapshot)

    def checkpoints():
        return Checkpoints(tmp_path, identity={"run": "a"}, interval=10, keep=2, print_line=print)

    for calls in (1, 3):
        left = iter(range(calls))
        stop = lambda left=left: next(left, None) is None  # noqa: E731
        stopped = train(
            small(kind), log, (0,), Plan(40, 10, 10), checkpoints=checkpoints(), stop=stop
        )
        assert not stopped.finished
    resumed = train(small(kind), log, (0,), Plan(40, 10, 10), checkpoints=checkpoints())
    assert tree_digest(resumed.snapshot) == tree_digest(through.snapshot)


@pytest.mark.nightly
def test_rollouts_carry_windows_on_and_exogenous_channels_follow_the_log(log):
    """Every predicted window is the one before it, one step on, and targets are logged ones."""
    learner = small(encoder="history", history_steps=3)
    training = train(learner, log, (0,), Plan(20, 10, 20)).trainings()[0]
    rows = training.memory.ring.rows.rows
    size = int(training.memory.ring.size)
    before, after = (jax.tree.map(lambda x: x[:size], x) for x in (rows.obs, rows.next_obs))
    np.testing.assert_array_equal(before.obs[:, 1:], after.obs[:, :-1])
    np.testing.assert_array_equal(after.action[:, -1], rows.action[:size])
    assert after.obs_known[:, -1].all()
    known = {row.tobytes() for row in np.asarray(log.transitions.obs)[:, 4:]}
    assert all(row.tobytes() in known for row in np.asarray(before.obs[:, -1, 4:]))
    close = np.abs(after.obs[:, -1, 4:] - before.obs[:, -1, 4:]).max(1)
    assert np.mean(close < 1e-5) > 0.9  # a target changes once in an episode, if at all
    policy = learner.policy(training.learner)
    actions = policy_actions(policy, before.obs[:, -1])
    assert np.isfinite(actions).all()


A, B = np.array([[1.0, 0.2], [-0.1, 0.9]]), np.array([[0.0], [0.2]])
Q, R = np.diag([1.0, 0.1]), np.array([[0.05]])


def returns(gain_or_policy, starts, steps=40):
    """Mean return over episodes from the starts, of a linear law or of a policy."""
    obs, total = starts, np.zeros(len(starts))
    for _ in range(steps):
        if callable(gain_or_policy):
            action = np.asarray(gain_or_policy(obs.astype(np.float32)), float)
        else:
            action = obs @ gain_or_policy.T
        action = np.clip(action, -2, 2)
        total -= ((obs @ Q) * obs).sum(1) + ((action @ R) * action).sum(1)
        obs = obs @ A.T + action @ B.T
    return total.mean()


@pytest.mark.nightly
def test_a_linear_plant_is_recovered_and_controlled_nearly_as_well_as_by_its_regulator():
    """A log of random actions: the matrix to 1e-3, and 95 of 100 between random and the LQR.

    Row N15: the model holds the matrix of the plant, and the policy earns 95 of 100.
    """
    rng = np.random.default_rng(0)
    episodes, steps = 200, 40
    obs = rng.uniform(-2, 2, (episodes, 2))
    columns = {"obs": [], "action": [], "next_obs": []}
    held = rng.uniform(-2, 2, (episodes, 1))
    for _ in range(steps):
        held = np.where(rng.uniform(size=(episodes, 1)) < 0.3, rng.uniform(-2, 2, held.shape), held)
        after = obs @ A.T + held @ B.T
        for name, column in zip(columns, (obs, held, after), strict=True):
            columns[name].append(column)
        obs = after
    obs, action, after = (np.stack(x, axis=1).reshape(-1, x[0].shape[1]) for x in columns.values())
    reward = -((obs @ Q) * obs).sum(1) - ((action @ R) * action).sum(1)
    spec = Spec(
        (Channel("level", "m", -8.0, 8.0), Channel("flow", "m/s", -8.0, 8.0)),
        (Channel("valve", "1", -2.0, 2.0),), (), dt=1.0, horizon=steps,
    )  # fmt: skip
    ends = np.arange(len(obs)) % steps == steps - 1
    f32 = lambda x: x.astype(np.float32)  # noqa: E731
    log = dataset_from_columns(
        spec, obs=f32(obs), action=f32(action), reward=f32(reward), next_obs=f32(after),
        cost=np.zeros((len(obs), 0), np.float32), terminated=np.zeros(len(obs), bool),
        truncated=ends,
    )  # fmt: skip
    learner = sized(
        MOPO(model_updates=3000, actor_learning_rate=1e-3, critic_learning_rate=1e-3,
             temperature_learning_rate=1e-3, discount=0.95),
        hidden=(32, 32), batch_size=64,
    )  # fmt: skip
    learner = replace(learner, model=sized(learner.model, hidden=(32, 32), members=2, elites=2))
    trained = train(learner, log, (0,), Plan(8000, 500, 8000))
    state = trained.states()[0]
    model, maps = state.context["model"].parameters["structure"], state.preparation
    # The triangle of inputs and targets: a constant is the last input, two targets follow.
    triangle = np.asarray(model.change.triangle, float)
    result = np.linalg.solve(triangle[:-2, :-2], triangle[:-2, -2:]).T[:, :3]
    scale, reach = np.asarray(maps.obs.scale, float), np.asarray(maps.action.scale, float)
    known = scale[:, None] * result / np.append(scale, reach)[None] + np.eye(2, 3)
    np.testing.assert_allclose(known, np.hstack([A, B]), atol=1e-3)
    solution = scipy.linalg.solve_discrete_are(A, B, Q, R)
    gain = -np.linalg.solve(R + B.T @ solution @ B, B.T @ solution @ A)
    starts = rng.uniform(-2, 2, (200, 2))
    policy = trained.policies[0]
    act = jax.jit(lambda obs: policy_actions(policy, obs))
    random = returns(lambda obs: rng.uniform(-2, 2, (len(obs), 1)), starts)
    best, mine = returns(gain, starts), returns(lambda obs: act(jnp.asarray(obs)), starts)
    score = 100 * (mine - random) / (best - random)
    print(f"normalised score {score:.2f}")
    assert score >= 95
