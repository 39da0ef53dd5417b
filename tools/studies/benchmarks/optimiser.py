"""The step of the default optimiser beside bare optax, and whether packing small leaves would pay.

Small case: 12 observations, 3 actions, networks of 64x64, batches of 64. First the step alone, on
the parameters of an actor and two critics, in the learners' form (rate an argument, state kept in
its form), by bare ``optax.adam`` with its rate fixed, and by Adam over one vector of all leaves of
at most 1024 numbers. Packing is a transformation around optax and right for elementwise ones alone:
a clip by the global norm would see another tree. Then whole updates of the learners, with the
default and with the packed one. One core, one thread; a round is CPU time, in alternation. Run it
alone:

    python tools/studies/benchmarks/optimiser.py
    python tools/studies/benchmarks/optimiser.py --rounds 9 --core 1 --out /tmp/optimiser.json
"""

import sys
from collections.abc import Callable
from typing import Any

from _rounds import bare_scan, interleaved, on_one_core, pair_arguments, pair_report, small_case

SMALL = 1024
STEPS = 1000
LEARNERS = ("td3_bc", "iql")


def main() -> int:
    """Runs all rounds and writes them; 0 if no variant spreads too far."""
    arguments = pair_arguments(__doc__, "optimiser")
    on_one_core(arguments.core)
    from neorl_agents.optimisers import OPTIMISERS

    OPTIMISERS.register("packed_adam", packed_adam)
    cases = {"step": interleaved(_steps(), STEPS, arguments.rounds)}
    for name in LEARNERS:
        cases[name] = interleaved(_updates(name), STEPS, arguments.rounds)
    ratios = {
        "step": [("adam", "bare optax"), ("packed", "adam")],
        **{name: [("packed_adam", "adam")] for name in LEARNERS},
    }
    return pair_report("optimiser", cases, ratios, arguments)


def packed_adam(rate: Any) -> Any:
    """``optax.adam`` over one vector of all small leaves and over each large one."""
    import equinox as eqx
    import optax
    from jax.flatten_util import ravel_pytree

    inner: Any = optax.adam(rate)

    def pack(tree: Any) -> tuple[Any, Any, Callable[[Any], Any]]:
        small, large = eqx.partition(tree, lambda leaf: leaf.size <= SMALL)
        vector, unpack = ravel_pytree(small)
        return vector, large, unpack

    def init(params: Any) -> Any:
        return inner.init(pack(params)[:2])

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        del params
        vector, large, unpack = pack(updates)
        (vector, large), state = inner.update((vector, large), state)
        return eqx.combine(unpack(vector), large), state

    return optax.GradientTransformation(init, update)


def _updates(name: str) -> dict[str, Callable[[], Any]]:
    """A scan over the updates of a learner, with each optimiser."""
    import dataclasses

    import jax

    algorithm, data = small_case(name)

    def scan(optimiser: str) -> Callable[[], Any]:
        steps = dataclasses.replace(algorithm.steps, optimiser=optimiser)
        other = dataclasses.replace(algorithm, steps=steps)
        return bare_scan(other, data, jax.devices()[0], 0, STEPS)

    return {optimiser: scan(optimiser) for optimiser in ("adam", "packed_adam")}


def _steps() -> dict[str, Callable[[], Any]]:
    """Many steps on the parameters of an actor and two critics; the gradient costs next to nothing.

    It is ``parameters - 1``, fused into the step.
    """
    import jax
    import jax.numpy as jnp
    import optax

    from neorl_agents.networks import ensemble, init_mlp
    from neorl_agents.optimisers import descend, init_optimiser

    key = jax.random.key(0)
    parameters: Any = (
        init_mlp((12, 64, 64, 3), key),
        ensemble(2, lambda member: init_mlp((15, 64, 64, 1), member), key),
    )
    bare = optax.adam(3e-4)

    def step_by_name(name: str) -> Callable:
        return lambda p, state, g, rate: descend(name, p, state, g, rate)

    def step_bare(p: Any, state: Any, g: Any, rate: Any) -> tuple[Any, Any]:
        del rate
        updates, state = bare.update(g, state, p)
        return optax.apply_updates(p, updates), state

    def looped(step: Callable, state: Any) -> Callable[[], Any]:
        @jax.jit
        def run(carry: Any, rate: Any) -> Any:
            def once(carry: Any, _: None) -> tuple[Any, None]:
                gradient = jax.tree.map(lambda p: p - 1, carry[0])
                return step(*carry, gradient, rate), None

            return jax.lax.scan(once, carry, None, length=STEPS)[0]

        rate = jnp.float32(3e-4)
        return lambda: run((parameters, state), rate)

    return {
        "bare optax": looped(step_bare, bare.init(parameters)),
        "adam": looped(step_by_name("adam"), init_optimiser("adam", parameters, 3e-4)),
        "packed": looped(
            step_by_name("packed_adam"), init_optimiser("packed_adam", parameters, 3e-4)
        ),
    }


if __name__ == "__main__":
    sys.exit(main())
