"""A bundle as a co-simulation unit, run by FMPy beside the bundle's test vectors."""

import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neorl_deploy.bundle import Bundle, read_bundle
from neorl_deploy.forms import write_unit

fmpy = pytest.importorskip("fmpy")
pytestmark = pytest.mark.skipif(not shutil.which("gcc"), reason="there is no gcc")


class Unit:
    """A unit in FMPy, with variables by name."""

    def __init__(self, path: Path, bundle: Bundle) -> None:
        from fmpy.fmi2 import FMU2Slave

        described = fmpy.read_model_description(str(path), validate=True)
        self.numbers = {v.name: v.valueReference for v in described.modelVariables}
        self.units = {v.name: v.unit for v in described.modelVariables}
        self.manifest = bundle.manifest
        self.slave = FMU2Slave(
            guid=described.guid,
            unzipDirectory=fmpy.extract(str(path)),
            modelIdentifier=described.coSimulation.modelIdentifier,
            instanceName="unit",
        )
        self.slave.instantiate()

    def begin(self, *, stopped: bool = False) -> None:
        self.slave.reset()
        self.slave.setupExperiment(startTime=0.0)
        self.set_bool("begin_stopped", stopped)
        self.slave.enterInitializationMode()
        self.slave.exitInitializationMode()

    def set_bool(self, name: str, value: bool) -> None:
        self.slave.setBoolean([self.numbers[name]], [value])

    def get_bool(self, name: str) -> bool:
        return bool(self.slave.getBoolean([self.numbers[name]])[0])

    def give(self, obs: Any, sent: Any) -> None:
        sides = (("in", self.manifest.obs, obs), ("sent", self.manifest.action, sent))
        for prefix, channels, row in sides:
            for channel, value in zip(channels, row, strict=True):
                name, good = f"{prefix}_{channel.name}", bool(np.isfinite(value))
                self.slave.setReal([self.numbers[name]], [float(value) if good else 0.0])
                self.set_bool(f"{name}_ok", good)

    def step(self, time: float, period: float) -> None:
        self.slave.doStep(currentCommunicationPoint=time, communicationStepSize=period)

    @property
    def action(self) -> list[float]:
        names = [f"out_{channel.name}" for channel in self.manifest.action]
        return self.slave.getReal([self.numbers[name] for name in names])

    def word(self, name: str) -> int:
        return self.slave.getInteger([self.numbers[name]])[0] & 0xFFFFFFFF


@pytest.fixture(scope="module")
def sealed(exported: Path) -> Bundle:
    return read_bundle(exported)


@pytest.fixture(scope="module")
def unit(sealed: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Unit:
    path = tmp_path_factory.mktemp("unit") / "plant.fmu"
    assert write_unit(sealed, path)
    assert {"sources/unit.c", "binaries/linux64/neorl_plant.so"} <= {
        *zipfile.ZipFile(path).namelist()
    }
    return Unit(path, sealed)


def test_it_answers_the_test_vectors_as_the_bundle(unit: Unit, sealed: Bundle) -> None:
    period, size = sealed.manifest.dt, [c.high - c.low for c in sealed.manifest.action]
    for section in ("sequence", "single"):
        vectors = sealed.test_vectors(section)
        unit.begin()
        for row, (obs, sent) in enumerate(zip(vectors["obs"], vectors["last_sent"], strict=True)):
            if section == "single":
                unit.begin()
            unit.give(obs, sent)
            unit.step(row * period if section == "sequence" else 0.0, period)
            apart = np.abs(np.asarray(unit.action) - vectors["action"][row])
            assert ((apart - vectors["rounding"][row]) / size <= 1e-6).all(), (section, row)
            assert unit.word("flags") == vectors["flags"][row], (section, row)


def test_it_acts_once_a_period_whatever_the_communication_step(unit: Unit) -> None:
    period = unit.manifest.dt
    unit.begin()
    beats = []
    for quarter in range(8):
        unit.step(quarter * period / 4, period / 4)
        beats.append(unit.word("heartbeat"))
    assert beats == [1, 1, 1, 1, 2, 2, 2, 2]
    unit.step(2 * period, 3 * period)
    assert unit.word("heartbeat") == 5


def test_a_stop_and_a_lost_signal_lead_to_the_fallback(unit: Unit) -> None:
    middle = [(c.low + c.high) / 2 for c in unit.manifest.obs]
    held = [(c.low + c.high) / 2 for c in unit.manifest.action]
    unit.begin(stopped=True)
    unit.give(middle, held)
    unit.step(0.0, unit.manifest.dt)
    assert unit.get_bool("on_fallback")
    unit.begin()
    unit.give(middle, held)
    unit.step(0.0, unit.manifest.dt)
    assert not unit.get_bool("on_fallback")
    unit.set_bool("stop", True)
    unit.step(unit.manifest.dt, unit.manifest.dt)
    assert unit.get_bool("on_fallback")
    for channel, value in zip(unit.manifest.action, unit.action, strict=True):
        assert channel.low <= value <= channel.high


def test_its_state_is_kept_and_given_back(unit: Unit) -> None:
    middle = [(c.low + c.high) / 2 for c in unit.manifest.obs]
    unknown = [float("nan")] * len(unit.manifest.action)
    unit.begin()
    unit.give(middle, unknown)
    unit.step(0.0, unit.manifest.dt)
    kept = unit.slave.serializeFMUstate(unit.slave.getFMUstate())
    unit.step(unit.manifest.dt, unit.manifest.dt)
    first = unit.action, unit.word("heartbeat")
    unit.slave.setFMUstate(unit.slave.deSerializeFMUstate(kept))
    unit.step(unit.manifest.dt, unit.manifest.dt)
    assert (unit.action, unit.word("heartbeat")) == first


def test_channels_have_their_units(unit: Unit) -> None:
    for channel in unit.manifest.obs:
        assert unit.units[f"in_{channel.name}"] == channel.unit
    for channel in unit.manifest.action:
        assert unit.units[f"out_{channel.name}"] == channel.unit
        assert unit.units[f"sent_{channel.name}"] == channel.unit


def test_the_command_writes_it_beside_the_bundle(command, bundle: Path) -> None:
    command("export", bundle, "--form", "fmu")
    names = zipfile.ZipFile(bundle.with_name("neorl_plant.fmu")).namelist()
    assert "modelDescription.xml" in names
