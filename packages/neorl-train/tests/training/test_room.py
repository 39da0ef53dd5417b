"""What a training takes is known before it is taken, and refused where there is no room."""

import dataclasses
import math
from pathlib import Path

import jax
import numpy as np
import pytest

from neorl_agents import BC, IQL
from neorl_agents.testing import sized
from neorl_core import InputError
from neorl_train import train
from neorl_train.configuration import memory_limit
from neorl_train.training import Plan, machine_memory, tree_bytes

SMALL = {"hidden": (16, 16), "batch_size": 64}


def _taken(learner, data, notes, seeds=(0,), chunk=10):
    train(learner, data, seeds, Plan(chunk, chunk, chunk), watcher=notes)
    return notes.memory


def test_the_parts_are_those_that_can_be_counted_by_hand(make_notes, line_data):
    """Behaviour cloning: a network and Adam's two moments of it; rows once for each device."""
    memory = _taken(sized(BC(), **SMALL), line_data, make_notes(), seeds=(0, 1))
    n_obs, n_act = line_data.spec.n_obs, len(line_data.spec.action)
    parameters = (n_obs + 1) * 16 + 17 * 16 + 17 * n_act
    assert 2 * 3 * 4 * parameters <= memory.states <= 2 * (3 * 4 * parameters + 500)
    devices = min(2, jax.local_device_count())
    logged = 4 * line_data.n_rows * (n_obs + n_act)
    assert devices * logged <= memory.rows <= devices * (4 * logged + 4000)
    assert 0 < memory.work < 5_000_000
    assert memory.total == memory.rows + memory.states + memory.work
    assert str(memory).startswith(f"{memory.total / 1000:.3g} kB (rows ")


@pytest.mark.nightly
def test_larger_batches_and_networks_work_with_more(make_notes, line_data):
    small = _taken(sized(IQL(), hidden=(64, 64), batch_size=16), line_data, make_notes())
    batch = _taken(sized(IQL(), hidden=(64, 64), batch_size=96), line_data, make_notes())
    wide = _taken(sized(IQL(), hidden=(256, 256), batch_size=16), line_data, make_notes())
    assert batch.states == small.states
    assert small.work < batch.work
    assert wide.states > 8 * small.states


def test_a_limit_is_kept_before_the_first_chunk(make_notes, line_data):
    notes = make_notes()
    plan = Plan(10, 10, 10, memory=20_000)
    with pytest.raises(InputError) as refused:
        train(sized(BC(), **SMALL), line_data, (0,), plan, watcher=notes)
    message = str(refused.value)
    assert message.startswith("training BC needs ")
    assert "and devices.memory allows 20 kB; set a smaller steps.batch_size" in message
    assert "\n" not in message
    assert notes.chunks == []


def test_networks_that_no_machine_holds_are_refused_by_their_shapes(make_notes, line_data):
    """160 GB of weights and as much for every moment: to allocate them would end this process."""
    notes = make_notes()
    learner = sized(IQL(), hidden=(200_000, 200_000), batch_size=16)
    with pytest.raises(InputError, match=r"training IQL needs .* TB \(.*this machine has"):
        train(learner, line_data, (0,), Plan(10, 10, 10), watcher=notes)
    assert notes.compiled == 0


def test_what_the_machine_has_is_what_its_kernel_says():
    lines = Path("/proc/meminfo").read_text().splitlines()
    total = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemTotal"))
    assert 0 < machine_memory() <= total


def test_bytes_of_a_tree_are_those_of_its_arrays():
    tree = {"a": np.zeros((3, 5), np.float32), "b": [jax.random.key(0), 2.0]}
    assert tree_bytes(tree) == 60 + 8
    assert tree_bytes(jax.eval_shape(lambda: tree["a"])) == 60


@pytest.mark.parametrize(
    ("text", "expected"), [("", math.inf), ("16GB", 16e9), (" 500 MB ", 500e6)]
)
def test_an_amount_of_memory(text, expected):
    assert memory_limit(text) == expected


@pytest.mark.parametrize(("text", "said"), [("0", "above 0"), ("much", "an amount such as 2GB")])
def test_no_amount_of_memory(text, said):
    with pytest.raises(InputError, match=rf"devices\.memory must be {said}"):
        memory_limit(text)


def test_a_plan_without_memory_is_none():
    with pytest.raises(ValueError, match=r"Plan\.memory must be above 0 bytes"):
        dataclasses.replace(Plan(10, 10, 10), memory=0.0)
