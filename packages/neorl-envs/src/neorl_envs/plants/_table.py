"""The table of plants by name, and the registration of further ones."""

import functools
import importlib
import re
import sys
from collections.abc import Callable
from typing import Any

from neorl_core import InputError
from neorl_core.infrastructure import Registry
from neorl_envs.plants._protocol import Plant, check_plant
from neorl_envs.plants.chemical_reactor._env import ChemicalReactor
from neorl_envs.plants.cstr import CSTR
from neorl_envs.plants.dmsd import DMSD
from neorl_envs.plants.hvac_control._env import HVACControl
from neorl_envs.plants.industrial_benchmark import IndustrialBenchmark
from neorl_envs.plants.pipeline import Pipeline
from neorl_envs.plants.power_grid._env import PowerGrid
from neorl_envs.plants.robot_assembly._env import RobotAssembly
from neorl_envs.plants.steel_annealing._env import SteelAnnealing
from neorl_envs.plants.supply_chain._env import SupplyChain
from neorl_envs.plants.water_treatment._env import WaterTreatment

UNIT = ".fmu"
"""End of the file name of a co-simulation unit."""
VERSIONED = re.compile(r"[A-Za-z0-9_]+(-[A-Za-z0-9_]+)*-v[0-9]+")


def _check_factory(name: str, factory: Any) -> None:
    """Raises unless the name has a version and the factory can be called."""
    if not VERSIONED.fullmatch(name):
        raise ValueError("the name of a plant ends with its version, such as 'QuadrupleTank-v0'")
    if not callable(factory):
        raise TypeError(f"expected a class or function that makes a plant, got {factory!r}")


_OWN: dict[str, Callable[[], Plant]] = {
    ChemicalReactor.name: ChemicalReactor,
    SteelAnnealing.name: SteelAnnealing,
    HVACControl.name: HVACControl,
    CSTR.name: CSTR,
    DMSD.name: DMSD,
    IndustrialBenchmark.name: IndustrialBenchmark,
    Pipeline.name: Pipeline,
    WaterTreatment.name: WaterTreatment,
    SupplyChain.name: SupplyChain,
    RobotAssembly.name: RobotAssembly,
    PowerGrid.name: PowerGrid,
}


def _network(maker: str) -> Plant:
    """A network at its default size, imported late because its folder imports this one."""
    return getattr(importlib.import_module("neorl_envs.graph_plants"), maker)()


_NETWORKS: dict[str, Callable[[], Plant]] = {
    "LoadBalance-v0": functools.partial(_network, "load_balance"),
    "TrafficNetwork-v0": functools.partial(_network, "traffic_network"),
    "RobotSwarm-v0": functools.partial(_network, "robot_swarm"),
    "SwingNetwork-v0": functools.partial(_network, "swing_network"),
}
GRAPH_PLANTS = tuple(_NETWORKS)
"""Names of the networks of configurable size; :func:`make` returns a small one of each."""

PLANTS = Registry("neorl.plants", "environment", {**_OWN, **_NETWORKS}, _check_factory)
"""Factory of every plant by name; without arguments it returns the plant as documented."""


def register_plant(name: str, factory: Callable[[], Plant]) -> None:
    """Registers a plant with :func:`neorl_envs.make`, Gymnasium and the commands.

    A distribution declares its plants with an entry point instead::

        [project.entry-points."neorl.plants"]
        QuadrupleTank-v0 = "my_package.tank:QuadrupleTank"

    Args:
        name: Name with its version, such as ``"QuadrupleTank-v0"``; must equal the plant's
            ``name``.
        factory: A class or function without required arguments that returns a
            :class:`neorl_envs.plants.Plant`, which is checked during registration.

    Raises:
        InputError: If the name is taken or has no version, or if the plant lacks a member, which
            is named.
    """
    _check_factory_makes_plant(name, factory)
    PLANTS.register(name, factory)
    if "gymnasium" in sys.modules:
        _register_with_gymnasium(name)


def _check_factory_makes_plant(name: str, factory: Callable[[], Plant]) -> None:
    try:
        _check_factory(name, factory)
        check_plant(name, factory())
    except (TypeError, ValueError) as error:
        raise InputError(f"the environment {name!r}: {error}") from error


def environment_names() -> tuple[str, ...]:
    """The names of the industrial plants, including those of other distributions.

    :func:`make` also accepts the networks of :mod:`neorl_envs.graph_plants`, which have no
    documentation pages, score anchors or published logs.

    Example:
        >>> environment_names()[0]
        'ChemicalReactor-v0'
    """
    return tuple(name for name in PLANTS if name not in _NETWORKS)


def make(name: str) -> Plant:
    """Creates a plant by name.

    Args:
        name: Name of the plant, for example ``"ChemicalReactor-v0"``, or path of a co-simulation
            unit, such as ``"tank.fmu"``, with its declaration ``tank.toml`` beside it (extra
            ``fmi``).

    Returns:
        A :class:`neorl_envs.plants.Plant`: a frozen, hashable environment without array fields,
        which may be a static argument.

    Raises:
        InputError: If the name is unknown (the message suggests the nearest one), or if the plant
            of another distribution cannot be imported or lacks a member, which is named.

    Example:
        >>> make("ChemicalReactor-v0").spec.n_obs
        12
    """
    if is_unit(name):
        return fmi_tools(str(name)).unit_plant(str(name))
    factory = PLANTS.find(str(name))
    origin = PLANTS.origin(name)
    if not origin:
        return factory()
    try:
        return check_plant(name, factory())
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise InputError(f"the environment {name!r} ({origin}): {reason}") from error


def is_unit(name: str) -> bool:
    """Whether a name is the path of a co-simulation unit."""
    return str(name).endswith(UNIT)


def is_plant(name: str) -> bool:
    """Whether :func:`make` takes a name: one of the table, or the path of a unit."""
    return is_unit(name) or name in PLANTS


def plant_origin(name: str) -> str:
    """What supplies a plant: empty for our own, a distribution, or the digest of a unit."""
    if is_unit(name):
        plant: Any = make(name)
        return f"unit and declaration sha256:{plant.digest}"
    return PLANTS.origin(name)


def fmi_tools(path: str) -> Any:
    """Imports the namespace of units.

    Raises an ``InputError`` if the required extra is not installed.
    """
    try:
        return importlib.import_module("neorl_envs.plants.fmi")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("fmpy", "polars"):
            raise
        raise InputError(
            f"{path}: a co-simulation unit needs the extra fmi; install it with: python -m pip "
            'install "fmpy>=0.3.26,<0.4" "polars>=2,<3"'
        ) from error


def gymnasium_id(name: str, *, physical: bool = False) -> str:
    """Gymnasium id of an environment: ``neorl/Name-v0`` or ``neorl/Name-physical-v0``."""
    base, version = name.rsplit("-", 1)
    return f"neorl/{base}{'-physical' if physical else ''}-{version}"


def register_environments() -> None:
    """Adds all plants to Gymnasium's registry; :func:`register_plant` adds later ones."""
    for name in environment_names():
        if VERSIONED.fullmatch(name):  # ``make`` refuses an entry point without a version
            _register_with_gymnasium(name)


def _register_with_gymnasium(name: str) -> None:
    """Adds one plant to Gymnasium's registry, once; its classes are imported when it is made.

    The horizon is given as ``spec.max_episode_steps``. The horizon of a plant from another
    distribution is unknown until it is imported, so the field is then empty; the plant itself
    still truncates its episodes.
    """
    import gymnasium

    known = PLANTS.origin(name) in ("", "registered")
    for physical in (False, True):
        identifier = gymnasium_id(name, physical=physical)
        if identifier not in gymnasium.registry:
            gymnasium.register(
                id=identifier,
                entry_point="neorl_envs.interfaces._gymnasium:GymnasiumEnv",
                vector_entry_point="neorl_envs.interfaces._gymnasium_vector:GymnasiumVectorEnv",
                max_episode_steps=PLANTS.find(name)().spec.horizon if known else None,
                kwargs={"plant": name, "physical": physical},
            )
