"""Constants, state and balances of the works, from raw water to the clearwell."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from neorl_envs.blocks import Relation, constant, runge_kutta
from neorl_envs.plants.water_treatment._chemistry import MEQ_PER_MG_ALUM, Scalar, ph_of_water

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
