"""as_arrays: one program for a float, an int and an array in the same place."""

import chex
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from neorl_core import as_arrays


@pytest.mark.parametrize(
    ("leaf", "dtype"),
    [
        (0.5, "float32"),
        (3, "int32"),
        (True, "bool"),
        (np.True_, "bool"),
        (np.float32(1), "float32"),
        (np.float64(1), "float32"),
        (np.int64(7), "int32"),
        (np.ones(3), "float32"),
        (np.ones(3, np.float16), "float16"),
        (np.ones(3, ml_dtypes.bfloat16), "bfloat16"),
        (np.arange(3, dtype=np.uint8), "uint8"),
        (jnp.ones(3, jnp.bfloat16), "bfloat16"),
    ],
)
def test_every_number_becomes_a_strong_array(leaf, dtype):
    result = as_arrays({"a": [leaf]})["a"][0]
    assert isinstance(result, jax.Array)
    assert result.dtype == dtype
    assert not result.weak_type
    np.testing.assert_array_equal(np.asarray(result, np.float64), np.asarray(leaf, np.float64))


def test_weak_arrays_become_strong_also_while_tracing():
    weak = jnp.asarray(1.0) * 2
    assert not as_arrays(weak).weak_type
    assert not jax.jit(as_arrays)(2.0).weak_type


def test_float64_is_kept_where_it_is_enabled():
    with jax.enable_x64(True):
        assert as_arrays(np.ones(2)).dtype == "float64"
        assert as_arrays(1.0).dtype == "float32"


def test_keys_pass():
    key = jax.random.key(0)
    assert as_arrays((key,))[0] is key


def test_equal_structures_make_one_program():
    @jax.jit
    @chex.assert_max_traces(n=1)
    def program(tree):
        return tree

    for number in (1.0, np.float32(2), jnp.float32(3), np.float64(4)):
        program(as_arrays({"rate": number}))
    with pytest.raises(AssertionError, match="traced > 1 times"):
        program({"rate": 1.0})


def test_what_is_no_number_is_refused_by_path():
    with pytest.raises(TypeError, match=r"\['layers'\]\[1\] is a str; expected .* a static field"):
        as_arrays({"layers": [1, "relu"]})
    with pytest.raises(TypeError, match="leaf is a function"):
        as_arrays(lambda: 0)
    with pytest.raises(ValueError, match=r"\['seed'\] is 4294967296, which does not fit"):
        as_arrays({"seed": 2**32})
