"""The form of the affine layer for a CPU has the values and derivatives of the plain one."""

from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from neorl_agents.networks import init_mlp
from neorl_agents.networks._mlp import MOST_ROWS, affine, cpu_affine, plain_affine

KEYS = jax.random.split(jax.random.key(0), 3)
# Wide to narrow, narrow to wide, and a few columns: the cases of the form for a CPU.
SHAPES = [(9, 5), (5, 9), (6, 1), (6, 4)]


def operands(shape, rows=7):
    return (
        jax.random.normal(KEYS[0], (rows, shape[0])),
        jax.random.normal(KEYS[1], shape),
        jax.random.normal(KEYS[2], shape[1:]),
    )


def loss(form, x, weight, bias):
    return jnp.sum(jnp.square(jnp.tanh(form(x, weight, bias))))


def slopes(form, *given):
    return jax.grad(partial(loss, form), argnums=(0, 1, 2))(*given)


def penalised(form, *given):
    """A loss with a gradient inside: reverse mode over reverse mode."""
    return sum(jnp.sum(jnp.square(slope)) for slope in slopes(form, *given))


@jax.jit
def both(x, weight, bias):
    given = (x, weight, bias)
    forms = (plain_affine, cpu_affine, affine)
    return [
        (form(*given), slopes(form, *given), jax.grad(partial(penalised, form), (0, 1, 2))(*given))
        for form in forms
    ]


@pytest.mark.parametrize("shape", SHAPES)
def test_values_and_first_and_second_gradients_equal_the_plain_ones(shape):
    plain, *others = both(*operands(shape))
    for other in others:
        # Gradients of size 50 have passed through sums of that size.
        chex.assert_trees_all_close(other, plain, rtol=1e-4, atol=5e-5)


def program(platform, rows=7):
    forms = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), operands((9, 3), rows))
    compiled = jax.jit(partial(slopes, affine))
    return export.export(compiled, platforms=[platform])(*forms).mlir_module()


def test_other_platforms_get_the_plain_form():
    """A program for CUDA can be written without such a device."""
    assert "optimization_barrier" in program("cpu")
    assert "optimization_barrier" not in program("cuda")


def test_a_cpu_gets_the_plain_form_for_many_rows():
    assert "optimization_barrier" in program("cpu", MOST_ROWS)
    assert "optimization_barrier" not in program("cpu", MOST_ROWS + 1)


def test_forward_mode_over_a_batch_is_refused_and_over_its_rows_is_right():
    network = init_mlp((3, 8, 2), KEYS[0])
    x = jax.random.normal(KEYS[1], (5, 3))
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(network, (x,), (x,))
    _, forward = jax.jvp(jax.vmap(network), (x,), (x,))
    jacobians = jax.vmap(jax.jacrev(network))(x)
    np.testing.assert_allclose(forward, jnp.einsum("boi,bi->bo", jacobians, x), atol=1e-5)


def test_a_gpu_gives_the_values_and_gradients_of_a_cpu():
    try:
        gpu = jax.devices("gpu")[0]
    except RuntimeError:
        pytest.skip("needs a GPU")
    results = []
    with jax.default_matmul_precision("highest"):
        for device in (gpu, jax.devices("cpu")[0]):
            given = jax.device_put(operands((64, 3), rows=256), device)
            results.append(jax.jit(partial(slopes, affine))(*given))
    chex.assert_trees_all_close(*jax.device_get(results), rtol=1e-4, atol=1e-4)
