"""The printed forms of a bundle, compiled and driven beside the bundle's own step.

C is compiled by ``gcc``, and a co-simulation unit runs in FMPy. Structured text is compiled by
matiec, which is not a daily dependency: build it (flex, bison, autoconf: ``autoreconf -i &&
./configure && make``) and put its folder on the path, where ``iec2c`` lies beside ``lib``.
``NEORL_TC6_SCHEMA`` names the schema of PLCopen XML, ``tc6_xml_v201.xsd``.
"""

import csv
import ctypes
import dataclasses
import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents import save_policy
from neorl_agents.artefact import POLICY_KINDS, PolicyKind
from neorl_agents.networks import init_mlp, tanh
from neorl_agents.policies import ResidualPolicy
from neorl_core import Affine, unit_interval
from neorl_core.control import StateFeedback
from neorl_deploy.bundle import ArrayEntry, read_bundle
from neorl_deploy.export import ExportOptions, export_run
from neorl_deploy.forms import (
    Evaluation,
    NoFormError,
    SealedStep,
    c_source,
    form_of,
    operations_of,
    plcopen_xml,
    structured_text,
    write_forms,
    write_unit,
)
from neorl_deploy.forms._graph import Graph
from neorl_deploy.forms._lowering import lower
from neorl_deploy.runtime import Operation, Operations

KEPT = Path(__file__).parents[1] / "bundle" / "kept" / "jax-0.10.2"
IEC2C, SCHEMA = shutil.which("iec2c"), os.environ.get("NEORL_TC6_SCHEMA", "")
REAL, LREAL = 1e-5, 1e-12
"""Largest difference of an action, as a fraction of its channel's span."""
HAS_GCC, HAS_FMPY = shutil.which("gcc"), importlib.util.find_spec("fmpy")
NEEDS = {
    "c": (HAS_GCC, "there is no gcc"),
    "st": (HAS_GCC and IEC2C, "matiec's iec2c is not built"),
    "plcopen": (HAS_GCC and IEC2C, "matiec's iec2c is not built"),
    "fmu": (HAS_GCC and HAS_FMPY, "there is no gcc or no FMPy"),
}
LANGUAGES = [
    pytest.param(name, marks=pytest.mark.skipif(not found, reason=reason))
    for name, (found, reason) in NEEDS.items()
]


class Compiled:
    """A printed form behind two functions of arrays of doubles, compiled into a library."""

    def __init__(self, form, language, folder, *, long=False):
        self._inputs, self._form = form.inputs, form
        self._outputs = [variable for variable, _ in form.outputs]
        write, further = DRIVERS[language](form, folder, long)
        (folder / "driver.c").write_text(write)
        flags = ["-O2", "-w", "-ffp-contract=off", "-shared", "-fPIC"]
        command = ["gcc", *flags, *further, "driver.c", "-o", "form.so", "-lm"]
        subprocess.run(command, cwd=folder, check=True)
        library = ctypes.CDLL(str(folder / "form.so"))
        self._step = library.step
        library.start()
        self._given = (ctypes.c_double * len(self._inputs))()
        self._answer = (ctypes.c_double * len(self._outputs))()

    def step(self, **inputs):
        self._given[:] = [float(inputs[variable.name]) for variable in self._inputs]
        self._step(self._given, self._answer)
        named = zip(self._outputs, self._answer, strict=True)
        return {v.name: a if v.kind == "real" else int(a) for v, a in named}


def _c_driver(form, folder, long):
    for name, text in c_source(form, double=long).items():
        (folder / name).write_text(text)
    inputs = "".join(f"in.{v.name} = given[{i}];" for i, v in enumerate(form.inputs))
    outputs = "".join(f"answer[{i}] = out.{v.name};" for i, (v, _) in enumerate(form.outputs))
    name = form.name
    return (
        f'#include "{name}.c"\nstatic {name}_state m; static {name}_inputs in;'
        f"static {name}_outputs out; void start(void) {{ {name}_init(&m); }}"
        "void step(const double *given, double *answer) {"
        f"{inputs} {name}_step(&m, &in, &out); {outputs} }}",
        [],
    )


def _st_driver(form, folder, long):
    return _block_driver(form, folder, structured_text(form, long=long))


def _plcopen_driver(form, folder, long):
    return _block_driver(form, folder, imported(plcopen_xml(form, long=long)))


def imported(document):
    """The block of a PLCopen document as structured text, as a tool that imports it reads it."""
    names = {"of": "http://www.plcopen.org/xml/tc6_0201"}
    pou = ElementTree.fromstring(document).find("of:types/of:pous/of:pou", names)
    assert pou is not None
    assert pou.get("pouType") == "functionBlock"
    lines = [f"FUNCTION_BLOCK {pou.get('name')}"]
    keywords = {"inputVars": "VAR_INPUT", "outputVars": "VAR_OUTPUT", "localVars": "VAR"}
    for group in pou.find("of:interface", names):
        keyword = keywords.get(group.tag.partition("}")[2])
        if keyword is None:  # the documentation
            continue
        lines.append(f"{keyword} CONSTANT" if group.get("constant") == "true" else keyword)
        for variable in group.findall("of:variable", names):
            kind = variable.find("of:type", names)[0]
            array = kind.find("of:dimension", names)
            text = kind.tag.partition("}")[2].upper()
            if array is not None:
                element = kind.find("of:baseType", names)[0].tag.partition("}")[2]
                text = f"ARRAY[{array.get('lower')}..{array.get('upper')}] OF {element}"
            given = variable.findall(".//of:simpleValue", names)
            values = ", ".join(one.get("value") for one in given)
            start = f" := {f'[{values}]' if array is not None else values}" if given else ""
            lines.append(f"{variable.get('name')} : {text}{start};")
        lines.append("END_VAR")
    return "\n".join([*lines, *pou.find("of:body/of:ST", names).itertext(), "END_FUNCTION_BLOCK\n"])


def _block_driver(form, folder, text):
    (folder / "block.st").write_text(text)
    library = Path(IEC2C).resolve().parent / "lib"
    done = subprocess.run(
        [IEC2C, "-I", library, "-T", folder, folder / "block.st"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    inputs = "".join(
        f"block.{v.name.upper()}.value = given[{i}];" for i, v in enumerate(form.inputs)
    )
    outputs = "".join(
        f"answer[{i}] = block.{v.name.upper()}.value;" for i, (v, _) in enumerate(form.outputs)
    )
    name = form.name.upper()
    return (
        '#include "iec_std_lib.h"\n#include "POUS.h"\n#include "POUS.c"\n'
        f"TIME __CURRENT_TIME; BOOL __DEBUG; static {name} block;"
        f"void start(void) {{ {name}_init__(&block, 0); }}"
        "void step(const double *given, double *answer) {"
        f"{inputs} {name}_body__(&block); {outputs} }}",
        ["-I", str(library / "C")],
    )


DRIVERS = {"c": _c_driver, "st": _st_driver, "plcopen": _plcopen_driver}


SETTERS = {"real": "setReal", "bool": "setBoolean"}
GETTERS = {"real": "getReal", "bool": "getBoolean", "int": "getInteger", "word": "getInteger"}


class Unit:
    """A bundle as a co-simulation unit in FMPy, which begins stopped, as a block does."""

    def __init__(self, bundle, folder):
        import fmpy
        from fmpy.fmi2 import FMU2Slave

        path = folder / "plant.fmu"
        assert write_unit(bundle, path)
        described = fmpy.read_model_description(str(path), validate=True)
        numbers = {v.name: v.valueReference for v in described.modelVariables}
        self._unit = FMU2Slave(
            guid=described.guid,
            unzipDirectory=fmpy.extract(str(path), str(folder / "unit")),
            modelIdentifier=described.coSimulation.modelIdentifier,
            instanceName="unit",
        )
        self._unit.instantiate()
        self._unit.setupExperiment(startTime=0.0)
        self._unit.setBoolean([numbers["begin_stopped"]], [True])
        self._unit.enterInitializationMode()
        self._unit.exitInitializationMode()
        form = form_of(bundle)
        self._inputs = {v.name: (SETTERS[v.kind], numbers[v.name]) for v in form.inputs}
        self._outputs = [(v, GETTERS[v.kind], numbers[v.name]) for v, _ in form.outputs]
        self._period, self._count = form.dt, 0

    def step(self, **inputs):
        for name, (setter, number) in self._inputs.items():
            kind = float if setter == "setReal" else bool
            getattr(self._unit, setter)([number], [kind(inputs[name])])
        at = self._count * self._period
        self._unit.doStep(currentCommunicationPoint=at, communicationStepSize=self._period)
        self._count += 1
        answer = {v.name: getattr(self._unit, get)([n])[0] for v, get, n in self._outputs}
        words = {v.name for v, _, _ in self._outputs if v.kind == "word"}
        return {name: a & 0xFFFFFFFF if name in words else a for name, a in answer.items()}


def made(bundle, language, folder, *, long=False):
    """A form of a bundle, ready to step."""
    if language == "fmu":
        return Unit(bundle, folder)
    return Compiled(form_of(bundle), language, folder, long=long)


def all_made(bundle, folder, *, long=False):
    """The forms that can be compiled here, by language; a unit has single precision alone."""
    blocks = {}
    for language, (found, _) in NEEDS.items():
        if found and not (long and language == "fmu"):
            (folder / language).mkdir()
            blocks[language] = made(bundle, language, folder / language, long=long)
    return blocks


def hostile_steps(manifest, count, seed=1):
    """Inputs of a block, and whether what it sends next is read back.

    Calm stretches lie inside the ranges; hostile ones lose sensors, jump, stop and take over, and
    report numbers that no plant sends.
    """
    rng, hostile = np.random.default_rng(seed), False
    low, high = (np.array([getattr(c, end) for c in manifest.obs]) for end in ("low", "high"))
    ends = [np.array([getattr(c, end) for c in manifest.action]) for end in ("low", "high")]
    place, bad = np.full(len(low), 0.5), [np.nan, np.inf, -np.inf, 1e30, -1e30, 1e-40, 0.0]
    for at in range(count):
        if rng.uniform() < 0.05:
            hostile = rng.uniform() < 0.4
            place = rng.uniform(size=len(low)) if hostile else np.full(len(low), 0.45)
        place = np.clip(place + rng.normal(0, 0.03 if hostile else 0.003, len(low)), 0, 1)
        obs, sent = low + (high - low) * place, None
        if rng.uniform() < (0.2 if hostile else 0.02):
            obs[rng.integers(len(obs))] = rng.choice(bad)
        if hostile and rng.uniform() < 0.05:
            obs = low + (high - low) * rng.uniform(-1, 2, len(low))
        if rng.uniform() < (0.3 if hostile else 0.03):
            sent = rng.uniform(ends[0] - 1, ends[1] + 1)
            if hostile and rng.uniform() < 0.5:
                sent[rng.integers(len(sent))] = rng.choice(bad)
        read = rng.uniform(size=len(ends[0])) > (0.2 if hostile else 0.01)
        good = rng.uniform(size=len(obs)) > (0.05 if hostile else 0.005)
        inputs = {
            "stop": bool(rng.uniform() < 0.002),
            "release": at == 0 or bool(rng.uniform() < 0.1),
            "taking_over": bool(rng.uniform() < 0.01),
        }
        for channel, value, held in zip(manifest.obs, np.float32(obs), good, strict=True):
            inputs |= {f"in_{channel.name}": value, f"in_{channel.name}_ok": bool(held)}
        yield inputs, sent, read


def largest_difference(manifest, reference, blocks, count):
    """The largest difference of an action by block, when all get what the reference sends.

    Flags and alarms have to be equal in every step. Also returns in how many the policy acts.
    """
    spans = {f"out_{c.name}": c.high - c.low for c in manifest.action}
    last, acts = np.zeros(len(manifest.action)), 0
    worst = dict.fromkeys(blocks, 0.0)
    for at, (inputs, sent, read) in enumerate(hostile_steps(manifest, count)):
        given = np.float32(last if sent is None else sent)
        for channel, value, held in zip(manifest.action, given, read, strict=True):
            inputs |= {f"sent_{channel.name}": value, f"sent_{channel.name}_ok": bool(held)}
        expected = reference.step(**inputs)
        last = np.array([expected[name] for name in spans])
        for label, block in blocks.items():
            answer = block.step(**inputs)
            for name, span in spans.items():
                assert np.isfinite(answer[name])
                apart = abs(float(answer[name]) - float(expected[name])) / span
                worst[label] = max(worst[label], apart)
            for name in ("flags", "alarms"):
                assert answer[name] == expected[name], (at, label, name, inputs)
        acts += not expected["flags"] & manifest.flags["fallback_used"]
    return worst, acts


@pytest.fixture(scope="module")
def sealed_with(finished_run, spec, log_columns, tmp_path_factory):
    """Seals a policy behind the guard of the run."""

    def sealed(policy):
        run = tmp_path_factory.mktemp("sealed") / "runs" / "0001"
        shutil.copytree(finished_run, run)
        save_policy(run / "policies/iql-0.safetensors", policy, spec, log_columns()["obs"][:40], {})
        return export_run(run, ExportOptions(out=run.parent / "plant.bundle"))

    return sealed


@pytest.fixture(scope="module", params=["pid", "network"])
def bundle_of(request, exported, pid, sealed_with):
    """A PID with an override, as the reactor's, and the network of 32-32."""
    if request.param == "network":
        return read_bundle(exported)
    caps = {"override_below": jnp.array([0.9]), "override_cap": jnp.array([40.0])}
    which = {"override_output": (0,), "override_measured": (0,)}
    return sealed_with(dataclasses.replace(pid, **caps, **which))


@pytest.fixture(scope="module")
def night(bundle_of, tmp_path_factory):
    """100,000 steps in all languages at once, since the bundle itself takes most of the time."""
    blocks, count = all_made(bundle_of, tmp_path_factory.mktemp("night")), 100_000
    worst, acts = largest_difference(bundle_of.manifest, SealedStep(bundle_of), blocks, count)
    kind = bundle_of.manifest.document["provenance"]["policy"]["kind"]
    print(f"{kind}, {count} steps, {acts} by the policy:", worst)
    assert acts > count / 10
    return worst


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_network_and_its_guard_answer_as_the_bundle(exported, language, tmp_path):
    bundle = read_bundle(exported)
    block = made(bundle, language, tmp_path)
    worst, acts = largest_difference(bundle.manifest, SealedStep(bundle), {language: block}, 300)
    assert worst[language] <= REAL
    assert 50 < acts < 300  # policy and fallback both act


@pytest.mark.nightly
@pytest.mark.parametrize("language", LANGUAGES)
def test_every_night_many_steps_answer_as_the_bundle(night, language):
    assert night[language] <= REAL


class GainTable(eqx.Module):
    """``clip(centre + table[range of the first observation] * (obs[0] - edge), low, high)``."""

    edges: jax.Array
    table: jax.Array
    centre: jax.Array
    low: jax.Array
    high: jax.Array

    def initial_carry(self):
        return ()

    def sent(self, carry, action):
        return carry

    def __call__(self, carry, obs, key=None):
        # Twice the number of edges below, so that the last rows are clipped.
        row = self.table.at[2 * jnp.sum(obs[0] > self.edges)].get(mode="clip")
        return carry, jnp.clip(self.centre + row * (obs[0] - self.edges[0]), self.low, self.high)


def _tables(spec, static):
    zeros = jnp.zeros(spec.n_action)
    edges = jnp.zeros(static["edges"])
    table = jnp.zeros((static["edges"] + 1, spec.n_action))
    return GainTable(edges, table, zeros, zeros, zeros)


def feedback(spec, low, high):
    gain = jnp.array([[20.0, 0.5, -3.0], [1.0, 0.2, 0.0]])
    return StateFeedback(gain, jnp.array([1.0, 335.0, 3.0]), (low + high) / 2, low, high)


def gain_table(spec, low, high):
    if "test_gain_table" not in POLICY_KINDS:
        kind = PolicyKind(GainTable, lambda policy: {"edges": len(policy.edges)}, _tables)
        POLICY_KINDS.register("test_gain_table", kind)
    rows = jnp.array([[30.0, 5.0], [12.0, 2.0], [-4.0, 0.5], [-20.0, -6.0]])
    return GainTable(jnp.array([0.6, 0.9, 1.3]), rows, (low + high) / 2, low, high)


def network_on_top(spec, low, high):
    network = init_mlp((spec.n_obs + spec.n_action, 8, 2), jax.random.key(3), activation=tanh)
    centre, span = jnp.array([1.0, 335.0, 3.0]), jnp.array([0.5, 20.0, 2.0])
    maps = Affine(centre, span), unit_interval(spec.action)
    return ResidualPolicy(feedback(spec, low, high), *maps, network, 0.15 * (high - low), low, high)


@pytest.mark.parametrize("policy", [feedback, gain_table, network_on_top])
def test_feedback_and_tables_answer_as_the_bundle(sealed_with, spec, policy, tmp_path):
    low, high = (jnp.array([getattr(c, end) for c in spec.action]) for end in ("low", "high"))
    bundle = sealed_with(policy(spec, low, high))
    blocks = all_made(bundle, tmp_path)
    if not blocks:
        pytest.skip("there is no gcc")
    worst, acts = largest_difference(bundle.manifest, SealedStep(bundle), blocks, 300)
    assert max(worst.values()) <= REAL
    assert 50 < acts < 300


@pytest.mark.nightly
def test_double_precision_computes_what_the_form_states(bundle_of, tmp_path):
    """The bundle itself has single precision; the form is computed here in double precision."""
    reference = Evaluation(form_of(bundle_of), np.float64)
    blocks = all_made(bundle_of, tmp_path, long=True)
    worst, _ = largest_difference(bundle_of.manifest, reference, blocks, 10_000)
    print("double precision:", worst)
    assert blocks
    assert max(worst.values()) <= LREAL


@pytest.mark.nightly
def test_the_largest_network_is_printed_and_a_larger_one_is_refused(
    network, sealed_with, spec, tmp_path
):
    def sealed(*widths):
        sizes = (len(spec.obs), *widths, len(spec.action))
        drawn = init_mlp(sizes, jax.random.key(7), output=tanh)
        scales = network.obs, drawn, network.action, network.low, network.high
        return sealed_with(type(network)(*scales))

    bundle = sealed(64, 64)
    blocks = all_made(bundle, tmp_path)
    worst, _ = largest_difference(bundle.manifest, SealedStep(bundle), blocks, 1_000)
    assert max(worst.values()) <= REAL
    with pytest.raises(NoFormError, match=r"a layer of 65 \(at most 64\)"):
        form_of(sealed(65, 8))
    with pytest.raises(NoFormError, match=r"a network of 3 hidden layers \(at most 2\)"):
        form_of(sealed(8, 8, 8))


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("_lowering.MAX_WIDTH", r"a layer of 32 \(at most 2\)"),
        ("_form.MAX_LAYERS", r"a network of 2 hidden layers \(at most 1\)"),
    ],
)
def test_a_network_beyond_the_limit_is_refused(exported, monkeypatch, limit, words):
    monkeypatch.setattr(f"neorl_deploy.forms.{limit}", 2 if "WIDTH" in limit else 1)
    if "WIDTH" in limit:  # a wide network is named as such, however many numbers it has
        monkeypatch.setattr("neorl_deploy.forms._lowering.MAX_NODES", 10)
    with pytest.raises(NoFormError, match=words):
        form_of(read_bundle(exported))


def test_the_document_for_import_holds_the_variables_and_statements_of_the_text(exported):
    form = form_of(read_bundle(exported))
    document, text = plcopen_xml(form), structured_text(form)

    def parts(block):
        """Declarations by name, and the statements."""
        block = " ".join(re.sub(r"\(\*.*?\*\)", "", block, flags=re.DOTALL).split())
        head, _, body = block.rpartition("END_VAR")
        named = re.findall(r"(\w+(?:, \w+)*) : (ARRAY\S+ OF \w+|\w+)(?: := ([^;]+))?;", head)
        named = {
            name: (kind, "".join(value.split()))
            for names, kind, value in named
            for name in names.split(", ")
        }
        return named, body.split()

    assert parts(imported(document)) == parts(text)
    assert form.seal in document
    for variable in form.inputs:
        assert f"<xhtml:p>{variable.words}</xhtml:p>" in document


@pytest.mark.nightly
@pytest.mark.skipif(not SCHEMA, reason="NEORL_TC6_SCHEMA does not name the schema")
def test_the_document_for_import_keeps_the_published_schema(bundle_of):
    from lxml import etree

    schema = etree.XMLSchema(etree.parse(SCHEMA))
    schema.assertValid(etree.fromstring(plcopen_xml(form_of(bundle_of)).encode()))


def test_the_block_declares_tags_units_and_the_seal_and_loops_are_bounded(exported):
    bundle = read_bundle(exported)
    form = form_of(bundle)
    text = structured_text(form)
    assert f"seal : STRING := '{form.seal}';" in text
    assert "out_valve : REAL := 0.0; (* valve, %, 0 to 100 *)" in text
    assert not {"WHILE", "REPEAT", "LREAL"}.intersection(text.split())
    assert all(" DO" in line for line in text.splitlines() if line.lstrip().startswith("FOR "))
    assert f"{operations_of(form)} operations in every step" in text
    assert "out_valve : LREAL := 0.0;" in structured_text(form, long=True)
    for words in bundle.manifest.document["constraint_words"]:
        assert words in text


def test_rows_that_are_capped_lower_to_minima():
    graph, index = Graph(), np.array([[2], [0], [5]], np.int32)  # the last one is left out
    inputs = ArrayEntry("x", (3,), "float32"), ArrayEntry("cap", (3,), "float32")
    capped = Operation("scatter_min", (0, 2, 1), (3,), "float32")
    x, cap = (np.array([graph.read(f"{e.name}{i}", "real") for i in range(3)]) for e in inputs)
    (result,) = lower(graph, Operations(inputs, (index,), (capped,), (3,)), [x, cap])
    assert result[1] == x[1]
    assert result[0] == graph.add("min", x[0], cap[1])
    assert result[2] == graph.add("min", x[2], cap[0])


def test_a_search_without_a_fixed_number_of_turns_is_refused():
    with pytest.raises(NoFormError, match="its guard searches over limits on sums of several"):
        form_of(read_bundle(KEPT))


def test_forms_lie_beside_the_bundle_with_a_test_sheet(bundle):
    written = write_forms(read_bundle(bundle), ["st", "plcopen", "c"])
    assert [path.suffix for path in written] == [".st", ".xml", ".h", ".c", ".csv"]
    rows = list(csv.DictReader(written[-1].read_text("utf-8").splitlines()))
    sealed = SealedStep(read_bundle(bundle))
    assert len(rows) > 100
    for row in rows:
        numbers = {name: float(text) for name, text in row.items()}
        answer = sealed.step(**numbers)
        assert {name: numbers[name] for name in answer} == answer


def test_the_command_prints_a_sealed_bundle_and_says_where(command, bundle):
    out = command("export", bundle, "--form", "st", "--lreal")
    files = [bundle.with_name(f"neorl_plant{end}") for end in (".st", "-test-sheet.csv")]
    assert out.splitlines() == [f"wrote {path}" for path in files]
    assert "FUNCTION_BLOCK neorl_plant" in files[0].read_text()
    kept = shutil.copytree(KEPT, bundle.with_name("kept.bundle"))
    error = command.refused("export", kept, "--form", "st")
    assert "a loop without a fixed number of turns" in error
    assert not [*bundle.parent.glob("neorl_kept*")]


def test_a_form_that_answers_otherwise_is_not_written(bundle, monkeypatch):
    monkeypatch.setattr("neorl_deploy.forms._sheet.DEVIATION", -1.0)
    with pytest.raises(
        NoFormError, match=r"row 1 of the test sheet: out_valve is .* in the bundle"
    ):
        write_forms(read_bundle(bundle), ["st"])
    assert not [*bundle.parent.glob("*.st")]
