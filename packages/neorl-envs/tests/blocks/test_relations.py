"""Relations between constants: what is refused, in which words, and what passes."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_core import InputError
from neorl_envs import environment_names, make
from neorl_envs.blocks import Relation, check_relations, constant

OWN = "own choice"


class Constants(NamedTuple):
    slowest: Any = constant(1.0, "m/s", OWN)
    fastest: Any = constant(2.0, "m/s", OWN, spread=1.0)
    parts: Any = constant((0.4, 0.6), "1", OWN)
    widths: Any = constant((1.0, 2.0), "m", OWN)


def values(batch: int = 1, **changed: Any) -> Constants:
    given = {"slowest": 1.0, "fastest": 2.0, "parts": (0.4, 0.6), "widths": (1.0, 2.0), **changed}
    leaves = {k: jnp.stack([jnp.asarray(v, jnp.float32)] * batch) for k, v in given.items()}
    return Constants(**{k: v if batch > 1 else v[0] for k, v in leaves.items()})


def refused(relation: Relation, given: Constants, **start: Any) -> str:
    with pytest.raises(ValueError, match="constants must satisfy") as caught:
        check_relations((relation,), Constants(), given, **start)
    return str(caught.value)


def test_a_broken_relation_is_named_with_units_and_values() -> None:
    order = Relation("slowest", "<", "fastest", "the line could not run")
    check_relations((order,), Constants(), values())
    assert refused(order, values(slowest=3.0)) == (
        "constants must satisfy slowest < fastest, got 3 m/s and 2 m/s: the line could not run"
    )
    equal = values(slowest=2.0)
    assert "slowest < fastest" in refused(order, equal)
    check_relations((Relation("slowest", "<=", "fastest"),), Constants(), equal)
    # A sum in float32 may round; a real excess is refused.
    whole = Relation("parts[0] + parts[1]", "<=", 1.0)
    check_relations((whole,), Constants(), values(parts=(0.333, 0.66700006)))
    assert "got 1.1 1 and 1 1" in refused(whole, values(parts=(0.5, 0.6)))


def test_arrays_keep_it_entry_by_entry_and_plant_by_plant() -> None:
    bounds = Relation("widths", "<", (1.5, 2.5))
    check_relations((bounds,), Constants(), values())
    assert "got 2 m and 1.5 m" in refused(bounds, values(widths=(2.0, 2.0)))
    # Two plants: entries of both stand against numbers, scalars and entries of either.
    two = values(batch=2)
    mixed = two._replace(fastest=jnp.asarray([2.0, 0.5]))
    order, entry = Relation("slowest", "<", "fastest"), Relation("widths[0]", "<", "widths[1]")
    check_relations((order, bounds, entry), Constants(), two)
    assert "got 1 m/s and 0.5 m/s" in refused(order, mixed)
    swapped = two._replace(widths=jnp.asarray([[1.0, 2.0], [2.0, 1.0]]))
    assert "widths[0] < widths[1], got 2 m and 1 m" in refused(entry, swapped)


def test_the_initial_state_is_a_name_too_and_traced_values_pass() -> None:
    level = Relation("initial.level", "<=", 4.0, "it overflows")
    full = {"initial": {"level": 2.5}, "start": {"level": jnp.asarray(5.0)}}
    assert refused(level, values(), **full).endswith("got 5 and 4: it overflows")
    order = Relation("slowest", "<", "fastest")

    @jax.jit
    def traced(given: Constants) -> Any:
        check_relations((order,), Constants(), given)
        return given.slowest

    assert traced(values(slowest=3.0)) == 3.0


@pytest.mark.parametrize(
    ("relation", "message"),
    [
        (Relation("slowst", "<", "fastest"), "'slowst'; did you mean 'slowest'"),
        (Relation("slowest", "<", "widths"), "slowest < widths compares m/s with m"),
        (Relation("slowest + widths", "<", 1.0), "adds m to m/s"),
        (Relation("widths[2]", "<", 1.0), r"names widths\[2\], but widths has shape \(2,\)"),
        (Relation("slowest[0]", "<", 1.0), r"names slowest\[0\], but slowest has shape \(\)"),
    ],
)
def test_a_relation_of_what_is_not_declared_is_refused(relation: Relation, message: str) -> None:
    with pytest.raises((ValueError, InputError), match=message):
        check_relations((relation,), Constants())


BROKEN: dict[str, tuple[str, Any, str]] = {
    "ChemicalReactor-v0": ("feed_water", 0.5, "feed_water + feed_monomer <= 1"),
    "CSTR-v0": ("setpoint_low", 0.95, "setpoint_low < setpoint_high, got 0.95 mol/L and 0.94"),
    "DMSD-v0": ("mass", (20.0, 1.0), "1.2 <= mass, got 1.2 kg and 1 kg"),
    "HVACControl-v0": ("day_length", (12.0, 13.0), "day_length[1] < day_length[0]"),
    "IndustrialBenchmark-v0": ("amplification_end", 1.0, "amplification_start < amplification_end"),
    "PowerGrid-v0": ("field", (7.0, -6.4), "field[0] < field[1]"),
    "RobotAssembly-v0": ("bottom", 0.02, "0.025 < bottom, got 0.025 m and 0.02 m"),
    "SteelAnnealing-v0": ("slowest", 3.0, "slowest < fastest, got 3 m/s and 2.8 m/s"),
    "SupplyChain-v0": ("shortest", 11.0, "shortest <= longest"),
    "WaterTreatment-v0": ("storm_rise", 2e4, "storm_rise < storm_decay"),
}


OWN_PLANTS = set(environment_names())  # before tests register others


def test_the_table_above_leaves_out_no_plant() -> None:
    assert BROKEN.keys() | {"Pipeline-v0"} == OWN_PLANTS


@pytest.mark.parametrize("name", BROKEN)
def test_every_plant_refuses_constants_that_do_not_go_together(name: str) -> None:
    plant: Any = make(name)
    params = plant.default_params()
    plant.check_params(params)
    field, value, message = BROKEN[name]
    wrong = params.constants._replace(**{field: jnp.asarray(value, jnp.float32)})
    with pytest.raises(ValueError, match="constants must satisfy") as caught:
        plant.check_params(params._replace(constants=wrong))
    assert message in str(caught.value)


def test_an_initial_state_outside_physics_is_refused() -> None:
    pipe: Any = make("Pipeline-v0")
    params = pipe.default_params()
    with pytest.raises(ValueError, match="satisfy initial <= 200, got 300 and 200: a flow is from"):
        pipe.check_params(params._replace(initial=jnp.asarray(300.0)))
    with pytest.raises(ValueError, match="spread of initial must be finite and not negative"):
        pipe.check_params(params._replace(initial_spread=jnp.asarray(-1.0)))
    works: Any = make("WaterTreatment-v0")
    params = works.default_params()
    dry = params.initial._replace(level=jnp.asarray(np.nan))
    with pytest.raises(ValueError, match="initial level must be finite, got nan"):
        works.check_params(params._replace(initial=dry))


@pytest.mark.parametrize("name", [*BROKEN, "Pipeline-v0"])
def test_what_is_drawn_keeps_the_relations(name: str) -> None:
    from neorl_envs.blocks import constant_values, sampled_constants

    plant: Any = make(name)
    assert plant.relations
    values = constant_values(plant.constants, dtype=jnp.float32)

    def drawn(key: Any) -> Any:
        return sampled_constants(plant.constants, values, key, spread=0.3)

    many = jax.vmap(drawn)(jax.random.split(jax.random.key(1), 32))
    check_relations(plant.relations, plant.constants, many, initial=plant.initial)
    for preset in ("plant", "clean"):
        plain = constant_values(plant.constants, preset, dtype=jnp.float32)
        check_relations(plant.relations, plant.constants, plain, initial=plant.initial)
