"""A hundred updates of flow Q-learning's own code in float64, stored for the tests of neorl-agents.

Its agent is imported and run as it is: losses, networks, optimiser and targets. What it imports
for its images and configurations is given by stand-ins. Two settings are recorded: that of its
defaults, and `normalize_q_loss` with `q_agg` min.

In an environment of its own, with a checkout of `github.com/seohongpark/fql` at 719d044:

    uv venv /tmp/jax
    uv pip install --python /tmp/jax/bin/python jax==0.10.2 flax==0.12.8 optax==0.2.8 chex
    /tmp/jax/bin/python tools/studies/oracles/flow_updates.py /tmp/FQL
"""

import argparse
from pathlib import Path
from typing import Any

import flax
import jax
import numpy as np
from _updates import (
    ACT,
    FIXTURES,
    HIDDEN,
    OBS,
    UPDATES,
    draw_log,
    imported,
    noise,
    save,
    stub_modules,
)
from published_jax_updates import Record, layers, rounded, rows

LOG = draw_log()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("fql", type=Path, help="checkout of fql")
    parser.add_argument("--out", type=Path, default=FIXTURES / "flow_updates.npz")
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    stub_modules("ml_collections", "distrax", "utils.encoders")
    code = imported(arguments.fql, "agents.fql")
    cases = {
        "fql": recorded(code, q_agg="mean", normalize_q_loss=False, alpha=10.0),
        "fql_normalised": recorded(code, q_agg="min", normalize_q_loss=True, alpha=0.3),
    }
    save(arguments.out, {}, cases, f"JAX {jax.__version__}, flax {flax.__version__}, float64")


def recorded(code: Any, **settings: Any) -> Record:
    """A hundred calls of ``update``."""
    hidden = (HIDDEN, HIDDEN)
    config = {
        "lr": 3e-4, "actor_hidden_dims": hidden, "value_hidden_dims": hidden, "layer_norm": True,
        "actor_layer_norm": False, "discount": 0.99, "tau": 0.005, "flow_steps": 4,
        "encoder": None, **settings,
    }  # fmt: skip
    agent = code.FQLAgent.create(0, np.zeros((1, OBS)), np.zeros((1, ACT)), config)
    weights = rounded(agent.network.params)
    weights["modules_target_critic"] = weights["modules_critic"]
    network = agent.network.replace(params=weights, opt_state=agent.network.tx.init(weights))
    agent = agent.replace(network=network)

    def update(agent: Any, batch: Any, normals: Any, uniform: Any) -> Any:
        # In the order in which its code asks; the last draw is for a metric.
        left = iter([*normals, normals[0]])
        jax.random.normal = lambda key, shape: next(left)
        jax.random.uniform = lambda key, shape: uniform
        return code.FQLAgent.update.__wrapped__(agent, batch)

    record: Record = named(agent.network.params, "before")
    losses: dict[str, list[float]] = {}
    compiled = jax.jit(update)
    for call in range(UPDATES):
        raw = rows(call)
        batch = {
            "observations": raw["obs"], "actions": raw["action"], "rewards": raw["reward"],
            "next_observations": raw["next_obs"], "masks": 1 - raw["terminated"],
        }  # fmt: skip
        shape = raw["action"].shape
        normals = [noise(LOG["normal"], call, number, shape) for number in range(3)]
        uniform = noise(LOG["uniform"], call, 3, (shape[0], 1))
        agent, info = compiled(agent, batch, normals, uniform)
        for ours, theirs in LOSSES.items():
            losses.setdefault(f"loss/{ours}", []).append(float(info[theirs]))
    record |= named(agent.network.params, "after")
    return record | {name: np.array(values) for name, values in losses.items()}


LOSSES = {
    "critic_loss": "critic/critic_loss",
    "flow_loss": "actor/bc_flow_loss",
    "distill_loss": "actor/distill_loss",
}
PARTS = {
    "critics": ("modules_critic", "value_net"),
    "target_critics": ("modules_target_critic", "value_net"),
    "flow": ("modules_actor_bc_flow", "mlp"),
    "actor": ("modules_actor_onestep_flow", "mlp"),
}


def named(weights: Any, when: str) -> Record:
    """The arrays of all networks by names that say where they stand."""
    by_name = {}
    for part, (module, inner) in PARTS.items():
        if when == "before" and part.startswith("target"):
            continue
        tree = weights[module][inner]
        count = sum(name.startswith("Dense") for name in tree)
        arrays = layers([tree[f"Dense_{i}"] for i in range(count)])
        for i in range(count - 1):
            if f"LayerNorm_{i}" in tree:
                arrays[f"gains/{i}"] = tree[f"LayerNorm_{i}"]["scale"]
                arrays[f"shifts/{i}"] = tree[f"LayerNorm_{i}"]["bias"]
        by_name |= {f"{when}/{part}/{key}": np.asarray(x) for key, x in arrays.items()}
    return by_name


if __name__ == "__main__":
    main()
