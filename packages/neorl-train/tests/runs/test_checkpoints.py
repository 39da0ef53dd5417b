"""A checkpoint is complete or not there; what was changed is noticed; nothing is cast."""

import os
import random
import shutil
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from neorl_agents import TD3BC
from neorl_agents.optimisers import OPTIMISERS
from neorl_agents.testing import sized
from neorl_core import InputError
from neorl_train.runs import Checkpoints, tree_digest
from neorl_train.runs._checkpoints import make_manifest
from neorl_train.training import offline_seeds


def _tree(seed=0):
    rng = np.random.default_rng(seed)
    return {
        "params": [rng.normal(size=(4, 16, 16)).astype(np.float32) for _ in range(2)],
        "count": np.full((4,), seed, np.int32),
        "flag": np.array(True),
        "scalar": np.float32(0.5),
        "multiplier": np.zeros((4, 0), np.float32),
        "half": jnp.full((3,), seed, jnp.bfloat16),
        "key": jax.random.key(seed),
        "keys": jax.random.split(jax.random.key(seed), 3),
    }


@pytest.fixture
def said():
    return []


@pytest.fixture
def make(tmp_path, said):
    def checkpoints(identity="a", keep=2, best=False):
        return Checkpoints(
            tmp_path / "c",
            identity={"run": identity},
            interval=10,
            keep=keep,
            print_line=said.append,
            best=best,
        )

    return checkpoints


@pytest.fixture
def saved(make):
    """Checkpoints 10 and 20 on the disk."""
    checkpoints = make()
    for step in (10, 20):
        assert checkpoints.save(step, _tree(step))
    checkpoints.close()
    return checkpoints.folder


def test_every_kind_of_leaf_comes_back_to_the_bit(make, saved):
    checkpoints = make()
    result = checkpoints.restore(_tree())
    checkpoints.close()
    assert result.step == 20
    assert tree_digest(result.tree) == tree_digest(_tree(20))
    assert jax.tree.structure(result.tree) == jax.tree.structure(_tree())
    assert result.tree["multiplier"].shape == (4, 0)
    assert jax.random.uniform(result.tree["key"]) == jax.random.uniform(jax.random.key(20))
    assert isinstance(result.tree["half"], jax.Array)
    assert isinstance(result.tree["count"], np.ndarray)


def test_the_caller_may_change_the_arrays_once_save_returned(make):
    checkpoints, tree = make(), {"a": np.zeros(100_000, np.float32)}
    before = tree_digest(tree)
    checkpoints.save(10, tree)
    tree["a"] += 1
    checkpoints.close()
    again = make()
    assert tree_digest(again.restore(tree).tree) == before
    again.close()


def test_only_multiples_of_the_interval_unless_forced_and_the_newest_stay(make):
    """Row E06: the newest checkpoints stay."""
    checkpoints = make()
    assert not checkpoints.save(15, _tree())
    assert checkpoints.save(15, _tree(), force=True)
    for step in (20, 30, 40):
        assert checkpoints.save(step, _tree(step))
    assert not checkpoints.save(40, _tree(40))
    checkpoints.close()
    assert checkpoints.steps()[-2:] == [30, 40]


def test_the_best_stays_beside_the_newest_also_for_a_process_that_did_not_save_it(make, said):
    """Row E06: newest and best are both restored, and after damage the second best."""
    checkpoints = make(best=True)
    for step, value in ((10, 0.25), (20, 0.25), (30, 0.5), (40, 0.75)):
        assert checkpoints.save(step, _tree(step), value=value)
    checkpoints.close()
    later = make(best=True)
    for step, value in ((50, 1.0), (60, 0.5), (70, None)):
        assert later.save(step, _tree(step), value=value)
    assert later.best(_tree()).step == 20
    assert tree_digest(later.best(_tree()).tree) == tree_digest(_tree(20))
    assert later.restore(_tree()).step == 70
    later.close()
    assert later.steps() == [20, 60, 70]
    for file in (later.folder / "20").rglob("*"):
        if file.is_file() and file.parent.name == "d":
            file.write_bytes(file.read_bytes()[:-1])
    again = make(best=True)
    assert again.best(_tree()).step == 60
    again.close()
    assert len(said) == 1
    assert "c/20 is damaged" in said[0]


def test_without_a_value_there_is_no_best(make, saved):
    checkpoints = make(best=True)
    assert checkpoints.best(_tree()) is None
    checkpoints.close()
    assert make(best=True, identity="b").best(_tree()) is None


def test_an_empty_folder_has_nothing(make):
    assert make().restore(_tree()) is None
    assert make().steps() == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"count": np.zeros(3, np.int32)}, r"c/20: count is int32\[4\], expected int32\[3\]"),
        ({"count": np.zeros(4, np.float32)}, r"c/20: count is int32\[4\], expected float32\[4\]"),
        ({"new": np.zeros(1)}, r"c/20 has no new; it was written by another"),
        ({"params": []}, r"c/20 has params\.0, which is not expected"),
        (
            {"multiplier": np.zeros((4, 1))},
            r"multiplier is float32\[4, 0\], expected float64\[4, 1\]",
        ),
    ],
)
def test_another_form_is_one_line_with_the_path(make, saved, change, message):
    checkpoints = make()
    with pytest.raises(InputError, match=message) as error:
        checkpoints.restore({**_tree(), **change})
    checkpoints.close()
    assert "\n" not in str(error.value)


def test_another_run_is_refused(make, saved):
    checkpoints = make(identity="b")
    with pytest.raises(InputError, match=r"belongs to another run: its run is 'a', expected 'b'"):
        checkpoints.restore(_tree())
    checkpoints.close()


def _flip(path, rng):
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(bytes(data))


def test_a_flipped_bit_in_any_file_is_noticed_or_harmless(make, saved, said, tmp_path):
    good = {10: tree_digest(_tree(10)), 20: tree_digest(_tree(20))}
    copy, rng = tmp_path / "copy", random.Random(7)
    shutil.copytree(saved, copy)
    files = [p for p in sorted((saved / "20").rglob("*")) if p.is_file() and p.stat().st_size]
    fell_back = 0
    for path in files:
        _flip(path, rng)
        checkpoints = make()
        result = checkpoints.restore(_tree())
        checkpoints.close()
        assert tree_digest(result.tree) == good[result.step], path
        fell_back += result.step == 10
        shutil.rmtree(saved)
        shutil.copytree(copy, saved)
    assert fell_back >= 3
    assert len(said) == fell_back
    assert all(line.startswith("checkpoint c/20 is damaged (") for line in said)


def _damage(folder, step):
    """Flips a bit in every byte of the middle half of the largest file: that with the values.

    A single bit may be one that nobody reads.
    """
    largest = max((folder / str(step)).rglob("*"), key=lambda p: p.stat().st_size * p.is_file())
    data = bytearray(largest.read_bytes())
    for place in range(len(data) // 4, 3 * len(data) // 4):
        data[place] ^= 1
    largest.write_bytes(bytes(data))


def test_a_damaged_one_is_removed_and_written_again(make, saved, said):
    _damage(saved, 20)
    checkpoints = make()
    assert checkpoints.restore(_tree()).step == 10
    assert "checkpoint c/20 is damaged (" in said[0]
    assert checkpoints.steps() == [10]
    assert checkpoints.save(20, _tree(20))
    checkpoints.close()
    assert make().restore(_tree()).step == 20


def test_none_whole_is_one_line_that_says_what_to_do(make, saved):
    for step in (10, 20):
        _damage(saved, step)
    checkpoints = make()
    with pytest.raises(InputError, match=r"none of the 2 checkpoints in .* is intact; restore"):
        checkpoints.restore(_tree())
    checkpoints.close()


def test_what_a_killed_process_left_half_written_is_no_checkpoint(make, saved):
    """Row E06: after a crash the newest whole checkpoint is loaded."""
    half = saved / "30.orbax-checkpoint-tmp"
    shutil.copytree(saved / "20", half)
    checkpoints = make()
    assert checkpoints.restore(_tree()).step == 20
    assert checkpoints.save(30, _tree(30))
    checkpoints.close()
    assert checkpoints.steps()[-1] == 30


def _in_a_process(program, devices=1):
    flags = f"--xla_force_host_platform_device_count={devices}"
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "XLA_FLAGS": flags},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.nightly
def test_saved_on_four_devices_it_loads_on_two_and_one(tmp_path):
    program = """
        import sys, pathlib, numpy as np, jax
        from jax.sharding import Mesh, NamedSharding, PartitionSpec
        from neorl_train.runs import Checkpoints, tree_digest
        n, folder = len(jax.devices()), pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else FOLDER)
        over = NamedSharding(Mesh(np.array(jax.devices()), ("seed",)), PartitionSpec("seed"))
        values = {"w": np.arange(64, dtype=np.float32).reshape(8, 8), "k": None}
        tree = {"w": jax.device_put(values["w"], over),
                "k": jax.device_put(jax.random.split(jax.random.key(0), 4), over)}
        c = Checkpoints(folder, identity={}, interval=1, keep=1, print_line=print)
        if n == 4:
            c.save(1, tree)
        else:
            found = c.restore(jax.tree.map(lambda x: x, tree)).tree
            assert found["w"].sharding.is_equivalent_to(over, 2), found["w"].sharding
            tree = found
        c.close()
        print(tree_digest(tree))
    """.replace("FOLDER", repr(str(tmp_path / "c")))
    digests = set()
    for devices in (4, 2, 1):
        result = _in_a_process(program, devices)
        assert result.returncode == 0, result.stderr
        digests.add(result.stdout.strip())
    assert len(digests) == 1


@pytest.mark.parametrize(
    "limit",
    [
        pytest.param(0, marks=pytest.mark.nightly),
        2_000,
        pytest.param(50_000, marks=pytest.mark.nightly),
    ],
)
def test_a_full_disk_is_an_error_that_leaves_the_last_checkpoint(tmp_path, limit):
    program = f"""
        import pathlib, resource, numpy as np
        from neorl_train.runs import Checkpoints
        from neorl_core.infrastructure import is_full_disk
        folder = pathlib.Path({str(tmp_path)!r})
        c = Checkpoints(folder, identity={{}}, interval=1, keep=2, print_line=print)
        tree = {{"w": np.random.default_rng(0).normal(size=(4, 128, 128)).astype(np.float32)}}
        c.save(1, tree); c.wait()
        resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
        try:
            c.save(2, tree); c.close()
        except Exception as error:
            assert is_full_disk(error), error
            print("full")
        assert c.steps() == [1]
    """
    result = _in_a_process(program)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "full\n"
    assert result.stderr == ""


def test_a_checkpoint_of_a_learner_holds_all_it_needs(line_data):
    """Parameters, targets, optimiser with its step, normaliser, keys: for every seed.

    Row E04: a checkpoint holds keys, counters, optimisers and scalings, and comes back to the bit.
    """
    parallel = offline_seeds(sized(TD3BC(), hidden=(4,)), line_data, (0, 1), jax.local_devices())
    leaves = make_manifest(parallel.snapshot(), {})["leaves"]
    for part in (
        "state.learner.parameters.actor.",
        "state.learner.parameters.critics.",
        "state.learner.targets.actor.",
        "state.learner.targets.critics.",
        "state.learner.optimisers.actor.0.count",
        "state.learner.optimisers.critics.0.mu.",
        "state.learner.optimisers.critics.0.nu.",
        "state.learner.counters.updates",
        "state.learner.preparation.obs.offset",
        "state.learner.preparation.reward_unit",
        "key",
    ):
        assert any(name.startswith(part) for name in leaves), part
    assert {leaf["shape"][0] for leaf in leaves.values()} == {2}


def _scheduled(rate):
    shape = optax.cosine_decay_schedule(1.0, 10)
    parts = (optax.clip_by_global_norm(1.0), optax.adamw(rate), optax.scale_by_schedule(shape))
    return optax.chain(*parts)


def test_the_state_of_a_chain_of_optax_comes_back_to_the_bit(make, line_data):
    """Parts without a state have no leaves; they are rebuilt from the template."""
    OPTIMISERS.register("test_checkpoint_chain", _scheduled)
    algorithm = sized(TD3BC(), hidden=(4,), optimiser="test_checkpoint_chain")
    saved = offline_seeds(algorithm, line_data, (0, 1), jax.local_devices()).snapshot()
    checkpoints = make()
    checkpoints.save(10, saved)
    checkpoints.close()
    template = offline_seeds(algorithm, line_data, (2, 3), jax.local_devices()).snapshot()
    assert tree_digest(template) != tree_digest(saved)
    checkpoints = make()
    restored = checkpoints.restore(template).tree
    checkpoints.close()
    assert tree_digest(restored) == tree_digest(saved)
    assert jax.tree.structure(restored) == jax.tree.structure(saved)
    assert "EmptyState" in str(jax.tree.structure(restored))
