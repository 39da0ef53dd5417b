"""Fine-tuning on a plant small enough to follow by hand."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents import BC, IQL, CalQL, ReBRAC
from neorl_agents.sampling import returns_to_go
from neorl_agents.testing import sized
from neorl_core import Channel, InputError, Transition, as_arrays
from neorl_core.control import ConstantPolicy
from neorl_core.replay import ring_order
from neorl_envs import collect_log
from neorl_safety.constraints import action_constraints
from neorl_train import fine_tune, train
from neorl_train.configuration import FineTuningConfig
from neorl_train.judging import rollouts
from neorl_train.runs import Checkpoints, tree_digest
from neorl_train.training import Plan, online_counts

SMALL = {"hidden": (8,), "batch_size": 8}
SETTINGS = FineTuningConfig(environments=2, warm_up=24, capacity=200, updates_per_step=1)
PLAN = Plan(120, 60, 60)
PENALTY = {"load": 0.5, "peak": 0.25}


class Scaled(eqx.Module):
    """The toy plant with the reward in another unit."""

    plant: object
    factor: float = eqx.field(static=True)

    def __getattr__(self, name):
        return getattr(self.plant, name)

    def step(self, params, state, action, key):
        state, step = self.plant.step(params, state, action, key)
        return state, step._replace(reward=step.reward * self.factor)


@pytest.fixture(scope="module")
def plant(toy):
    return toy.Line(noise=0.1, horizon=6, peak_limit=1.5, trip=4.0)


def logged(plant):
    return collect_log(plant, n_steps=200, key=jax.random.key(5), spread=0.1)


def penalised(log, factor=1.0):
    rows = log.transitions
    weights = factor * np.array(list(PENALTY.values()), np.float32)
    reward = np.asarray(rows.reward * np.float32(factor) - rows.cost @ weights, np.float32)
    return dataclasses.replace(log, transitions=rows._replace(reward=reward))


@pytest.fixture(scope="module")
def offline(plant):
    """Offline states of the three learners, and the log they learned from."""
    log = penalised(logged(plant))
    plan = Plan(20, 20, 20)
    return log, functools.cache(lambda kind: train(sized(kind(), **SMALL), log, (3,), plan))


@pytest.fixture(scope="module")
def go_on(plant, offline):
    """Fine-tuning of a learner by the plan, with other settings where they are given."""
    log, before = offline

    def run(kind, plan=PLAN, settings=SETTINGS, **options):
        algorithm, states = sized(kind(), **SMALL), before(kind).states()
        options = {"settings": settings, "penalty": PENALTY, **options}
        return fine_tune(algorithm, states, log, plant, (3,), plan, **options)

    return run


@pytest.fixture(scope="module")
def tuned(go_on):
    """The same, once for each learner."""
    return functools.cache(go_on)


@pytest.fixture(scope="module")
def iql(tuned):
    return tuned(IQL)


def rows_in_order(trained):
    """The buffer's rows, oldest first, with the axes step and episode."""
    (state,) = trained.trainings()
    ring = jax.tree.map(jnp.asarray, state.memory.rows.ring)
    order = np.asarray(ring_order(ring))[: int(ring.size)]
    stored = jax.tree.map(lambda x: np.asarray(x)[order], state.memory.rows.ring.rows)
    envs = SETTINGS.environments
    return jax.tree.map(lambda x: x.reshape(-1, envs, *x.shape[1:]), stored), state


def test_what_is_stored_is_what_the_plant_did(iql, plant):
    """Rows follow one another and obey the plant; the reward is penalised as the log's."""
    stored, state = rows_in_order(iql)
    rows = stored.rows
    steps = 24 // 2 + 1 + PLAN.updates // 2
    assert len(rows.reward) == steps - 1
    assert int(state.memory.counts.steps) == 2 * steps
    ended = rows.terminated | rows.truncated
    goes_on = ~ended[:-1]
    # The compiler may compute one number twice, and round it otherwise.
    for later, now in ((rows.obs, rows.next_obs), (rows.action, rows.next_action)):
        np.testing.assert_allclose(later[1:][goes_on], now[:-1][goes_on], rtol=1e-5)
    assert (rows.next_action[ended] == 0).all()
    assert (np.abs(rows.action) <= 4).all()
    level = rows.next_obs[..., 0]
    cost = np.maximum(level, 0)
    reward = -level - (PENALTY["load"] + PENALTY["peak"]) * cost
    np.testing.assert_allclose(rows.reward, reward, rtol=1e-5, atol=1e-6)
    # x' = pole x + u + noise of 0.1: pole from 0.8 to 0.9 in every episode.
    free = level - rows.action[..., 0]
    assert (np.abs(free - 0.85 * rows.obs[..., 0]) < 0.06 * np.abs(rows.obs[..., 0]) + 0.5).all()
    np.testing.assert_array_equal(rows.terminated, level > 4.0)
    assert stored.mc_return is None


def test_what_happened_is_counted(iql):
    """Episodes, returns, broken limits and trips, by a loop over the rows of whole episodes."""
    stored, state = rows_in_order(iql)
    waiting = jax.tree.map(lambda x: np.asarray(x)[None], state.memory.rows.pending)
    rows = jax.tree.map(
        lambda a, b: np.concatenate([a, b]),
        stored.rows._replace(next_action=None),
        waiting,
    )
    episodes, returns, broken, trips = 0, 0.0, np.zeros(2, int), 0
    for i in range(2):
        levels = []
        for t in range(len(rows.reward)):
            levels.append(rows.next_obs[t, i, 0])
            if rows.terminated[t, i] or rows.truncated[t, i]:
                cost = np.maximum(levels, 0)
                episodes, returns = episodes + 1, returns - float(np.sum(levels))
                broken += [cost.sum() > 30.0, cost.max() > 1.5]
                trips += bool(rows.terminated[t, i])
                levels = []
    (counts,) = online_counts(iql)
    assert int(counts.episodes) == episodes > 5
    np.testing.assert_allclose(counts.returns, returns, rtol=1e-4)
    np.testing.assert_array_equal(counts.violated, broken)
    assert int(counts.violated[1]) > 0
    assert int(counts.trips) == trips
    assert int(counts.filtered) == int(counts.fallback) == 0


@pytest.mark.nightly
def test_cal_ql_bounds_online_rows_as_those_of_a_log(tuned, offline):
    """Rows of ended episodes have the return that the log's rule gives; others none yet."""
    log, _ = offline
    stored, _ = rows_in_order(tuned(CalQL))
    mean = float(np.asarray(log.transitions.reward, np.float64).mean())
    for i in range(2):
        mine = jax.tree.map(lambda x, i=i: x[:, i], stored)
        ends = np.flatnonzero(mine.rows.terminated | mine.rows.truncated)
        whole = int(ends[-1]) + 1
        episodes = jax.tree.map(lambda x, whole=whole: x[:whole], mine.rows)
        # The rule continues a truncated episode with the mean of its own log: ours, put last.
        expected = _returns(episodes, 0.99, mean)
        np.testing.assert_allclose(mine.mc_return[:whole], expected, rtol=1e-4)
        assert np.isneginf(mine.mc_return[whole:]).all()


def _returns(rows, discount, mean):
    filler = Transition(
        np.zeros((1, 1)), np.zeros((1, 1)), np.zeros(1), terminated=np.ones(1, bool),
        truncated=np.zeros(1, bool),
    )  # fmt: skip
    n = len(rows.reward)
    reward = np.concatenate([rows.reward, [(n + 1) * mean - rows.reward.sum()]])
    joined = Transition(
        np.zeros((n + 1, 1)),
        np.zeros((n + 1, 1)),
        reward,
        terminated=np.concatenate([rows.terminated, filler.terminated]),
        truncated=np.concatenate([rows.truncated, filler.truncated]),
    )
    return returns_to_go(joined, discount=discount)[:n]


def test_chunks_and_interruptions_are_not_part_of_the_result(go_on, iql, tmp_path):
    straight = tree_digest(iql.snapshot)
    assert tree_digest(go_on(IQL, Plan(120, 20, 60)).snapshot) == straight

    def checkpoints():
        return Checkpoints(
            tmp_path / "iql", identity={"run": "a"}, interval=60, keep=2, print_line=pytest.fail
        )

    stops = iter([False, True])
    cut = go_on(IQL, checkpoints=checkpoints(), stop=lambda: next(stops, True))
    assert (cut.step, cut.finished) == (60, False)
    whole = go_on(IQL, checkpoints=checkpoints())
    assert (whole.step, whole.finished) == (120, True)
    assert tree_digest(whole.snapshot) == straight


@pytest.mark.parametrize(
    "kind", [IQL, *(pytest.param(kind, marks=pytest.mark.nightly) for kind in (CalQL, ReBRAC))]
)
def test_learners_move_and_their_schedules_begin_anew(tuned, offline, kind):
    _, before = offline
    (old,), (new,) = before(kind).states(), tuned(kind).states()
    assert tree_digest(old.parameters["critics"]) != tree_digest(new.parameters["critics"])
    assert tree_digest(old.parameters["actor"]) != tree_digest(new.parameters["actor"])
    assert tree_digest(old.preparation) == tree_digest(new.preparation)
    assert int(old.updates) == 20 // kind().batches_per_update
    assert int(new.updates) == PLAN.updates // kind().batches_per_update


@pytest.mark.nightly
def test_the_unit_of_the_reward_changes_no_policy(iql, plant, offline):
    """Log, plant and penalties in another unit: were the scale not applied to online rewards too,
    the critics would be told targets 8,192 times too large.
    """
    factor = 2.0**13
    log = penalised(logged(plant), factor)
    other = Scaled(plant, factor)
    before = train(sized(IQL(), **SMALL), log, (3,), Plan(20, 20, 20))
    penalty = {name: factor * weight for name, weight in PENALTY.items()}
    after = fine_tune(
        sized(IQL(), **SMALL),
        before.states(),
        log,
        other,
        (3,),
        PLAN,
        settings=SETTINGS,
        penalty=penalty,
    )
    (mine,), (theirs,) = iql.trainings(), after.trainings()
    critics = [jax.tree.leaves(one.learner.parameters["critics"]) for one in (mine, theirs)]
    for a, b in zip(*critics, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(
        mine.memory.rows.ring.rows.rows.reward * factor,
        theirs.memory.rows.ring.rows.rows.reward,
        rtol=1e-3,
    )


def test_what_is_tried_passes_the_declared_filter(go_on, plant):
    """Box of 0.5 and 0.1 a step: nothing else reaches the plant; what was changed is counted."""
    tight = action_constraints(plant.spec, [(0.1 / 60, 0.1 / 60)], low=[-0.5], high=[0.5])
    steady = ConstantPolicy(jnp.zeros(1))
    stored, state = rows_in_order(go_on(IQL, constraints=tight, fallback=steady))
    action, ended = stored.rows.action, stored.rows.terminated | stored.rows.truncated
    assert (np.abs(action) <= 0.5 + 1e-6).all()
    moved = np.abs(np.diff(action[..., 0], axis=0))[~ended[:-1]]
    assert moved.max() <= 0.1 + 1e-5
    assert int(state.memory.counts.filtered) > 20


def test_another_fine_tuning_traces_nothing(go_on, iql, plant, monkeypatch):
    """Other numbers are the same program."""
    traced, step = [], type(plant).step

    def counted(*arguments):
        traced.append(1)
        return step(*arguments)

    monkeypatch.setattr(type(plant), "step", counted)
    go_on(IQL, penalty={"load": 0.1, "peak": 0.2})
    assert traced == []
    plant.step(*plant_moment(plant))
    assert traced == [1]


def plant_moment(plant):
    key = jax.random.key(0)
    params = plant.sample_params(key)
    return params, plant.reset(params, key)[0], jnp.zeros(1), key


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"capacity": 4}, r"capacity is 4, smaller than a batch of IQL \(8 rows\)"),
        ({"warm_up": 3}, "warm_up is 3, and 4 of the 8 rows of a batch of IQL"),
        ({"warm_up": 300}, "warm_up is 300, more than the 200 rows"),
        ({"share": 1.5}, r"share must be a number in \[0, 1\], got 1.5"),
        ({"environments": 0}, "environments must be an integer of at least 1, got 0"),
        ({"environments": 7}, "chunk is 60; it must be a multiple of 7"),
        ({"variant": "papr"}, "variant of fine-tuning IQL: 'papr'"),
    ],
)
def test_bad_settings_are_refused_by_name(go_on, changes, words):
    with pytest.raises(InputError, match=words):
        go_on(IQL, settings=dataclasses.replace(SETTINGS, **changes))


def test_other_plants_learners_and_seeds_are_refused(plant, offline, toy):
    log, before = offline
    states = before(IQL).states()
    hot = dataclasses.replace(log.spec, obs=(Channel("level", "cm", -10.0, 10.0),))
    in_cm = dataclasses.replace(log, spec=hot)
    with pytest.raises(
        InputError, match=r"Line-v0 has the observed channel .* m\), where .*simulator of"
    ):
        fine_tune(sized(IQL(), **SMALL), states, in_cm, plant, (3,), PLAN, settings=SETTINGS)
    nameless = dataclasses.replace(log.spec, obs=(Channel("obs_0", "?", -1.0, 1.0),))
    other = dataclasses.replace(log, spec=nameless)
    with pytest.raises(
        InputError, match=r"have obs_0 \(-1 to 1 \?\); the log's file does not state"
    ):
        fine_tune(sized(IQL(), **SMALL), states, other, plant, (3,), PLAN, settings=SETTINGS)
    with pytest.raises(InputError, match="Line-v0 has 1 cost channels"):
        fine_tune(
            sized(IQL(), **SMALL), states, log, toy.Line(costs=1), (3,), PLAN, settings=SETTINGS
        )
    with pytest.raises(
        InputError, match="BC cannot be fine-tuned online, because it has no explore"
    ):
        fine_tune(sized(BC(), **SMALL), states, log, plant, (3,), PLAN, settings=SETTINGS)
    with pytest.raises(InputError, match="there are 1 states for 2 seeds"):
        fine_tune(sized(IQL(), **SMALL), states, log, plant, (3, 4), PLAN, settings=SETTINGS)


@pytest.mark.nightly
def test_a_share_of_one_learns_from_the_log_alone(go_on):
    """Other rewards of the plant are stored, and change no bit of the learner."""
    settings = dataclasses.replace(SETTINGS, share=1.0)
    (mine,), (theirs,) = (
        go_on(IQL, settings=settings, penalty=penalty).trainings()
        for penalty in (PENALTY, {"load": 0.0, "peak": 0.0})
    )
    assert tree_digest(mine.learner) == tree_digest(theirs.learner)
    stored, other = (state.memory.rows.ring.rows.rows.reward for state in (mine, theirs))
    assert (np.asarray(stored) <= np.asarray(other)).all()
    assert (np.asarray(stored) < np.asarray(other)).any()


@pytest.mark.nightly
@pytest.mark.parametrize("kind", [IQL, CalQL, ReBRAC])
def test_what_is_learned_online_is_better_than_the_log(plant, kind):
    """The lower the level the more is earned, and no controller of the log goes below zero."""
    log = penalised(logged(plant))
    rates = {name: 1e-3 for name in ("actor_learning_rate", "critic_learning_rate")}
    # The weight of locomotion keeps the policy at the log for longer than these updates.
    own = {"conservative_weight": 1.0} if kind is CalQL else {}
    learner = sized(kind(**own), hidden=(32, 32), batch_size=64, tau=0.02, discount=0.9, **rates)
    before = train(learner, log, (0,), Plan(2000, 500, 2000))
    settings = dataclasses.replace(SETTINGS, environments=4, warm_up=400, capacity=20_000)
    after = fine_tune(
        learner, before.states(), log, plant, (0,), Plan(8000, 1000, 8000), settings=settings,
        penalty=PENALTY,
    )  # fmt: skip

    def earned(policy):
        rows = rollouts(plant, as_arrays(policy), jax.random.key(9), jnp.arange(64))
        reward = np.asarray(rows.reward) - np.asarray(rows.cost) @ np.array([0.5, 0.25])
        return np.where(rows.mask, reward, 0).sum(axis=1)

    gain = earned(after.policies[0]) - earned(before.policies[0])
    assert gain.mean() > 3 * gain.std() / 8, gain.mean()
