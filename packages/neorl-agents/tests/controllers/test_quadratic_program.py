"""The interior point method against SciPy's non-negative least squares."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neorl_agents.controllers import QuadraticProgram
from neorl_core.testing import no_recompile

from . import oracle

N, DRAWS = 12, 24


def program(rng):
    """A plan over twelve periods: range and rate hard, the output soft and often out of limits."""
    pole, gain = rng.uniform(0.5, 1.0), rng.uniform(0.05, 1.0)
    lag = np.arange(N)[:, None] - np.arange(N)
    forced = np.where(lag >= 0, gain * pole ** np.abs(lag), 0.0)
    h = forced.T @ forced + 10 ** rng.uniform(-3, 0) * np.eye(N)
    rows = np.concatenate([np.eye(N), np.eye(N) - np.eye(N, k=-1), forced])
    free = 3 * rng.normal() * pole ** np.arange(1, N + 1)
    limits = np.concatenate([np.ones(N), 0.3 * np.ones(N), 1.5 - free])
    opposite = np.concatenate([np.ones(N), 0.3 * np.ones(N), 1.5 + free])
    yielding = np.tile(np.concatenate([np.zeros(2 * N), np.full(N, 1e-3)]), 2)
    g = forced.T @ (free - rng.normal())
    return h, g, np.concatenate([rows, -rows]), np.concatenate([limits, opposite]), yielding


@partial(jax.jit, static_argnums=5)
def solve(h, g, rows, limits, yielding, steps):
    return jax.vmap(lambda h, g, G, b, c: QuadraticProgram(h, G, c, steps).solve(g, b))(
        h, g, rows, limits, yielding
    )


@pytest.fixture(scope="module")
def problems():
    rng = np.random.default_rng(3)
    drawn = [program(rng) for _ in range(DRAWS)]
    return [np.stack(parts) for parts in zip(*drawn, strict=True)], [
        oracle.solved(h, g, rows, limits, yielding) for h, g, rows, limits, yielding in drawn
    ]


def test_float64_is_the_optimum_to_eight_digits(problems):
    parts, expected = problems
    with jax.enable_x64(True):
        solution = solve(*map(jnp.asarray, parts), 25)
        assert solution.x.dtype == jnp.float64
        np.testing.assert_allclose(solution.x, expected, atol=1e-7)
        assert float(jnp.max(solution.error)) < 1e-8


def test_float32_is_the_optimum_of_its_program_on_any_processor(problems):
    """The solver works in float64, so that only the rounding of the program itself is left."""
    parts, _ = problems
    rounded = [np.asarray(part, np.float32) for part in parts]
    solution = solve(*map(jnp.asarray, rounded), 25)
    assert solution.x.dtype == jnp.float32
    expected = [
        oracle.solved(*(np.asarray(part[i], np.float64) for part in rounded)) for i in range(DRAWS)
    ]
    np.testing.assert_allclose(solution.x, np.stack(expected), rtol=1e-6, atol=2e-7)
    assert float(jnp.max(solution.error)) < 1e-8
    assert np.all(solution.multipliers >= 0)


def test_compiled_exported_and_eager_agree(problems):
    parts, _ = problems
    one = [jnp.asarray(part[0], jnp.float32) for part in parts]

    def point(h, g, rows, limits, yielding):
        return QuadraticProgram(h, rows, yielding, 25).solve(g, limits).x

    exported = jax.export.export(jax.jit(point))(*one)
    for other in (jax.jit(point)(*one), exported.call(*one)):
        np.testing.assert_allclose(other, point(*one), rtol=1e-6, atol=1e-7)


def test_many_episodes_side_by_side_are_solved_as_each_alone(problems):
    """A closed loop is a scan, and many of them are a vmap of it."""
    parts, _ = problems
    each = [jnp.asarray(part, jnp.float32) for part in parts]

    def step(carry, row):
        h, g, rows, limits, yielding = row
        return carry, QuadraticProgram(h, rows, yielding, 25).solve(g, limits).x

    episodes = [part[:4].reshape(2, 2, *part.shape[1:]) for part in each]
    actual = jax.vmap(lambda rows: jax.lax.scan(step, 0, rows)[1])(episodes)
    np.testing.assert_allclose(actual.reshape(4, N), solve(*each, 25).x[:4], rtol=1e-6, atol=1e-7)


def test_too_few_steps_are_flagged(problems):
    parts, expected = problems
    solution = solve(*(jnp.asarray(part, jnp.float32) for part in parts), 3)
    off = np.max(np.abs(solution.x - np.stack(expected)), axis=1)
    assert np.any(off > 0.01)
    assert np.all(np.asarray(solution.error)[off > 0.01] > 1e-4)


def test_another_program_of_the_same_shape_does_not_compile_again(problems):
    parts, _ = problems
    first, second = ([jnp.asarray(p[i], jnp.float32) for p in parts] for i in (0, 1))

    def one(h, g, rows, limits, yielding):
        return QuadraticProgram(h, rows, yielding, 3).solve(g, limits).x

    no_recompile(one, first, second)


def test_what_is_not_finite_is_not_called_solved(problems):
    parts, _ = problems
    h, g, rows, limits, yielding = (jnp.asarray(p[:1], jnp.float32) for p in parts)
    solution = solve(h, g * jnp.nan, rows, limits, yielding, 3)
    assert not np.any(solution.error <= 1e3)


def test_without_limits_it_is_a_linear_system():
    h, g = jnp.array([[2.0, 0.5], [0.5, 1.0]]), jnp.array([1.0, -1.0])
    solution = QuadraticProgram(h, jnp.zeros((0, 2)), jnp.zeros(0), 3).solve(g, jnp.zeros(0))
    np.testing.assert_allclose(solution.x, np.linalg.solve(h, -g), rtol=1e-6)
    assert float(solution.error) < 1e-6
