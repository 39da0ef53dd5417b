"""The settings that learners share: their networks, and their gradient steps."""

from typing import Any

import equinox as eqx
from jaxtyping import PRNGKeyArray

from neorl_agents.learning._hyperparameters import (
    as_strings,
    as_widths,
    require_choice,
    require_count,
    require_strings,
    require_widths,
)
from neorl_agents.networks import (
    ENCODERS,
    NETWORKS,
    Encoder,
    Encoding,
    Network,
    ensemble,
    init_network,
)
from neorl_agents.optimisers import OPTIMISERS
from neorl_agents.policies import REWARD_SCALES, RewardScale
from neorl_core import Spec


class Networks(eqx.Module):
    """Widths, memory and kind of all networks of a learner.

    Every field is static: another value needs another compilation.

    Attributes:
        hidden: Widths of the hidden layers.
        encoder: ``"none"``, ``"history"`` or ``"gru"``: whether networks also see the previous
            steps, concatenated or through a recurrent unit each.
        history_steps: Number of steps in that window, including the current one.
        kind: Name of the kind of network in ``neorl_agents.networks.NETWORKS``.
        graph: For a kind that reads graphs: the node or edge of each channel whose name does not
            give it, ``"LI-101 = tank3.level"``, and nodes or edges without a channel,
            ``"line2-3"``; see :func:`neorl_agents.networks.graph_layout`.
    """

    hidden: tuple[int, ...] = eqx.field(static=True, default=(256, 256), converter=as_widths)
    encoder: Encoder = eqx.field(static=True, default="none")
    history_steps: int = eqx.field(static=True, default=8)
    kind: str = eqx.field(static=True, default="mlp")
    graph: tuple[str, ...] = eqx.field(static=True, default=(), converter=as_strings)

    def encoding(self, spec: Spec) -> Encoding:
        """How observations of a plant are encoded for the networks."""
        return Encoding(self.encoder, self.history_steps, spec.n_obs, spec.n_action)

    def obs_network(
        self, spec: Spec, n_out: int, key: PRNGKeyArray, *, extra_inputs: int = 0, **options: Any
    ) -> Network:
        """A fresh network from observations to ``n_out`` numbers.

        Args:
            spec: Channels of the plant.
            n_out: Number of outputs.
            key: Random key; consumed.
            extra_inputs: Number of further inputs, after those of the observation.
            **options: Further options of the kind, such as those of
                :func:`neorl_agents.networks.init_mlp`.
        """
        return self._network(spec, extra_inputs, n_out, key, options)

    def obs_action_networks(
        self, spec: Spec, n_out: int, key: PRNGKeyArray, *, members: int = 2, **options: Any
    ) -> Network:
        """Fresh networks from observations and actions to ``n_out`` numbers, stacked.

        Args:
            spec: Channels of the plant.
            n_out: Number of outputs.
            key: Random key; consumed.
            members: Number of networks, with independent weights.
            **options: Further options of the kind.
        """

        def member(member_key: PRNGKeyArray) -> Network:
            return self._network(spec, spec.n_action, n_out, member_key, options)

        return ensemble(members, member, key)

    def _network(
        self, spec: Spec, extra_inputs: int, n_out: int, key: Any, options: Any
    ) -> Network:
        encoding = self.encoding(spec)
        widths = (encoding.width + extra_inputs, *self.hidden, n_out)
        if self.encoder == "none":
            options = {**options, **NETWORKS.find(self.kind).options_of(spec, self.graph)}
        return init_network(widths, key, kind=self.kind, encoding=encoding, **options)


class Steps(eqx.Module):
    """Batch size, steps ahead, optimiser and reward scale of a gradient step.

    Every field is static: another value needs another compilation.

    Attributes:
        batch_size: Rows of one gradient step.
        n_step: Number of logged rewards in the critics' targets, which are followed by the value of
            the last step's next observation. With more than one, rewards propagate faster, but
            targets are biased towards the behaviour.
        optimiser: Name of the optimiser in ``neorl_agents.optimisers.OPTIMISERS``.
        reward_scale: Divisor of the rewards: ``"std"``, ``"none"`` or ``"return_range"``; see
            :func:`neorl_agents.policies.prepare`.
    """

    batch_size: int = eqx.field(static=True, default=256)
    n_step: int = eqx.field(static=True, default=1)
    optimiser: str = eqx.field(static=True, default="adam")
    reward_scale: RewardScale = eqx.field(static=True, default="std")


def require_settings(learner: Any) -> None:
    """Refuses bad values in the nested settings ``networks`` and ``steps`` of a learner.

    Raises:
        ValueError: If a value is bad; the message names learner and field, as in
            ``IQL.networks.hidden``.
    """
    require_widths(learner, "networks.hidden")
    require_choice(learner, "networks.encoder", ENCODERS)
    require_count(learner, "networks.history_steps", "steps.batch_size", "steps.n_step")
    require_choice(learner, "networks.kind", NETWORKS)
    require_strings(learner, "networks.graph")
    require_choice(learner, "steps.optimiser", OPTIMISERS)
    require_choice(learner, "steps.reward_scale", REWARD_SCALES)
