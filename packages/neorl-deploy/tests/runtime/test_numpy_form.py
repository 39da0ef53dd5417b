"""The form for NumPy alone: the same decisions, and no list of operations that could harm."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neorl_deploy import BundleError
from neorl_deploy.bundle import ArrayEntry, read_bundle
from neorl_deploy.runtime import Operation, Operations, Runtime, as_function, read_operations

from ..forged import seal

VECTOR = ArrayEntry("x", (2,), "float32")


@pytest.fixture(scope="module")
def with_numpy(exported):
    return Runtime(read_bundle(exported), "numpy")


def test_the_self_test_passes_and_the_sizes_are_small(with_numpy):
    assert with_numpy.self_test(1e-6) <= 1e-6
    files = with_numpy.bundle.files
    assert len(files["operations.json"]) + len(files["weights.npz"]) < 120_000


numbers = st.floats(width=32)


@settings(max_examples=60)
@given(
    steps=st.lists(
        st.tuples(st.tuples(numbers, numbers, numbers), st.tuples(numbers, numbers)),
        min_size=1,
        max_size=6,
    )
)
def test_whatever_comes_in_it_decides_as_the_compiled_program(runtime, with_numpy, steps):
    for one in (runtime, with_numpy):
        one.release("the test")
        one.reset()
    spans = np.array([100.0, 320.0])
    for obs, last_sent in steps:
        compiled = runtime.step(obs, last_sent)
        alone = with_numpy.step(obs, last_sent)
        assert np.abs((alone.action - compiled.action) / spans).max() <= 1e-6
        assert alone.flags & with_numpy.findings == compiled.flags & runtime.findings
        assert alone.alarms == compiled.alarms


def test_it_remembers_as_the_compiled_program_and_goes_on_from_it(runtime, with_numpy):
    runtime.release("the test")
    runtime.reset()
    for level in (0.9, 1.0, 1.1):
        runtime.step([level, 330.0, 3.0], [40.0, 300.0])
    with_numpy.restore_words(runtime.words)
    after, before = with_numpy.step([1.0, 331.0, 3.0], [41.0, 300.0]), with_numpy.carry
    again = runtime.step([1.0, 331.0, 3.0], [41.0, 300.0])
    assert after.action == pytest.approx(again.action, rel=1e-6)
    for name, array in runtime.carry.items():
        assert before[name].dtype == array.dtype
        np.testing.assert_allclose(before[name], array, rtol=1e-5)


def loop(**settings):
    same = {"takes": 0, "operations": [], "outputs": [0]}
    less = {"op": "lt", "in": [0, 0], "shape": [], "dtype": "bool"}
    given = {"carry": 1, "condition": {**same, "operations": [less], "outputs": [1]}, "body": same}
    return Operation("while", (0,), (), "several", {**given, **settings})


def nested(depth):
    lists = []
    for _ in range(depth):
        inner = {"op": "branch", "in": [0], "shape": [], "dtype": "several", "lists": lists}
        lists = [{"takes": 1, "operations": [inner], "outputs": [0]}]
    return {"lists": lists}


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        (loop(condition={"takes": 0, "operations": [], "outputs": [0]}), "is not one boolean"),
        (loop(body={"takes": 3, "operations": [], "outputs": [0]}), "takes 4 arrays, and 1 are"),
        (loop(body={"takes": 0, "operations": [], "outputs": [1]}), "not among its operations"),
        (loop(body={"takes": 0, "operations": [], "outputs": [0, 0]}), "what it carries"),
        (Operation("branch", (0,), (), "several", nested(6)), "deeper than 4 in one another"),
        (Operation("branch", (0,), (), "several", {"lists": []}), "has no list"),
        (Operation("while", (0,), (), "bool", loop().settings), "gives \\(\\) of bool"),
    ],
)
def test_a_loop_that_is_none_is_refused_before_it_acts(operation, words):
    scalar = ArrayEntry("x", (), "float32")
    with pytest.raises(ValueError, match=words):
        as_function(Operations((scalar,), (), (operation,), (0,)))
    as_function(Operations((scalar,), (), (loop(),), (0,)))


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        (Operation("eval", (0,), (2,), "float32"), "'eval' is unknown"),
        (Operation("add", (0, 1), (2,), "float32"), "uses a later result"),
        (Operation("add", (0, -1), (2,), "float32"), "uses a later result"),
        (Operation("broadcast", (0,), (2**13, 2**12), "float32", {"axes": [1]}), "gives"),
        (Operation("add", (0, 0), (3,), "float32"), "not \\(3,\\) of float32"),
        (Operation("add", (0, 0), (2,), "float64"), "of float64"),
        (Operation("lt", (0, 0), (2,), "float32"), "gives \\(2,\\) of bool"),
    ],
)
def test_a_list_that_is_none_is_refused_before_it_acts(operation, words):
    with pytest.raises(ValueError, match=words):
        as_function(Operations((VECTOR,), (), (operation,), (1,)))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.update(version=2), "version 2"),
        (lambda d: d.update(constants=3), "of different steps"),
        (lambda d: d["operations"][0].pop("op"), "is malformed"),
        (lambda d: d["operations"][0].update(shape=[-1]), "is malformed"),
        (lambda d: d.update(outputs="all"), "is malformed"),
    ],
)
def test_a_damaged_file_is_one_line(with_numpy, change, words):
    files, manifest = dict(with_numpy.bundle.files), with_numpy.manifest
    document = json.loads(files["operations.json"])
    change(document)
    files["operations.json"] = json.dumps(document).encode()
    inputs = [*manifest.carry, ArrayEntry("obs", (3,), "float32")]
    inputs.append(ArrayEntry("last_sent", (2,), "float32"))
    with pytest.raises(BundleError, match=words):
        read_operations(files, inputs, "plant.bundle", seal(manifest.document))


def test_a_memory_that_a_compiled_program_left_holds_no_number_that_it_takes_for_zero(with_numpy):
    alone = Runtime(with_numpy.bundle, "numpy")
    left = alone.words
    alone.restore_words(np.where(left == 0, np.float32(1e-40).view(np.uint32), left))
    reals = [array for array in alone.carry.values() if array.dtype == np.float32]
    assert not any(((np.abs(x) > 0) & (np.abs(x) < 1e-38)).any() for x in reals)


def test_a_bundle_without_the_form_says_so(with_numpy):
    files = {n: d for n, d in with_numpy.bundle.files.items() if n != "weights.npz"}
    with pytest.raises(BundleError, match="no form for NumPy alone"):
        read_operations(files, with_numpy.manifest.carry, "plant.bundle", "")
