"""The laws that every entry of ``ALGORITHMS`` keeps, and hyperparameters that it refuses."""

import inspect
import re
from dataclasses import fields, is_dataclass
from functools import partial

import jax
import pytest

from neorl_agents import ALGORITHMS, IQL, TD3BCLag
from neorl_agents.algorithms.model_based._soft_rollouts import Rollouts
from neorl_agents.learning import Networks, Steps, for_run
from neorl_agents.policies import NetworkPolicy
from neorl_agents.testing import algorithm_laws, sized
from neorl_core import InputError
from neorl_core.infrastructure import range_of
from neorl_core.testing import check_ranges

SMALL = {"hidden": (8,), "batch_size": 32}
MULTIPLIER = type(TD3BCLag().multiplier)
PLACES = {
    field.name: part
    for part, settings in (
        ("networks", Networks),
        ("steps", Steps),
        ("multiplier", MULTIPLIER),
        ("rollouts", Rollouts),
    )
    for field in fields(settings)
}


def small(name, **settings):
    """A learner with small networks, and with a small model where it has one."""
    learner = sized(ALGORITHMS[name](), **SMALL, **settings)
    if name not in MODEL_BASED:
        return learner
    return sized(learner, model=sized(learner.model, members=2, elites=2, **SMALL))


MODEL_BASED = {"mopo", "mobile", "combo", "rambo", "morel"}
SAFE = {name for name in ALGORITHMS if ALGORITHMS[name].keeps_limits}
SEQUENCES = {"cdt", "dt"}
FAMILIES = ("bc", "bc_gru", "td3_bc", "iql", "td3_bc_lag", "mopo", "dt")
"""One of each family keeps all laws by day: cloning, memory, a policy that climbs a critic,
weighted regression, cost limits, rollouts in a model, and sequences. Any other learner has an
update beside recorded numbers or its equations by day, and its laws by night."""
SHORT = {"dt": {"history_steps": 3}, "cdt": {"history_steps": 3, "heads": 2}}
# Batches of a log, as the laws draw them, are nothing to those that need rollouts.
LOGGED = [name for name in ALGORITHMS if not ALGORITHMS[name].needs_rollouts]
EVERY = {name: partial(small, name, **SHORT.get(name, {})) for name in LOGGED}
LEARNERS = EVERY | {
    f"{name}_{encoder}": partial(small, name, encoder=encoder, history_steps=3)
    for name in LOGGED
    if name not in SEQUENCES
    for encoder in ("history", "gru")
}
LEARNERS["td3_bc_history"] = partial(LEARNERS["td3_bc_history"], n_step=2)
LEARNERS["iql_n_step"] = partial(small, "iql", n_step=3)
LEARNERS["awac_original"] = partial(small, "awac", variant="original")
LEARNERS["bc_gaussian_filtered"] = partial(small, "bc", variant="gaussian", fraction=0.5)
LEARNERS["bc_mixture"] = partial(small, "bc", variant="mixture", n_components=3)


def laws_of(learners):
    return {
        f"{name}-{law}": check
        for name in learners
        for law, check in algorithm_laws(LEARNERS[name]).items()
    }


LAWS, NIGHTLY = laws_of(FAMILIES), laws_of(sorted(LEARNERS.keys() - {*FAMILIES}))


@pytest.mark.nightly
@pytest.mark.parametrize("law", NIGHTLY.values(), ids=NIGHTLY)
def test_law_by_night(law):
    law()


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_law(law):
    """Row E02: a state is arrays that pass through compiled functions."""
    law()


def begun(learner, problem):
    return learner.init(problem.spec, problem.statistics, jax.random.key(0))


def test_policies_of_all_learners_share_one_program(problem):
    """But for sequences, noise and latents, a choice among heads, and values before a choice.

    Row E07: deterministic policies of all learners act in one compiled program.
    """
    structures = set()
    for name in ALGORITHMS.keys() - SEQUENCES - {"caps", "bcq_lag", "fql", "dqn"}:
        learner = for_run(sized(ALGORITHMS[name](), **SMALL), 1)
        policy = jax.eval_shape(lambda learner=learner: learner.policy(begun(learner, problem)))
        assert isinstance(policy, NetworkPolicy)
        structures.add(jax.tree.structure(policy))
    assert len(structures) == 1


@pytest.mark.parametrize(
    ("field", "value"), [("hidden", (8, 0)), ("graph", "tank1"), ("graph", (1,))]
)
def test_bad_shapes_are_refused_by_name(field, value):
    with pytest.raises(ValueError, match=rf"IQL\.networks\.{field} must be"):
        sized(IQL(), **{field: value}).validate()


@pytest.mark.parametrize("name", sorted(SAFE))
def test_a_learner_of_limits_refuses_a_plant_without_costs(name, problem_without_costs):
    plain = for_run(sized(ALGORITHMS[name](), **SMALL), 1)
    words = f"{ALGORITHMS[name].__name__} learns to keep cost limits, but the plant has no costs; "
    with pytest.raises(InputError, match=words):
        plain.init(problem_without_costs.spec, problem_without_costs.statistics, jax.random.key(0))


@pytest.mark.parametrize("name", sorted(set(ALGORITHMS) - SAFE))
def test_costs_play_no_part(name, problem_without_costs):
    plain = for_run(sized(ALGORITHMS[name](), **SMALL), 1)
    jax.eval_shape(lambda: begun(plain, problem_without_costs))
    assert "cost" not in plain.fields


MEANINGS = {
    "in [0, 1]": "discount share",
    "in (0, 1]": "tau",
    "in (0, 1)": "expectile cost_expectile",
    "in [-20, 20]": "target_entropy",
    "above 0": "learning_rate max_weight allowed_violations largest",
    "at least -1": "decay_updates",
    "at least 0": "inverse_temperature noise_std kp",
    "at least 1": "policy_delay n_samples hidden batch_size n_step history_steps",
    "at least 2": "n_critics",
}
BY_FIELD = {field: text for text, of in MEANINGS.items() for field in of.split()}
"""What the fields of these names may be in every learner, written down a second time."""
EXCEPT = {"coptidice.discount": "in [0, 1)", "cdt.target_entropy": "finite"}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_values_out_of_range_are_refused_by_name(name):
    check_ranges(ALGORITHMS[name](), lambda learner: learner.validate())


def ranges(options, where=""):
    for field in fields(options):
        value, name = getattr(options, field.name), f"{where}{field.name}"
        if is_dataclass(value):
            yield from ranges(value, f"{name}.")
        else:
            yield name, range_of(type(options), field.name)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_field_means_the_same_in_every_learner(name):
    for field, declared in ranges(ALGORITHMS[name]()):
        last = field.rpartition(".")[2]
        kind = "learning_rate" if last.endswith("learning_rate") else last
        text = declared.text if declared else ""
        assert text == EXCEPT.get(f"{name}.{field}", BY_FIELD.get(kind, text)), field


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("bc", "kind", "resnet"),
        ("iql", "optimiser", "adamm"),
        ("td3_bc", "optimiser", ""),
        ("dt", "heads", 3),
        ("cdt", "encoder", "none"),
        ("ppo", "encoder", "gru"),
        ("dqn", "encoder", "history"),
        ("mopo", "capacity", 100),
    ],
)
def test_fields_that_do_not_fit_each_other_are_refused_by_name(name, field, value, problem):
    learner = sized(ALGORITHMS[name](), **{field: value})
    where = rf"{PLACES[field]}\.{field}" if field in PLACES else field
    with pytest.raises(ValueError, match=rf"{ALGORITHMS[name].__name__}\.{where} must be .*, got"):
        learner.init(problem.spec, problem.statistics, jax.random.key(0))


def test_every_field_is_described():
    """Under *Attributes* of its class, where the help of the commands and the pages find it."""
    for name, kind in ALGORITHMS.items():
        texts = [inspect.cleandoc(base.__dict__.get("__doc__") or "") for base in kind.__mro__]
        described = set(re.findall(r"(?m)^    (\w+): \S", "\n".join(texts)))
        missing = {field.name for field in fields(kind)} - described
        assert not missing, (
            f"describe {sorted(missing)} under Attributes of {kind.__name__} ({name})"
        )
