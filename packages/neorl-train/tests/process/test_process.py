"""Switches of the process, signals, progress and the account of time."""

import gzip
import io
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from neorl_train import InterruptedRunError
from neorl_train._process import control
from neorl_train._process.control import StopSignal, cores, prepare_process
from neorl_train._process.progress import Profile, Reporter, Timings, process_seconds


def test_every_switch_is_set_once_and_what_is_set_stays(monkeypatch, tmp_path):
    for name in ("XLA_FLAGS", "MLFLOW_DISABLE_TELEMETRY", "DO_NOT_TRACK", "TF_CPP_MIN_LOG_LEVEL"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    shared = []
    monkeypatch.setattr(control, "keep_compiled_programs", shared.append)
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/nowhere")
    prepare_process()
    prepare_process()
    count = f"--xla_force_host_platform_device_count={cores()}"
    assert os.environ["XLA_FLAGS"] == f"--xla_dump_to=/nowhere {count}"
    assert os.environ["DO_NOT_TRACK"] == os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
    assert shared == [tmp_path / "neorl" / "jax"] * 2


@pytest.mark.parametrize(
    ("platforms", "own", "expected"),
    [("", "", "highest"), ("cuda", "", "highest"), ("cpu", "", None), ("", "default", None)],
)
def test_products_are_exact_where_there_may_be_an_accelerator(
    monkeypatch, platforms, own, expected
):
    """JAX_PLATFORMS=cpu and a precision that the user has set are kept."""
    monkeypatch.setattr(control, "keep_compiled_programs", lambda folder: None)
    monkeypatch.setattr(control.importlib.util, "find_spec", lambda name: name == "jax_plugins")
    monkeypatch.setenv("JAX_PLATFORMS", platforms)
    monkeypatch.setenv("JAX_DEFAULT_MATMUL_PRECISION", own)
    if not own:
        monkeypatch.delenv("JAX_DEFAULT_MATMUL_PRECISION")
    for name in ("XLA_FLAGS", "MLFLOW_DISABLE_TELEMETRY", "DO_NOT_TRACK", "TF_CPP_MIN_LOG_LEVEL"):
        monkeypatch.setenv(name, os.environ.get(name, ""))  # put back afterwards
    before = jax.config.jax_default_matmul_precision
    try:
        prepare_process()
        assert jax.config.jax_default_matmul_precision == (expected or before)
    finally:
        jax.config.update("jax_default_matmul_precision", before)


def test_cores_become_devices_and_programs_persist(tmp_path):
    program = """
        import jax
        from neorl_train._process.control import prepare_process
        prepare_process()
        print(len(jax.devices()), jax.config.jax_compilation_cache_dir)
        jax.jit(lambda x: x + 1)(1.0)
    """
    unset = ("JAX_", "NEORL_", "XLA_FLAGS")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(unset)}
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**clean, "XDG_CACHE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    folder = tmp_path / "neorl" / "jax"
    assert result.stdout.split()[0] == str(cores())
    (folder,) = folder.iterdir()
    assert folder.name.startswith("jaxlib-")
    assert Path(result.stdout.split()[1]).parent == folder / "processes"
    assert any(path.stat().st_size for path in (folder / "complete").iterdir())


def test_a_signal_stops_at_once_where_that_is_safe():
    with StopSignal(print), pytest.raises(InterruptedRunError) as error:
        signal.raise_signal(signal.SIGINT)
    assert error.value.signal_number == signal.SIGINT


def test_a_signal_while_training_is_heeded_later_and_a_second_one_at_once():
    collected, before = [], signal.getsignal(signal.SIGINT)
    with StopSignal(collected.append) as stop:
        assert signal.getsignal(signal.SIGINT) is not before
        with stop.later():
            assert not stop.requested()
            signal.raise_signal(signal.SIGTERM)
            assert stop.requested()
            assert collected == [
                "stopping at the end of this chunk; send the signal once more to stop immediately"
            ]
            with pytest.raises(InterruptedRunError):
                signal.raise_signal(signal.SIGTERM)
        with pytest.raises(InterruptedRunError, match="SIGTERM"):
            stop.check()
    assert signal.getsignal(signal.SIGINT) is before  # a shell may have it ignored


def test_progress_in_plain_lines(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr("neorl_train._process.progress.PLAIN_INTERVAL", 0.0)
    reporter = Reporter(stream)
    reporter.stage("training iql", total=200, done=100, unit="updates/s over 4 seeds")
    time.sleep(0.01)
    reporter.update(150, "loss 0.5")
    reporter.stage("evaluating")
    reporter.end("8 starts")
    lines = stream.getvalue().splitlines()
    assert lines[0] == "training iql ..."
    assert lines[1].startswith("training iql  75%  ")
    assert "updates/s over 4 seeds  " in lines[1]
    assert lines[1].endswith(" s left  loss 0.5")
    assert re.match(r"training iql  done in \d", lines[2])
    assert lines[4].endswith("s  8 starts")


def test_quiet_says_only_what_must_be_said():
    stream = io.StringIO()
    reporter = Reporter(stream, quiet=True)
    reporter.stage("a", total=2, unit="x")
    reporter.update(1)
    reporter.print_line("damaged")
    reporter.end()
    assert stream.getvalue() == "damaged\n"


def test_brief_is_one_line_for_each_stage():
    stream = io.StringIO()
    reporter = Reporter(stream, brief=True)
    reporter.stage("training iql", total=2, unit="x")
    reporter.note("needs 2 MB")
    reporter.update(1)
    reporter.stage("evaluating")
    reporter.print_line("damaged")
    reporter.end()
    assert re.fullmatch(
        r" +\d\.\d s  training iql\ndamaged\n +\d\.\d s  evaluating\n", stream.getvalue()
    )


class _Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_live_bar_on_a_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = _Terminal()
    reporter = Reporter(stream)
    reporter.stage("training", total=10, unit="updates")
    reporter.update(5, "loss 1")
    reporter.print_line("a line that stays")
    reporter.drop()
    reporter.stage("compiling")
    reporter.end()
    printed = stream.getvalue()
    assert "a line that stays\n" in printed
    assert "50 %" in printed
    assert "compiling  done in" in printed


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_a_live_bar_is_one_line_with_its_percentage_at_every_width(monkeypatch, width):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(width))
    stream = _Terminal()
    reporter = Reporter(stream)
    reporter.stage("training retuned iql in a plant model, 2 seeds", total=1000, unit="updates/s")
    for done, shown in ((7, "  1 % 0:"), (1000, "100 % 0:")):
        time.sleep(0.01)
        reporter.update(done, "loss 0.1234  held-out distance 0.03 of half the range, chunk 3")
        reporter._live.refresh()
        plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", stream.getvalue())
        line = plain.replace("\r", "\n").splitlines()[-1]
        assert shown in line
        assert "updates/s" in line
        assert len(line.rstrip()) <= width
    reporter.drop()


def test_time_is_counted_from_the_start_of_the_process():
    """Row R07: a run says how long its stages took."""
    timings = Timings()
    with timings.stage("sleep"):
        time.sleep(0.02)
    timings.mark("first")
    timings.mark("first")
    ((name, seconds),) = timings.stages
    assert name == "sleep"
    assert 0.02 <= seconds <= process_seconds()
    assert 0 < timings.moments["first"] <= process_seconds()
    assert timings.to_dict()["stages"] == [{"name": "sleep", "seconds": round(seconds, 3)}]
    assert "sleep" in timings.table()
    assert "after start" in timings.table()


def test_a_trace_holds_what_ran_in_the_first_chunk(tmp_path):
    """Read back as the page that shows it reads it: the operations of XLA are in it, by name."""
    profile = Profile(tmp_path)
    multiply = jax.jit(jnp.dot)
    square = jnp.ones((64, 64))
    multiply(square, square).block_until_ready()
    for name in ("bc", "iql"):
        profile.begin(name)
        multiply(square, square).block_until_ready()
        if name == "bc":
            profile.chunk()
    profile.end()
    profile.end()
    for name in ("bc", "iql"):
        (trace,) = (tmp_path / name).rglob("perfetto_trace.json.gz")
        names = {
            event.get("name")
            for event in json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
        }
        assert any("dot" in str(one) for one in names)
        assert len(list((tmp_path / name).rglob("*.xplane.pb"))) == 1


def test_without_a_folder_nothing_is_traced(monkeypatch):
    monkeypatch.setattr(jax.profiler, "start_trace", None)
    profile = Profile()
    profile.begin("bc")
    profile.chunk()
    profile.end()


CONFIGURED = """
import jax
from neorl_train import configure

config = configure(
    data={"source": "ChemicalReactor-v0"},
    training={"algorithms": ["bc"], "seeds": [0, 1, 2]},
    retuning={"controller": "PID 100/1500"},
)
jax.config.update("jax_num_cpu_devices", 3)  # refused once JAX has started
print(len(jax.devices()))
"""


def test_a_configuration_starts_no_jax() -> None:
    """Otherwise a run begun in Python has one device, and its seeds take turns."""
    variables = {**os.environ, "JAX_PLATFORMS": "cpu"}
    variables.pop("XLA_FLAGS", None)
    command = [sys.executable, "-c", CONFIGURED]
    done = subprocess.run(
        command, env=variables, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == "3"
