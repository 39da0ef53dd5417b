"""Whole updates of TD3+BC and IQL by PyTorch's automatic differentiation, in float64.

Written from the papers and independent of the library: plain modules, `torch.optim.Adam`, one
loss after the other. `packages/neorl-agents/tests/algorithms/test_torch_updates.py` starts from the
same weights and rows and must end at the same losses and parameters.

In an environment of its own (PyTorch is no dependency of this repository):

    uv venv /tmp/torch && uv pip install --python /tmp/torch/bin/python torch==2.13.0 numpy
    /tmp/torch/bin/python tools/oracles/torch_updates.py
"""

import argparse
import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

OUT = Path(__file__).resolve().parents[2] / "packages/neorl-agents/tests/algorithms/fixtures"
OBS, ACT, HIDDEN, BATCH, UPDATES = 5, 2, 8, 16, 3
DISCOUNT, RATE, LEARNING_RATE, MARGIN = 0.99, 0.005, 3e-4, 1e-5


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=OUT, help=f"folder of the fixture ({OUT})")
    out: Path = parser.parse_args().out
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    arrays: dict[str, np.ndarray] = {}
    for name, update in (("td3_bc", td3_bc), ("iql_original", iql), ("iql_corl", iql)):
        rows = draw_rows(2 if name == "td3_bc" else 1)
        result = update(rows, variant=name.removeprefix("iql_"))
        arrays |= {f"{name}/{key}": value for key, value in (rows | result).items()}
    np.savez_compressed(out / "torch_updates.npz", **arrays)
    print(f"{len(arrays)} arrays by torch {torch.__version__} in {out / 'torch_updates.npz'}")


def draw_rows(batches: int) -> dict[str, np.ndarray]:
    """Rows in physical units: actions in [-1, 1], some at the bound; mean and spread of obs.

    The third channel is held within a thousandth of its measuring range.
    """
    rng = np.random.default_rng(1)
    shape = (UPDATES, batches, BATCH)
    mean, std = rng.normal(size=OBS) * 3, rng.uniform(0.5, 2, size=OBS)
    action = np.clip(rng.normal(size=(*shape, ACT)), -1, 1)
    rows = {
        "mean": mean,
        "std": std,
        "span": np.array([100, 100, 4000, 100, 100]),
        "obs": mean + std * rng.normal(size=(*shape, OBS)),
        "next_obs": mean + std * rng.normal(size=(*shape, OBS)),
        "action": action,
        "reward": rng.normal(size=shape),
        "noise": rng.normal(size=(*shape, ACT)),
    }
    # Float32 is what the library computes in: the rows are exact in it.
    rows = {key: value.astype(np.float32) for key, value in rows.items()}
    return rows | {"terminated": rng.uniform(size=shape) < 0.25}


def scaled(rows: dict[str, np.ndarray], update: int) -> list[dict[str, torch.Tensor]]:
    """The batches of one update as the networks see them."""
    mean, std, span = (
        torch.tensor(rows[key], dtype=torch.float64) for key in ("mean", "std", "span")
    )
    scale = torch.where(std > span / 1000, std, span / 1000)
    batches = []
    for i in range(rows["obs"].shape[1]):
        batch = {
            key: torch.tensor(rows[key][update, i], dtype=torch.float64)
            for key in ("obs", "next_obs", "action", "reward", "noise", "terminated")
        }
        batch["obs"] = (batch["obs"] - mean) / scale
        batch["next_obs"] = (batch["next_obs"] - mean) / scale
        batch["action"] = batch["action"].clamp(-1 + MARGIN, 1 - MARGIN)
        batches.append(batch)
    return batches


def perceptron(inputs: int, outputs: int, last: nn.Module) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, HIDDEN),
        nn.ReLU(),
        nn.Linear(HIDDEN, HIDDEN),
        nn.ReLU(),
        nn.Linear(HIDDEN, outputs),
        last,
    )


class Twin(nn.Module):
    """Two critics."""

    def __init__(self) -> None:
        super().__init__()
        self.first = perceptron(OBS + ACT, 1, nn.Identity())
        self.second = perceptron(OBS + ACT, 1, nn.Identity())

    def forward(self, obs: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Both values of every row."""
        inputs = torch.cat([obs, action], 1)
        return self.first(inputs).squeeze(1), self.second(inputs).squeeze(1)


class Gaussian(nn.Module):
    """A tanh mean and one deviation per channel."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = perceptron(OBS, ACT, nn.Tanh())
        self.log_std = nn.Parameter(torch.zeros(ACT))

    def log_density(self, obs: torch.Tensor, action: torch.Tensor, low: float) -> torch.Tensor:
        """Of the unsquashed Gaussian, summed over the channels."""
        std = self.log_std.clamp(low, 2.0).exp()
        return torch.distributions.Normal(self.mean(obs), std).log_prob(action).sum(1)


def adam(module: nn.Module) -> torch.optim.Adam:
    return torch.optim.Adam(module.parameters(), lr=LEARNING_RATE)


def descend(optimiser: torch.optim.Adam, loss: torch.Tensor) -> float:
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    return loss.item()


@torch.no_grad()
def follow(target: nn.Module, online: nn.Module) -> None:
    for slow, fast in zip(target.parameters(), online.parameters(), strict=True):
        slow.copy_((1 - RATE) * slow + RATE * fast)


def td3_bc(rows: dict[str, np.ndarray], variant: str) -> dict[str, np.ndarray]:
    actor, critics = perceptron(OBS, ACT, nn.Tanh()), Twin()
    targets = {"actor": copy.deepcopy(actor), "critics": copy.deepcopy(critics)}
    parts = {"actor": actor, "critics": critics}
    result = parameters("before", parts)
    optimisers = {name: adam(part) for name, part in parts.items()}
    losses = []
    for update in range(UPDATES):
        for batch in scaled(rows, update):
            with torch.no_grad():
                noise = (0.2 * batch["noise"]).clamp(-0.5, 0.5)
                action = (targets["actor"](batch["next_obs"]) + noise).clamp(-1, 1)
                q = torch.minimum(*targets["critics"](batch["next_obs"], action))
                y = batch["reward"] + DISCOUNT * (1 - batch["terminated"]) * q
            q1, q2 = critics(batch["obs"], batch["action"])
            loss = ((q1 - y) ** 2).mean() + ((q2 - y) ** 2).mean()
            losses.append(descend(optimisers["critics"], loss))
        action = actor(batch["obs"])
        q = critics(batch["obs"], action)[0]
        factor = 2.5 / q.abs().mean().detach()
        loss = -factor * q.mean() + ((action - batch["action"]) ** 2).mean()
        losses.append(descend(optimisers["actor"], loss))
        follow(targets["actor"], actor)
        follow(targets["critics"], critics)
    targets = {f"target_{name}": part for name, part in targets.items()}
    return result | parameters("after", parts | targets) | {"losses": np.array(losses)}


def iql(rows: dict[str, np.ndarray], variant: str) -> dict[str, np.ndarray]:
    value, critics, actor = perceptron(OBS, 1, nn.Identity()), Twin(), Gaussian()
    target = copy.deepcopy(critics)
    parts = {"value": value, "critics": critics, "actor": actor}
    result = parameters("before", parts)
    optimisers = {name: adam(part) for name, part in parts.items()}
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimisers["actor"], T_max=UPDATES)
    losses = []
    for update in range(UPDATES):
        (batch,) = scaled(rows, update)
        obs, next_obs, action = batch["obs"], batch["next_obs"], batch["action"]
        with torch.no_grad():
            q = torch.minimum(*target(obs, action))
            old_v, old_next_v = value(obs).squeeze(1), value(next_obs).squeeze(1)
        difference = q - value(obs).squeeze(1)
        weight = torch.where(difference > 0, 0.7, 0.3)
        losses.append(descend(optimisers["value"], (weight * difference**2).mean()))
        with torch.no_grad():
            v, next_v = value(obs).squeeze(1), value(next_obs).squeeze(1)
            if variant == "corl":
                v, next_v = old_v, old_next_v
            weight = torch.exp(3.0 * (q - v)).clamp(max=100.0)
            y = batch["reward"] + DISCOUNT * (1 - batch["terminated"]) * next_v
        low = -20.0 if variant == "corl" else -5.0
        loss = -(weight * actor.log_density(obs, action, low)).mean()
        losses.append(descend(optimisers["actor"], loss))
        schedule.step()
        q1, q2 = critics(obs, action)
        loss = ((q1 - y) ** 2).mean() + ((q2 - y) ** 2).mean()
        losses.append(descend(optimisers["critics"], loss / 2 if variant == "corl" else loss))
        follow(target, critics)
    return (
        result
        | parameters("after", parts | {"target_critics": target})
        | {"losses": np.array(losses)}
    )


def parameters(when: str, parts: dict[str, Any]) -> dict[str, np.ndarray]:
    """Every parameter by name, as an array."""
    return {
        f"{when}/{name}/{key}": tensor.detach().numpy().copy()
        for name, part in parts.items()
        for key, tensor in part.named_parameters()
    }


if __name__ == "__main__":
    main()
