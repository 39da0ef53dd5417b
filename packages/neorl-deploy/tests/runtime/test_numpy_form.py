"""The form for NumPy alone: the same decisions, and no list of operations that could harm."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neorl_deploy import BundleError
from neorl_deploy.bundle import ArrayEntry, read_bundle
from neorl_deploy.bundle._files import OPERATIONS, WEIGHTS, seal
from neorl_deploy.export._jax_operations import as_jax
from neorl_deploy.export._numpy_form import NoSuchOperationError, operation_list
from neorl_deploy.runtime import Runtime
from neorl_deploy.runtime._operations import Operation, Operations, as_function, read_operations

VECTOR = ArrayEntry("x", (2,), "float32")
NUMBERS = np.array([0.0, -0.0, 1.5, -2.5, 3e38, -1e-40, np.nan, np.inf, -np.inf], np.float32)


@pytest.fixture(scope="module")
def with_numpy(exported):
    return Runtime(read_bundle(exported), "numpy")


def test_the_self_test_passes_and_the_sizes_are_small(with_numpy):
    assert with_numpy.self_test(1e-6) <= 1e-6
    files = with_numpy.bundle.files
    assert len(files[OPERATIONS]) + len(files[WEIGHTS]) < 120_000


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


def operations_of_all_kinds(x, y, whole):
    """Every operation that the list has, of two vectors and one of integers."""
    bits = jax.lax.bitcast_convert_type(x, jnp.uint32)
    square = jnp.outer(x, y)
    return (
        *(f(x) for f in (jnp.abs, jnp.ceil, jnp.floor, jnp.sign, jnp.isfinite, jnp.negative)),
        *(f(x) for f in (jnp.exp, jnp.expm1, jnp.log, jnp.log1p, jnp.sqrt, jax.lax.rsqrt)),
        *(f(x) for f in (jnp.tanh, jax.nn.sigmoid, jnp.square)),
        *(f(x, y) for f in (jnp.add, jnp.subtract, jnp.multiply, jnp.divide, jnp.power)),
        *(f(x, y) for f in (jnp.maximum, jnp.minimum, jnp.nextafter, jax.lax.rem)),
        *(f(x, y) for f in (jnp.less, jnp.less_equal, jnp.equal, jnp.not_equal)),
        *(f(x, y) for f in (jnp.greater, jnp.greater_equal)),
        jnp.where(x > y, x, y),
        jnp.where(x[0] > y[0], x, y),
        (x > 0) & (y > 0) | ~(x < y) ^ (y > 1),
        bits >> 3 & jnp.uint32(255) | bits << 2,
        whole >> 1,
        whole.astype(jnp.float32) * 2,
        x**3,
        jnp.clip(x, -1, 1),
        jnp.concatenate([x, y])[2:9:3],
        jnp.stack([x, y]).T,
        square[0],
        jnp.eye(9) @ jnp.nan_to_num(x, posinf=1, neginf=-1),
        jnp.nan_to_num(x, posinf=1, neginf=-1) @ jnp.ones((9, 2)).T.reshape(2, 9).T,
        x[jnp.array([3, 0])],
        x.at[jnp.array([3, 0, 3])].min(y[:3]),
        x.at[jnp.array([3, 0, 3])].max(y[:3]),
        x.at[jnp.array([3, 0])].add(y[:2]),
        jax.lax.cond(x[0] > y[0], lambda a, b: a + b, lambda a, b: a - b, x, y),
        jnp.max(y),
        jnp.min(y, initial=3),
        jnp.sum(jnp.where(jnp.isfinite(x), 1.0, 0.0)),
        jnp.any(x > 2),
        jnp.all(x > 2),
        jnp.argmax(y).astype(jnp.int32),
        jnp.argmin(y).astype(jnp.int32),
        jnp.reshape(x, (3, 3))[:, 1],
        jnp.broadcast_to(x, (2, 9)),
    )


def test_every_operation_answers_as_jax_does():
    x, y = NUMBERS, np.roll(NUMBERS, 2)
    whole = np.arange(-4, 5, dtype=np.int32)
    inputs = [ArrayEntry("x", (9,), "float32"), ArrayEntry("y", (9,), "float32")]
    inputs.append(ArrayEntry("whole", (9,), "int32"))
    listed = operation_list(operations_of_all_kinds, inputs)
    run, traced = as_function(listed), jax.jit(as_jax(listed))(x, y, whole)
    compiled = jax.jit(operations_of_all_kinds)(x, y, whole)
    for at, (again, theirs) in enumerate(zip(traced, compiled, strict=True)):
        np.testing.assert_allclose(again, theirs, rtol=2e-6, err_msg=f"in JAX, output {at}")
    tiny = np.abs(x) < np.finfo(np.float32).tiny  # some processors take them for zero
    for at, (ours, theirs) in enumerate(zip(run(x, y, whole), compiled, strict=True)):
        theirs = np.asarray(theirs)
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype), at
        if ours.shape == (9,):
            ours, theirs = ours[~tiny & ~np.roll(tiny, 2)], theirs[~tiny & ~np.roll(tiny, 2)]
        np.testing.assert_allclose(ours, theirs, rtol=2e-6, err_msg=f"output {at}")


def operations_that_once_were_missing(x, at):
    """Loops, branches, sorts, sums along an axis, and parts at places that are known only then."""

    def halved(state):
        total, turns = state
        return total / 2, turns + 1

    largest, places = jax.lax.top_k(x, 3)
    return (
        *jax.lax.while_loop(lambda s: (s[0] > 1) & (s[1] < 50), halved, (x[2], at * 0)),
        *jax.lax.scan(lambda h, u: (h * 0.5 + u, h), jnp.float32(0), x, reverse=True),
        jax.lax.scan(lambda h, u: (h + 0.1 * u, None), x, jnp.ones((3, 9)))[0],
        jax.lax.switch(at, [jnp.abs, jnp.negative, lambda y: jnp.cumsum(y)[::-1]], x),
        jnp.cumsum(x),
        jax.lax.cummax(x, reverse=True),
        jax.lax.cummin(x),
        largest,
        places,
        jnp.sort(x),
        jnp.argsort(x),
        *jnp.split(x, 3),
        x.at[at].set(9.0),
        x.at[at + jnp.arange(2)].set(9.0, mode="drop"),
        x[at],
        x.reshape(3, 3)[at % 3, jnp.array([2, 0])],
        jax.lax.dynamic_slice(x, (at,), (4,)),
        jax.lax.dynamic_update_slice(x, x[:2], (at,)),
        jax.lax.pad(x, jnp.float32(7), [(2, -1, 1)]),
        x.astype(jnp.int32),
    )


@pytest.mark.parametrize("at", [-20, -1, 0, 2, 7, 12])
@pytest.mark.parametrize("shift", [0, 3])
def test_loops_branches_and_moving_parts_answer_as_jax_does(at, shift):
    x = np.roll(np.array([0.0, -0.0, 900.5, np.nan, 3e9, 1.5, -3e38, np.inf, -np.inf]), shift)
    x, at = x.astype(np.float32), np.int32(at)
    inputs = [ArrayEntry("x", (9,), "float32"), ArrayEntry("at", (), "int32")]
    listed = operation_list(operations_that_once_were_missing, inputs)
    run, traced = as_function(listed), jax.jit(as_jax(listed))(x, at)
    compiled = jax.jit(operations_that_once_were_missing)(x, at)
    for i, (again, theirs) in enumerate(zip(traced, compiled, strict=True)):
        np.testing.assert_allclose(again, theirs, rtol=2e-6, err_msg=f"in JAX, output {i}")
    for i, (ours, theirs) in enumerate(zip(run(x, at), compiled, strict=True)):
        theirs = np.asarray(theirs)
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype), i
        np.testing.assert_allclose(ours, theirs, rtol=2e-6, err_msg=f"output {i}")


def test_a_random_key_that_nobody_reads_is_left_out():
    def unread(x):
        jax.random.key(0)
        return (x + 1,)

    assert len(operation_list(unread, [VECTOR]).operations) == 1


def test_what_has_no_list_is_named():
    with pytest.raises(NoSuchOperationError, match="numbers of type float64"), jax.enable_x64(True):
        operation_list(lambda x: (x.astype(jnp.float64),), [VECTOR])
    with pytest.raises(NoSuchOperationError, match="the operation erf"):
        operation_list(lambda x: (jax.lax.erf(x),), [VECTOR])
    with pytest.raises(NoSuchOperationError, match="a rounding to uint8"):
        operation_list(lambda x: (x.astype(jnp.uint8),), [VECTOR])


def test_a_loop_that_does_not_end_is_an_error_and_not_a_wait():
    def endless(x):
        return (jax.lax.while_loop(lambda y: y[0] < 1, lambda y: y, x),)

    run = as_function(operation_list(endless, [VECTOR]))
    assert run(np.ones(2, np.float32))[0].tolist() == [1, 1]
    with pytest.raises(BundleError, match="did not end after 10000 turns"):
        run(np.zeros(2, np.float32))


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
    document = json.loads(files[OPERATIONS])
    change(document)
    files[OPERATIONS] = json.dumps(document).encode()
    inputs = [*manifest.carry, ArrayEntry("obs", (3,), "float32")]
    inputs.append(ArrayEntry("last_sent", (2,), "float32"))
    with pytest.raises(BundleError, match=words):
        read_operations(files, inputs, "plant.bundle", seal(manifest.document))


def test_a_bundle_without_the_form_says_so(with_numpy):
    files = {n: d for n, d in with_numpy.bundle.files.items() if n != WEIGHTS}
    with pytest.raises(BundleError, match="no form for NumPy alone"):
        read_operations(files, with_numpy.manifest.carry, "plant.bundle", "")
