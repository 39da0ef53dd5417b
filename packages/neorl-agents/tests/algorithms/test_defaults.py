"""Defaults and first weights beside those of the codes that results were published with."""

import jax
import numpy as np
import pytest

from neorl_agents import ALGORITHMS, CDT, CQL, IQL, SACN, XQL, ReBRAC
from neorl_agents.learning import for_run, unfinished_schedules
from neorl_agents.networks import MLP, relu, tanh
from neorl_agents.online import for_fine_tuning
from neorl_agents.testing import sized

ALL = {"discount": 0.99, "tau": 0.005}
TWO = {"hidden": (256, 256), "batch_size": 256}
THREE = {"hidden": (256, 256, 256), "batch_size": 256}
RATES = {"actor_learning_rate": 3e-4, "critic_learning_rate": 3e-4}
SMOOTHING = {"noise_std": 0.2, "noise_clip": 0.5, "policy_delay": 2}
WEIGHTS = {"inverse_temperature": 3.0, "max_weight": 100.0}
SOFT = {"target_entropy": -1.0}
# Of the codes that the classes name: CORL's, and its authors' for ReBRAC, IQL and XQL.
PUBLISHED = {
    "bc": {"learning_rate": 3e-4, **TWO},
    "td3_bc": {"alpha": 2.5, **ALL, **TWO, **RATES, **SMOOTHING},
    "iql": {"expectile": 0.7, "value_learning_rate": 3e-4, **WEIGHTS, **ALL, **TWO, **RATES},
    "awac": {**WEIGHTS, **ALL, **THREE, **RATES},
    "cql": {
        "conservative_weight": 10.0, "actor_learning_rate": 3e-5, "critic_learning_rate": 3e-4,
        "temperature_learning_rate": 3e-5, "multiplier_learning_rate": 3e-4, "gap": 5.0,
        "n_samples": 10, "sample_temperature": 1.0, "density_correction": True, "lagrange": False,
        "entropy_backup": False, **SOFT, **ALL, **THREE,
    },
    "rebrac": {
        "actor_weight": 0.01, "critic_weight": 0.01, "actor_learning_rate": 1e-3,
        "critic_learning_rate": 1e-3, "hidden": (256, 256, 256), "batch_size": 1024,
        **SMOOTHING, **ALL,
    },
    "sac_n": {"n_critics": 10, "temperature_learning_rate": 3e-4, **SOFT, **ALL, **THREE, **RATES},
    "xql": {"max_exponent": 7.0, "value_learning_rate": 3e-4, **ALL, **TWO, **RATES},
}  # fmt: skip
PUBLISHED["fql"] = {
    "alpha": 10.0, "flow_steps": 10, "aggregate": "mean", "hidden": (512,) * 4, "batch_size": 256,
    **ALL, **RATES,
}  # fmt: skip
PUBLISHED["dt"] = {
    "learning_rate": 1e-4, "hidden": (128,) * 3, "batch_size": 64, "heads": 1,
}  # fmt: skip
# Of OSRL and of CAPS' code.
PUBLISHED["cdt"] = {
    "learning_rate": 1e-4, "temperature_learning_rate": 1e-4, "cost_weight": 0.02, "heads": 8,
    "warmup_updates": 500, "hidden": (128,) * 3, "batch_size": 2048,
}  # fmt: skip
PUBLISHED["caps"] = {
    "expectile": 0.7, "cost_expectile": 0.7, "inverse_temperature": 3.0, "hidden": (512, 512),
    "n_heads": 2, **ALL, **RATES,
}  # fmt: skip
PUBLISHED["td3_bc_lag"], PUBLISHED["iql_lag"] = PUBLISHED["td3_bc"], PUBLISHED["iql"]
# Of OSRL, and of FISOR's authors; widths and batches are those of all learners here.
PUBLISHED["cpq"] = {
    "actor_learning_rate": 1e-4, "critic_learning_rate": 1e-3, "ood_quantile": 0.75,
    "ood_level": 1.5, "n_samples": 10, **ALL,
}  # fmt: skip
PUBLISHED["bcq_lag"] = {
    "phi": 0.05, "least_weight": 0.75, "kl_weight": 0.5, "n_samples": 10,
    "actor_learning_rate": 1e-3, "critic_learning_rate": 1e-3, "model_learning_rate": 1e-3, **ALL,
}  # fmt: skip
PUBLISHED["fisor"] = {
    "cost_expectile": 0.9, "expectile": 0.9, "inverse_temperature": 3.0, "max_weight": 100.0,
    "cost_inverse_temperature": 5.0, "max_cost_weight": 150.0, "violation": 25.0, "tau": 0.005,
}  # fmt: skip
PUBLISHED["coptidice"] = {"alpha": 0.5, "discount": 0.99}
# Of OfflineRL-Kit; widths and batches are those of all learners here. The rates of actor and
# temperature are larger, because runs are shorter.
ROLLED_OUT = {
    "critic_learning_rate": 3e-4, "target_entropy": -1.0, **ALL,
}  # fmt: skip
PUBLISHED["mopo"] = PUBLISHED["morel"] = ROLLED_OUT
PUBLISHED["mobile"] = ROLLED_OUT | {"n_samples": 10}
PUBLISHED["combo"] = ROLLED_OUT | {"conservative_weight": 5.0, "n_samples": 10, "states": "mix"}
PUBLISHED["rambo"] = ROLLED_OUT | {"adversarial_weight": 3e-4, "model_learning_rate": 3e-4}
PUBLISHED["bc_safe"] = PUBLISHED["bc"]
PUBLISHED["cal_ql"] = PUBLISHED["cql"]
# SAC's and TD3's authors; CleanRL for PPO and DQN on CartPole. REINFORCE has no such code.
PUBLISHED["sac"] = {"temperature_learning_rate": 3e-4, **SOFT, **ALL, **TWO, **RATES}
PUBLISHED["td3"] = {"exploration_std": 0.1, **ALL, **TWO, **RATES, **SMOOTHING}
PUBLISHED["ppo"] = {
    "clip": 0.2, "discount": 0.99, "trace": 0.95, "value_weight": 0.5, "learning_rate": 2.5e-4,
    "rollout": 128, "epochs": 4, "minibatches": 4, "hidden": (64, 64),
}  # fmt: skip
PUBLISHED["reinforce"] = {"discount": 0.99, "hidden": (64, 64)}
PUBLISHED["dqn"] = {
    "discount": 0.99, "final_epsilon": 0.05, "exploration": 0.5, "priority": 0.0, "double": False,
    "dueling": False, "learning_rate": 2.5e-4, "hidden": (120, 84), "batch_size": 128,
}  # fmt: skip
PUBLISHED["ppo_lag"], PUBLISHED["reinforce_lag"] = PUBLISHED["ppo"], PUBLISHED["reinforce"]
PUBLISHED["edac"] = PUBLISHED["sac_n"] | {"diversity_weight": 1.0}


def test_every_learner_is_here():
    assert set(ALGORITHMS) == set(PUBLISHED)


@pytest.mark.parametrize("name", PUBLISHED)
def test_defaults_are_the_published_ones(name):
    learner = ALGORITHMS[name]()
    nested = {"hidden": learner.networks, "batch_size": learner.steps}
    defaults = {field: getattr(nested.get(field, learner), field) for field in PUBLISHED[name]}
    assert defaults == PUBLISHED[name]


def test_what_is_published_for_fine_tuning():
    """ReBRAC's online code explores with 0.03 and lets the actor's weight fall to half."""
    online = for_fine_tuning(ReBRAC())
    assert (online.critic_weight, online.final_weight) == (0.0, 0.5)
    assert (online.exploration_std, online.decay_updates) == (0.03, -1)


@pytest.mark.parametrize("kind", [IQL, XQL, ReBRAC])
def test_a_schedule_of_the_run_needs_its_length_and_ends_with_it(kind, problem):
    whole = sized(kind(), decay_updates=-1, hidden=(8,))
    with pytest.raises(
        ValueError, match=rf"{kind.__name__}\.decay_updates is -1, which stands for"
    ):
        whole.init(problem.spec, problem.statistics, jax.random.key(0))
    calls = 100 // whole.batches_per_update
    assert for_run(whole, 100).decay_updates == calls
    assert unfinished_schedules(for_run(whole, 100), 100) == []
    assert unfinished_schedules(kind(decay_updates=calls - 1), 100) == ["decay_updates"]
    assert unfinished_schedules(kind(), 100) == []


@pytest.mark.parametrize("kind", [SACN, ReBRAC])
def test_first_weights_of_the_last_layers_are_small_and_hidden_biases_a_tenth(kind, problem):
    """1e-3 in the actor and 3e-3 in the critics, drawn evenly to either side."""
    state = sized(kind(), hidden=(64, 64)).init(problem.spec, problem.statistics, jax.random.key(0))
    for name, bound in (("actor", 1e-3), ("critics", 3e-3)):
        network = state.parameters[name]
        for bias in network.biases[:-1]:
            np.testing.assert_array_equal(bias, np.float32(0.1))
        last = np.asarray(network.weights[-1])
        assert 0.9 * bound < last.max() <= bound
        assert -bound <= last.min() < -0.9 * bound
        assert np.abs(network.biases[-1]).max() <= bound
        assert np.abs(network.weights[0]).max() > 0.2, "only the last layer is small"


def test_the_multiplier_of_cql_starts_at_e_the_temperature_at_one_and_draws_are_clipped(problem):
    learner = sized(CQL(), hidden=(8,))
    state = learner.init(problem.spec, problem.statistics, jax.random.key(0))
    assert learner.explore(state).log_std_range == (-20.0, 2.0)
    assert float(state.parameters["log_multiplier"]) == 1.0
    assert float(state.parameters["log_temperature"]) == 0.0


@pytest.mark.parametrize("variant", ["original", "corl"])
def test_iql_starts_as_its_variant_does(problem, variant):
    """Orthogonal columns of length sqrt(2) and no biases, or uniform draws of both."""
    algorithm = sized(IQL(), variant=variant, hidden=(16, 16))
    value = algorithm.init(problem.spec, problem.statistics, jax.random.key(0)).parameters["value"]
    square = np.asarray(value.weights[1], np.float64)
    orthogonal = np.allclose(square.T @ square, 2 * np.eye(len(square)), atol=1e-5)
    assert orthogonal == (variant == "original")
    largest = [np.abs(bias).max() for bias in value.biases]
    if variant == "original":
        assert max(largest) == 0
    else:
        bounds = [1 / np.sqrt(len(weight)) for weight in value.weights]
        assert all(0.5 * b < x <= b for x, b in zip(largest[:2], bounds[:2], strict=True))


def test_activation_and_layer_norm_are_settings_of_the_networks(problem, state_of_form):
    own = state_of_form(sized(SACN(), hidden=(8, 8)), problem).parameters
    assert own["actor"].activation is relu
    assert not own["actor"].gains
    chosen = sized(SACN(), hidden=(8, 8), activation="tanh", layer_norm="yes")
    chosen.validate()
    for network in state_of_form(chosen, problem).parameters.values():
        if isinstance(network, MLP):
            assert network.activation is tanh
            assert len(network.gains) == len(network.shifts) == 2
    # ReBRAC's critics have it of their own, and can do without.
    without = state_of_form(sized(ReBRAC(), hidden=(8, 8), layer_norm="no"), problem).parameters
    assert state_of_form(sized(ReBRAC(), hidden=(8, 8)), problem).parameters["critics"].gains
    assert not without["critics"].gains
    with pytest.raises(ValueError, match=r"SACN\.networks\.activation must be one of .*tanh"):
        sized(SACN(), activation="sigmoid").validate()
    with pytest.raises(ValueError, match=r"networks\.layer_norm must be .*, got 'maybe'"):
        sized(SACN(), layer_norm="maybe").validate()
    with pytest.raises(ValueError, match=r"CDT\.networks\.activation must be 'own', because a"):
        sized(CDT(), activation="tanh").validate()
