"""What a program does is seen before it is compiled, however deep it does it."""

import jax
import jax.numpy as jnp
import pytest

from neorl_core.infrastructure import equations, factorises

# Small determinants have a formula.
SQUARE, RIGHT = jnp.eye(5) * 2.0, jnp.ones(5)
SOLVERS = {
    "inv": jnp.linalg.inv,
    "solve": lambda a: jnp.linalg.solve(a, RIGHT),
    "cholesky": jnp.linalg.cholesky,
    "cho_solve": lambda a: jax.scipy.linalg.cho_solve((a, True), RIGHT),
    "triangular": lambda a: jax.scipy.linalg.solve_triangular(a, RIGHT),
    "qr": lambda a: jnp.linalg.qr(a)[1],
    "lstsq": lambda a: jnp.linalg.lstsq(a, RIGHT)[0],
    "eigh": lambda a: jnp.linalg.eigh(a)[0],
    "svd": lambda a: jnp.linalg.svd(a, compute_uv=False),
    "eig": lambda a: jnp.linalg.eig(a)[0],
    "det": jnp.linalg.det,
    "expm": jax.scipy.linalg.expm,
}
NESTED = {
    "plain": lambda one: one,
    "jit": jax.jit,
    "vmap": lambda one: lambda a: jax.vmap(one)(a[None]),
    "cond": lambda one: lambda a: jax.lax.cond(a[0, 0] > 1, one, lambda b: one(b) * 2, a),
    "scan": lambda one: lambda a: jax.lax.scan(lambda c, _: (c, one(c)), a, length=2)[1],
    "while": lambda one: (
        lambda a: jax.lax.fori_loop(0, a.astype(int)[0, 0], lambda _, c: c + one(c).sum().real, a)
    ),
    "grad": lambda one: jax.grad(lambda a: jnp.abs(one(a)).sum()),
}


@pytest.mark.parametrize("solver", SOLVERS)
def test_every_solver_of_jax_is_seen(solver):
    assert factorises(jax.make_jaxpr(SOLVERS[solver])(SQUARE))


@pytest.mark.parametrize("nested", NESTED)
def test_it_is_seen_however_deep_it_lies(nested):
    assert factorises(jax.make_jaxpr(NESTED[nested](SOLVERS["solve"]))(SQUARE))
    assert not factorises(jax.make_jaxpr(NESTED[nested](lambda a: a @ a + 1))(SQUARE))


def test_equations_of_inner_programs_are_among_them():
    inner = jax.make_jaxpr(jax.jit(lambda a: jnp.sin(a) + 1))(1.0)
    names = [one.primitive.name for one in equations(inner)]
    assert {"sin", "add"} < {*names}
    assert names == [one.primitive.name for one in equations(inner.jaxpr)]
