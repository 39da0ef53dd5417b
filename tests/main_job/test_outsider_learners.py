"""Learners of three further kinds, written from the page alone: costs, own experience, a model."""

import dataclasses
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents import IQL, TD3BC
from neorl_agents.learning import Networks
from neorl_agents.testing import algorithm_laws, sized
from neorl_core import InputError
from neorl_envs import collect_log
from neorl_envs.scoring import score_episodes, scores
from neorl_train import train, train_online
from neorl_train.configuration import FineTuningConfig
from neorl_train.runs import Checkpoints
from neorl_train.training import Plan, online_counts

SOURCES = Path(__file__).parents[1] / "outsider" / "src"
SMALL = {"hidden": (8, 8), "batch_size": 32}
PLAN = Plan(40, 10, 10)


@pytest.fixture(scope="module")
def outsider() -> Iterator[Any]:
    """Its modules, imported from their folder."""
    sys.path.insert(0, str(SOURCES))
    try:
        from outsider import actor_critic, imagined, lagrangian, neubay, tank

        yield SimpleNamespace(
            ActorCritic=actor_critic.ActorCritic,
            Imagined=imagined.Imagined,
            Lagrangian=lagrangian.Lagrangian,
            Neubay=neubay.Neubay,
            Tank=tank.Tank,
        )
    finally:
        sys.path.remove(str(SOURCES))


def small(outsider: Any, name: str) -> Any:
    learner = sized(getattr(outsider, name)(), **SMALL)
    if name == "Imagined":
        model = sized(learner.model, hidden=(8,), batch_size=32, members=2)
        learner = dataclasses.replace(learner, model=model, model_updates=20, starts=8)
    if name == "Neubay":
        model = sized(learner.model, hidden=(8,), batch_size=32, members=4)
        settings = {"length": 12, "starts": 8, "every": 10, "capacity": 192}
        rollouts = dataclasses.replace(learner.rollouts, **settings)
        learner = dataclasses.replace(learner, model=model, model_updates=20, rollouts=rollouts)
    return learner


def stored(folder: Path) -> Checkpoints:
    return Checkpoints(folder, identity={"run": "a"}, interval=10, keep=2, print_line=pytest.fail)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["Lagrangian", "ActorCritic", "Imagined", "Neubay"])
def test_it_keeps_the_laws_of_learners(outsider: Any, name: str) -> None:
    for law in algorithm_laws(lambda: small(outsider, name)).values():
        law()


@pytest.fixture(scope="module")
def log(outsider: Any) -> Any:
    return collect_log(outsider.Tank(), n_steps=600, key=jax.random.key(0), spread=0.1)


@pytest.mark.parametrize(
    ("name", "limits"),
    [
        pytest.param("Lagrangian", (1, 1), marks=pytest.mark.nightly),
        ("Imagined", (1, 3)),
        pytest.param("Neubay", (1, 3), marks=pytest.mark.nightly),
    ],
)
def test_interrupted_it_resumes_to_the_bit(
    outsider: Any, log: Any, name: str, limits: tuple[int, ...], tmp_path: Path
) -> None:
    """Stopped twice; the model-based one first while its model is fitted."""
    learner = small(outsider, name)
    straight = train(learner, log, (0, 1), PLAN)
    for limit in limits:
        asked: list[int] = []
        part = train(
            learner, log, (0, 1), PLAN,
            checkpoints=stored(tmp_path),
            stop=lambda asked=asked, limit=limit: asked.append(1) or len(asked) > limit,
        )  # fmt: skip
        assert not part.finished
    resumed = train(learner, log, (0, 1), PLAN, checkpoints=stored(tmp_path))
    assert resumed.finished
    chex.assert_trees_all_equal(resumed.snapshot, straight.snapshot)


def test_the_model_that_is_named_is_fitted_on_the_log_first(outsider: Any, log: Any) -> None:
    learner = small(outsider, "Imagined")
    (state,) = train(learner, log, (0,), PLAN).states()
    model = state.context["model"]
    assert int(model.updates) == 20
    alone = train(learner.model, log, (0,), Plan(20, 10, 10)).states()[0]
    shapes = [jax.tree.map(jnp.shape, one.parameters) for one in (model, alone)]
    assert shapes[0] == shapes[1]
    obs, action = (np.asarray(x)[0] for x in (log.transitions.obs, log.transitions.action))
    step = learner.model.predict(model, obs, action, jax.random.key(0))
    assert np.isfinite(step.next_obs).all()


def test_rollouts_end_where_the_members_disagree_unusually(outsider: Any, log: Any) -> None:
    """None at the largest disagreement of the log's own rows, nearly all at the smallest.

    The rewards are the model's: no pessimism takes anything off them.
    """
    cost_free = dataclasses.replace(log, spec=dataclasses.replace(log.spec, cost=()))
    cost_free = dataclasses.replace(
        cost_free,
        transitions=log.transitions._replace(cost=np.zeros((log.n_rows, 0), np.float32)),
    )
    shares = []
    for quantile in (0.0, 0.5, 1.0):
        learner = dataclasses.replace(small(outsider, "Neubay"), quantile=quantile)
        (training,) = train(learner, cost_free, (0,), Plan(10, 10, 10)).trainings()
        rows = jax.tree.map(np.asarray, training.memory.ring.rows.rows)
        kept = slice(0, int(training.memory.ring.size))
        inner = rows.truncated[kept].reshape(-1, 12, 8)[:, :-1]
        assert not (rows.truncated & rows.terminated).any()
        shares.append(inner.mean())
    assert shares[0] > 0.9
    assert shares[0] > shares[1] > shares[2]


def test_costs_of_the_log_reach_the_multiplier(outsider: Any, log: Any) -> None:
    """With a limit that the log breaks the multiplier rises; with a wide one it stays at zero."""
    ends = {}
    rows = log.transitions._replace(cost=np.full_like(log.transitions.cost, 0.3))
    for limit in (0.0, 1e6):
        cost = dataclasses.replace(log.spec.cost[0], limit=limit)
        spec = dataclasses.replace(log.spec, cost=(cost,))
        limited = dataclasses.replace(log, transitions=rows, spec=spec)
        (state,) = train(small(outsider, "Lagrangian"), limited, (0,), PLAN).states()
        ends[limit] = float(state.parameters["multipliers"][0])
    assert ends[0.0] > 0
    assert ends[1e6] == 0


ONLINE = FineTuningConfig(environments=16)
PAGE = Path(__file__).parents[2] / "docs" / "pages" / "how-to" / "extend.md"


def test_from_rollouts_alone_it_learns_to_beat_the_controller(outsider: Any) -> None:
    """By the very lines of the page."""
    (lines,) = re.findall(r"```python\n([^`]*train_online\(.*?)```", PAGE.read_text(), re.DOTALL)
    names = {"ActorCritic": outsider.ActorCritic, "Tank": outsider.Tank}
    exec(lines, names)
    trained, plan = names["trained"], names["plan"]
    learner, plant = trained.algorithm, outsider.Tank()
    keys = jax.random.split(jax.random.key(9), 64)
    reference = plant.tunings()[plant.reference]
    earned = [
        np.mean(scores(plant, score_episodes(plant, policy, keys)))
        for policy in (*trained.policies, reference)
    ]
    assert min(earned[:2]) > earned[2]
    steps = plan.updates * learner.rollout * FineTuningConfig().environments
    assert [int(counts.steps) for counts in online_counts(trained)] == [steps, steps]


def test_rollouts_go_on_where_the_last_update_left_the_episodes(outsider: Any) -> None:
    """Rows of a batch follow one another, and so do batches, but for the ends of episodes."""
    learner = sized(outsider.ActorCritic(), hidden=(8,))
    memories = []
    for updates in (1, 2):
        plan = Plan(updates, 1, updates)
        (training,) = train_online(
            learner, outsider.Tank(), (0,), plan, settings=ONLINE
        ).trainings()
        memories.append(training.memory.rows)
    first, second = memories
    assert first.obs.shape == (learner.rollout, 16, 1)
    for rows in memories:
        ended = rows.terminated | rows.truncated
        np.testing.assert_allclose(rows.obs[1:][~ended[:-1]], rows.next_obs[:-1][~ended[:-1]])
    goes_on = ~(first.terminated | first.truncated)[-1]
    assert goes_on.any()
    np.testing.assert_allclose(second.obs[0][goes_on], first.next_obs[-1][goes_on])


def test_trained_online_it_resumes_to_the_bit(outsider: Any, tmp_path: Path) -> None:
    learner, plant = small(outsider, "ActorCritic"), outsider.Tank()
    straight = train_online(learner, plant, (0, 1), PLAN, settings=ONLINE)
    asked: list[int] = []
    part = train_online(
        learner, plant, (0, 1), PLAN, settings=ONLINE,
        checkpoints=stored(tmp_path),
        stop=lambda: asked.append(1) or len(asked) > 2,
    )  # fmt: skip
    assert 0 < part.step < PLAN.updates
    resumed = train_online(
        learner, plant, (0, 1), PLAN, settings=ONLINE, checkpoints=stored(tmp_path)
    )
    chex.assert_trees_all_equal(resumed.snapshot, straight.snapshot)


def test_what_cannot_be_trained_online_is_refused(outsider: Any) -> None:
    for learner, words in (
        (TD3BC(), "TD3BC cannot be trained on a plant: it has no method explore"),
        (sized(outsider.ActorCritic(), **SMALL), "must be an integer of at least 1"),
    ):
        settings = FineTuningConfig(environments=0)
        with pytest.raises(InputError, match=words):
            train_online(learner, outsider.Tank(), (0,), PLAN, settings=settings)


def test_a_module_of_equinox_is_a_kind_of_network(log: Any) -> None:
    """By the lines of the page."""
    (lines,) = re.findall(r"```python\n([^`]*module_kind\(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {"IQL": IQL, "Networks": Networks, "jax": jax}
    exec(lines, names)
    trained = train(sized(names["learner"], **SMALL), log, (0,), PLAN)
    assert trained.finished
