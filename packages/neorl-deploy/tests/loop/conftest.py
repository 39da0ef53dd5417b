"""A plant and clocks that a test sets, beside the sealed bundle of the package's tests."""

import dataclasses

import numpy as np
import pytest

from neorl_deploy.bundle import read_bundle
from neorl_deploy.loop import (
    ControlLoop,
    Instant,
    Mode,
    PlantError,
    Quality,
    Reading,
    tags_of,
)
from neorl_deploy.runtime import Runtime

UNATTENDED = "the plant has no permit and watches no heartbeat"

WELL = {"LI": 1.0, "TI": 330.0, "PI": 300.0}  # PI in kPa, the channel in bar
START = 1.7e9


class FakeClock:
    """Two clocks that move only when they are told."""

    def __init__(self):
        self.monotonic, self.wall = 100.0, START

    def now(self):
        return Instant(self.monotonic, self.wall)

    def pass_by(self, seconds):
        self.monotonic += seconds
        self.wall += seconds

    def sleep_until(self, monotonic):
        self.pass_by(max(monotonic - self.monotonic, 0.0))


class FakePlant:
    """Tags with values, qualities and stamps; a valve and a jacket that obey at once."""

    def __init__(self, clock):
        self.clock, self.tags, self.quality, self.age = clock, dict(WELL), {}, {}
        self.tags.update({"LC.OP": 40.0, "TC.SP": 300.0, "BEAT": 0.0, "ALIVE": 0.0, "MODE": 3.0})
        self.tags.update({"STOP": 0.0})
        self.down = self.down_at_write = False
        self.refuses, self.writes, self.slow, self.jitter = {}, [], 0.0, True
        self.unstamped, self.ticks, self.hands = set(), 1.0, {}
        self.rng = np.random.default_rng(0)

    def read(self, tags):
        self.clock.pass_by(self.slow)
        if self.down:
            raise PlantError("opc.tcp://plant does not answer")
        self.tags["ALIVE"] += self.ticks
        readings = [self._reading(tag) for tag in tags]
        if len(tags) == 1:  # somebody who looks at one actuator is asked to move it
            self.tags[tags[0]] += self.hands.get(tags[0], 0.0)
        return readings

    def _reading(self, tag):
        value = self.tags[tag]
        if tag in WELL and self.jitter:  # a sensor that lives is never quite still
            value *= 1 + 1e-6 * self.rng.normal()
        stamp = None if tag in self.unstamped else self.clock.wall - self.age.get(tag, 0.5)
        return Reading(value, self.quality.get(tag, Quality.GOOD), stamp)

    def write(self, values):
        self.writes.append(dict(values))
        if self.down or self.down_at_write:
            raise PlantError("opc.tcp://plant vanished")
        for tag, value in values.items():
            if tag not in self.refuses:
                self.tags[tag] = value
        return {tag: why for tag, why in self.refuses.items() if tag in values}

    def close(self):
        self.down = True


@pytest.fixture(scope="session")
def document(exported):
    digest = read_bundle(exported).digest
    return {
        "bundle": f"sha256:{digest}",
        "connection": {"kind": "none"},
        "loop": {
            "heartbeat": "BEAT",
            "mode": "MODE",
            "plant_heartbeat": "ALIVE",
            "stop": "STOP",
            "unattended": UNATTENDED,
        },
        "input": [
            {"channel": "level", "tag": "LI", "unit": "m", "low": -0.1, "high": 2.1},
            {"channel": "temperature", "tag": "TI", "unit": "K", "low": 274.0, "high": 406.0},
            {"channel": "pressure", "tag": "PI", "unit": "bar", "scale": 0.01, "high": 6.3},
        ],
        "output": [
            {"channel": "valve", "tag": "LC.OP", "read_back": "LC.OP", "unit": "%"},
            {"channel": "jacket", "tag": "TC.SP", "read_back": "TC.SP", "unit": "K"},
        ],
    }


def completed(document):
    """With what every input and output of the tests has in common."""
    inputs = [{"max_age": 60.0, "frozen": 300.0, **row} for row in document["input"]]
    outputs = [{"tolerance": 0.5, "advice": f"{r['tag']}.A", **r} for r in document["output"]]
    return {**document, "input": inputs, "output": outputs}


@dataclasses.dataclass
class Bench:
    """A loop, its plant and its clock, stepped by hand."""

    loop: ControlLoop
    plant: FakePlant
    clock: FakeClock
    runtime: Runtime

    def step(self, count=1, missed=0):
        cycles = []
        for _ in range(count):
            cycles.append(self.loop.step(missed))
            self.clock.pass_by(30.0)
        return cycles[-1] if count == 1 else cycles

    def close(self):
        """Asks for the closed loop and waits until it is."""
        self.loop.ask(Mode.CLOSED_LOOP, "the test")
        self.step(6)
        assert self.loop.mode is Mode.CLOSED_LOOP
        return self

    def names(self, cycle):
        return set(self.runtime.flag_names(cycle.decision.flags))

    def falls_back(self, cycle):
        return "fallback_used" in self.names(cycle)


@pytest.fixture
def fresh(runtime):
    """The session's runtime as a process finds it: its program is compiled once."""
    runtime._carry, runtime._proposed = runtime._initial, runtime._nothing_sent()
    runtime._events, runtime._steps, runtime._fell_back = type(runtime._events)(), 0, False
    runtime._file = None
    return runtime


@pytest.fixture
def make(fresh, document):
    """A bench; the tables of the tag map may be changed by name."""

    def bench(runtime=fresh, record=None, start=Mode.SHADOW, tables=None, **loop):
        clock = FakeClock()
        plant = FakePlant(clock)
        settings = {**document, "loop": {**document["loop"], "plant_silence": 90.0, **loop}}
        settings |= tables or {}
        tags = tags_of(completed(settings), runtime.bundle, "tags.toml")
        made = ControlLoop(runtime, tags, plant, clock, record=record, start=start)
        return Bench(made, plant, clock, runtime)

    return bench
