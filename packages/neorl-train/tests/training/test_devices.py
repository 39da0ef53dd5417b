"""Devices that share each batch give the gradients of one device, and its checkpoints."""

import os
import socket
import subprocess
import sys
import textwrap

import jax
import numpy as np
import pytest

from neorl_core import InputError
from neorl_train import train
from neorl_train.training import Plan

DEVICES = """
    import sys, tempfile
    from pathlib import Path
    import jax, numpy as np
    from neorl_core.infrastructure import keep_compiled_programs
    keep_compiled_programs()
    sys.path.insert(0, {tests!r})
    import conftest
    from neorl_agents import ALGORITHMS
    from neorl_agents.testing import sized
    from neorl_core import InputError
    from neorl_envs.datasets import data_statistics
    from neorl_train import train
    from neorl_train.data import TrainingData
    from neorl_train.runs import Checkpoints
    from neorl_train.training import Plan
    assert len(jax.devices()) == {count}
    log = conftest.line_log(n_cost=0)
    data = TrainingData(log.transitions._replace(mask=None), data_statistics(log), log.spec)

    def apart(one, other):
        pairs = zip(*map(jax.tree.leaves, (one.snapshot, other.snapshot)), strict=True)
        return max(np.max(np.abs(np.float64(a) - np.float64(b)), initial=0) for a, b in pairs)
"""

TOGETHER = f"""
    import sys
    sys.path.insert(0, {os.path.dirname(os.path.dirname(__file__))!r})
    import jax, numpy as np
    number, count, port = map(int, sys.argv[1:])
    if count > 1:
        jax.distributed.initialize(f"127.0.0.1:{{port}}", count, number)
    import conftest
    from neorl_agents import ALGORITHMS
    from neorl_agents.testing import sized
    from neorl_envs.datasets import data_statistics
    from neorl_train import train
    from neorl_train.data import TrainingData
    from neorl_train.training import Plan
    assert (jax.process_count(), len(jax.devices())) == (count, count)
    log = conftest.line_log(n_cost=0)
    data = TrainingData(log.transitions._replace(mask=None), data_statistics(log), log.spec)
    moments = []
    for name in ("td3_bc", "iql", "bc"):
        learner = sized(ALGORITHMS[name](), hidden=(8, 8), batch_size=16)
        n = learner.batches_per_update
        snapshot = train(learner, data, (0,), Plan(n, n, n)).snapshot
        moments += jax.tree.leaves(snapshot["state"].learner.optimisers)
    if number == 0:
        np.savez(f"{{count}}.npz", *moments)
"""


def _devices(count, program):
    """Runs a program on so many devices, which must be there before JAX starts."""
    flags = f"--xla_force_host_platform_device_count={count} --xla_backend_optimization_level=0"
    here = os.path.dirname(os.path.dirname(__file__))
    text = textwrap.dedent(DEVICES).format(tests=here, count=count) + textwrap.dedent(program)
    done = subprocess.run(
        [sys.executable, "-c", text],
        env={**os.environ, "XLA_FLAGS": flags},
        capture_output=True,
        text=True,
        timeout=1500,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.nightly
def test_eight_devices_train_as_one_and_checkpoints_move_between_them():
    """Plain gradient steps, so that equal weights mean equal gradients, to 1e-6."""
    printed = _devices(
        8,
        """
        line, plan = conftest.Line(learning_rate=0.05), Plan(20, 10, 10)
        one = train(line, data, (0, 1), plan, batch_devices=1)
        eight = train(line, data, (0, 1), plan, batch_devices=8)
        assert apart(one, eight) < 1e-6, apart(one, eight)
        # Two groups of four devices take a seed each.
        assert apart(one, train(line, data, (0, 1), plan, batch_devices=4)) < 1e-6
        for first, then in ((8, 1), (1, 8)):
            with tempfile.TemporaryDirectory() as folder:
                def kept():
                    return Checkpoints(
                        Path(folder) / "line", identity={}, interval=10, keep=2, print_line=print
                    )
                half = Plan(10, 10, 10)
                train(line, data, (0, 1), half, checkpoints=kept(), batch_devices=first)
                moved = train(line, data, (0, 1), plan, checkpoints=kept(), batch_devices=then)
                assert moved.step == 20
                assert apart(one, moved) < 1e-6
        try:
            train(line, data, (0,), plan, batch_devices=3)
        except InputError as error:
            print(error)
    """,
    )
    assert "Line takes batches of 8 rows, which is not a multiple of 3 devices" in printed


@pytest.mark.parametrize(
    ("count", "names"),
    [(2, ("bc",)), pytest.param(8, ("td3_bc", "iql", "bc", "cql"), marks=pytest.mark.nightly)],
)
def test_gradients_of_real_learners_are_those_of_one_device(count, names):
    """The first moments of Adam after one update hold a tenth of the gradient.

    Row N33: devices that share each batch have the gradients of one device.
    """
    program = """
        for name in NAMES:
            learner = sized(ALGORITHMS[name](), hidden=(8, 8), batch_size=16)
            n = learner.batches_per_update
            plan = Plan(n, n, n)
            one, more = (train(learner, data, (0,), plan, batch_devices=d) for d in (1, COUNT))
            moments = [r.snapshot["state"].learner.optimisers for r in (one, more)]
            for a, b in zip(*map(jax.tree.leaves, moments), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)
            assert jax.tree.leaves(moments[0])
    """
    _devices(count, program.replace("NAMES", repr(names)).replace("COUNT", str(count)))


@pytest.mark.nightly
def test_gradients_of_two_processes_are_those_of_one(tmp_path):
    """As above, of the same update; each process has one device, and process 0 leaves moments."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for count in (1, 2):
        begun = [
            subprocess.Popen(
                [sys.executable, "-c", textwrap.dedent(TOGETHER), *map(str, (number, count, port))],
                env={**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=1"},
                cwd=tmp_path,
                stderr=subprocess.PIPE,
                text=True,
            )
            for number in range(count)
        ]
        errors = [process.communicate(timeout=1500)[1] for process in begun]
        assert [process.returncode for process in begun] == [0] * count, errors
    with np.load(tmp_path / "1.npz") as one, np.load(tmp_path / "2.npz") as two:
        assert one.files == two.files
        assert any(np.any(one[name]) for name in one.files)
        for name in one.files:
            np.testing.assert_allclose(one[name], two[name], rtol=1e-6, atol=1e-7)


def test_devices_that_are_not_there_are_refused(make_line, line_data):
    have = len(jax.devices())
    with pytest.raises(InputError, match=f"devices.batch is {have + 1}, and there (is|are) {have}"):
        train(make_line(), line_data, (0,), Plan(20, 10, 10), batch_devices=have + 1)
