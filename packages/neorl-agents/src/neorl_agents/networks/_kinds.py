"""Kinds of networks by name: functions that make, store and restore them."""

from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from neorl_agents.networks._activations import (
    ACTIVATIONS,
    Activation,
    activation_name,
    identity,
)
from neorl_agents.networks._graph_layout import graph_layout
from neorl_agents.networks._graph_network import (
    GraphNetwork,
    graph_static,
    graph_template,
    init_graph_network,
)
from neorl_agents.networks._mlp import MLP, init_mlp
from neorl_core import Spec
from neorl_core.infrastructure import Registry


@runtime_checkable
class Network(Protocol):
    """A PyTree whose leaves are all arrays; maps numbers along the last axis to others."""

    @property
    def n_outputs(self) -> int:
        """Length of the last axis of the result."""
        ...

    def __call__(self, x: Float[Array, "*batch in"]) -> Float[Array, "*batch out"]:
        """The outputs; leading axes are a batch."""
        ...

    def first_outputs(self, count: int, *, output: Activation | None = None) -> Any:
        """The network with only its first outputs.

        Args:
            count: Number of outputs to keep.
            output: Function applied to them; the current one by default.
        """
        ...


def no_options(spec: Spec, graph: tuple[str, ...] = ()) -> dict[str, Any]:
    """No options, for a kind that reads a row of numbers and needs no names of channels."""
    return {}


def _graph_options(spec: Spec, graph: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"layout": graph_layout(spec, graph)}


class NetworkKind(NamedTuple):
    """Functions that make, store and restore networks of one kind.

    Attributes:
        init: Function ``(widths, key, **options)`` that makes one from the lengths of its layers,
            the input first and the output last. The options are those of :func:`init_mlp`.
        owns: Function that tells whether a network is of this kind.
        static: Function from a network to everything in it except arrays, as plain JSON; its
            ``"widths"`` are the lengths of the layers.
        template: Function from that JSON to a network whose arrays have the right shapes and
            dtypes; their values are ignored.
        options_of: Function from the channels of a plant, and the declarations of its graph
            (``networks.graph``), to further options of ``init``; none by default.
    """

    init: Callable[..., Any]
    owns: Callable[[Any], bool]
    static: Callable[[Any], dict[str, Any]]
    template: Callable[[dict[str, Any]], Any]
    options_of: Callable[[Spec, tuple[str, ...]], dict[str, Any]] = no_options

    @property
    def reads_channels(self) -> bool:
        """Whether networks of this kind are made from the names of channels, as graphs are."""
        return self.options_of is not no_options


Make = Callable[[tuple[int, ...], PRNGKeyArray], eqx.Module]
"""Function from the lengths of the layers and a key to a module for one unbatched input."""


class ModuleNetwork(eqx.Module):
    """Any Equinox module as a network; see :func:`module_kind`.

    Attributes:
        arrays: The arrays of the module, in its own structure.
        make: Function that makes the module; static.
        widths: Lengths of the layers that it was made with; static.
        n_outputs: Number of its outputs in use; static.
        output: Function applied to them; static.
    """

    arrays: Any
    make: Make = eqx.field(static=True)
    widths: tuple[int, ...] = eqx.field(static=True)
    n_outputs: int = eqx.field(static=True)
    output: Activation = eqx.field(static=True, default=identity)

    def __call__(self, x: Float[Array, "*batch in"]) -> Float[Array, "*batch out"]:
        """The outputs for inputs along the last axis; leading axes are a batch."""
        module = eqx.combine(self.arrays, _without_arrays(self.make, self.widths))
        rows = jax.vmap(module)(x.reshape(-1, x.shape[-1]))
        return self.output(rows[:, : self.n_outputs].reshape(*x.shape[:-1], self.n_outputs))

    def first_outputs(self, count: int, *, output: Activation | None = None) -> "ModuleNetwork":
        """The network with only its first outputs; the weights of the others stay, unused."""
        output_activation = self.output if output is None else output
        return ModuleNetwork(self.arrays, self.make, self.widths, count, output_activation)


def module_kind(make: Make) -> NetworkKind:
    """A kind of network from any Equinox module, such as those of ``equinox.nn``.

    The module initialises its own weights. Of the options that learners give, only ``output``
    applies; those about weights, activations and normalisation have no effect.

    Args:
        make: Module-level function ``(widths, key)`` that makes the module; a function created
            anew in each run would compile everything again. The module maps one input of length
            ``widths[0]`` to ``widths[-1]`` numbers; its arrays are floats, and it needs neither a
            key nor a state.

    Returns:
        The kind, for ``NETWORKS.register(name, kind)``.

    Example:
        >>> import equinox as eqx, jax
        >>> def residual(widths, key):
        ...     return eqx.nn.MLP(widths[0], widths[-1], widths[1], len(widths) - 2, key=key)
        >>> network = module_kind(residual).init((3, 16, 16, 2), jax.random.key(0))
        >>> network(jax.numpy.zeros((5, 3))).shape
        (5, 2)
    """

    def init(
        widths: Sequence[int], key: PRNGKeyArray, *, output: Activation = identity, **_: Any
    ) -> ModuleNetwork:
        lengths = tuple(int(width) for width in widths)
        arrays, rest = eqx.partition(make(lengths, key), eqx.is_inexact_array)
        _require_floats(rest)
        return ModuleNetwork(arrays, make, lengths, lengths[-1], output)

    def static(network: ModuleNetwork) -> dict[str, Any]:
        output_activation = activation_name(network.output)
        return {
            "widths": list(network.widths),
            "outputs": network.n_outputs,
            "output": output_activation,
        }

    def template(static: dict[str, Any]) -> ModuleNetwork:
        network = eqx.filter_eval_shape(init, static["widths"], jax.random.key(0))
        empty = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), network)
        return empty.first_outputs(
            int(static["outputs"]), output=ACTIVATIONS.find(static["output"])
        )

    def owns(network: Any) -> bool:
        return isinstance(network, ModuleNetwork) and network.make is make

    return NetworkKind(init, owns, static, template)


@cache
def _without_arrays(make: Make, widths: tuple[int, ...]) -> Any:
    """The parts of a module that are not arrays; the same object each time, so nothing retraces."""
    module = eqx.filter_eval_shape(make, widths, jax.random.key(0))
    return eqx.filter(module, lambda leaf: not isinstance(leaf, jax.ShapeDtypeStruct))


def _require_floats(rest: Any) -> None:
    for leaf in jax.tree.leaves(eqx.filter(rest, eqx.is_array)):
        raise TypeError(
            f"the module has an array of {leaf.dtype}, which cannot be trained by gradients; its "
            "arrays must be floats, and it can create other numbers when it is called"
        )


def _mlp_static(network: MLP) -> dict[str, Any]:
    return {
        "widths": [network.weights[0].shape[0], *(bias.shape[0] for bias in network.biases)],
        "activation": activation_name(network.activation),
        "output": activation_name(network.output),
        "layer_norm": bool(network.gains),
    }


def _mlp_template(static: dict[str, Any]) -> MLP:
    widths = [int(width) for width in static["widths"]]
    hidden = widths[1:-1] if static["layer_norm"] else []
    return MLP(
        tuple(jnp.zeros(shape) for shape in pairwise(widths)),
        tuple(jnp.zeros(width) for width in widths[1:]),
        activation=ACTIVATIONS.find(static["activation"]),
        output=ACTIVATIONS.find(static["output"]),
        gains=tuple(jnp.zeros(width) for width in hidden),
        shifts=tuple(jnp.zeros(width) for width in hidden),
    )


def _check_kind(name: str, entry: Any) -> None:
    parts = [getattr(entry, part, None) for part in NetworkKind._fields]
    if not all(callable(part) for part in parts):
        raise TypeError(
            f"expected a neorl_agents.networks.NetworkKind, got {entry!r}; "
            "neorl_agents.networks.module_kind makes one of any Equinox module"
        )


def _graph_kind(name: str) -> NetworkKind:
    return NetworkKind(
        partial(init_graph_network, kind=name),
        lambda network: isinstance(network, GraphNetwork) and network.kind == name,
        graph_static,
        partial(graph_template, name),
        _graph_options,
    )


NETWORKS: Registry[NetworkKind] = Registry(
    "neorl.networks",
    "network kind",
    {
        "mlp": NetworkKind(
            init_mlp, lambda network: isinstance(network, MLP), _mlp_static, _mlp_template
        ),
        "gcn": _graph_kind("gcn"),
        "gat": _graph_kind("gat"),
    },
    _check_kind,
)
"""Every kind of network by the name that configurations and files use; other packages add to it.

``"mlp"`` is a perceptron. ``"gcn"`` and ``"gat"`` pass messages by graph convolution and by graph
attention, on a plant whose channels name nodes and edges (:func:`graph_layout`).
A distribution adds its own through the entry points ``neorl.networks``, a script through
``NETWORKS.register("residual", module_kind(residual))``.
"""


def network_static(network: Any) -> dict[str, Any]:
    """Static parts of a network as plain JSON, with the name of its kind unless that is MLP.

    Raises:
        TypeError: If no kind owns it.
    """
    for name, kind in NETWORKS.items():
        if kind.owns(network):
            named = {} if name == "mlp" else {"network": name}
            return {**named, **kind.static(network)}
    raise TypeError(
        f"a {type(network).__name__} cannot be stored, because its kind has no registered name; "
        "register it with neorl_agents.networks.NETWORKS.register"
    )


def network_template(static: dict[str, Any]) -> Any:
    """The network of :func:`network_static`, with zeros for its arrays."""
    return NETWORKS.find(static.get("network", "mlp")).template(static)
