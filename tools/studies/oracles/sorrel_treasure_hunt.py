"""Record turns, updates and buffers of Sorrel's treasure hunt, for the tests of ours.

Sorrel needs Python 3.12 or later and plain torch, so it runs in an environment of its own. Of its
two versions one is checked out at a time (github.com/social-ai-uoft/sorrel, commit 2a24efc, and
357f220 of release 1.4.0):

    python3.13 -m venv build/venv-sorrel
    build/venv-sorrel/bin/pip install torch==2.13.0 numpy omegaconf pillow matplotlib \
        tensorboard ipython
    PYTHONPATH=CHECKOUT build/venv-sorrel/bin/python tools/studies/oracles/sorrel_treasure_hunt.py 2a24efc
    PYTHONPATH=CHECKOUT build/venv-sorrel/bin/python tools/studies/oracles/sorrel_treasure_hunt.py head

Nothing of the source is changed: its turns, observations, buffer and train steps run as they are,
and hooks copy what goes in and what comes out.
"""

import importlib
import random
import sys
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[3]
CODES = {"EmptyEntity": 0, "Wall": 1, "Gem": 2, "Food": 3, "Bone": 4, "TreasurehuntAgent": 5}
TURNS, EPOCHS = 30, 4


def environment(version: str, view: str):
    """The source's own world, smaller and with more items, so that all kinds of events happen."""
    name = "treasurehunt_mp" if version == "2a24efc" else "treasurehunt"
    parts = {
        part: importlib.import_module(f"sorrel.examples.{name}.{part}")
        for part in ("env", "entities", "world")
    }
    config = {
        "experiment": {"epochs": 1, "max_turns": TURNS, "record_period": 50},
        "model": {
            "agent_vision_radius": 2,
            "epsilon": 1.0,
            "epsilon_decay": 0.0,
            "observation_spec": view,
            "num_agents": 4,
            "batch_size": 64,
        },
        "world": {
            "height": 7,
            "width": 8,
            "gem_value": 10,
            "food_value": 5,
            "bone_value": -10,
            "spawn_prob": 0.1,
            "num_agents": 4,
        },
    }
    world = parts["world"].TreasurehuntWorld(config, default_entity=parts["entities"].EmptyEntity())
    return parts["env"].TreasurehuntEnv(world, config)


def codes(world) -> np.ndarray:
    """The upper layer as numbers."""
    kinds = [[type(x).__name__ for x in row] for row in world.map[:, :, 1]]
    return np.array([[CODES[kind] for kind in row] for row in kinds], np.int8)


def record_turns(version: str, view: str) -> dict[str, np.ndarray]:
    """Whole turns of the source: the world that each agent saw, what it saw, did and earned."""
    env = environment(version, view)
    env.reset()
    start = np.array([agent.location[:2] for agent in env.agents], np.int8)
    rows: dict[str, list] = {"grid": [], "obs": [], "action": [], "reward": [], "place": []}
    for agent in env.agents:
        wrap(agent, rows)
    for _ in range(TURNS):
        env.take_turn()
    shape = (TURNS, len(env.agents))
    arrays = {
        key: np.array(value).reshape(*shape, *np.shape(value[0])) for key, value in rows.items()
    }
    arrays["obs"] = np.round(arrays["obs"] * (255 if view == "rgb" else 1)).astype(np.uint8)
    return {"start": start, "final_grid": codes(env.world), **arrays}


def wrap(agent, rows: dict[str, list]) -> None:
    """Copies what an agent's own ``transition`` sees and does."""
    see, act = agent.pov, agent.act

    def pov(world):
        rows["grid"].append(codes(world))
        obs = see(world)
        rows["obs"].append(obs[0])
        return obs

    def walk(world, action):
        reward = act(world, action)
        rows["action"].append(np.int8(action))
        rows["reward"].append(np.float32(reward))
        rows["place"].append(np.array(agent.location[:2], np.int8))
        return reward

    agent.pov, agent.act = pov, walk


def model(version: str):
    """A small one of the source's learners."""
    from sorrel.models.pytorch import PyTorchIQN

    more = {"epsilon_min": 0.0} if version == "2a24efc" else {}
    return PyTorchIQN(
        input_size=(6,), action_space=4, layer_size=16, epsilon=0.0, device="cpu", seed=3,
        n_frames=5, n_step=3, sync_freq=200, model_update_freq=4, batch_size=8, memory_size=64,
        LR=2.5e-3, TAU=0.1, GAMMA=0.99, n_quantiles=12, **more,
    )  # fmt: skip


def parameters(network) -> dict[str, np.ndarray]:
    """Weights with inputs first."""
    return {name: p.detach().numpy().T.copy() for name, p in network.named_parameters()}


def fill(learner, rng: np.random.Generator) -> list[int]:
    """Four epochs of 20 turns in a ring of 64 rows, as the loop of the source fills it."""
    sizes = []
    for epoch in range(1, 1 + EPOCHS):  # Epoch 0 would copy the network to its target.
        learner.start_epoch_action(epoch=epoch)
        for _ in range(20):
            obs = rng.integers(0, 3, 6).astype(np.float32)
            learner.memory.add(obs, int(rng.integers(4)), float(rng.integers(-1, 11)), False)
        sizes.append((learner.memory.idx, learner.memory.size))
    return sizes


def record_updates(version: str) -> dict[str, np.ndarray]:  # noqa: C901 - hooks, in order
    """Three train steps of the source on its own buffer, and everything that went in."""
    torch.manual_seed(5)
    np.random.seed(6)  # noqa: NPY002 - the generator that the source draws from
    rng, learner, out = np.random.default_rng(7), model(version), {}
    with torch.no_grad():
        for p in learner.qnetwork_target.parameters():
            p.add_(0.05 * torch.randn_like(p))
    out["filled"] = np.array(fill(learner, rng))
    if version == "head":  # It differs in the size that `add_empty` counts.
        return out
    memory = learner.memory
    out |= {
        f"ring_{k}": getattr(memory, f"{k}s").copy() for k in ("state", "action", "reward", "done")
    }
    out |= {
        f"start/{k}/{n}": v for k, m in learner.models.items() for n, v in parameters(m).items()
    }
    current = memory.current_state()
    out["current"] = current.copy()
    calls: list[dict[str, np.ndarray]] = []

    def hook(network, given, result):
        noise = {n: b.numpy().T.copy() for n, b in network.named_buffers() if "epsilon" in n}
        calls.append({"tau": result[1].detach().numpy()[..., 0].copy(), **noise})

    for network in learner.models.values():
        network.register_forward_hook(hook)
    state = rng.integers(0, 3, (1, 30)).astype(np.float32)
    learner.qnetwork_local.eval()
    out["eval_obs"], out["eval_q"] = (
        state,
        learner.qnetwork_local(torch.tensor(state), 32)[0].detach().numpy(),
    )
    out["eval_tau"] = calls.pop()["tau"]
    learner.qnetwork_local.train()
    choose, sample = np.random.choice, memory.sample
    clip = sys.modules[type(learner).__module__].clip_grad_norm_

    def chosen(*args, **kwargs):
        out[f"{step}/rows"] = choose(*args, **kwargs)
        return out[f"{step}/rows"].copy()

    def sampled(batch_size):
        batch = sample(batch_size)
        for name, column in zip(
            ("obs", "action", "reward", "next_obs", "done", "valid"), batch, strict=True
        ):
            out[f"{step}/{name}"] = column
        return batch

    def clipped(given, norm):
        for name, p in learner.qnetwork_local.named_parameters():
            out[f"{step}/gradient/{name}"] = p.grad.numpy().T.copy()
        return clip(learner.qnetwork_local.parameters(), norm)

    np.random.choice, memory.sample = chosen, sampled
    sys.modules[type(learner).__module__].clip_grad_norm_ = clipped
    for step in range(3):
        out[f"{step}/loss"] = np.asarray(learner.train_step())
        for name, call in zip(("next_online", "next_target", "online"), calls, strict=True):
            out |= {f"{step}/{name}/{key}": value for key, value in call.items()}
        calls.clear()
    out |= {f"end/{k}/{n}": v for k, m in learner.models.items() for n, v in parameters(m).items()}
    return out


def main(version: str) -> None:
    random.seed(0)
    np.random.seed(1)  # noqa: NPY002 - as above
    views = ("onehot",) if version == "2a24efc" else ("onehot", "rgb")
    for view in views:
        path = ROOT / f"packages/neorl-envs/tests/worlds/sorrel_{version}_{view}.npz"
        np.savez_compressed(path, **record_turns(version, view))
    path = ROOT / f"packages/neorl-agents/tests/populations/sorrel_{version}.npz"
    np.savez_compressed(path, **record_updates(version))


if __name__ == "__main__":
    main(sys.argv[1])
