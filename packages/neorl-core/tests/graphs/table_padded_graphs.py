import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from neorl_core.graphs import (
    PaddedGraph,
    edge_softmax,
    graph_convolution,
    pad_graph,
    pool_edges,
)
from neorl_core.testing import (
    Edge,
    Refusal,
    Row,
    assert_close,
    integers,
    mapped,
    padded_graphs,
    reals,
    rows,
)

NODES, EDGES = 5, 8
GRAPH = padded_graphs(nodes=NODES, edges=EDGES).map(lambda draw: PaddedGraph(*draw))
REDUCTIONS = st.sampled_from(["sum", "mean", "max"]).map(lambda word: {"reduction": word})
LOOPS = st.booleans().map(lambda flag: {"self_loops": flag})
ORDER = np.asarray([3, 0, 4, 1, 2])
EMPTY = PaddedGraph(
    np.ones((NODES, 2), np.float32),
    np.zeros(EDGES, np.int32),
    np.zeros(EDGES, np.int32),
    np.zeros(NODES, bool),
    np.zeros(EDGES, bool),
)
FULL = EMPTY._replace(node_mask=np.ones(NODES, bool), edge_mask=np.ones(EDGES, bool))
NO_EDGES = EMPTY._replace(
    senders=np.zeros(0, np.int32),
    receivers=np.zeros(0, np.int32),
    node_mask=np.ones(NODES, bool),
    edge_mask=np.zeros(0, bool),
)
NOTHING = NO_EDGES._replace(nodes=np.zeros((0, 2), np.float32), node_mask=np.zeros(0, bool))


def renumbered(graph):
    """The same graphs with the nodes in another order and the edges backwards."""
    place = np.argsort(ORDER).astype(np.int32)
    return PaddedGraph(
        graph.nodes[:, ORDER],
        place[graph.senders][:, ::-1],
        place[graph.receivers][:, ::-1],
        graph.node_mask[:, ORDER],
        graph.edge_mask[:, ::-1],
    )


def spoiled(graph):
    """The same graphs with NaN and far indices where there is padding."""
    beyond = np.where(graph.edge_mask, 0, 3).astype(np.int32)
    return graph._replace(
        nodes=np.where(graph.node_mask[:, :, None], graph.nodes, np.nan).astype(np.float32),
        senders=(graph.senders + beyond).astype(np.int32),
        receivers=(graph.receivers + beyond).astype(np.int32),
    )


def real_edges(graph):
    return [
        (edge, int(graph.senders[edge]), int(graph.receivers[edge]))
        for edge in np.flatnonzero(graph.edge_mask)
    ]


def convolution_by_matrix(graph, weights, *, self_loops):
    matrix = np.eye(len(graph.node_mask)) if self_loops else np.zeros((NODES, NODES))
    for edge, sender, receiver in real_edges(graph):
        matrix[receiver, sender] += weights[edge]
    degree = matrix.sum(axis=1)
    scale = np.where(degree > 0, 1 / np.sqrt(np.where(degree > 0, degree, 1)), 0)
    features = np.where(graph.node_mask[:, None], graph.nodes, 0)
    result = scale[:, None] * (matrix @ (scale[:, None] * features))
    return np.where(graph.node_mask[:, None], result, 0)


def convolution_follows_the_numbering(graph, weights, *, self_loops):
    plain = np.asarray(mapped(graph_convolution, graph, weights, self_loops=self_loops))
    turned = mapped(graph_convolution, renumbered(graph), weights[:, ::-1], self_loops=self_loops)
    assert_close(turned, plain[:, ORDER], atol=1e-5)


def convolution_does_not_see_padding(graph, weights, *, self_loops):
    plain = mapped(graph_convolution, graph, weights, self_loops=self_loops)
    other = mapped(graph_convolution, spoiled(graph), weights, self_loops=self_loops)
    np.testing.assert_array_equal(other, plain)


def softmax_by_node(scores, graph):
    weights = np.zeros_like(scores)
    for node in range(NODES):
        entering = [edge for edge, _, receiver in real_edges(graph) if receiver == node]
        if entering:
            raised = np.exp(scores[entering] - scores[entering].max(axis=0))
            weights[entering] = raised / raised.sum(axis=0)
    return weights


def a_constant_at_a_node_cancels(scores, graph):
    shift = np.take_along_axis(np.arange(NODES, dtype=np.float32)[None] + 1, graph.receivers, 1)
    moved = mapped(edge_softmax, scores + shift[:, :, None], graph)
    assert_close(moved, mapped(edge_softmax, scores, graph), atol=1e-4)


def softmax_does_not_see_padding(scores, graph):
    nothing = np.where(graph.edge_mask[:, :, None], scores, np.nan).astype(np.float32)
    np.testing.assert_array_equal(
        mapped(edge_softmax, nothing, spoiled(graph)), mapped(edge_softmax, scores, graph)
    )


def reduced(values, shape, reduction):
    if not len(values):
        return np.zeros(shape)
    return {"sum": np.sum, "mean": np.mean, "max": np.max}[reduction](values, axis=0)


def edges_by_node(values, graph, *, reduction):
    entering = [
        [values[edge] for edge, _, receiver in real_edges(graph) if receiver == node]
        for node in range(len(graph.node_mask))
    ]
    pooled = [reduced(group, values.shape[1:], reduction) for group in entering]
    return np.reshape(pooled, (len(pooled), *values.shape[1:]))


def pooling_edges_follows_the_numbering(values, graph, *, reduction):
    plain = np.asarray(mapped(pool_edges, values, graph, reduction=reduction))
    turned = mapped(pool_edges, values[:, ::-1], renumbered(graph), reduction=reduction)
    assert_close(turned, plain[:, ORDER], atol=1e-5)


def convolved_after_padding(nodes, senders, receivers, *, node_count, edge_count):
    graph = pad_graph(nodes, senders, receivers, node_count=node_count, edge_count=edge_count)
    return graph_convolution(graph)[: nodes.shape[0]]


def convolved_without_padding(nodes, senders, receivers, *, node_count, edge_count):
    matrix = np.eye(len(nodes))
    np.add.at(matrix, (receivers, senders), 1)
    scale = 1 / np.sqrt(matrix.sum(axis=1))
    return scale[:, None] * (matrix @ (scale[:, None] * nodes))


def every_bucket_gives_the_same_bits(nodes, senders, receivers, *, node_count, edge_count):
    sample = nodes, senders, receivers
    small = mapped(convolved_after_padding, *sample, node_count=node_count, edge_count=edge_count)
    large = mapped(convolved_after_padding, *sample, node_count=16, edge_count=32)
    np.testing.assert_array_equal(large, small)


WEIGHTS = rows(EDGES, elements=reals(0.0625, 4))
ONE = PaddedGraph(jnp.ones((2, 1)), *jnp.zeros((2, 3), int), jnp.ones(2, bool), jnp.ones(3, bool))
NONE = np.zeros(0, np.int32)


def made_by_hand():
    """Graphs whose fields do not fit together, each with what is said of it."""
    axes = "; for a batch of them use jax.vmap"
    yield (
        "nodes must have the axes (node, feature), got shape (2,); add the missing axes",
        ONE._replace(nodes=jnp.ones(2)),
    )
    yield (
        f"edge_mask must have the axes (edge), got shape (3, 1){axes}",
        ONE._replace(edge_mask=jnp.ones((3, 1), bool)),
    )
    for name, count, things in (
        ("node_mask", 2, "nodes"),
        ("senders", 3, "edges in edge_mask"),
        ("receivers", 3, "edges in edge_mask"),
    ):
        kind = bool if name == "node_mask" else int
        yield (
            (
                f"{name} must have one number for each of the {count} {things}, "
                f"got shape (4,); give it the shape ({count},)"
            ),
            ONE._replace(**{name: jnp.zeros(4, kind)}),
        )
    for name in ("senders", "receivers"):
        yield (
            (f"{name} must be integers, got float32; cast it with astype(jnp.int32)"),
            ONE._replace(**{name: jnp.zeros(3)}),
        )
    for name, size in (("node_mask", 2), ("edge_mask", 3)):
        yield (
            (f"{name} must be boolean, got float32; cast it with astype(bool)"),
            ONE._replace(**{name: jnp.ones(size)}),
        )
    yield (
        "senders of a graph must be an array, got list; use pad_graph",
        ONE._replace(senders=[0, 0, 0]),
    )


MISFITS = list(made_by_hand())

ROWS = [
    Row(
        graph_convolution,
        sample=st.tuples(GRAPH, WEIGHTS),
        options=LOOPS,
        oracle=convolution_by_matrix,
        laws=[convolution_follows_the_numbering, convolution_does_not_see_padding],
        edges=[Edge((EMPTY, np.ones(EDGES)), {"self_loops": False})],
        refuses=[
            Refusal("each of the 3 edges", (ONE, jnp.ones(2))),
            Refusal(
                "weights must have the axes (edge), got shape (); add the missing axes",
                (ONE, jnp.ones(())),
            ),
            Refusal(
                "weights must have the axes (edge), got shape (3, 1); for a batch of them use "
                "jax.vmap",
                (ONE, jnp.ones((3, 1))),
            ),
            *(Refusal(words, (graph,)) for words, graph in MISFITS),
            Refusal("weights must be finite and not negative", (ONE, -jnp.ones(3))),
        ],
    ),
    Row(
        edge_softmax,
        sample=st.tuples(rows(EDGES, 2, elements=reals(-10, 10)), GRAPH),
        oracle=softmax_by_node,
        laws=[a_constant_at_a_node_cancels, softmax_does_not_see_padding],
        edges=[
            Edge((np.full((EDGES, 1), 1e4), FULL)),
            *(Edge((np.zeros((0, 2)), graph)) for graph in (NO_EDGES, NOTHING)),
            Edge((np.zeros((EDGES, 0)), EMPTY)),
        ],
        refuses=[
            Refusal("each of the 3 edges", (jnp.ones(2), ONE)),
            *(Refusal(words, (jnp.ones(3), graph)) for words, graph in MISFITS),
        ],
        atol=1e-5,
    ),
    Row(
        pool_edges,
        sample=st.tuples(rows(EDGES, 2), GRAPH),
        options=REDUCTIONS,
        oracle=edges_by_node,
        laws=[pooling_edges_follows_the_numbering],
        edges=[
            Edge(
                (np.zeros((EDGES, 2)), FULL),
                {"reduction": word},
            )
            for word in ("sum", "mean", "max")
        ]
        + [
            Edge((np.zeros((0, 2)), graph), {"reduction": word})
            for word in ("sum", "mean", "max")
            for graph in (NO_EDGES, NOTHING)
        ],
        refuses=[
            Refusal("each of the 3 edges", (jnp.ones(2), ONE)),
            Refusal("sum, mean, max", (jnp.ones(3), ONE), {"reduction": "min"}),
            *(Refusal(words, (jnp.ones(3), graph)) for words, graph in MISFITS),
        ],
    ),
    Row(
        convolved_after_padding,
        name="pad_graph",
        sample=st.tuples(
            rows(NODES, 2),
            integers(6, low=0, high=NODES - 1),
            integers(6, low=0, high=NODES - 1),
        ),
        options={"node_count": 8, "edge_count": 8},
        oracle=convolved_without_padding,
        laws=[every_bucket_gives_the_same_bits],
        edges=[Edge((np.ones((1, 2)), NONE, NONE), {"node_count": 1, "edge_count": 0})],
        refuses=[
            Refusal("(node, feature)", (jnp.ones(2), [0], [1]), {"node_count": 2, "edge_count": 1}),
            *(
                Refusal(words, (jnp.ones((2, 1)), *ends), {"node_count": n, "edge_count": 1})
                for words, ends, n in (
                    ("must agree", ([0], [0, 1]), 2),
                    ("does not fit", ([0], [1]), 1),
                    ("does not fit", ([0, 0], [1, 1]), 2),
                    ("nodes 0 to 1", ([0], [2]), 2),
                    ("nodes 0 to 1", ([-1], [0]), 2),
                    ("(edge)", ([[0]], [[0]]), 2),
                )
            ),
        ],
    ),
]
