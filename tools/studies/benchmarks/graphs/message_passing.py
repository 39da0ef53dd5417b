"""Message passing over 100,000 edges beside torch_geometric: the same layers on the same numbers.

    python tools/studies/benchmarks/graphs/message_passing.py --peer PYTHON

``PYTHON`` is that of an environment with torch==2.13.0 and torch_geometric, in which a second
process of this file waits for its turns. GCN (32 to 32) and GAT (four heads of 8) on a graph of
10,000 nodes with random edges, weights copied: forward, and forward with the gradient of the
weights and features. Results must agree to 1e-4 before anything is timed. Processor time, in turn,
each on one core and one thread; the ratio is ours over theirs in the same round, below one is
faster.
"""

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

NODES, EDGES, WIDTH, HEADS = 10_000, 100_000, 32, 4
CASES = ("gcn forward", "gcn gradient", "gat forward", "gat gradient")
AGREE = 1e-4
LEAST = 1.0
"""Seconds of processor time of a round."""


def main() -> int:
    """Measures and writes; 1 if the two disagree."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer", required=True, help="python with torch and torch_geometric")
    parser.add_argument("--serve", default="", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=7, help="rounds of every case (7)")
    parser.add_argument("--core", type=int, default=0, help="the core to pin to (0)")
    parser.add_argument("--out", type=Path, default=None)
    arguments = parser.parse_args()
    if arguments.serve:
        return _serve(Path(arguments.serve))
    sys.path.append(str(Path(__file__).resolve().parents[1]))
    from _rounds import (  # pyright: ignore[reportMissingImports]
        RESULTS,
        machine,
        on_one_core,
        summary,
        write,
    )

    on_one_core(arguments.core)
    import numpy as np

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.npz"
        np.savez(path, **_case())
        ours = _ours(dict(np.load(path)))
        command = [arguments.peer, __file__, "--peer", "-", "--serve", str(path)]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as peer:
            theirs = json.loads(_ask(peer, "results"))
            for name, (work, result) in ours.items():
                apart = float(np.max(np.abs(np.asarray(result(work())) - np.asarray(theirs[name]))))
                if not apart < AGREE:
                    print(f"FAILED {name}: the two differ by {apart:.2g}, over {AGREE}")
                    return 1
            microseconds: dict[str, dict[str, list[float]]] = {
                name: {"ours": [], "torch_geometric": []} for name in CASES
            }
            for _ in range(arguments.rounds):
                for name in CASES:
                    microseconds[name]["ours"].append(_timed(ours[name][0]))
                    microseconds[name]["torch_geometric"].append(float(_ask(peer, name)))
            versions = json.loads(_ask(peer, "versions"))
            _ask(peer, "end")
    shown = {}
    for name, times in microseconds.items():
        each = [a / b for a, b in zip(times["ours"], times["torch_geometric"], strict=True)]
        shown[name] = {
            **{variant: summary(x) for variant, x in times.items()},
            "ratio": summary(each),
        }
        low, high = min(each), max(each)
        print(f"{name}: {statistics.median(each):.2f} ({low:.2f} to {high:.2f}) of torch_geometric")
    case = {"nodes": NODES, "edges": EDGES, "width": WIDTH, "heads": HEADS}
    facts = machine(("jax", "jaxlib", "numpy"))
    facts["versions"] |= versions
    write(
        arguments.out or RESULTS / "message_passing.json",
        {"benchmark": "message_passing", "case": case, "unit": "ms of processor time",
         "cases": shown, **facts},
    )  # fmt: skip
    return 0


def _ask(peer: Any, words: str) -> str:
    peer.stdin.write(words + "\n")
    peer.stdin.flush()
    return peer.stdout.readline()


def _timed(work: Any) -> float:
    calls, start = 0, time.process_time()
    while not calls or time.process_time() - start < LEAST:
        work()
        calls += 1
    return 1e3 * (time.process_time() - start) / calls


def _case() -> dict[str, Any]:
    """Features, weights and random edges without loops."""
    import numpy as np

    rng, part = np.random.default_rng(0), WIDTH // HEADS
    senders, receivers = rng.integers(0, NODES, (2, EDGES))
    receivers = np.where(senders == receivers, (receivers + 1) % NODES, receivers)

    def normal(*shape: int) -> Any:
        return (0.3 * rng.normal(size=shape)).astype(np.float32)

    return {
        "nodes": normal(NODES, WIDTH), "weight": normal(WIDTH, WIDTH),
        "source": normal(HEADS, part), "target": normal(HEADS, part),
        "senders": senders.astype(np.int32), "receivers": receivers.astype(np.int32),
    }  # fmt: skip


def _ours(case: Any) -> dict[str, tuple[Any, Any]]:
    """Work of every case, and what of its result is compared."""
    import jax
    import jax.numpy as jnp

    from neorl_agents.networks import init_graph_attention, init_graph_convolution
    from neorl_core.graphs import pad_graph

    jax.config.update("jax_cpu_enable_async_dispatch", False)
    key = jax.random.key(0)
    graph = pad_graph(
        case["nodes"], case["senders"], case["receivers"], node_count=NODES, edge_count=EDGES
    )
    gcn = init_graph_convolution(WIDTH, WIDTH, key)
    gat = init_graph_attention(WIDTH, WIDTH, key)
    names = {"gcn": ["weight"], "gat": ["weight", "source", "target"]}
    layers: dict[str, Any] = {}
    for kind, layer in (("gcn", gcn), ("gat", gat)):
        layers[kind] = dataclasses.replace(
            layer, **{name: jnp.asarray(case[name]) for name in names[kind]}
        )

    def loss(both: Any, graph: Any) -> Any:
        layer, nodes = both
        return jnp.mean(jnp.square(layer(graph._replace(nodes=nodes))))

    forward = jax.jit(lambda layer, graph: layer(graph))
    gradient = jax.jit(jax.grad(loss))
    programs = {}
    for kind, layer in layers.items():

        def ahead(layer: Any = layer) -> Any:
            return jax.block_until_ready(forward(layer, graph))

        def back(layer: Any = layer) -> Any:
            return jax.block_until_ready(gradient((layer, graph.nodes), graph))

        ahead()
        back()
        programs[f"{kind} forward"] = (ahead, lambda out: out[:50])
        programs[f"{kind} gradient"] = (back, lambda out: 1e3 * out[0].weight)
    return programs


def _serve(path: Path) -> int:
    """The peer: answers one line for each line that it is asked."""
    os.sched_setaffinity(0, {0})
    import numpy as np
    import torch  # pyright: ignore[reportMissingImports]
    import torch_geometric  # pyright: ignore[reportMissingImports]
    from torch_geometric.nn import GATConv, GCNConv  # pyright: ignore[reportMissingImports]

    torch.set_num_threads(1)
    case = {name: torch.from_numpy(value) for name, value in np.load(path).items()}
    nodes = case["nodes"].clone().requires_grad_(True)
    edges = torch.stack([case["senders"], case["receivers"]]).long()
    gcn, gat = GCNConv(WIDTH, WIDTH), GATConv(WIDTH, WIDTH // HEADS, heads=HEADS)
    with torch.no_grad():
        for layer in (gcn, gat):
            layer.lin.weight.copy_(case["weight"].T)
            layer.bias.zero_()
        gat.att_src.copy_(case["source"][None])
        gat.att_dst.copy_(case["target"][None])

    def ahead(layer: Any) -> Any:
        with torch.no_grad():
            return layer(nodes, edges)

    def back(layer: Any) -> Any:
        layer.zero_grad(set_to_none=True)
        nodes.grad = None
        layer(nodes, edges).square().mean().backward()
        return layer.lin.weight.grad.T

    works = {}
    for kind, layer in (("gcn", gcn), ("gat", gat)):
        works[f"{kind} forward"] = lambda layer=layer: ahead(layer)
        works[f"{kind} gradient"] = lambda layer=layer: back(layer)
    for line in sys.stdin:
        words = line.strip()
        if words == "results":
            answer = {
                name: (1e3 * work() if "gradient" in name else work()[:50]).tolist()
                for name, work in works.items()
            }
        elif words == "versions":
            packages = {"torch": torch, "torch_geometric": torch_geometric}
            answer = {name: package.__version__ for name, package in packages.items()}
        elif words == "end":
            break
        else:
            answer = _timed(works[words])
        print(json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
