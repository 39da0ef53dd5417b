"""The layout of collected rows, and the counts of the collection."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from neorl_core import Spec, Transition
from neorl_train.training._collect import Counts, Running


def example_rows(spec: Spec, running: Running, *, costs: bool) -> Transition:
    """Rows of one step, from which a buffer takes shapes and dtypes."""
    obs, no = running.obs, jnp.zeros(running.total.shape, jnp.bool_)
    action = jnp.zeros((len(no), spec.n_action), obs.dtype)
    rows = Transition(obs, action, running.total, next_obs=obs, terminated=no, truncated=no)
    return rows._replace(cost=running.cost_sum) if costs else rows


def online_metrics(spec: Spec, counts: Counts) -> dict[str, Float[Array, ""]]:
    """Counts on the plant since the beginning, as metrics."""
    real = jax.tree.map(lambda x: x.astype(jnp.float32), counts)
    names = [channel.name for channel in spec.cost]
    return {
        "online_steps": real.steps,
        "online_episodes": real.episodes,
        "online_return": real.returns / jnp.maximum(real.episodes, 1),
        "online_trips": real.trips,
        "online_filtered": real.filtered,
        "online_fallback": real.fallback,
        **{f"online_violated_{name}": real.violated[j] for j, name in enumerate(names)},
    }
