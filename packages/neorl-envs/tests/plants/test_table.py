"""Plants by name: the package's own, those registered by a call and those of distributions."""

import sys
from typing import Any, ClassVar

import gymnasium
import jax
import numpy as np
import pytest

from neorl_core import InputError
from neorl_envs import collect_log, environment_names, make, read_dataset, write_dataset
from neorl_envs.plants import PLANTS, Plant, PlantDefaults, register_plant


def test_make_knows_its_names() -> None:
    for name in environment_names():
        env = make(name)
        assert isinstance(env, Plant)
        assert env.name == name
        assert make(name) == env
    for wrong in ("ChemicalReactor", "chemicalreactor-v0", "chemical"):
        with pytest.raises(InputError, match="did you mean 'ChemicalReactor-v0'"):
            make(wrong)
    with pytest.raises(InputError, match="unknown environment ''; known: ChemicalReactor-v0"):
        make("")


def test_every_plant_declares_what_it_knows() -> None:
    for name in environment_names():
        env = make(name)
        spec = env.spec
        assert len(env.action_rates()) == spec.n_action
        assert env.reference in env.tunings()
        assert set(env.bands()) <= {channel.name for channel in spec.obs}
        assert set(env.penalty_weights()) <= {channel.name for channel in spec.cost}
        assert all(weight > 0 for weight in env.penalty_weights().values())
    assert make("ChemicalReactor-v0").penalty_weights() == {"temperature": 0.75, "pressure": 2.5}


PROMISED = {  # measured, manipulated, cost channels
    "ChemicalReactor-v0": (12, 3, ["temperature", "pressure"]),
    "RobotAssembly-v0": (24, 7, ["force", "collision"]),
    "HVACControl-v0": (18, 5, ["energy", "comfort"]),
    "WaterTreatment-v0": (15, 4, ["pH", "turbidity"]),
    "SteelAnnealing-v0": (20, 6, ["temperature_profile"]),
    "PowerGrid-v0": (32, 8, ["frequency", "voltage"]),
    "SupplyChain-v0": (28, 10, ["inventory", "delays"]),
}


def test_seven_plants_have_the_channels_that_were_promised() -> None:
    """Row N01: seven plants have as many observations and actions as was promised."""
    for name, (obs, action, costs) in PROMISED.items():
        spec = make(name).spec
        assert (spec.n_obs, spec.n_action) == (obs, action)
        assert [channel.name for channel in spec.cost] == costs


AS_PUBLISHED = ("DMSD-v0", "IndustrialBenchmark-v0", "Pipeline-v0")  # their own chance, no other
COUNTED = "SupplyChain-v0"  # stocks are counted, orders are words: delays are the lanes' lead times


@pytest.mark.parametrize("name", environment_names())
def test_noise_speed_lag_and_delay_are_on_unless_clean(name: str) -> None:
    env: Any = make(name)
    plant, clean = (env.default_params(preset) for preset in ("plant", "clean"))
    for devices in (clean.actuators, clean.instruments):
        assert not np.any(devices.dead_time)
    assert not np.any(clean.actuators.lag)
    assert not np.any([clean.instruments.sd, clean.instruments.relative])
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(clean.initial_spread))
    np.testing.assert_array_equal(clean.actuators.speed, plant.actuators.speed)
    real = name not in (*AS_PUBLISHED, COUNTED)
    noisy = (plant.instruments.sd > 0) | (plant.instruments.relative > 0)
    assert noisy.any() == np.isfinite(plant.actuators.speed).any() == real


def test_a_registered_plant_is_one_like_the_others(tank: Any, tmp_path: Any) -> None:
    register_plant("Tank-v0", tank)
    register_plant("Tank-v0", tank)  # twice is no error
    assert environment_names()[-1] == "Tank-v0"
    assert PLANTS.origin("Tank-v0") == "registered"
    env = make("Tank-v0")
    assert isinstance(env, Plant)
    # Recorded, with the default operators: a test signal on the valve and nothing else.
    log = collect_log(env, n_steps=100, key=jax.random.key(0))
    assert log.attributes["behaviours"] == ["steady", "nervous"]
    assert log.n_rows == 100
    excitation = log.attributes["excitation"]
    assert excitation["channels"][0]["prbs_amplitude"] == 5.0
    assert excitation["channels"][0]["manual_fraction_of_steps"] == 0
    assert excitation["setpoint_fraction_of_steps"] == 0
    assert excitation["setpoint_mean_interval_s"] is None
    again = read_dataset(write_dataset(tmp_path / "tank.h5", log))
    assert again.content_hash == log.content_hash
    # Stepped by others: an environment whose information is the empty tuple.
    shell = gymnasium.make("neorl/Tank-v0")
    shell.reset(seed=0)
    *_, info = shell.step(np.zeros(1, np.float32))
    assert set(info) == {"cost", "cost_sum", "applied", "outside"}
    np.testing.assert_allclose(info["applied"], [50.0])
    plants = gymnasium.make_vec("neorl/Tank-v0", num_envs=3)
    plants.reset(seed=0)
    assert plants.step(np.zeros((3, 1), np.float32))[1].shape == (3,)


class Bare:
    name: ClassVar[str] = "Tank-v0"


def test_what_a_plant_lacks_is_named(tank: Any) -> None:
    cases = {
        "a plant needs spec, reset, step, .*; see neorl_envs.plants.Plant": Bare,
        "bears the name it is known by, got 'Tank-v1'": type("Other", (tank,), {"name": "Tank-v1"}),
        "reference 'best' is not one of the tunings": type("Best", (tank,), {"reference": "best"}),
        "action_rates has 2 entries; expected 1": type(
            "Rates", (tank,), {"action_rates": lambda self: (1.0, 2.0)}
        ),
        "bands of a plant must be a method": type("Bands", (tank,), {"bands": {}}),
        "expected a class or function that makes a plant": tank(),
    }
    for message, factory in cases.items():
        with pytest.raises(InputError, match=message):
            register_plant("Tank-v0", factory)
    with pytest.raises(InputError, match="ends with its version, such as 'QuadrupleTank-v0'"):
        register_plant("Tank", tank)
    with pytest.raises(InputError, match="exists already"):
        register_plant("ChemicalReactor-v0", type("R", (tank,), {"name": "ChemicalReactor-v0"}))
    without = type("Without", (Bare,), {n: getattr(tank, n) for n in vars(tank) if n[0] != "_"})
    with pytest.raises(InputError, match=r"has glossary, .*; derive from .*PlantDefaults"):
        register_plant("Tank-v0", without)
    assert "Tank-v0" not in environment_names()
    assert PlantDefaults.glossary == ""


def test_a_broken_distribution_is_named_when_its_plant_is_asked_for(
    distribution: Any,
) -> None:
    distribution("neorl.plants", "Broken-v0 = no_such_module:Plant\nBare-v0 = builtins:object")
    assert environment_names()[-2:] == ("Bare-v0", "Broken-v0")
    make("ChemicalReactor-v0")
    with pytest.raises(InputError, match=r"'Broken-v0' of foreign 0.3 cannot be imported"):
        make("Broken-v0")
    with pytest.raises(InputError, match=r"'Bare-v0' \(foreign 0.3\): .*a plant needs name, spec"):
        make("Bare-v0")


@pytest.mark.parametrize("name", environment_names())
def test_a_page_says_which_channels_have_dead_time_and_why(name: str) -> None:
    plant: Any = make(name)
    module = type(plant).__module__
    page = sys.modules[module.rpartition("._")[0] or module].__doc__ or ""
    assert "*Dead time.*" in page
    late = [i.channel.name for i in (*plant.instruments, *plant.actuators) if i.dead_time]
    expected = {
        "ChemicalReactor-v0": ["m_P"],
        "CSTR-v0": ["C_A"],
        "PowerGrid-v0": ["P_tie", "load_7", "load_9", "ACE_1", "ACE_2"],
        "WaterTreatment-v0": ["pH_mixed"],
    }
    assert late == expected.get(name, [])
