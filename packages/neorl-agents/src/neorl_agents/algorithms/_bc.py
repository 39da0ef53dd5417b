"""Behaviour cloning."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_agents.learning import (
    BaseLearner,
    LearnerState,
    Metrics,
    Steps,
    UnitRows,
    only_batch,
)
from neorl_agents.networks import Network, identity, tanh
from neorl_agents.networks._gaussian_heads import squashed_mean, squashed_parameters
from neorl_agents.networks._mixture_head import (
    heaviest_component,
    mixture_outputs,
    mixture_parameters,
)
from neorl_agents.policies import HistoryPolicy, NetworkPolicy, network_policy
from neorl_agents.sampling import BestEpisodes, Rows, Sampler
from neorl_core import Spec
from neorl_core.distributions import gaussian_mixture_log_prob, tanh_gaussian_log_prob
from neorl_core.infrastructure import setting
from neorl_core.losses import masked_mean

LOG_STD_RANGE = (-5.0, 2.0)
Variant = Literal["deterministic", "gaussian", "mixture"]


class BC(BaseLearner):
    """Behaviour cloning: regression of logged actions on observations.

    The policy ``pi`` is a tanh network on standardised observations. The loss, in [-1, 1] units,
    is the mean of ``(pi(s) - a)^2`` over the batch and the action channels. A tanh never reaches
    its bound, so logged actions are clipped to ``1 - 1e-5`` of their range.

    Variants: ``"gaussian"`` fits a tanh-Gaussian, whose standard deviation depends on the
    observation, by ``-mean log pi(a|s)``, and acts by ``tanh`` of its mean. It learns where logged
    actions vary and where they do not, but its mean is drawn to the bounds where many logged
    actions lie on them. ``"mixture"`` fits ``n_components`` unsquashed Gaussians, whose means pass
    through a tanh, by the same loss, and acts by the mean of the heaviest component. A log of
    several controllers is then not cloned as their average, which none of them would apply.
    ``fraction`` below 1 clones only the episodes with the largest returns ("10 % BC").

    Attributes:
        learning_rate: Learning rate of the actor.
        variant: ``"deterministic"``, ``"gaussian"`` or ``"mixture"``; static.
        n_components: Number of Gaussians in the mixture; static.
        fraction: Fraction of the episodes to clone, those with the largest returns;
            static.

    Source: as in CORL's ``any_percent_bc.py``, whose defaults these are (it also ranks episodes by
    their return); the Gaussian follows the baselines of NeoRL-2; the mixture follows Bishop,
    Mixture density networks, 1994.
    """

    learning_rate: float = setting(3e-4, above=0)
    variant: Variant = eqx.field(static=True, default="deterministic")
    n_components: int = setting(5, low=1, static=True)
    fraction: float = setting(1.0, above=0, high=1, static=True)

    steps: Steps = Steps(reward_scale="none")

    rates: ClassVar[Mapping[str, str]] = {"actor": "learning_rate"}

    @property
    def reads(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Returns are read only if they decide which episodes are cloned."""
        return_columns = () if self.fraction == 1 else ("reward", "terminated", "truncated")
        return ("obs", "action", "mask", *return_columns)

    @property
    def row_sampler(self) -> Sampler:
        """A sampler of all rows, or of those of the best episodes."""
        return Rows() if self.fraction == 1 else BestEpisodes(self.fraction)

    def fresh(self, spec: Spec, key: PRNGKeyArray) -> tuple[dict[str, Any], dict[str, Any]]:
        """An actor with the outputs that its variant needs."""
        n_action = spec.n_action
        outputs, output = {
            "deterministic": (n_action, tanh),
            "gaussian": (2 * n_action, identity),
            "mixture": (mixture_outputs(self.n_components, n_action), identity),
        }[self.variant]
        return {"actor": self.networks.obs_network(spec, outputs, key, output=output)}, {}

    def learn(
        self, state: LearnerState, rows: UnitRows, key: PRNGKeyArray
    ) -> tuple[LearnerState, Metrics]:
        """Takes one gradient step; the key is ignored."""
        state, loss, _ = self.descend(state, "actor", LOSSES[self.variant], only_batch(rows))
        return state, {"actor_loss": loss}

    def policy(self, state: LearnerState) -> NetworkPolicy | HistoryPolicy:
        """The trained policy, in physical units."""
        network = state.parameters["actor"]
        if self.variant == "gaussian":
            network = squashed_mean(network)
        if self.variant == "mixture":
            network = heaviest_component(network, state.preparation.low.shape[-1])
        return network_policy(state.preparation, network)


def _squared_error(actor: Network, rows: UnitRows) -> tuple[Float[Array, ""], None]:
    distance = jnp.mean(jnp.square(actor(rows.obs) - rows.action), axis=-1)
    return masked_mean(distance, rows.mask), None


def _negative_log_prob(actor: Network, rows: UnitRows) -> tuple[Float[Array, ""], None]:
    mean, log_std = squashed_parameters(actor, rows.obs, LOG_STD_RANGE)
    return -masked_mean(tanh_gaussian_log_prob(rows.action, mean, log_std), rows.mask), None


def _mixture_negative_log_prob(actor: Network, rows: UnitRows) -> tuple[Float[Array, ""], None]:
    parameters = mixture_parameters(actor, rows.obs, rows.action.shape[-1], LOG_STD_RANGE)
    return -masked_mean(gaussian_mixture_log_prob(rows.action, *parameters), rows.mask), None


LOSSES = {
    "deterministic": _squared_error,
    "gaussian": _negative_log_prob,
    "mixture": _mixture_negative_log_prob,
}
