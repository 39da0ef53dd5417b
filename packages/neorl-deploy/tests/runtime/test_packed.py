"""Arrays of every kind through words and back, on the host and in a compiled step."""

import jax.numpy as jnp
import numpy as np
import pytest

from neorl_deploy.bundle import ArrayEntry
from neorl_deploy.runtime._forms import layout_of, pack, packed_step

ARRAYS = [
    np.array([[1.5, np.nan, -0.0], [np.inf, 1e-40, -3e38]], np.float32),
    np.array(True),
    np.array([-5, 7], np.int32),
    np.array([0, 255], np.uint8),
    np.array([4_000_000_000], np.uint32),
    np.zeros((0, 3), np.float32),
    np.array([False, True, False]),
    np.array([1.5, -2.25], np.float16),
]
NAMES = [f"part {i}" for i in range(len(ARRAYS))]
LAYOUT = layout_of(
    [ArrayEntry(n, a.shape, str(a.dtype)) for n, a in zip(NAMES, ARRAYS, strict=True)]
)


def same(found, expected):
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.tobytes() == expected.tobytes()


def test_every_array_comes_back_bit_for_bit():
    words = pack(LAYOUT, ARRAYS)
    for name, array in zip(NAMES, ARRAYS, strict=True):
        same(LAYOUT.get(words, name), array)


def test_setting_one_array_leaves_the_others():
    words = pack(LAYOUT, ARRAYS)
    changed = LAYOUT.set(words, "part 2", np.array([8, 9], np.int32))
    for name, array in zip(NAMES, ARRAYS, strict=True):
        same(LAYOUT.get(words, name), array)
        same(LAYOUT.get(changed, name), np.array([8, 9], np.int32) if name == "part 2" else array)


@pytest.mark.parametrize("n_carry", [0, 3, len(ARRAYS)])
def test_a_step_on_words_is_the_step_on_arrays(n_carry):
    def step(*inputs):
        *carry, obs, sent = inputs
        kept = [jnp.flip(a) if a.ndim else ~a for a in carry]
        return (*kept, *map(jnp.asarray, ARRAYS[n_carry:-1]), (obs + sent).astype(jnp.float16))[
            : len(ARRAYS)
        ]

    n_carry = min(n_carry, len(ARRAYS) - 1)
    run = packed_step(step, LAYOUT, n_carry)
    words = pack(LAYOUT, ARRAYS[:n_carry]) if n_carry else np.zeros(LAYOUT.ends[-1], np.uint32)
    obs = np.array([1.0, 2.0], np.float32)
    expected = step(*map(jnp.asarray, ARRAYS[:n_carry]), obs, obs)
    for _ in range(2):  # what came out goes in again
        words = run(words, obs, obs)
        for name, array in zip(NAMES, map(np.asarray, expected), strict=True):
            same(LAYOUT.get(np.asarray(words), name), array)
        expected = step(*expected[:n_carry], obs, obs)
