"""Constants, state, chemistry, balances and disturbances of the works."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_envs.blocks import Relation, autoregressive, constant, runge_kutta

# Carbonate equilibrium: conversion between the pH of water and its reaction invariants.


PK1, PK2, PKW = 6.35, 10.25, 14.0
ITERATIONS = 12
MEQ_PER_MG_ALUM = 6 / 594  # Al2(SO4)3 * 14 H2O, 594 g/mol, takes six equivalents

Scalar = Float[Array, ""]


def charged_share(ph: Array) -> Array:
    """Negative charges per carbonate, from 0 (acid) to 2: ``(1 + 2 b) / (1 + a + b)``."""
    a, b = _powers(ph)
    return (1 + 2 * b) / (1 + a + b)


def ph_of_water(acid: Array, carbonate: Array) -> Array:
    """The pH at which charges balance.

    It solves ``W_a + 1e3 (10^(pH - 14) - 10^-pH) + W_b (1 + 2 b) / (1 + a + b) = 0`` with
    ``a = 10^(pK1 - pH)`` and ``b = 10^(pH - pK2)``, by twelve Newton steps from 7, each limited to
    1. From pH 2.5 to 12.5 the result agrees with SciPy's ``brentq``.

    Args:
        acid: Reaction invariant ``W_a``, strong acid minus strong base, meq/L.
        carbonate: Reaction invariant ``W_b``, total carbonate, mmol/L, not negative.

    Returns:
        The pH, with the shape of the arguments.

    Example:
        >>> import jax.numpy as jnp
        >>> float(ph_of_water(jnp.zeros(()), jnp.zeros(())))
        7.0

    Source: Gustafsson and Waller 1983, Chem. Eng. Sci. 38:389; constants as in Henson and Seborg
    1994, IEEE Trans. Control Syst. Technol. 2:169.
    """

    def newton(_: Array, ph: Array) -> Array:
        a, b = _powers(ph)
        base, free = 1e3 * 10 ** (ph - PKW), 1e3 * 10**-ph
        total = 1 + a + b
        excess = acid + base - free + carbonate * (1 + 2 * b) / total
        slope = base + free + carbonate * (a + b + 4 * a * b) / total**2
        return ph - jnp.clip(excess / (math.log(10) * slope), -1, 1)

    return jax.lax.fori_loop(0, ITERATIONS, newton, jnp.full_like(acid, 7.0))


def carbonate_of_water(alkalinity: Array, ph: Array) -> Array:
    """Total carbonate from alkalinity in meq/L and pH, mmol/L."""
    carbonate = alkalinity - 1e3 * (10 ** (ph - PKW) - 10**-ph)
    return jnp.maximum(carbonate, 0) / charged_share(ph)


def _powers(ph: Array) -> tuple[Array, Array]:
    return 10 ** (PK1 - ph), 10 ** (ph - PK2)


PERIOD = 300.0  # s
SUBSTEPS = 8
OWN = "own choice"
FLOC = "Argaman and Kaufman 1970, J. Sanit. Eng. Div. 96:223; "


class Constants(NamedTuple):
    """Sizes, rates, raw water and demand."""

    mixer: Scalar = constant(30.0, "m3", OWN)
    flocculator: Scalar = constant(300.0, "m3", OWN)
    settler: Scalar = constant(1500.0, "m3", OWN)
    settler_area: Scalar = constant(500.0, "m2", OWN)
    filter_area: Scalar = constant(217.0, "m2", OWN)
    clearwell_area: Scalar = constant(3000.0, "m2", OWN)
    aggregation: Scalar = constant(6.75e-5, "1", FLOC + "1.5 times 4.5e-5", spread=1.0)
    breakup: Scalar = constant(3e-8, "s", FLOC + "0.3 times 1e-7")
    alum_floc: Scalar = constant(0.08, "NTU L/mg", OWN)
    settling: Scalar = constant(1.2e-3, "m/s", OWN, spread=0.5)
    filtration: Scalar = constant(3.0, "1/m", "Iwasaki 1937, J. AWWA 29:1591; size own", spread=0.3)
    bed: Scalar = constant(1.0, "m", OWN)
    clogging: Scalar = constant(1.65e-3, "1/(NTU m)", OWN)
    wash_at: Scalar = constant(1.6, "m", OWN)
    wash_water: Scalar = constant(1300.0, "m3", OWN)
    raw_turbidity: Scalar = constant(8.0, "NTU", OWN, spread=1.0)
    raw_alkalinity: Scalar = constant(1.0, "meq/L", OWN, spread=1.0)
    raw_ph: Scalar = constant(7.5, "1", OWN)
    raw_temperature: Scalar = constant(12.0, "degC", OWN, domain="real")
    demand: Scalar = constant(0.46, "m3/s", OWN, spread=0.5)
    day: Scalar = constant(0.2, "1", OWN, clean=0.0, domain="not negative")
    wander: Scalar = constant(1.0, "1", OWN, clean=0.0, domain="not negative")
    storms_apart: Scalar = constant(30 * 3600.0, "s", OWN, clean=float("inf"))
    storm: Scalar = constant(60.0, "NTU", OWN)
    storm_decay: Scalar = constant(4 * 3600.0, "s", OWN)
    storm_rise: Scalar = constant(2700.0, "s", OWN)
    storm_dilution: Scalar = constant(0.6, "1", OWN)


class Works(NamedTuple):
    """State of the works.

    Attributes:
        acid: Strong acid minus strong base in the mixer, meq/L.
        carbonate: Total carbonate in the mixer, mmol/L.
        n1: Unflocculated turbidity in the first flocculator, NTU.
        n2: Unflocculated turbidity in the second flocculator, NTU.
        n3: Unflocculated turbidity in the third flocculator, NTU.
        f1: Flocculated turbidity in the first flocculator, NTU.
        f2: Flocculated turbidity in the second flocculator, NTU.
        f3: Flocculated turbidity in the third flocculator, NTU.
        primary: Unflocculated turbidity in the settler, NTU.
        floc: Flocculated turbidity in the settler, NTU.
        settled_acid: Like ``acid``, after flocculators and settler.
        settled_carbonate: Like ``carbonate``, after flocculators and settler.
        deposit: Deposit in the filter, dimensionless; about 1.7 when it is full.
        clear_acid: Like ``acid``, in the clearwell.
        clear_carbonate: Like ``carbonate``, in the clearwell.
        level: Level of the clearwell, m.
        run: Time since the last backwash, s.
        washing: Remaining time of a backwash, s.
        spilled: Water that left the full clearwell over its weir in the last period, m3.
    """

    acid: Scalar
    carbonate: Scalar
    n1: Scalar
    n2: Scalar
    n3: Scalar
    f1: Scalar
    f2: Scalar
    f3: Scalar
    primary: Scalar
    floc: Scalar
    settled_acid: Scalar
    settled_carbonate: Scalar
    deposit: Scalar
    clear_acid: Scalar
    clear_carbonate: Scalar
    level: Scalar
    run: Scalar
    washing: Scalar
    spilled: Scalar


class Dosing(NamedTuple):
    """Inputs of the works in a period: alum mg/L, caustic meq/L, gradient 1/s, flow m3/s."""

    alum: Scalar
    caustic: Scalar
    gradient: Scalar
    flow: Scalar


class Raw(NamedTuple):
    """Raw water: turbidity NTU, pH, alkalinity meq/L, carbonate mmol/L, temperature degC."""

    turbidity: Scalar
    ph: Scalar
    alkalinity: Scalar
    carbonate: Scalar
    temperature: Scalar


CLEAN_DEPOSIT = 0.1
FULLEST = 4.0  # m: the clearwell overflows
WASH_TIME = 900.0  # s
WASH_TURBIDITY, WASH_NOT_BEFORE = 0.5, 6 * 3600.0  # NTU, s
WASH_LEVEL = 1.3  # m: below this level a backwash waits, or the town would run dry
RELATIONS = (
    Relation("day", "<", 0.85, "some water is always taken"),
    Relation("storm_dilution", "<", 1 / 1.2, "a storm leaves some alkalinity"),
    Relation("storm_rise", "<", "storm_decay", "a storm comes faster than it goes"),
    Relation("raw_ph", "<", 14.0),
    Relation(10.0, "<=", "mixer", "it empties in a substep otherwise, at 0.7 m3/s"),
    Relation("initial.level", "<=", FULLEST, "the clearwell overflows"),
    Relation(0.0, "<=", "initial.level"),
    Relation(0.0, "<=", "initial.carbonate"),
    Relation(0.0, "<=", "initial.deposit"),
)
INITIAL: Any = Works(  # type: ignore[arg-type]
    *(-0.95, 1.08, 3.8, 2.2, 1.0, 6.0, 7.6, 8.3, 1.0, 2.6, -0.95, 1.08, 0.6, -0.95, 1.08),
    *(2.5, 36000.0, 0.0, 0.0),
)
SPREAD: Any = Works(  # type: ignore[arg-type]
    *(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.3, 0.8, 0.0, 0.0, 0.4, 0.0, 0.0),
    *(0.4, 30000.0, 0.0, 0.0),
)


def attachment(alum: Array, ph: Array, turbidity: Array) -> Array:
    """Collision efficiency: high with enough alum for the turbidity at a pH near 7."""
    wanted = 6 + 0.3 * turbidity
    return alum**2 / (alum**2 + wanted**2) * jnp.exp(-(((ph - 7) / 1.1) ** 2))


def filter_outlet(c: Constants, works: Works, flow: Array) -> Array:
    """Turbidity after the filter, NTU.

    It is ``C_n exp(-0.6 lambda L) + C_f exp(-1.2 lambda L)``, since unflocculated turbidity passes
    more easily. The filter ripens and then breaks through:
    ``lambda = lambda_0 (1 + 1.2 s - 0.55 s^2) sqrt(0.5 / Q)``.
    """
    deposit = works.deposit
    state = jnp.maximum(1 + 1.2 * deposit - 0.55 * deposit**2, 0.2)
    depth = c.filtration * state * jnp.sqrt(0.5 / flow) * c.bed
    return works.primary * jnp.exp(-0.6 * depth) + works.floc * jnp.exp(-1.2 * depth)


def head_loss(deposit: Array, flow: Array) -> Array:
    """Head loss of the filter, m."""
    return 0.35 * (flow / 0.5) * (1 + 1.9 * deposit)


def settled_share(c: Constants, gradient: Array, flow: Array, temperature: Array) -> Array:
    """Fraction of the floc that the settler retains; cold water and strong mixing reduce it."""
    speed = c.settling * (40 / gradient) ** 0.3 * (1 + 0.02 * (temperature - 12))
    return -jnp.expm1(-speed * c.settler_area / flow)


def started_wash(c: Constants, works: Works, flow: Array) -> Works:
    """Starts a backwash if the filter is full or lets turbidity through.

    If there is too little water in the clearwell, it continues to filter.
    """
    outlet = filter_outlet(c, works, flow)
    full = head_loss(works.deposit, flow) > c.wash_at
    through = (outlet > WASH_TURBIDITY) & (works.run > WASH_NOT_BEFORE)
    starts = (full | through) & (works.washing <= 0) & (works.level > WASH_LEVEL)
    level_after_wash = works.level - c.wash_water / c.clearwell_area
    return works._replace(
        deposit=jnp.where(starts, CLEAN_DEPOSIT, works.deposit),
        level=jnp.where(starts, jnp.maximum(level_after_wash, 0), works.level),
        run=jnp.where(starts, 0.0, works.run),
        washing=jnp.where(starts, WASH_TIME, works.washing),
    )


def rates(x: Works, c: Constants, dose: Dosing, raw: Raw, demand: Array) -> Works:
    """Time derivatives of the works, per second."""
    flow, gradient = dose.flow, dose.gradient
    a = attachment(dose.alum, ph_of_water(x.acid, x.carbonate), raw.turbidity)
    joined = a * c.aggregation * gradient
    broken = c.breakup * gradient**2
    through = flow / c.flocculator

    def tank(n_in: Array, f_in: Array, n: Array, f: Array) -> tuple[Array, Array]:
        net = joined * n - broken * f
        return through * (n_in - n) - net, through * (f_in - f) + net

    n1, f1 = tank(raw.turbidity, c.alum_floc * dose.alum, x.n1, x.f1)
    n2, f2 = tank(x.n1, x.f1, x.n2, x.f2)
    n3, f3 = tank(x.n2, x.f2, x.n3, x.f3)
    settled = settled_share(c, gradient, flow, raw.temperature)
    outlet = filter_outlet(c, x, flow)
    filtering = jnp.where(x.washing > 0, 0.0, 1.0)
    slow = flow / (3 * c.flocculator + c.settler)
    filtered = filtering * flow
    # The pumps run dry below ten centimetres; the bound keeps the mixing rate finite.
    exchange = filtered / (c.clearwell_area * jnp.maximum(x.level, 0.1))
    return Works(
        acid=flow
        / c.mixer
        * (dose.alum * MEQ_PER_MG_ALUM - dose.caustic - raw.alkalinity - x.acid),
        carbonate=flow / c.mixer * (raw.carbonate - x.carbonate),
        n1=n1,
        n2=n2,
        n3=n3,
        f1=f1,
        f2=f2,
        f3=f3,
        primary=flow / c.settler * (x.n3 - x.primary),
        floc=flow / c.settler * ((1 - settled) * x.f3 - x.floc),
        settled_acid=slow * (x.acid - x.settled_acid),
        settled_carbonate=slow * (x.carbonate - x.settled_carbonate),
        deposit=filtered / c.filter_area * (x.primary + x.floc - outlet) * c.clogging,
        clear_acid=exchange * (x.settled_acid - x.clear_acid),
        clear_carbonate=exchange * (x.settled_carbonate - x.clear_carbonate),
        level=(filtered - demand) / c.clearwell_area,
        run=filtering,
        washing=jnp.zeros_like(x.washing),
        spilled=jnp.zeros_like(x.spilled),
    )


def advance(
    c: Constants, works: Works, dose: Dosing, raw: Raw, demand: Array, *, substeps: int = SUBSTEPS
) -> Works:
    """The works one period later; a backwash begins at its start, overflow is taken at its end."""
    works = started_wash(c, works, dose.flow)
    works = runge_kutta(rates, works, c, dose, raw, demand, width=PERIOD, substeps=substeps)
    return works._replace(
        level=jnp.clip(works.level, 0, FULLEST),
        washing=jnp.maximum(works.washing - PERIOD, 0),
        spilled=c.clearwell_area * jnp.maximum(works.level - FULLEST, 0),
    )


# Disturbances of the works: raw water and demand.


WANDERS = ("turbidity", "alkalinity", "ph", "temperature", "demand")
SD = (0.35, 0.12, 0.10, 2.0, 0.05)  # logarithm, part, 1, K, part
MEMORY = (6 * 3600.0, 24 * 3600.0, 12 * 3600.0, 48 * 3600.0, 2 * 3600.0)  # s
DAY = 86400.0


class World(NamedTuple):
    """State of the disturbances.

    Attributes:
        wander: Standardised fluctuations in the order of ``WANDERS``, shape ``(5,)``.
        upstream: Storm turbidity in the catchment, NTU.
        storm: Storm turbidity at the intake, NTU.
        hour: Time of day, s.
    """

    wander: Float[Array, " process"]
    upstream: Scalar
    storm: Scalar
    hour: Scalar


class Draws(NamedTuple):
    """Random numbers of a step: normal ones for fluctuations, uniform ones for storms."""

    normal: Float[Array, " process"]
    storm: Float[Array, " 2"]


def move_disturbances(c: Constants, world: World, draws: Draws) -> World:
    """The disturbances one period later."""
    wander = autoregressive(
        world.wander,
        draws.normal,
        sd=jnp.ones_like(world.wander),
        memory=jnp.asarray(MEMORY, world.wander.dtype),
        dt=PERIOD,
    )
    storm_begins = draws.storm[0] < -jnp.expm1(-PERIOD / c.storms_apart)
    size = c.storm * (0.5 + draws.storm[1])
    upstream = world.upstream * jnp.exp(-PERIOD / c.storm_decay) + jnp.where(
        storm_begins, size, 0.0
    )
    rise = -jnp.expm1(-PERIOD / c.storm_rise)
    hour = jnp.mod(world.hour + PERIOD, DAY)
    return World(wander, upstream, world.storm + rise * (upstream - world.storm), hour)


def raw_water(c: Constants, world: World) -> Raw:
    """The raw water at the intake."""
    deviation = c.wander * world.wander * jnp.asarray(SD, world.wander.dtype)
    strength = jnp.minimum(world.storm / c.storm, 1.2)
    alkalinity = c.raw_alkalinity * (1 + jnp.clip(deviation[1], -0.4, 0.4))
    alkalinity = alkalinity * (1 - c.storm_dilution * strength)
    ph = c.raw_ph + jnp.clip(deviation[2], -0.4, 0.4) - 0.2 * strength
    return Raw(
        turbidity=c.raw_turbidity * jnp.exp(jnp.clip(deviation[0], -1.5, 1.5)) + world.storm,
        ph=ph,
        alkalinity=alkalinity,
        carbonate=carbonate_of_water(alkalinity, ph),
        temperature=c.raw_temperature + jnp.clip(deviation[3], -8, 8),
    )


def demand(c: Constants, world: World) -> Array:
    """Demand of the town, m3/s, highest in the early evening."""
    daily = c.day * jnp.sin(2 * jnp.pi * (world.hour / DAY - 0.45))
    wander = c.wander * jnp.clip(SD[4] * world.wander[4], -0.15, 0.15)
    return c.demand * (1 + daily + wander)
