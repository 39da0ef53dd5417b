"""Laws about form: requirements of JAX and of the protocol on the functions themselves."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from neorl_envs.plants._protocol import check_plant
from neorl_envs.testing._evidence import Evidence, first_steps
from neorl_envs.testing._value_laws import RELATIVE


def it_is_a_plant(env: Any) -> str:
    """The plant has all members, is hashable and has no arrays among its fields."""
    try:
        check_plant(env.name, env)
        hash(env)
    except (AttributeError, TypeError, ValueError) as error:
        return str(error)
    if jax.tree.leaves(env):
        return "its fields hold arrays; make them static, or part of the parameters"
    names = {channel.name for channel in env.spec.obs}
    unknown = sorted(set(env.bands()) - names)
    return f"bands names {unknown[0]!r}, which is not observed" if unknown else ""


def a_wrong_shape_is_refused(evidence: Evidence) -> str:
    """An action of a wrong length is refused during tracing and not broadcast."""
    params = jax.tree.map(lambda leaf: leaf[0], evidence.params)
    start = jax.tree.map(lambda leaf: leaf[0], evidence.start)
    n = evidence.spec.n_action
    for shape in ((n + 1,), (), (1, n)):
        wrong_action = jnp.zeros(shape)
        try:
            jax.eval_shape(evidence.env.step, params, start, wrong_action, evidence.key)
        except (ValueError, TypeError):
            continue
        return f"an action of shape {shape} is accepted, expected ({n},)"
    return ""


def an_unknown_preset_is_refused(evidence: Evidence) -> str:
    """``default_params`` accepts ``"plant"`` and refuses unknown presets."""
    evidence.env.default_params("plant")
    try:
        evidence.env.default_params("no such preset")
    except ValueError:
        return ""
    return "default_params accepts an unknown preset; raise ValueError"


def its_own_parameters_are_physical(evidence: Evidence) -> str:
    """``check_params``, if defined, accepts the plant's own default and sampled parameters."""
    check = getattr(evidence.env, "check_params", None)
    if check is None:
        return ""
    drawn = jax.tree.map(lambda leaf: leaf[0], evidence.params)
    try:
        check(evidence.env.default_params())
        check(drawn)
    except ValueError as error:
        return str(error)
    return ""


def the_state_keeps_its_form(env: Any) -> str:
    """Structure, shapes and dtypes of the state never change, so that loops can carry it."""

    def both(key: Any) -> Any:
        params = env.sample_params(key)
        start, _ = env.reset(params, key)
        return start, env.step(params, start, jnp.zeros(env.spec.n_action), key)[0]

    start, after = jax.eval_shape(both, jax.random.key(0))
    if jax.tree.structure(start) != jax.tree.structure(after):
        return "step returns a state of another structure than reset"
    for (path, a), b in zip(
        jax.tree_util.tree_leaves_with_path(start), jax.tree.leaves(after), strict=True
    ):
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            return (
                f"state{jax.tree_util.keystr(path)} is {a.dtype}{a.shape} after reset and "
                f"{b.dtype}{b.shape} after step"
            )
    return ""


def a_second_call_does_not_trace_again(evidence: Evidence) -> str:
    """Three calls with different keys and actions use one compiled program."""
    return "" if evidence.traces == 1 else f"three calls were traced {evidence.traces} times"


def a_key_is_used_once(evidence: Evidence) -> str:
    """No key is used for two random numbers, which would be dependent; checked during tracing."""
    params = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), evidence.params)
    start = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), evidence.start)
    action = jnp.zeros(evidence.spec.n_action)

    def draw(key: PRNGKeyArray) -> Any:
        return evidence.env.sample_params(key)

    def reset(key: PRNGKeyArray) -> Any:
        return evidence.env.reset(params, key)

    def step(key: PRNGKeyArray) -> Any:
        return evidence.env.step(params, start, action, key)

    for name, call in {"sample_params": draw, "reset": reset, "step": step}.items():
        try:
            with jax.debug_key_reuse(True):
                jax.jit(call).trace(evidence.key)
        except jax.errors.KeyReuseError:
            return f"{name} uses a key twice, so that draws are correlated; split it"
    return ""


def a_batch_equals_single_steps(evidence: Evidence) -> str:
    """``vmap`` over worlds and ``scan`` over time give the numbers of single compiled steps."""
    return _compare(evidence, compiled=True)


def compiled_equals_eager(evidence: Evidence) -> str:
    """Results without ``jit`` are the same, and the functions keep no state between calls."""
    fault = _compare(evidence, compiled=False)
    if fault:
        return fault
    (_, first), (_, second) = first_steps(evidence, (0, 0), compiled=False)
    same = all(np.array_equal(a, b) for a, b in zip(first[:5], second[:5], strict=True))
    fault = "two eager calls with the same arguments differ: a function keeps state between calls"
    return "" if same else fault


def _compare(evidence: Evidence, *, compiled: bool) -> str:
    form = "a compiled" if compiled else "an eager"
    worlds = (0, 1)
    answers = first_steps(evidence, worlds, compiled=compiled)
    for world, (first, step) in zip(worlds, answers, strict=True):
        if not _near(first, evidence.first[world], evidence.first[world]):
            return f"the first observation differs from that of {form} call"
        for name in ("obs", "reward", "cost", "applied"):
            batch = getattr(evidence.steps, name)
            if not _near(getattr(step, name), batch[world, 0], batch[world]):
                return f"{name} of the first step differs from that of {form} single step"
    return ""


def _near(actual: Any, expected: Any, scale: Any) -> bool:
    size = np.max(np.abs(np.asarray(scale, np.float64)), initial=1.0)
    return bool(np.allclose(actual, expected, rtol=RELATIVE, atol=RELATIVE * 1e-2 * size))
