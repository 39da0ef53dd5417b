"""Layers and networks on graphs: dense matrices as oracle, permutations, and what is not there."""

import dataclasses
from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neorl_agents.learning import Networks
from neorl_agents.networks import (
    NETWORKS,
    graph_layout,
    init_graph_attention,
    init_graph_convolution,
    init_graph_network,
    named_as_graph,
    network_static,
    network_template,
    pooled_scaling,
    tanh,
)
from neorl_agents.networks._graph_network import ABSENT
from neorl_core import Channel, InputError, Spec
from neorl_core.graphs import PaddedGraph, pad_graph

KEY = jax.random.key(0)
INITS = {"gcn": init_graph_convolution, "gat": init_graph_attention}
LAYERS = {kind: init(3, 8, KEY) for kind, init in INITS.items()}
BY_EDGES = jax.jit(lambda layer, graph: layer(graph))
BY_MATRICES = jax.jit(lambda layer, *given: layer.dense(*given))
SPARSE = {kind: partial(BY_EDGES, layer) for kind, layer in LAYERS.items()}
DENSE = {kind: partial(BY_MATRICES, layer) for kind, layer in LAYERS.items()}


def graphs(seed, nodes=6, edges=12, size=(6, 12)):
    """A graph without loops or doubled edges, padded, with garbage in the padding."""
    rng = np.random.default_rng(seed)
    pairs = [(i, j) for i in range(nodes) for j in range(nodes) if i != j]
    chosen = rng.permutation(len(pairs))[: min(edges, len(pairs))]
    ends = np.asarray([pairs[i] for i in chosen], int).reshape(-1, 2)
    features = rng.normal(size=(nodes, 3)).astype(np.float32)
    return pad_graph(
        features, *ends.T.astype(np.int32), node_count=size[0], edge_count=size[1]
    )  # fmt: skip


def adjacency(graph):
    matrix = np.zeros((len(graph.nodes),) * 2, np.float32)
    real = np.asarray(graph.edge_mask)
    matrix[np.asarray(graph.receivers)[real], np.asarray(graph.senders)[real]] = 1
    return jnp.asarray(matrix)


def by_hand(kind, layer, graph):
    """The published equations in float64 NumPy, node by node."""
    x, mask = np.asarray(graph.nodes, float), np.asarray(graph.node_mask)
    joined = np.asarray(adjacency(graph)) + np.eye(len(x))
    weight, bias = np.asarray(layer.weight, float), np.asarray(layer.bias, float)
    out = np.zeros((len(x), len(bias)))
    degree = joined.sum(axis=1)
    for i in np.flatnonzero(mask):
        near = np.flatnonzero(joined[i])
        if kind == "gcn":
            out[i] = sum(x[j] @ weight / np.sqrt(degree[i] * degree[j]) for j in near) + bias
            continue
        h = (x @ weight).reshape(len(x), *layer.source.shape)
        for head, (a, b) in enumerate(zip(layer.source, layer.target, strict=True)):
            score = np.asarray([h[j, head] @ a + h[i, head] @ b for j in near], float)
            score = np.where(score > 0, score, 0.2 * score)
            share = np.exp(score) / np.exp(score).sum()
            part = slice(head * h.shape[2], (head + 1) * h.shape[2])
            out[i, part] = share @ h[near, head] + bias[part]
    return out


@pytest.mark.parametrize("kind", LAYERS)
@settings(max_examples=15, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 6), st.integers(0, 12))
def test_sums_over_edges_are_the_matrices_and_the_published_equations(kind, seed, nodes, edges):
    """Row P04: sparse layers are the dense ones and the published equations."""
    graph = graphs(seed, nodes, edges)
    layer = LAYERS[kind]
    sparse = SPARSE[kind](graph)
    dense = DENSE[kind](graph.nodes, adjacency(graph), graph.node_mask)
    np.testing.assert_allclose(sparse, dense, atol=2e-6)
    np.testing.assert_allclose(sparse, by_hand(kind, layer, graph), atol=1e-5)


@pytest.mark.parametrize("kind", LAYERS)
@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1000))
def test_renumbering_the_nodes_permutes_their_features(kind, seed):
    """Row P04: renumbering the nodes renumbers what the network says of them."""
    graph, order = graphs(seed), np.random.default_rng(seed).permutation(6)
    number = np.argsort(order)
    renamed = graph._replace(
        nodes=graph.nodes[order],
        node_mask=graph.node_mask[order],
        senders=jnp.asarray(number)[graph.senders].astype(jnp.int32),
        receivers=jnp.asarray(number)[graph.receivers].astype(jnp.int32),
    )
    np.testing.assert_allclose(SPARSE[kind](renamed), SPARSE[kind](graph)[order], atol=2e-6)


@pytest.mark.parametrize("kind", LAYERS)
def test_an_isolated_node_mixes_with_nobody_and_an_empty_graph_is_zero(kind):
    alone = graphs(0, nodes=3, edges=0)
    others = alone._replace(nodes=alone.nodes.at[1:].set(7.0))
    np.testing.assert_allclose(SPARSE[kind](alone)[0], SPARSE[kind](others)[0])
    np.testing.assert_allclose(
        SPARSE[kind](alone)[0], alone.nodes[0] @ LAYERS[kind].weight, atol=1e-6
    )
    empty = PaddedGraph(
        alone.nodes, alone.senders, alone.receivers, jnp.zeros(6, bool), jnp.zeros(12, bool)
    )
    np.testing.assert_array_equal(SPARSE[kind](empty), 0)


def test_a_graph_larger_than_its_bucket_and_uneven_heads_are_refused():
    with pytest.raises(ValueError, match="6 nodes and 12 edges does not fit into 4 and 8"):
        graphs(0, 6, 12, size=(4, 8))
    with pytest.raises(ValueError, match="attention heads must divide the 8 features, got 3"):
        init_graph_attention(3, 8, KEY, heads=3)


# Networks that read rows.


def plant(order=(0, 1, 2, 3), kind="tank"):
    """Four nodes in a ring; levels, masks of nodes and edges, flows, a global channel."""
    ring = [(0, 1), (1, 2), (2, 3), (3, 0), (1, 0)]
    obs = [f"{kind}{i}.{what}" for i in order for what in ("level", "there")]
    obs += [f"pipe{s}-{d}.{what}" for s, d in ring for what in ("flow", "there")]
    action = [f"{kind}{i}.feed" for i in order] + [f"pipe{s}-{d}.valve" for s, d in ring]
    channels = (tuple(Channel(name, "1", -1, 1) for name in (*names,)) for names in (
        [*obs, "weather"], [*action, "pressure"],
    ))  # fmt: skip
    return Spec(*channels, (), dt=1.0, horizon=10)


SPEC = plant()
LAYOUT = graph_layout(SPEC)
N_OBS, N_ACT = SPEC.n_obs, SPEC.n_action


def network(kind="gcn", n_out=N_ACT, n_in=N_OBS, **options):
    return init_graph_network((n_in, 8, 8, n_out), KEY, kind=kind, layout=LAYOUT, **options)


def rows(seed=0, count=4, width=N_OBS):
    return jnp.asarray(np.random.default_rng(seed).uniform(-1, 1, (count, width)), jnp.float32)


CALL = jax.jit(lambda net, x: net(x))


def column(spec, name):
    return [channel.name for channel in spec.obs].index(name)


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize(("n_out", "n_in"), [(1, N_OBS + N_ACT), (2 * N_ACT, N_OBS)])
def test_the_sparse_network_is_the_dense_one(kind, n_out, n_in):
    x = rows(width=n_in)
    nets = (network(kind, n_out, n_in, dense=dense) for dense in (True, False))
    dense, sparse = (CALL(net, x) for net in nets)
    assert dense.shape == (4, n_out)
    np.testing.assert_allclose(dense, sparse, atol=1e-5)


@pytest.mark.parametrize("n_out", [1, 2 * N_ACT])
def test_naming_the_nodes_in_another_order_permutes_the_actions(n_out):
    """The same plant with its nodes listed in another order."""
    other = plant(order=(2, 0, 3, 1))
    names, others = ([c.name for c in spec.obs] for spec in (SPEC, other))
    x = rows()
    permuted = x[:, np.asarray([names.index(name) for name in others])]
    ours = network(n_out=n_out)
    theirs = dataclasses.replace(ours, layout=graph_layout(other))
    a, b = CALL(ours, x), CALL(theirs, permuted)
    if n_out > 1:
        acts, moved = ([c.name for c in spec.action] for spec in (SPEC, other))
        index = np.asarray([acts.index(name) for name in moved])
        a = a.reshape(4, -1, N_ACT)[:, :, index].reshape(4, -1)
    np.testing.assert_allclose(a, b, atol=1e-5)


def test_what_is_not_there_is_blank_and_its_actions_are_at_the_low_end():
    x = rows(count=1)
    masks = [i for i, channel in enumerate(SPEC.obs) if channel.name.endswith(".there")]
    x = x.at[:, np.asarray(masks)].set(1.0)
    gone = x.at[:, column(SPEC, "tank2.there")].set(-1.0)
    other = gone.at[:, column(SPEC, "tank2.level")].set(0.9)
    other = other.at[:, column(SPEC, "pipe1-2.flow")].set(0.9)
    net = network(output=tanh)
    actions = np.asarray(CALL(net, gone))
    np.testing.assert_array_equal(actions, CALL(net, other))
    action = {c.name: float(v) for c, v in zip(SPEC.action, actions[0], strict=True)}
    for name in ("tank2.feed", "pipe1-2.valve", "pipe2-3.valve"):
        assert action[name] == np.tanh(ABSENT) == -1.0
    assert all(abs(action[name]) < 1 for name in ("tank0.feed", "pipe3-0.valve", "pressure"))


@pytest.mark.nightly
def test_a_graph_without_nodes_gives_finite_numbers():
    x = rows(count=1)
    for i in range(4):
        x = x.at[:, column(SPEC, f"tank{i}.there")].set(-1.0)
    for kind, dense in (("gcn", True), ("gat", False)):
        net = network(kind, 1, dense=dense)
        value, gradient = jax.jit(jax.value_and_grad(lambda net, x: jnp.sum(net(x))))(net, x)
        chex.assert_tree_all_finite((value, gradient))


def test_another_topology_is_the_same_program():
    chex.clear_trace_counter()
    net = network()
    call = jax.jit(chex.assert_max_traces(lambda x: net(x), n=1))
    first, second = (call(rows(seed)) for seed in (0, 1))
    assert not np.array_equal(first == ABSENT, second == ABSENT)


@pytest.mark.parametrize("kind", ["gcn", pytest.param("gat", marks=pytest.mark.nightly)])
def test_a_network_is_written_down_and_read_back(kind):
    net = Networks(hidden=(8, 8), kind=kind).obs_network(SPEC, 2 * N_ACT, KEY)
    half = net.first_outputs(N_ACT, output=tanh)
    actual = network_template(network_static(half))
    assert jax.tree.structure(actual) == jax.tree.structure(half)
    chex.assert_trees_all_equal_shapes_and_dtypes(actual, half)
    whole = np.asarray(CALL(net, rows()))
    np.testing.assert_allclose(CALL(half, rows()), np.tanh(whole[:, :N_ACT]), atol=1e-6)
    critics = Networks(hidden=(8, 8), kind=kind).obs_action_networks(SPEC, 1, KEY)
    both = jax.eval_shape(jax.vmap(lambda net: net(rows(width=N_OBS + N_ACT))), critics)
    assert both.shape == (2, 4, 1)


def test_nodes_of_one_kind_share_their_scaling():
    mean, std = (jnp.asarray(v, jnp.float32) for v in (np.arange(19.0), np.ones(19)))
    pooled, deviation = pooled_scaling(SPEC, mean, std)
    levels = np.asarray([column(SPEC, f"tank{i}.level") for i in range(4)])
    np.testing.assert_allclose(pooled[levels], np.mean([0, 2, 4, 6]))
    np.testing.assert_allclose(deviation[levels], np.sqrt(1 + np.var([0, 2, 4, 6])), rtol=1e-6)
    masks = np.asarray([column(SPEC, f"tank{i}.there") for i in range(4)])
    np.testing.assert_allclose((pooled[masks], deviation[masks]), [[0] * 4, [1] * 4])
    assert (pooled[18], deviation[18]) == (18.0, 1.0)


def spec_of(*names):
    channels = tuple(Channel(name, "1", 0, 1) for name in names)
    return Spec(channels, (Channel("feed", "1", 0, 1),), (), dt=1.0, horizon=1)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("level",), "a graph network needs channels that name their node"),
        (("tank1.level", "pipe1-2.flow"), "the edge pipe1-2 ends at node 2"),
        (("tank1.level", "pump1.speed"), "nodes of the kinds pump, tank have the same number"),
    ],
)
def test_a_plant_that_is_no_graph_is_refused_by_name(names, words):
    with pytest.raises(InputError, match=words):
        graph_layout(spec_of(*names))


def test_a_network_without_a_graph_is_refused():
    with pytest.raises(InputError, match="reads a graph, but no layout of channels"):
        NETWORKS["gcn"].init((3, 8, 1), KEY)
    with pytest.raises(InputError, match="reads a graph, but no layout of channels"):
        Networks(hidden=(8,), kind="gat", encoder="history").obs_network(SPEC, 1, KEY)
    with pytest.raises(InputError, match="rows of 19 numbers, or 29 with the actions, got 7"):
        network(n_in=7)


# Graphs that are declared beside channels with other names.

TAGS = Spec(
    tuple(Channel(name, "1", -1, 1) for name in ("LI-1", "LI-2", "FI-12", "T-out")),
    (Channel("FC-1", "1", -1, 1), Channel("FC-2", "1", -1, 1)),
    (), dt=1.0, horizon=10,
)  # fmt: skip
DECLARED = (
    "LI-1 = tank1.level", "LI-2 = tank2.level", "FI-12 = pipe1-2.flow",
    "FC-1 = tank1.feed", "FC-2 = tank2.feed", "pipe2-1", "source3", "pipe3-1",
)  # fmt: skip


def test_a_declared_graph_is_that_of_channels_which_bear_those_names():
    named = Spec(
        tuple(
            Channel(name, "1", -1, 1)
            for name in ("tank1.level", "tank2.level", "pipe1-2.flow", "T-out")
        ),
        (Channel("tank1.feed", "1", -1, 1), Channel("tank2.feed", "1", -1, 1)),
        (), dt=1.0, horizon=10,
    )  # fmt: skip
    layout = graph_layout(TAGS, DECLARED)
    assert graph_layout(named, ("pipe2-1", "source3", "pipe3-1")) == layout
    assert (layout.n_nodes, layout.senders, layout.receivers) == (3, (0, 1, 2), (1, 0, 0))
    assert layout.shared == (3,)
    mean, std = jnp.array([0.0, 1.0, 5.0, 7.0]), jnp.ones(4)
    pooled = pooled_scaling(named_as_graph(TAGS, DECLARED), mean, std)
    np.testing.assert_allclose(pooled[0], [0.5, 0.5, 5.0, 7.0])


@pytest.mark.parametrize("kind", INITS)
def test_renumbering_a_declared_graph_permutes_the_actions(kind):
    """Other numbers for the tanks, and the same weights: the same action at the same tank."""
    swapped = str.maketrans("12", "21")
    other = tuple(
        f"{channel}= {place.strip().translate(swapped)}" if place else channel.translate(swapped)
        for channel, _, place in (line.partition("=") for line in DECLARED)
    )
    assert "FI-12 = pipe2-1.flow" in other
    networks = [
        init_graph_network((4, 8, 8, 2), KEY, kind=kind, layout=graph_layout(TAGS, graph))
        for graph in (DECLARED, other)
    ]
    row = jax.random.normal(KEY, (4,))
    np.testing.assert_allclose(CALL(networks[0], row), CALL(networks[1], row), atol=1e-6)


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        (("LI1 = tank1.level",), "unknown channel in networks.graph 'LI1'; did you mean 'LI-1'"),
        (("LI-1 = tank1",), "networks.graph: 'LI-1 = tank1' cannot be read; write a channel"),
        (("tank1.level",), "networks.graph: 'tank1.level' cannot be read"),
        (("LI-1 = tank1.level", "LI-1 = tank2.level"), "assigns LI-1 to both"),
        (("LI-1 = tank1.level", "LI-2 = tank1.level"), "assigns two channels to the same quantity"),
        (("LI-1 = tank1.level", "pipe1-2"), "declare it without one as node2"),
        ((), "assign its channels with networks.graph ="),
    ],
)  # fmt: skip
def test_a_declaration_that_does_not_fit_is_refused_in_one_line(graph, words):
    with pytest.raises(InputError) as error:
        graph_layout(TAGS, graph)
    assert words in str(error.value)
    assert "\n" not in str(error.value)
