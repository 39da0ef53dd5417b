"""The bits of a seed hang on (configuration, data, key) alone."""

import os
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents import ALGORITHMS, IQL
from neorl_agents.learning import Log, Training, train_chunk
from neorl_agents.testing import sized
from neorl_core import InputError, as_arrays
from neorl_train import train
from neorl_train.runs import tree_digest
from neorl_train.training import SHARED_MODE, Plan, execution_mode, offline_seeds, run_keys


def _trained(algorithm, data, seeds, watcher, *, updates=200, chunk=100, form=""):
    plan = Plan(updates, chunk, updates)
    return train(algorithm, data, seeds, plan, watcher=watcher, form=form)


def test_trainings_that_factorise_run_in_turn_and_end_in_the_same_bits(make_line, line_data):
    """Two such programs at a time could wait for each other for ever."""

    class Solving(make_line):
        def update(self, state, batch, key):
            state, metrics = super().update(state, batch, key)
            one = jnp.eye(2) * (1 + jnp.abs(batch.obs[0, 0, 0]))
            return state, metrics | {"solved": jnp.linalg.solve(one, one[0])[0]}

    for learner, in_turn in ((make_line(), False), (Solving(), jax.default_backend() == "cpu")):
        queues = offline_seeds(learner, line_data, (0, 1), jax.local_devices()[:2])
        queues.compile(10)
        assert queues._in_turn == in_turn
        queues.advance()
        digest = tree_digest(queues.snapshot()["state"].learner.parameters)
        queues.close()
        plain = digest if not in_turn else plain
        assert digest == plain


@pytest.mark.parametrize("chunk", [2, 10, 100, 200])
def test_the_block_length_is_not_part_of_the_result(make_line, make_notes, line_data, chunk):
    at_once = _trained(make_line(), line_data, (5,), make_notes(), chunk=200)
    parts = _trained(make_line(), line_data, (5,), make_notes(), chunk=chunk)
    assert tree_digest(parts.snapshot) == tree_digest(at_once.snapshot)


def test_a_schedule_takes_the_length_of_the_plan(make_notes, line_data):
    """The actor stands still after the last of the updates of its schedule, and not before."""
    small = {"hidden": (8, 8), "batch_size": 64}
    follows = _trained(
        sized(IQL(decay_updates=-1), **small), line_data, (0,), make_notes(), updates=60, chunk=20
    )
    stated = _trained(
        sized(IQL(decay_updates=60), **small), line_data, (0,), make_notes(), updates=60, chunk=20
    )
    assert follows.algorithm.decay_updates == 60
    assert tree_digest(follows.snapshot) == tree_digest(stated.snapshot)
    # With the length of another run the actor would not be the same.
    shorter = _trained(
        sized(IQL(decay_updates=20), **small), line_data, (0,), make_notes(), updates=60, chunk=20
    )
    assert tree_digest(shorter.snapshot["state"].learner.parameters["actor"]) != tree_digest(
        stated.snapshot["state"].learner.parameters["actor"]
    )


@pytest.mark.parametrize("name", ["td3_bc", pytest.param("cal_ql", marks=pytest.mark.nightly)])
def test_blocks_of_real_learners_are_one_training(make_notes, line_data, name):
    """Up to rounding: in this suite's quick compilation a short loop is rounded otherwise."""
    algorithm = sized(ALGORITHMS[name](), hidden=(8, 8), batch_size=16)
    at_once = _trained(algorithm, line_data, (1,), make_notes(), updates=16, chunk=16)
    parts = _trained(algorithm, line_data, (1,), make_notes(), updates=16, chunk=4)
    for one, other in zip(*map(jax.tree.leaves, (at_once.snapshot, parts.snapshot)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "name",
    sorted(n for n, kind in ALGORITHMS.items() if not kind().fits() and not kind.needs_rollouts),
)
def test_blocks_of_real_learners_are_one_training_to_the_bit(make_notes, make_log, line_data, name):
    """Compiled as users compile; those on rollouts in a model are in test_model_based.py."""
    algorithm = sized(ALGORITHMS[name](), hidden=(8, 8), batch_size=16)
    data = make_log(n_cost=1, limit=3.0) if algorithm.keeps_limits else line_data
    at_once = _trained(algorithm, data, (1,), make_notes(), updates=40, chunk=40)
    parts = _trained(algorithm, data, (1,), make_notes(), updates=40, chunk=4)
    assert tree_digest(parts.snapshot) == tree_digest(at_once.snapshot)


def test_a_seed_among_others_is_its_single_run(make_line, make_notes, line_data):
    together = _trained(make_line(), line_data, (0, 1, 2), make_notes())
    for i, seed in enumerate((0, 1, 2)):
        alone = _trained(make_line(), line_data, (seed,), make_notes())
        of_seed = jax.tree.map(lambda leaf, i=i: leaf[i : i + 1], together.snapshot)
        assert tree_digest(of_seed) == tree_digest(alone.snapshot)


def test_seeds_of_one_batch_are_close_to_their_single_runs(make_line, make_notes, line_data):
    """Rows and keys are the same, so that only rounding differs."""
    together = _trained(make_line(), line_data, (0, 1, 2), make_notes(), form="vmap")
    for i, seed in enumerate((0, 1, 2)):
        alone = _trained(make_line(), line_data, (seed,), make_notes())
        pairs = zip(*map(jax.tree.leaves, (together.snapshot, alone.snapshot)), strict=True)
        for of_all, own in pairs:
            np.testing.assert_allclose(of_all[i : i + 1], own, rtol=1e-5, atol=1e-6)


def test_a_form_that_is_not_known_is_refused(make_line, make_notes, line_data):
    with pytest.raises(InputError, match="form must be 'queued', 'vmap' or '', got 'batched'"):
        _trained(make_line(), line_data, (0,), make_notes(), form="batched")


def test_the_mode_of_a_run_says_that_processes_share_its_batches(monkeypatch):
    assert execution_mode(0).startswith("one program per seed, queued")
    assert execution_mode(2) == SHARED_MODE
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    assert execution_mode(0) == SHARED_MODE


def test_the_batch_of_seeds_is_one_program_and_its_memory_that_of_all_seeds(make_line, line_data):
    queued, batched = (
        offline_seeds(make_line(), line_data, (0, 1, 2), jax.local_devices()[:1], form=form)
        for form in ("queued", "vmap")
    )
    for parallel in (queued, batched):
        parallel.compile(2)
    one, all_of_them = queued.memory(), batched.memory()
    assert one is not None
    assert all_of_them is not None
    assert all_of_them.states == one.states
    assert all_of_them.rows == pytest.approx(one.rows, abs=100)
    (program,) = batched._programs.values()
    first, second = batched.advance(), batched.advance()
    assert len(first) == len(second) == 3
    assert list(batched._programs.values()) == [program]
    assert batched.done == 4


def test_another_seed_is_another_run(make_line, make_notes, line_data):
    one = _trained(make_line(), line_data, (0,), make_notes())
    other = _trained(make_line(), line_data, (1,), make_notes())
    assert tree_digest(one.snapshot["state"]) != tree_digest(other.snapshot["state"])


def test_metrics_are_means_over_the_block(make_line, make_notes, line_data):
    every, chunks = make_notes(), make_notes()
    _trained(make_line(), line_data, (0,), every, chunk=2)
    _trained(make_line(), line_data, (0,), chunks, chunk=100)
    assert [step for step, _ in chunks.chunks] == [100, 200]
    losses = np.array([metrics[0]["loss"] for _, metrics in every.chunks]).reshape(2, 50)
    actual = [metrics[0]["loss"] for _, metrics in chunks.chunks]
    np.testing.assert_allclose(actual, losses.mean(axis=1), rtol=1e-5)


def _block_arguments(line_data, learning_rate, make_line):
    algorithm = make_line(learning_rate=learning_rate)
    initial, key = run_keys(0)
    state = algorithm.init(line_data.spec, line_data.statistics, initial)
    rows = jax.tree.map(jnp.asarray, line_data.rows)
    return as_arrays(algorithm), Log(), Training(state, ()), rows, jnp.int32(0), key


def test_a_second_call_and_another_value_compile_nothing(make_line, line_data):
    train_chunk(*_block_arguments(line_data, 0.1, make_line), n_updates=6)
    programs = train_chunk._cache_size()  # pyright: ignore[reportAttributeAccessIssue]
    state, _ = train_chunk(*_block_arguments(line_data, 0.2, make_line), n_updates=6)
    algorithm, source, _, rows, first, key = _block_arguments(line_data, 0.3, make_line)
    train_chunk(algorithm, source, state, rows, first + 6, key, n_updates=6)
    now = train_chunk._cache_size()  # pyright: ignore[reportAttributeAccessIssue]
    assert now == programs


def test_leaves_of_a_state_may_share_a_buffer(make_line, line_data):
    """As those of a learner whose slow networks begin as its networks."""

    class Delayed(make_line):
        def init(self, spec, statistics, key, **options):
            state = make_line.init(self, spec, statistics, key, **options)
            return state.with_targets(weight=state.parameters["weight"])

    parallel = offline_seeds(Delayed(), line_data, (0,), jax.local_devices())
    parallel.compile(2)
    jax.block_until_ready(parallel.advance())
    assert parallel.done == 2


def test_a_chunk_that_was_not_compiled_is_refused(make_line, line_data):
    parallel = offline_seeds(make_line(), line_data, (0,), jax.local_devices())
    with pytest.raises(RuntimeError, match=r"call compile\(n_updates\) first"):
        parallel.advance()


def test_the_state_is_given_away_and_a_snapshot_outlives_it(make_line, line_data):
    parallel = offline_seeds(make_line(), line_data, (0, 1), jax.local_devices())
    parallel.compile(5)
    before = parallel.snapshot()
    kept = jax.tree.map(np.copy, before)
    jax.block_until_ready(parallel.advance())
    assert tree_digest(before) == tree_digest(kept)
    after = parallel.snapshot()
    assert tree_digest(after) != tree_digest(before)
    parallel.restore(before, done=0)
    jax.block_until_ready(parallel.advance())
    assert tree_digest(parallel.snapshot()) == tree_digest(after)


@pytest.mark.nightly
def test_the_number_of_devices_is_not_part_of_the_result():
    """Four seeds on one, two and four devices of a process of its own, and on two threads."""
    program = """
        import jax, sys
        from neorl_core.infrastructure import keep_compiled_programs
        keep_compiled_programs()
        from neorl_agents import IQL
        from neorl_agents.testing import sized
        from neorl_envs import read_dataset
        from neorl_envs.datasets import data_statistics
        from neorl_train.runs import tree_digest
        from neorl_train.training import offline_seeds
        from neorl_train.data import TrainingData
        import numpy as np
        from neorl_core import Channel, Spec
        from neorl_envs.datasets import dataset_from_columns

        rng = np.random.default_rng(0)
        channels = tuple(Channel(n, "1", -5.0, 5.0) for n in "ab")
        spec = Spec(channels, (Channel("u", "1", -5.0, 5.0),), (), 1.0, 50)
        ended = np.arange(1, 201) % 50 == 0
        log = dataset_from_columns(
            spec, obs=rng.normal(size=(200, 2)), action=rng.normal(size=(200, 1)),
            reward=rng.normal(size=200), next_obs=rng.normal(size=(200, 2)),
            terminated=np.zeros(200, bool), truncated=ended)
        data = TrainingData(log.transitions._replace(mask=None), data_statistics(log), spec)
        digests = set()
        for n in (1, 2, 4):
            parallel = offline_seeds(sized(IQL(), hidden=(8, 8), batch_size=16), data, (0, 1, 2, 3),
                              jax.local_devices()[:n])
            parallel.compile(10)
            for _ in range(2):
                parallel.advance()
            digests.add(tree_digest(parallel.snapshot()))
        assert len(jax.local_devices()) == 4
        print(*digests)
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env=_with_devices(4),
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.split()) == 1, result.stdout


def _with_devices(count):
    return {**os.environ, "XLA_FLAGS": f"--xla_force_host_platform_device_count={count}"}
