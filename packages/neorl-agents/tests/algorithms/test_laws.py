"""The laws that every entry of ``ALGORITHMS`` keeps, and bad hyperparameters by name."""

import inspect
import re
from dataclasses import fields
from functools import partial

import jax
import pytest

from neorl_agents import ALGORITHMS, TD3BCLag
from neorl_agents.algorithms.model_based._soft_rollouts import Rollouts
from neorl_agents.learning import Networks, Steps, for_run
from neorl_agents.policies import NetworkPolicy
from neorl_agents.testing import algorithm_laws, sized
from neorl_core import InputError

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


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hidden", ()),
        ("hidden", (8, 0)),
        ("hidden", (8.5,)),
        ("batch_size", 0),
        ("batch_size", 2.5),
        ("graph", "tank1"),
        ("graph", (1,)),
    ],
)
def test_bad_shapes_are_refused_by_name(name, field, value):
    words = rf"{ALGORITHMS[name].__name__}\.{PLACES[field]}\.{field} must be"
    with pytest.raises(ValueError, match=words):
        sized(ALGORITHMS[name](), **{field: value}).validate()


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


BAD = {
    "bc": {
        "learning_rate": [0.0, -1.0, float("nan"), "fast", True],
        "optimiser": ["adamm"],
        "variant": ["mixed"],
        "fraction": [0.0, 1.5],
        "n_components": [0, 1.5],
    },
    "td3_bc": {
        "alpha": [-1.0, float("inf")],
        "discount": [-0.1, 1.1, float("nan")],
        "tau": [0.0, 1.5],
        "actor_learning_rate": [0.0],
        "critic_learning_rate": [-1e-3],
        "noise_std": [-0.1],
        "noise_clip": [-0.1],
        "policy_delay": [0, 1.5],
        "reward_scale": ["big"],
        "optimiser": ["", "Adam"],
    },
    "iql": {
        "expectile": [0.0, 1.0, 3.0, float("nan")],
        "inverse_temperature": [-1.0],
        "max_weight": [0.0],
        "discount": [1.01],
        "tau": [0.0],
        "value_learning_rate": [0.0],
        "critic_learning_rate": [0.0],
        "actor_learning_rate": [0.0],
        "decay_updates": [-2, 0.5],
        "variant": ["fql"],
        "advantage_scale": ["range"],
        "reward_scale": ["range"],
        "optimiser": ["adamm"],
    },
}
CRITIC_LEARNER = {
    "discount": [1.01],
    "tau": [0.0],
    "actor_learning_rate": [0.0],
    "critic_learning_rate": [float("nan")],
    "reward_scale": ["range"],
    "optimiser": ["adamm"],
}
BAD["cql"] = CRITIC_LEARNER | {
    "conservative_weight": [-1.0],
    "gap": [-1.0],
    "sample_temperature": [0.0],
    "target_entropy": [float("inf")],
    "temperature_learning_rate": [0.0],
    "multiplier_learning_rate": [0.0],
    "n_samples": [0],
    "density_correction": ["no"],
    "lagrange": [1],
    "entropy_backup": [None],
    "calibrated": ["yes"],
}
BAD["cal_ql"] = BAD["cql"]
WEIGHTS = {"inverse_temperature": [-1.0], "max_weight": [0.0], "advantage_scale": ["range"]}
BAD["awac"] = CRITIC_LEARNER | WEIGHTS | {"variant": ["rlkit"]}
BAD["xql"] = (
    CRITIC_LEARNER
    | WEIGHTS
    | {
        "temperature": [0.0],
        "max_exponent": [0.0],
        "decay_updates": [-2],
        "value_learning_rate": [-1e-3],
    }
)
BAD["rebrac"] = CRITIC_LEARNER | {
    "actor_weight": [-1.0],
    "critic_weight": [-1.0],
    "noise_std": [-0.1],
    "noise_clip": [-0.1],
    "decay_updates": [-2, 0.5],
    "final_weight": [-0.1, 1.5],
    "exploration_std": [-0.1],
    "policy_delay": [0],
}
BAD["sac_n"] = CRITIC_LEARNER | {
    "target_entropy": [float("nan")],
    "temperature_learning_rate": [0.0],
    "n_critics": [1],
}
BAD["bc_safe"] = BAD["bc"] | {"margin": [0.0, -1.0]}
PRICED = {name: [-0.1, float("inf")] for name in ("kp", "ki", "kd")}
PRICED |= {"largest": [0.0], "allowed_violations": [0.0, float("nan")]}
BAD["td3_bc_lag"], BAD["iql_lag"] = BAD["td3_bc"] | PRICED, BAD["iql"] | PRICED
SHARED = ("optimiser", "reward_scale", "actor_learning_rate", "discount")
OWN = {name: CRITIC_LEARNER[name] for name in SHARED}
BAD["cpq"] = (
    CRITIC_LEARNER
    | {key: [0.0] for key in ("model_learning_rate", "penalty_learning_rate", "allowed_violations")}
    | {"kl_weight": [-1.0], "ood_quantile": [0.0, 1.0], "ood_level": [0.9], "n_samples": [0]}
)
BAD["bcq_lag"] = CRITIC_LEARNER | PRICED | {
    "phi": [-0.1], "least_weight": [-0.1, 1.1], "kl_weight": [-1.0], "costly": ["mean"],
    "model_learning_rate": [0.0], "n_samples": [0, 2.5],
}  # fmt: skip
BAD["fisor"] = (
    CRITIC_LEARNER
    | {key: [0.0, 1.0] for key in ("cost_expectile", "expectile")}
    | {key: [-1.0] for key in ("inverse_temperature", "cost_inverse_temperature")}
    | {key: [0.0] for key in ("max_weight", "max_cost_weight", "violation")}
    | {"value_learning_rate": [0.0]}
)
BAD["coptidice"] = OWN | {
    key: [0.0]
    for key in ("alpha", "allowed_violations", "nu_learning_rate", "multiplier_learning_rate")
}
BAD["fql"] = CRITIC_LEARNER | {
    "alpha": [-1.0], "flow_steps": [0, 1.5], "aggregate": ["max"], "normalised": ["yes"],
}  # fmt: skip
BAD["sac"] = {name: values for name, values in BAD["sac_n"].items() if name != "n_critics"}
BAD["td3"] = {name: values for name, values in BAD["td3_bc"].items() if name != "alpha"}
BAD["td3"] |= {"exploration_std": [0.0]}
BAD["reinforce"] = {key: OWN[key] for key in ("optimiser", "reward_scale", "discount")} | {
    "actor_learning_rate": [0.0], "value_learning_rate": [-1.0], "entropy_weight": [-0.1],
    "follow": [0.0, 1.5], "actions": ["any"], "rollout": [0, 2.5],
}  # fmt: skip
BAD["ppo"] = {key: BAD["reinforce"][key] for key in BAD["reinforce"] if "learning" not in key} | {
    "learning_rate": [0.0], "clip": [0.0], "trace": [1.1], "value_weight": [-1.0],
    "decay_updates": [-2, 0.5], "epochs": [0], "minibatches": [0],
}  # fmt: skip
BAD["dqn"] = {key: OWN[key] for key in ("optimiser", "reward_scale", "discount")} | {
    "learning_rate": [0.0], "priority": [-0.1, 1.1], "importance": [1.5], "exploration": [0.0],
    "final_epsilon": [-0.1], "decay_updates": [-2], "copy_every": [0], "double": [1],
    "dueling": ["no"], "collect": [0],
}  # fmt: skip
BAD["ppo_lag"], BAD["reinforce_lag"] = BAD["ppo"] | PRICED, BAD["reinforce"] | PRICED
BAD["dt"] = {
    "aim": [-0.1, float("nan")], "learning_rate": [0.0], "predictor_learning_rate": [-1.0],
    "warmup_updates": [-1, 0.5], "heads": [0, 3],
}  # fmt: skip
BAD["cdt"] = BAD["dt"] | {
    "cost_weight": [-1.0], "target_entropy": [float("nan")], "temperature_learning_rate": [0.0],
}  # fmt: skip
BAD["caps"] = CRITIC_LEARNER | {
    "expectile": [0.0, 1.0], "cost_expectile": [0.0, 1.0], "inverse_temperature": [-1.0],
    "max_weight": [0.0], "value_learning_rate": [0.0], "allowed_violations": [0.0],
    "n_heads": [1, 2.5], "predictor_learning_rate": [0.0],
}  # fmt: skip
BAD["edac"] = BAD["sac_n"] | {"diversity_weight": [-1.0]}
SOFT = CRITIC_LEARNER | {
    "target_entropy": [float("nan")],
    "temperature_learning_rate": [0.0],
    "model_updates": [0],
    "share": [-0.1, 1.5],
    "length": [0],
    "starts": [0, 1.5],
    "every": [0],
    "capacity": [100],
}
BAD["mopo"] = SOFT | {"penalty_weight": [-1.0]}
BAD["mobile"] = BAD["mopo"] | {"n_samples": [0]}
BAD["combo"] = SOFT | {"conservative_weight": [-1.0], "n_samples": [0], "states": ["log"]}
BAD["rambo"] = SOFT | {"adversarial_weight": [-1.0], "model_learning_rate": [0.0]}
BAD["morel"] = SOFT | {"halt_margin": [-1.0], "halt_cost": [float("inf")]}
for fields_of in BAD.values():
    fields_of |= {"encoder": ["lstm", ""], "history_steps": [0, 2.5], "kind": ["resnet"]}
    fields_of |= {"n_step": [0, 1.5], "optimiser": ["adamm"], "reward_scale": ["range"]}
CASES = [
    (name, field, value)
    for name, of in BAD.items()
    for field, values in of.items()
    for value in values
]


@pytest.mark.parametrize(("name", "field", "value"), CASES)
def test_bad_values_are_refused_by_name(name, field, value, problem):
    algorithm = sized(ALGORITHMS[name](), **{field: value})
    nested = field in PLACES and not hasattr(algorithm, field)
    where = rf"{PLACES[field]}\.{field}" if nested else field
    with pytest.raises(ValueError, match=rf"{ALGORITHMS[name].__name__}\.{where} must be .*, got"):
        algorithm.init(problem.spec, problem.statistics, jax.random.key(0))


def test_every_field_is_described():
    """Under *Attributes* of its class, where the help of the commands and the pages find it."""
    for name, kind in ALGORITHMS.items():
        texts = [inspect.cleandoc(base.__dict__.get("__doc__") or "") for base in kind.__mro__]
        described = set(re.findall(r"(?m)^    (\w+): \S", "\n".join(texts)))
        missing = {field.name for field in fields(kind)} - described
        assert not missing, (
            f"describe {sorted(missing)} under Attributes of {kind.__name__} ({name})"
        )


def test_every_field_is_checked():
    for name, kind in ALGORITHMS.items():
        parts = {"networks", "steps", "multiplier", "rollouts"}
        nested = {field.name for field in fields(kind)} & parts
        own = {field.name for field in fields(kind)} - nested - {"model"}  # its own tests check it
        own |= {field for field, part in PLACES.items() if part in nested}
        unchecked = own - set(BAD[name]) - {"hidden", "batch_size", "graph"}
        assert not unchecked, (
            f"refuse bad values of {sorted(unchecked)} in check() of {name}, and add one to "
            f"BAD[{name!r}] above"
        )
