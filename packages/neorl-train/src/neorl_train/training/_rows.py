"""The layout of collected rows, and the counts of the collection."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_core import Spec, Transition
from neorl_train.training._collect import Counts, Running


def example_rows(spec: Spec, running: Running, *, costs: bool) -> Transition:
    """Rows of one step, from which a buffer takes shapes and dtypes."""
    obs, not_ended = running.obs, jnp.zeros(running.total.shape, jnp.bool_)
    action = jnp.zeros((len(not_ended), spec.n_action), obs.dtype)
    rows = Transition(
        obs, action, running.total, next_obs=obs, terminated=not_ended, truncated=not_ended
    )
    return rows._replace(cost=running.cost_sum) if costs else rows


def online_metrics(spec: Spec, counts: Counts) -> dict[str, Float[Array, ""]]:
    """Counts on the plant since the beginning, as metrics."""
    floats = jax.tree.map(lambda x: x.astype(jnp.float32), counts)
    names = [channel.name for channel in spec.cost]
    return {
        "online_steps": floats.steps,
        "online_episodes": floats.episodes,
        "online_return": floats.returns / jnp.maximum(floats.episodes, 1),
        "online_trips": floats.trips,
        "online_filtered": floats.filtered,
        "online_fallback": floats.fallback,
        **{f"online_violated_{name}": floats.violated[j] for j, name in enumerate(names)},
    }
