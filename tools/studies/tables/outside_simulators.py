"""Plants that others published, under PI loops: what a historian would export of them.

- ``wood_berry``: the distillation column of Wood and Berry, Chem. Eng. Sci. 28 (1973) 1707, from its
  transfer functions with dead times, in minutes; deviations are linear about the operating point.
- ``exchanger``: the stirred tank that MathWorks' example *Temperature control in a heat exchanger*
  heats with steam, from its transfer functions with dead times of 14.7 and 35 s.
- ``four_tank`` and ``cstr``: the model classes of PC-Gym 0.1.8 (Bloor et al., arXiv 2410.22093), which
  are integrated here by four Runge-Kutta steps a row. The folder of the package is named by the
  environment variable ``PCGYM``; see ``outside_plants.py``.

Every output is in percent of its range, every loop is a PI in standard form with limits, and one row
is one period of it.
"""

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


class LoopOf(NamedTuple):
    """One loop of a plant; gains are in percent of output per unit, times in seconds."""

    tag: str
    unit: str
    low: float
    high: float
    setpoint: float
    move: float  # of the set point, to either side
    weight: float  # error that counts as one in the objective
    noise: float
    output: float  # in percent, at the operating point
    output_move: float  # of operators in manual, to either side
    gain: float  # of the sensible tuning
    integral: float


class OutsidePlant(NamedTuple):
    """A plant, the period of its rows in seconds, its loops and the class that simulates it."""

    name: str
    period: float
    loops: tuple[LoopOf, ...]
    simulator: Any  # class with measure() and step(outputs, rng)


class WoodBerry:
    """Top and bottom composition in mol % under reflux, steam and feed, all in lb/min."""

    # Gain, lag and dead time in minutes of each path: to the top from reflux, steam and feed, then
    # to the bottom.
    PATHS = (
        ((12.8, 16.7, 1), (-18.9, 21.0, 3), (3.8, 14.9, 8)),
        ((6.6, 10.9, 7), (-19.4, 14.4, 3), (4.9, 13.2, 3)),
    )
    SPAN = 0.04  # lb/min for each percent

    def __init__(self) -> None:
        paths = [path for row in self.PATHS for path in row]
        self.gain, lag, self.dead = (np.asarray(column) for column in zip(*paths, strict=True))
        self.pole = np.exp(-1 / lag)
        self.state = np.zeros(6)
        self.past = np.zeros((9, 3))
        self.feed = 0.0

    def measure(self) -> np.ndarray:
        """The measurements without noise."""
        return np.asarray([94.0, 6.0]) + self.state.reshape(2, 3).sum(axis=1)

    def step(self, outputs: np.ndarray, rng: np.random.Generator) -> None:
        """One period under outputs in percent."""
        self.feed = np.exp(-1 / 60) * self.feed + 0.1 * np.sqrt(1 - np.exp(-2 / 60)) * rng.normal()
        moved = np.append(self.SPAN * (outputs - np.asarray([48.75, 42.75])), self.feed)
        self.past = np.concatenate([moved[None], self.past[:-1]])
        delayed = self.past[self.dead, np.tile(np.arange(3), 2)]
        self.state = self.pole * self.state + self.gain * (1 - self.pole) * delayed


class Exchanger:
    """Temperature in degC under the steam valve, and a feed whose temperature drifts."""

    PERIOD = 2.0
    LAG, DEAD = (21.3, 25.0), (14.7, 35.0)  # seconds, from the valve and from the feed

    def __init__(self) -> None:
        self.pole = np.exp(-self.PERIOD / np.asarray(self.LAG))
        whole = np.asarray(self.DEAD) / self.PERIOD
        self.dead, self.part = whole.astype(int), whole % 1
        self.state, self.past, self.feed = np.zeros(2), np.zeros((20, 2)), 0.0

    def measure(self) -> np.ndarray:
        """The measurements without noise."""
        return 70.0 + self.state.sum(keepdims=True)

    def step(self, outputs: np.ndarray, rng: np.random.Generator) -> None:
        """One period under outputs in percent."""
        pole = np.exp(-self.PERIOD / 120)
        self.feed = pole * self.feed + 1.5 * np.sqrt(1 - pole**2) * rng.normal()
        moved = np.asarray([[outputs[0] - 50.0, self.feed]])
        self.past = np.concatenate([moved, self.past[:-1]])
        later, sooner = self.past[self.dead + 1, [0, 1]], self.past[self.dead, [0, 1]]
        delayed = self.part * later + (1 - self.part) * sooner
        self.state = self.pole * self.state + (1 - self.pole) * delayed


def _pcgym(name: str) -> Any:
    """A model class of PC-Gym, from the file that holds them alone."""
    folder = os.environ.get("PCGYM", "")
    path = Path(folder) / "model_classes.py"
    if not path.is_file():
        raise SystemExit(
            f"PCGYM={folder!r} holds no model_classes.py; install pcgym 0.1.8 without its "
            "dependencies into an environment of its own, and name its folder site-packages/pcgym"
        )
    spec = importlib.util.spec_from_file_location("pcgym_models", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)(int_method="numpy")


def _runge_kutta(model: Any, x: np.ndarray, u: Any, step: float, parts: int) -> np.ndarray:
    h = step / parts
    for _ in range(parts):
        a = np.asarray(model(x, u), float).ravel()
        b = np.asarray(model(x + h / 2 * a, u), float).ravel()
        c = np.asarray(model(x + h / 2 * b, u), float).ravel()
        d = np.asarray(model(x + h * c, u), float).ravel()
        x = x + h / 6 * (a + 2 * b + 2 * c + d)
    return x


class FourTank:
    """Levels of the lower tanks in cm, each under the pump that fills the tank above it."""

    def __init__(self) -> None:
        self.model = _pcgym("four_tank")
        self.x = np.full(4, 0.2)
        self.load = np.zeros(2)
        still = np.random.default_rng(0)
        for _ in range(400):
            self.step(np.asarray([50.0, 50.0]), still, 0.0)

    def measure(self) -> np.ndarray:
        """The measurements without noise."""
        return 100 * self.x[:2]

    def step(self, outputs: np.ndarray, rng: np.random.Generator, load: float = 0.3) -> None:
        """One period under outputs in percent."""
        pole = np.exp(-10 / 200)
        self.load = pole * self.load + load * np.sqrt(1 - pole**2) * rng.normal(size=2)
        # The first loop moves the second pump. A pump gives 0 to 10 V, and its flow drifts.
        volts = np.clip(0.1 * np.asarray(outputs)[::-1] + self.load, 0, 12)
        self.x = np.maximum(_runge_kutta(self.model, self.x, volts, 10.0, 2), 1e-4)


class Cstr:
    """Temperature of an exothermic tank in K, under the temperature of its coolant."""

    def __init__(self) -> None:
        self.model = _pcgym("cstr")
        self.x = np.asarray([0.88, 324.0])
        self.load = np.zeros(2)
        still = np.random.default_rng(0)
        for _ in range(400):
            self.step(np.asarray([46.0]), still, 0.0)

    def measure(self) -> np.ndarray:
        """The measurements without noise."""
        return self.x[1:]

    def step(self, outputs: np.ndarray, rng: np.random.Generator, load: float = 1.0) -> None:
        """One period under outputs in percent."""
        pole = np.exp(-0.25 / 10)
        self.load = pole * self.load + load * np.sqrt(1 - pole**2) * rng.normal(size=2)
        inputs = (285 + 0.3 * outputs[0], 350 + self.load[0], 1 + 0.01 * self.load[1])
        self.x = _runge_kutta(self.model, self.x, np.asarray(inputs), 0.25, 2)


PLANTS = {
    "wood_berry": OutsidePlant(
        "wood_berry", 60.0,
        (
            LoopOf("AIC-101", "mol%", 84, 104, 94, 0.75, 1.0, 0.03, 48.75, 3, 9.4, 497),
            LoopOf("AIC-102", "mol%", -4, 16, 6, 0.75, 1.0, 0.05, 42.75, 3, -1.9, 1416),
        ),
        WoodBerry,
    ),
    "exchanger": OutsidePlant(
        "exchanger", Exchanger.PERIOD,
        (LoopOf("TIC-111", "degC", 40, 100, 70, 2.0, 1.0, 0.1, 50, 4, 0.7, 21),),
        Exchanger,
    ),
    "four_tank": OutsidePlant(
        "four_tank", 10.0,
        (
            LoopOf("LIC-201", "cm", 0, 40, 0, 2.0, 1.0, 0.1, 50, 4, 4.0, 80),
            LoopOf("LIC-202", "cm", 0, 40, 0, 2.0, 1.0, 0.1, 50, 4, 4.0, 80),
        ),
        FourTank,
    ),
    "cstr": OutsidePlant(
        "cstr", 15.0,
        (LoopOf("TIC-301", "K", 300, 360, 0, 1.5, 1.0, 0.1, 46, 4, 3.0, 30),),
        Cstr,
    ),
}  # fmt: skip


class Tuning(NamedTuple):
    """Gains in percent of output per unit and integral times in seconds, one for each loop."""

    gain: tuple[float, ...]
    integral: tuple[float, ...]


class Rows(NamedTuple):
    """A recording, each of shape ``(row, loop)``, and whether each row is in manual, ``(row,)``."""

    measured: np.ndarray
    setpoint: np.ndarray
    output: np.ndarray
    manual: np.ndarray


def record(
    plant: OutsidePlant,
    tuning: Tuning,
    rows: int,
    seed: int,
    *,
    moves: int = 12,
    manual: bool = True,
    stickband: Sequence[float] = (),
) -> Rows:
    """A stretch of operation under PI loops, in which operators move set points and outputs.

    A tenth of the time is in manual, in blocks of 150 rows. With ``stickband`` a valve moves only
    when the output is away from it by more than this, and then to the output (percent).
    """
    rng, schedule = np.random.default_rng([seed, 1]), np.random.default_rng([seed, 2])
    loops, n = plant.loops, len(plant.loops)
    model = plant.simulator()
    base = np.asarray([one.setpoint for one in loops], float)
    base = np.where(base == 0, model.measure(), base)
    setpoint = base.copy()
    low_integral = np.asarray([one.output for one in loops], float)
    gain, integral = np.asarray(tuning.gain), np.asarray(tuning.integral)
    sigma = np.asarray([one.noise for one in loops])
    size = np.asarray([one.move for one in loops])
    by_hand = np.asarray([one.output_move for one in loops])
    when = {int(t) for t in schedule.integers(0, rows, moves)}
    blocks = max(1, rows // 1500) if manual else 0
    starts = [int(t) for t in schedule.integers(0, rows - 150, blocks)]
    in_manual = np.zeros(rows, bool)
    for start in starts:
        in_manual[start : start + 150] = True
    output, valve = low_integral.copy(), low_integral.copy()
    band = np.asarray(stickband, float) if len(stickband) else np.zeros(n)
    kept: dict[str, list[np.ndarray]] = {"measured": [], "setpoint": [], "output": []}
    for t in range(rows):
        measured = model.measure() + sigma * rng.normal(size=n)
        if t in when:
            which = schedule.integers(n)
            setpoint[which] = base[which] + size[which] * schedule.uniform(-1, 1)
        error = setpoint - measured
        if in_manual[t]:
            if t == 0 or not in_manual[t - 1] or t % 50 == 0:
                output = output + by_hand * schedule.choice([-1, 1], n)
                output = np.clip(output, 2, 98)
            low_integral = output - gain * error
        else:
            low_integral = low_integral + gain / integral * plant.period * error
            wanted = low_integral + gain * error
            output = np.clip(wanted, 0, 100)
            low_integral = low_integral + (output - wanted)
        kept["measured"].append(measured)
        kept["setpoint"].append(setpoint.copy())
        kept["output"].append(output.copy())
        valve = np.where(np.abs(output - valve) > band, output, valve)
        model.step(valve, rng)
    measured, setpoint, output = (np.stack(column) for column in kept.values())
    return Rows(measured, setpoint, output, in_manual)


def worth(plant: OutsidePlant, rows: Rows) -> np.ndarray:
    """The objective of every row but the first and the last: of the row after it, and its move."""
    weight = np.asarray([one.weight for one in plant.loops])
    error = np.abs(rows.measured - rows.setpoint)[2:] / weight
    moved = np.abs(np.diff(rows.output, axis=0))[:-1]
    return -(error + 0.02 * moved).sum(axis=1)
