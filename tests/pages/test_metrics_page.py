"""The reference page of the metrics names every metric that the code reports, and its learners."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from neorl_agents import ALGORITHMS, CQL, CalQL
from neorl_agents.learning import for_run
from neorl_agents.models import ModelRollouts
from neorl_agents.testing import fresh_state, make_problem, sized
from neorl_train.judging import PolicyValidation
from neorl_train.training import Counts, online_metrics

PAGE = Path(__file__).resolve().parents[2] / "docs/pages/reference/metrics.md"
VARIANTS = {"cql": CQL(lagrange=True), "cal_ql": CalQL(lagrange=True)}
"""Learners that report more with another setting."""
DAILY = {"bc", "iql", "coptidice", "mopo", "ppo_lag", "dqn"}
WORLDS = 8


def rows(text: str) -> dict[str, tuple[str, ...]]:
    """The learners in the last column of the tables, by the name in the first one.

    A group of learners stands for those that its line names, but for those named after "but".
    """
    lines = re.findall(r"(?m)^- \*(\w+)\*: (`.+`)$", text)
    groups = {group: re.findall(r"`(\w+)`", learners) for group, learners in lines}

    def learners(cell: str) -> Iterator[str]:
        for part in cell.split(", "):
            whole, _, but = part.partition(" but ")
            named = re.fullmatch(r"\*(\w+)\*", whole.strip())
            members = groups[named[1]] if named else re.findall(r"`(\w+)`", whole)
            yield from (name for name in members if f"`{name}`" not in but)

    cells = re.findall(r"(?m)^\| `(\w+)` \|.*\|([^|]*)\|$", text)
    return {name: tuple(learners(cell)) for name, cell in cells}


def names_of(learner: Any) -> set[str]:
    """The metrics of an update, which is traced and not run."""
    learner, problem = for_run(sized(learner, batch_size=32), 100), make_problem()
    if learner.needs_rollouts and not hasattr(learner, "priority"):
        log = problem.log._replace(mask=None)
        batch = jax.tree.map(lambda x: x.reshape(WORLDS, -1, *x.shape[1:]), log)
    else:
        batch = problem.batch(learner)

    def metrics(batch: Any) -> Any:
        state = fresh_state(learner, problem)
        return learner.update(state, batch, jax.random.key(0))[1]

    return set(jax.eval_shape(metrics, batch))


def model_names() -> set[str]:
    """The metrics of rollouts in a model."""
    zero = jnp.zeros(())
    memory: Any = SimpleNamespace(reward=zero, disagreement=zero, ended=zero)
    return set(ModelRollouts.metrics(None, memory))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "name",
    [pytest.param(one, marks=() if one in DAILY else pytest.mark.nightly) for one in ALGORITHMS],
)
def test_the_page_has_every_metric_of_a_learner_and_no_other(name: str) -> None:
    reported = names_of(ALGORITHMS[name]())
    if name in VARIANTS:
        reported |= names_of(VARIANTS[name])
    if ALGORITHMS[name]().fits():
        reported |= model_names()
    shown = {metric for metric, learners in rows(PAGE.read_text()).items() if name in learners}
    assert shown == reported


def test_every_learner_on_the_page_is_one() -> None:
    named = {name for learners in rows(PAGE.read_text()).values() for name in learners}
    assert named == set(ALGORITHMS)


def test_the_page_has_the_metrics_of_a_plant_and_of_validations() -> None:
    spec = make_problem().spec
    counts = Counts(*(jnp.zeros((), jnp.int32) for _ in Counts._fields))
    counts = counts._replace(violated=jnp.zeros(spec.n_cost, jnp.int32))
    online = {re.sub("_violated_.*", "_violated_NAME", one) for one in online_metrics(spec, counts)}
    module = inspect.getmodule(PolicyValidation)
    assert module is not None
    source = inspect.getsource(module)
    literals = set(re.findall(r'"((?:held_out|plant)_\w+)"', source))
    validated = literals | ({"plant_cost_NAME"} if 'f"plant_cost_{name}"' in source else set())
    assert online | validated == {
        name for name, learners in rows(PAGE.read_text()).items() if not learners
    }
