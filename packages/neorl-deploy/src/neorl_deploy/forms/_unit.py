"""Packs a form as a co-simulation unit of FMI 2.0, in C that needs nothing but a C compiler.

The unit holds the printed step, the functions of the interface around it, and a library for this
machine if there is a compiler. It computes one step at every multiple of the period, from the
inputs at the beginning of the communication step, so with steps of one period it acts once a step.
"""

from __future__ import annotations

import io
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import quoteattr

from neorl_deploy._errors import DeployError
from neorl_deploy.bundle._manifest import Manifest
from neorl_deploy.bundle._read import Bundle
from neorl_deploy.forms._c import c_source
from neorl_deploy.forms._form import STOPPED, Form, Variable, form_of

TYPES = {"real": "Real", "bool": "Boolean", "int": "Integer", "word": "Integer"}
BEGIN_STOPPED = "begin_stopped"
FLAGS = ("-O2", "-std=c99", "-ffp-contract=off", "-shared", "-fPIC")
"""The compiler may not fuse operations, so that the unit computes what the bundle does."""


class Entry(NamedTuple):
    """A variable of the unit: its number is its place in the list.

    Attributes:
        variable: The variable of the form.
        causality: ``"input"``, ``"output"`` or ``"parameter"``.
        member: Where it lies in C.
    """

    variable: Variable
    causality: str
    member: str


def write_unit(bundle: Bundle, path: Path) -> bool:
    """Writes a bundle's guarded step as a unit, ``NAME.fmu``.

    Args:
        bundle: A verified bundle with the NumPy form.
        path: The file; one that exists is replaced.

    Returns:
        Whether a library for this machine is in it; otherwise it holds the sources alone.

    Raises:
        NoFormError: If the bundle holds something that C cannot show equal; it is named.
        DeployError: If the compiler fails, or the file cannot be written.
    """
    form = form_of(bundle)
    entries = entries_of(form)
    sources = {**c_source(form), "unit.c": interface(form, entries)}
    library = _compiled(form.name, sources)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("modelDescription.xml", description(form, entries, bundle.manifest))
        for name, text in sources.items():
            archive.writestr(f"sources/{name}", text)
        if library is not None:
            archive.writestr(*library)
    try:
        path.write_bytes(buffer.getvalue())
    except OSError as error:
        raise DeployError(f"cannot write {path}: {error.strerror}") from error
    return library is not None


def entries_of(form: Form) -> tuple[Entry, ...]:
    """The variables of the unit: inputs and outputs of the form, and whether it begins stopped."""
    words = "begins stopped, as the block of a controller does, until release rises"
    stopped = Variable(BEGIN_STOPPED, "bool", False, words)
    return (
        *(Entry(variable, "input", f"u->in.{variable.name}") for variable in form.inputs),
        *(Entry(variable, "output", f"u->out.{variable.name}") for variable, _ in form.outputs),
        Entry(stopped, "parameter", f"u->{BEGIN_STOPPED}"),
    )


# The description.


def description(form: Form, entries: Sequence[Entry], manifest: Manifest) -> str:
    """``modelDescription.xml``: variables with unit, range and start."""
    # In the order of the form: what is measured, what the plant received, what is sent.
    channels = iter([*manifest.obs, *manifest.action, *manifest.action])
    units = sorted({c.unit for c in (*manifest.obs, *manifest.action) if c.unit})
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<fmiModelDescription fmiVersion="2.0" modelName={quoteattr(form.name)} '
        f'guid="{{{form.seal}}}" generationTool="neorl" '
        f'description="Guarded policy of the bundle sha256:{form.digest}">',
        f'<CoSimulation modelIdentifier="{form.name}" '
        'canHandleVariableCommunicationStepSize="true" canGetAndSetFMUstate="true" '
        'canSerializeFMUstate="true">',
        f'<SourceFiles><File name="{form.name}.c"/><File name="unit.c"/></SourceFiles>',
        "</CoSimulation>",
    ]
    if units:
        listed = "".join(f"<Unit name={quoteattr(unit)}/>" for unit in units)
        lines.append(f"<UnitDefinitions>{listed}</UnitDefinitions>")
    lines += [f'<DefaultExperiment stepSize="{form.dt!r}"/>', "<ModelVariables>"]
    for number, entry in enumerate(entries):
        unit = next(channels).unit if entry.variable.kind == "real" else ""
        lines.append(_variable(number, entry, unit))
    outputs = [i for i, entry in enumerate(entries, 1) if entry.causality == "output"]
    unknowns = "".join(f'<Unknown index="{i}"/>' for i in outputs)
    lines += [
        "</ModelVariables>",
        f"<ModelStructure><Outputs>{unknowns}</Outputs></ModelStructure>",
        "</fmiModelDescription>",
    ]
    return "\n".join(lines) + "\n"


def _variable(number: int, entry: Entry, unit: str) -> str:
    variable, causality = entry.variable, entry.causality
    real = variable.kind == "real"
    variability = {"parameter": "fixed"}.get(causality, "continuous" if real else "discrete")
    start = variable.initial
    text = str(start).lower() if variable.kind == "bool" else repr(start)
    kind = [TYPES[variable.kind]]
    if real and unit:
        kind.append(f"unit={quoteattr(unit)}")
    if causality != "output":
        kind.append(f'start="{text}"')
    return (
        f'<ScalarVariable name="{variable.name}" valueReference="{number}" '
        f'causality="{causality}" variability="{variability}" '
        f"description={quoteattr(variable.words)}><{' '.join(kind)}/></ScalarVariable>"
    )


# The interface in C.


def interface(form: Form, entries: Sequence[Entry]) -> str:
    """The functions of FMI 2.0 around the printed step; it declares their types itself."""
    stopped = [variable.name for variable, _ in form.memory if f".{variable.words}" in STOPPED]
    fresh = " ".join(f"u->m.{name} = u->begin_stopped;" for name in stopped)
    text = INTERFACE
    for key, value in {
        "NAME": form.name,
        "PERIOD": repr(form.dt),
        "FRESH": fresh,
        "GET_REAL": _cases(entries, ("real",), "value[i] = {};"),
        "SET_REAL": _cases(entries, ("real",), "{} = value[i];", settable=True),
        "GET_INTEGER": _cases(entries, ("int", "word"), "value[i] = (int){};"),
        "GET_BOOLEAN": _cases(entries, ("bool",), "value[i] = {} ? 1 : 0;"),
        "SET_BOOLEAN": _cases(entries, ("bool",), "{} = value[i] != 0;", settable=True),
    }.items():
        text = text.replace(f"@{key}@", value)
    return text


def _cases(
    entries: Sequence[Entry], kinds: Sequence[str], action: str, *, settable: bool = False
) -> str:
    def lines() -> Iterator[str]:
        for number, entry in enumerate(entries):
            if entry.variable.kind in kinds and not (settable and entry.causality == "output"):
                yield f"      case {number}: {action.format(entry.member)} break;"

    return "\n".join(lines())


INTERFACE = """\
/* The functions of FMI 2.0 for co-simulation around the step in @NAME@.c.
   Compile both files into one library named @NAME@. */
#include "@NAME@.h"
#include <stdlib.h>
#include <string.h>
#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif
enum { OK = 0, DISCARD = 2, ERROR = 3 };
typedef struct {
  @NAME@_state m;
  @NAME@_inputs in;
  @NAME@_outputs out;
  double next; /* time of the next step */
  bool begin_stopped;
} unit;
static void defaults(unit *u) {
  memset(u, 0, sizeof *u);
  @NAME@_default_inputs(&u->in);
}
EXPORT const char *fmi2GetTypesPlatform(void) { return "default"; }
EXPORT const char *fmi2GetVersion(void) { return "2.0"; }
EXPORT int fmi2SetDebugLogging(void *c, int on, size_t n, const char *const names[]) { return OK; }
EXPORT void *fmi2Instantiate(const char *name, int kind, const char *guid, const char *resources,
                             const void *functions, int visible, int logging) {
  unit *u = kind == 1 ? malloc(sizeof *u) : NULL; /* co-simulation alone */
  if (u) defaults(u);
  return u;
}
EXPORT void fmi2FreeInstance(void *c) { free(c); }
EXPORT int fmi2SetupExperiment(void *c, int has_tolerance, double tolerance, double start,
                               int has_stop, double stop) {
  ((unit *)c)->next = start;
  return OK;
}
EXPORT int fmi2EnterInitializationMode(void *c) { return OK; }
EXPORT int fmi2ExitInitializationMode(void *c) {
  unit *u = c;
  @NAME@_init(&u->m);
  @FRESH@
  return OK;
}
EXPORT int fmi2Terminate(void *c) { return OK; }
EXPORT int fmi2Reset(void *c) {
  defaults(c);
  return OK;
}
EXPORT int fmi2GetReal(void *c, const unsigned vr[], size_t n, double value[]) {
  unit *u = c;
  for (size_t i = 0; i < n; i++) {
    switch (vr[i]) {
@GET_REAL@
      default: return ERROR;
    }
  }
  return OK;
}
EXPORT int fmi2SetReal(void *c, const unsigned vr[], size_t n, const double value[]) {
  unit *u = c;
  for (size_t i = 0; i < n; i++) {
    switch (vr[i]) {
@SET_REAL@
      default: return ERROR;
    }
  }
  return OK;
}
EXPORT int fmi2GetInteger(void *c, const unsigned vr[], size_t n, int value[]) {
  unit *u = c;
  for (size_t i = 0; i < n; i++) {
    switch (vr[i]) {
@GET_INTEGER@
      default: return ERROR;
    }
  }
  return OK;
}
EXPORT int fmi2SetInteger(void *c, const unsigned vr[], size_t n, const int value[]) {
  return n ? ERROR : OK;
}
EXPORT int fmi2GetBoolean(void *c, const unsigned vr[], size_t n, int value[]) {
  unit *u = c;
  for (size_t i = 0; i < n; i++) {
    switch (vr[i]) {
@GET_BOOLEAN@
      default: return ERROR;
    }
  }
  return OK;
}
EXPORT int fmi2SetBoolean(void *c, const unsigned vr[], size_t n, const int value[]) {
  unit *u = c;
  for (size_t i = 0; i < n; i++) {
    switch (vr[i]) {
@SET_BOOLEAN@
      default: return ERROR;
    }
  }
  return OK;
}
EXPORT int fmi2GetString(void *c, const unsigned vr[], size_t n, const char *value[]) {
  return n ? ERROR : OK;
}
EXPORT int fmi2SetString(void *c, const unsigned vr[], size_t n, const char *const value[]) {
  return n ? ERROR : OK;
}
EXPORT int fmi2GetFMUstate(void *c, void **state) {
  if (!*state) *state = malloc(sizeof(unit));
  if (!*state) return ERROR;
  memcpy(*state, c, sizeof(unit));
  return OK;
}
EXPORT int fmi2SetFMUstate(void *c, void *state) {
  memcpy(c, state, sizeof(unit));
  return OK;
}
EXPORT int fmi2FreeFMUstate(void *c, void **state) {
  free(*state);
  *state = NULL;
  return OK;
}
EXPORT int fmi2SerializedFMUstateSize(void *c, void *state, size_t *size) {
  *size = sizeof(unit);
  return OK;
}
EXPORT int fmi2SerializeFMUstate(void *c, void *state, char bytes[], size_t size) {
  if (size < sizeof(unit)) return ERROR;
  memcpy(bytes, state, sizeof(unit));
  return OK;
}
EXPORT int fmi2DeSerializeFMUstate(void *c, const char bytes[], size_t size, void **state) {
  if (size < sizeof(unit)) return ERROR;
  if (!*state) *state = malloc(sizeof(unit));
  if (!*state) return ERROR;
  memcpy(*state, bytes, sizeof(unit));
  return OK;
}
EXPORT int fmi2GetDirectionalDerivative(void *c, const unsigned a[], size_t n, const unsigned b[],
                                        size_t m, const double known[], double unknown[]) {
  return ERROR;
}
EXPORT int fmi2SetRealInputDerivatives(void *c, const unsigned vr[], size_t n, const int order[],
                                       const double value[]) {
  return ERROR;
}
EXPORT int fmi2GetRealOutputDerivatives(void *c, const unsigned vr[], size_t n, const int order[],
                                        double value[]) {
  return ERROR;
}
/* A step of the policy at every multiple of its period that lies in the communication step. */
EXPORT int fmi2DoStep(void *c, double time, double step, int no_return) {
  unit *u = c;
  const double period = @PERIOD@;
  while (u->next < time + step - 1e-6 * period) {
    @NAME@_step(&u->m, &u->in, &u->out);
    u->next += period;
  }
  return OK;
}
EXPORT int fmi2CancelStep(void *c) { return ERROR; }
EXPORT int fmi2GetStatus(void *c, int kind, int *value) { return DISCARD; }
EXPORT int fmi2GetRealStatus(void *c, int kind, double *value) { return DISCARD; }
EXPORT int fmi2GetIntegerStatus(void *c, int kind, int *value) { return DISCARD; }
EXPORT int fmi2GetBooleanStatus(void *c, int kind, int *value) { return DISCARD; }
EXPORT int fmi2GetStringStatus(void *c, int kind, const char **value) { return DISCARD; }
"""


def _compiled(name: str, sources: dict[str, str]) -> tuple[str, bytes] | None:
    """The library for this machine with its place in a unit; ``None`` without a C compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None or sys.platform != "linux" or platform.machine() != "x86_64":
        return None
    with tempfile.TemporaryDirectory() as folder:
        for file, text in sources.items():
            (Path(folder) / file).write_text(text, encoding="utf-8")
        library = Path(folder) / f"{name}.so"
        command = [compiler, *FLAGS, f"{name}.c", "unit.c", "-o", library.name, "-lm"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no message"])[0]
            raise DeployError(f"{compiler} cannot compile the unit: {reason}")
        return f"binaries/linux64/{name}.so", library.read_bytes()
