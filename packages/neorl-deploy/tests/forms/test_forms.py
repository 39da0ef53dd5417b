"""The printed forms of a bundle, compiled and driven beside the bundle's own step.

C is compiled by ``gcc``. Structured text is compiled by matiec, which is not a daily dependency:
build it (flex, bison, autoconf: ``autoreconf -i && ./configure && make``) and put its folder on the
path, where ``iec2c`` lies beside ``lib``.
"""

import csv
import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from neorl_agents import save_policy
from neorl_deploy._command.main import main
from neorl_deploy.bundle import read_bundle
from neorl_deploy.export import ExportOptions, export_run
from neorl_deploy.forms import (
    Evaluation,
    NoFormError,
    SealedStep,
    c_source,
    form_of,
    operations_of,
    structured_text,
    write_forms,
)

KEPT = Path(__file__).parents[1] / "bundle" / "kept" / "jax-0.10.2"
IEC2C = shutil.which("iec2c")
REAL, LREAL = 1e-5, 1e-12
"""Largest difference of an action, as a fraction of its channel's span."""
LANGUAGES = [
    pytest.param("c", marks=pytest.mark.skipif(not shutil.which("gcc"), reason="there is no gcc")),
    pytest.param("st", marks=pytest.mark.skipif(not IEC2C, reason="matiec's iec2c is not built")),
]


class Compiled:
    """A printed form behind two functions of arrays of doubles, compiled into a library."""

    def __init__(self, form, language, folder, *, long=False):
        self._inputs, self._form = form.inputs, form
        self._outputs = [variable for variable, _ in form.outputs]
        write, further = (_c_driver if language == "c" else _st_driver)(form, folder, long)
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
    (folder / "block.st").write_text(structured_text(form, long=long))
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


def largest_difference(manifest, reference, block, count):
    """The largest difference of an action, when both get what the reference sends; also its acts.

    Flags and alarms have to be equal in every step.
    """
    spans = {f"out_{c.name}": c.high - c.low for c in manifest.action}
    last, worst, acts = np.zeros(len(manifest.action)), 0.0, 0
    for at, (inputs, sent, read) in enumerate(hostile_steps(manifest, count)):
        given = np.float32(last if sent is None else sent)
        for channel, value, held in zip(manifest.action, given, read, strict=True):
            inputs |= {f"sent_{channel.name}": value, f"sent_{channel.name}_ok": bool(held)}
        expected, answer = reference.step(**inputs), block.step(**inputs)
        last = np.array([expected[name] for name in spans])
        for name, span in spans.items():
            assert np.isfinite(answer[name])
            worst = max(worst, abs(float(answer[name]) - float(expected[name])) / span)
        for name in ("flags", "alarms"):
            assert answer[name] == expected[name], (at, name, inputs)
        acts += not expected["flags"] & manifest.flags["fallback_used"]
    return worst, acts


@pytest.fixture(scope="module")
def pid_bundle(finished_run, pid, spec, log_columns, tmp_path_factory):
    run = tmp_path_factory.mktemp("pid") / "runs" / "0001"
    shutil.copytree(finished_run, run)
    obs = log_columns()["obs"]
    save_policy(run / "policies/iql-0.safetensors", pid, spec, obs[:40], {})
    return export_run(run, ExportOptions(out=run.parent / "plant.bundle"))


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_network_and_its_guard_answer_as_the_bundle(exported, language, tmp_path):
    bundle = read_bundle(exported)
    block = Compiled(form_of(bundle), language, tmp_path)
    worst, acts = largest_difference(bundle.manifest, SealedStep(bundle), block, 300)
    assert worst <= REAL
    assert 50 < acts < 300  # policy and fallback both act


@pytest.mark.nightly
@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("policy", ["pid", "network"])
def test_every_night_many_steps_answer_as_the_bundle(
    exported, pid_bundle, policy, language, tmp_path
):
    bundle = read_bundle(exported) if policy == "network" else pid_bundle
    block = Compiled(form_of(bundle), language, tmp_path)
    count = 100_000 if (policy, language) == ("pid", "st") else 10_000
    worst, acts = largest_difference(bundle.manifest, SealedStep(bundle), block, count)
    print(f"{policy} in {language}, {count} steps: {worst:.1e} of a span, {acts} by the policy")
    assert worst <= REAL
    assert acts > count / 10


@pytest.mark.nightly
@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("policy", ["pid", "network"])
def test_double_precision_computes_what_the_form_states(
    exported, pid_bundle, policy, language, tmp_path
):
    """The bundle itself has single precision; the form is computed here in double precision."""
    bundle = read_bundle(exported) if policy == "network" else pid_bundle
    form = form_of(bundle)
    block = Compiled(form, language, tmp_path, long=True)
    reference = Evaluation(form, np.float64)
    worst, _ = largest_difference(bundle.manifest, reference, block, 5_000)
    assert worst <= LREAL


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


def test_a_search_without_a_fixed_number_of_turns_is_refused():
    with pytest.raises(NoFormError, match="no form for a controller: a loop without a fixed"):
        form_of(read_bundle(KEPT))


def test_forms_lie_beside_the_bundle_with_a_test_sheet(bundle):
    written = write_forms(read_bundle(bundle), ["st", "c"])
    assert [path.suffix for path in written] == [".st", ".h", ".c", ".csv"]
    rows = list(csv.DictReader(written[-1].read_text("utf-8").splitlines()))
    sealed = SealedStep(read_bundle(bundle))
    assert len(rows) > 100
    for row in rows:
        numbers = {name: float(text) for name, text in row.items()}
        answer = sealed.step(**numbers)
        assert {name: numbers[name] for name in answer} == answer


def test_the_command_prints_a_sealed_bundle_and_says_where(bundle, capsys):
    assert main(["export", str(bundle), "--form", "st", "--lreal"]) == 0
    files = [bundle.with_name(f"neorl_plant{end}") for end in (".st", "-test-sheet.csv")]
    assert capsys.readouterr().out.splitlines() == [f"wrote {path}" for path in files]
    assert "FUNCTION_BLOCK neorl_plant" in files[0].read_text()
    kept = shutil.copytree(KEPT, bundle.with_name("kept.bundle"))
    assert main(["export", str(kept), "--form", "st"]) == 2
    assert "a loop without a fixed number of turns" in capsys.readouterr().err
    assert not [*bundle.parent.glob("neorl_kept*")]


def test_a_form_that_answers_otherwise_is_not_written(bundle, monkeypatch):
    monkeypatch.setattr("neorl_deploy.forms._sheet.DEVIATION", -1.0)
    with pytest.raises(
        NoFormError, match=r"row 1 of the test sheet: out_valve is .* in the bundle"
    ):
        write_forms(read_bundle(bundle), ["st"])
    assert not [*bundle.parent.glob("*.st")]
