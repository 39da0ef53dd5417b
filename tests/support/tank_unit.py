"""A small co-simulation unit for tests and benchmarks, compiled from C: a tank with a valve.

FMPy brings the headers of the interface. A library must export every function of it, so those that
the tank does not have are made to answer with an error.
"""

import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("tank.c")
VARIABLES = (
    ("level", 1, "output", "", "m", 'min="0" max="2"'),
    ("flow", 2, "output", "", "m3/s", ""),
    ("valve", 3, "input", "0.5", "1", 'min="0" max="1"'),
    ("area", 4, "parameter", "1", "m2", ""),
    ("level0", 5, "parameter", "1", "m", ""),
)
DECLARATION = """
[sampling]
period_s = 1.0

[episodes]
length = 60

[reward]
expression = "-abs(level - 1.2) - 0.01 * abs(valve - before_valve)"
unit = "m"

[[cost]]
name = "overflow"
expression = "greatest(level - 1.3, 0)"
unit = "m"
limit = 0.0
penalty = 10.0

[[tag]]
name = "level"
role = "observation"
noise = 0.005

[[tag]]
name = "outflow"
tag = "flow"
role = "observation"
low = 0.0
high = 0.02
unit = "m3/s"

[[tag]]
name = "valve"
role = "manipulated"
rate = 0.2

[[parameter]]
name = "level0"
low = 0.8
high = 1.2

[[loop]]
name = "LC-1"
controlled = "level"
manipulated = "valve"
direction = "reverse"
gain = 1.0
integral = 20
setpoint = 1.2
bias = 0.5
"""


def compiler() -> str | None:
    """The C compiler of this machine."""
    return shutil.which("gcc") or shutil.which("cc")


def build_tank(
    folder: Path, *, version: int = 2, reset: bool = True, declaration: str = DECLARATION
) -> Path:
    """Compiles the unit and writes it with its declaration, as ``tank.fmu`` and ``tank.toml``.

    Args:
        folder: Where both are written.
        version: 2 or 3, the version of the interface.
        reset: Whether the unit can be reset.
        declaration: The text of ``tank.toml``.
    """
    import fmpy
    from fmpy.fmi2 import FMU2Slave
    from fmpy.fmi3 import FMU3Slave

    kind: Any = FMU2Slave if version == 2 else FMU3Slave
    own = SOURCE.read_text(encoding="utf-8")
    missing = [
        name for name in dir(kind) if name.startswith(f"fmi{version}") and f" {name}(" not in own
    ]
    stubs = folder / "missing.c"
    stubs.write_text("".join(f"int {name}(void) {{ return 3; }}\n" for name in missing))
    headers = Path(fmpy.__file__).parent / "c-code"
    library = folder / "tank.so"
    flags = [*(["-DFMI3"] if version == 3 else []), *([] if reset else ["-DNO_RESET"])]
    line = [str(compiler()), "-O2", "-shared", "-fPIC", *flags, f"-I{headers}"]
    subprocess.run([*line, str(SOURCE), str(stubs), "-o", str(library), "-lm"], check=True)
    unit = folder / "tank.fmu"
    with zipfile.ZipFile(unit, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("modelDescription.xml", _description(version))
        place = fmpy.platform if version == 2 else fmpy.platform_tuple
        archive.write(library, f"binaries/{place}/tank{fmpy.sharedLibraryExtension}")
    unit.with_suffix(".toml").write_text(declaration, encoding="utf-8")
    return unit


def _description(version: int) -> str:
    if version == 2:
        head = 'fmiVersion="2.0" modelName="tank" guid="{tank}"'
        variables = "".join(
            f'<ScalarVariable name="{name}" valueReference="{number}" {_kind(kind)}>'
            f'<Real unit="{unit}" {_start(start)} {ends}/></ScalarVariable>'
            for name, number, kind, start, unit, ends in VARIABLES
        )
        outputs = '<Outputs><Unknown index="1"/><Unknown index="2"/></Outputs>'
    else:
        head = 'fmiVersion="3.0" modelName="tank" instantiationToken="{tank}"'
        variables = "".join(
            f'<Float64 name="{name}" valueReference="{number}" {_kind(kind)} unit="{unit}" '
            f"{_start(start)} {ends}/>"
            for name, number, kind, start, unit, ends in VARIABLES
        )
        variables += (
            '<Float64 name="time" valueReference="0" causality="independent" '
            'variability="continuous"/>'
        )
        outputs = '<Output valueReference="1"/><Output valueReference="2"/>'
    units = "".join(f'<Unit name="{unit}"/>' for unit in ("m", "m3/s", "1", "m2"))
    return (
        f'<?xml version="1.0" encoding="UTF-8"?><fmiModelDescription {head}>'
        '<CoSimulation modelIdentifier="tank" canHandleVariableCommunicationStepSize="true"/>'
        f"<UnitDefinitions>{units}</UnitDefinitions>"
        '<DefaultExperiment stopTime="60" stepSize="1"/>'
        f"<ModelVariables>{variables}</ModelVariables>"
        f"<ModelStructure>{outputs}</ModelStructure></fmiModelDescription>"
    )


def _kind(kind: str) -> str:
    variability = {"parameter": "fixed", "input": "continuous", "output": "continuous"}[kind]
    return f'causality="{kind}" variability="{variability}"'


def _start(start: str) -> str:
    return f'start="{start}"' if start else ""
