"""Physical constants of the reactor; every field is data, so randomisation is a ``vmap``."""

from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray

Scalar: TypeAlias = Float[Array, ""]
DT = 50.0  # s, the control period


# A tuple of scalars compiles to a faster loop than an array of nine.
class Balances(NamedTuple):
    """The nine balanced quantities: masses in kg, temperatures in K."""

    m_W: Scalar  # noqa: N815
    m_A: Scalar  # noqa: N815
    m_P: Scalar  # noqa: N815
    T_R: Scalar
    T_S: Scalar
    T_M: Scalar
    T_EK: Scalar
    T_AWT: Scalar
    m_acc: Scalar


class Parameters(NamedTuple):
    """Constants of the balances (hours, kg, K, kJ), of the sensors, and the initial charge.

    Attributes:
        gas_constant: Gas constant of the rate law, kJ/(kmol K).
        feed_temperature: Temperature of the feed, K.
        activation_energy: Activation energy of the reaction, kJ/kmol.
        rate_constant: k0, 1/h.
        gel_monomer: k_U1, weight of the unconverted part in the rate.
        gel_polymer: k_U2, weight of the converted part in the rate.
        reaction_heat: dH, kJ/kg of monomer.
        feed_water: Mass fraction of water in the feed.
        feed_monomer: Mass fraction of monomer in the feed.
        wall_area: Heat transfer area between reactor, steel and jacket, m2.
        wall_water: Heat transfer coefficient per kg of water, kJ/(h m2 K).
        wall_monomer: Heat transfer coefficient per kg of monomer, kJ/(h m2 K).
        wall_polymer: Heat transfer coefficient per kg of polymer, kJ/(h m2 K).
        steel_mass: Mass of the steel wall, kg.
        jacket_mass: Coolant inside the jacket, kg.
        jacket_flow: Coolant through the jacket, kg/h.
        loop_mass: Reactor contents inside the external heat exchanger, kg.
        loop_flow: Recirculation through the exchanger, kg/h.
        exchanger_mass: Coolant inside the external heat exchanger, kg.
        exchanger_flow: Coolant through the exchanger, kg/h.
        exchanger_transfer: alfa, kJ/(h K).
        heat_water: Heat capacity of the coolants, kJ/(kg K).
        heat_steel: Heat capacity of the steel, kJ/(kg K).
        heat_feed: Heat capacity of the feed, kJ/(kg K).
        heat_reactor: Heat capacity of the reactor contents, kJ/(kg K).
        sensor_heat: Reaction heat assumed by the soft sensor of the adiabatic temperature, kJ/kg.
        noise_temperature: Standard deviation of the temperature sensors, K.
        noise_mass: Relative standard deviation of the mass sensors.
        noise_pressure: Standard deviation of the pressure sensor, bar.
        initial: The charge at the start of a batch.
    """

    gas_constant: Scalar
    feed_temperature: Scalar
    activation_energy: Scalar
    rate_constant: Scalar
    gel_monomer: Scalar
    gel_polymer: Scalar
    reaction_heat: Scalar
    feed_water: Scalar
    feed_monomer: Scalar
    wall_area: Scalar
    wall_water: Scalar
    wall_monomer: Scalar
    wall_polymer: Scalar
    steel_mass: Scalar
    jacket_mass: Scalar
    jacket_flow: Scalar
    loop_mass: Scalar
    loop_flow: Scalar
    exchanger_mass: Scalar
    exchanger_flow: Scalar
    exchanger_transfer: Scalar
    heat_water: Scalar
    heat_steel: Scalar
    heat_feed: Scalar
    heat_reactor: Scalar
    sensor_heat: Scalar
    noise_temperature: Scalar
    noise_mass: Scalar
    noise_pressure: Scalar
    initial: Balances


_INITIAL = {
    "m_W": 10_000.0,
    "m_A": 853.0,
    "m_P": 26.5,
    "T_R": 363.15,
    "T_S": 363.15,
    "T_M": 363.15,
    "T_EK": 308.15,
    "T_AWT": 308.15,
    "m_acc": 300.0,
}
_PUBLISHED = {
    "gas_constant": 8.314,
    "feed_temperature": 298.15,
    "activation_energy": 8500.0,
    "rate_constant": 7.0,
    "gel_monomer": 4.0,
    "gel_polymer": 32.0,
    "reaction_heat": 950.0,
    "feed_water": 0.333,
    "feed_monomer": 0.667,
    "wall_area": 65.0,
    "wall_water": 17_280.0,
    "wall_monomer": 3600.0,
    "wall_polymer": 360.0,
    "steel_mass": 39_000.0,
    "jacket_mass": 5000.0,
    "jacket_flow": 300_000.0,
    "loop_mass": 200.0,
    "loop_flow": 20_000.0,
    "exchanger_mass": 1000.0,
    "exchanger_flow": 100_000.0,
    "exchanger_transfer": 3_600_000.0,
    "heat_water": 4.2,
    "heat_steel": 0.47,
    "heat_feed": 3.0,
    "heat_reactor": 5.0,
    "sensor_heat": 950.0,
}
_NOISE = {"noise_temperature": 0.1, "noise_mass": 0.002, "noise_pressure": 0.02}


def default_parameters(preset: str = "plant", *, dtype: DTypeLike = jnp.float32) -> Parameters:
    """The published constants.

    Args:
        preset: ``"plant"`` with sensor noise, ``"clean"`` without.
        dtype: Type of every leaf, and so of the simulation; ``float64`` where JAX has it enabled.

    Returns:
        The parameters.

    Raises:
        ValueError: If the preset is unknown.
    """
    if preset not in ("plant", "clean"):
        raise ValueError(f"preset must be 'plant' or 'clean', got {preset!r}")
    level = 1.0 if preset == "plant" else 0.0
    noise = {name: level * value for name, value in _NOISE.items()}
    numbers = {name: jnp.asarray(x, dtype) for name, x in {**_PUBLISHED, **noise}.items()}
    initial = {name: jnp.asarray(x, dtype) for name, x in _INITIAL.items()}
    return Parameters(**numbers, initial=Balances(**initial))


def sample_parameters(parameters: Parameters, key: PRNGKeyArray, *, spread: float) -> Parameters:
    """One draw of the domain randomisation: reaction heat and rate constant, independently.

    Args:
        parameters: The centre of the draw.
        key: Key of the draw.
        spread: Each of the two is multiplied by a uniform number from ``[1 - spread,
            1 + spread]``. The published uncertainty is 0.3; 0.15 keeps it survivable without an
            estimator of the reaction heat.

    Returns:
        The parameters of one episode.

    Raises:
        ValueError: If ``spread`` is outside [0, 1).
    """
    if not 0 <= spread < 1:
        raise ValueError(f"spread must be in [0, 1), got {spread}")
    dtype = parameters.rate_constant.dtype
    heat, rate = jax.random.uniform(key, (2,), dtype, 1 - spread, 1 + spread)
    return parameters._replace(
        reaction_heat=parameters.reaction_heat * heat,
        rate_constant=parameters.rate_constant * rate,
    )
