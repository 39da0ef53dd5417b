"""A hundred updates of CORL's decision transformer in float64, stored for neorl-agents' tests.

Its module and its schedule are run as they are; DEVIATION marks what is taken out because our
definition differs there on purpose. In an environment of its own, with a checkout of
`github.com/corl-team/CORL` at eeeeef2671235fcce3a3eb255576a207d78840e6:

    uv venv /tmp/torch
    uv pip install --python /tmp/torch/bin/python torch==2.13.0 numpy
    /tmp/torch/bin/python tools/oracles/sequence_updates.py /tmp/CORL
"""

import argparse
import functools
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _updates import FIXTURES, UPDATES, imported, save, stand_in
from torch import nn

STEPS, HORIZON, OBS, ACT, WIDTH, LAYERS, HEADS = 4, 8, 3, 2, 8, 2, 2
EPISODES, BATCH, RATE, WARMUP = 12, 8, 1e-3, 30


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corl", type=Path, help="checkout of CORL")
    parser.add_argument("--out", type=Path, default=FIXTURES / "sequence_updates.npz")
    arguments = parser.parse_args()
    torch.set_default_dtype(torch.float64)
    stand_in("d4rl", "gym", "pyrallis", "wandb", "tqdm", "tqdm.auto")
    # DEVIATION: ours is GELU by the tanh.
    nn.GELU = functools.partial(nn.GELU, approximate="tanh")
    log = draw_log()
    record = recorded(imported(arguments.corl / "algorithms/offline", "dt"), log)
    save(arguments.out, log, {"dt": record}, f"PyTorch {torch.__version__}, float64")


def draw_log() -> dict[str, np.ndarray]:
    """Episodes of several lengths, and for every update the last rows of its windows."""
    rng = np.random.default_rng(5)
    lengths = rng.integers(2, HORIZON + 1, size=EPISODES)
    rows = int(lengths.sum())
    columns = {
        "obs": rng.normal(size=(rows, OBS)),
        "action": np.clip(rng.normal(size=(rows, ACT)), -0.98, 0.98),
        "reward": rng.normal(size=rows),
    }
    columns = {name: x.astype(np.float32) for name, x in columns.items()}
    chosen = rng.integers(rows, size=(UPDATES, BATCH)).astype(np.uint8)
    return columns | {"lengths": lengths.astype(np.uint8), "chosen": chosen}


def recorded(code: Any, log: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    torch.manual_seed(0)
    model = code.DecisionTransformer(
        OBS, ACT, STEPS, HORIZON - STEPS, WIDTH, LAYERS, HEADS
    )  # fmt: skip
    rng = np.random.default_rng(6)
    with torch.no_grad():
        for weight in model.parameters():
            moved = weight.numpy() + 0.1 * rng.normal(size=tuple(weight.shape))
            weight.copy_(torch.from_numpy(moved.astype(np.float32).astype(np.float64)))
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=RATE, weight_decay=1e-4, betas=(0.9, 0.999)
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda n: min((n + 1) / WARMUP, 1))
    record, losses = named(model, "before"), []
    for chosen in log["chosen"]:
        obs, action, returns, time, mask = windows(log, chosen)
        predicted = model(obs, action, returns, time, padding_mask=~mask)
        errors = nn.functional.mse_loss(predicted, action, reduction="none") * mask.unsqueeze(-1)
        # DEVIATION: the mean over known steps alone.
        loss = errors.sum() / (mask.sum() * ACT)
        optimiser.zero_grad()
        loss.backward()
        clipped(model)
        optimiser.step()
        schedule.step()
        losses.append(float(loss.detach()))
    return record | named(model, "after") | {"loss/actor_loss": np.array(losses)}


def windows(log: dict[str, np.ndarray], chosen: np.ndarray) -> tuple[torch.Tensor, ...]:
    """Up to STEPS rows of one episode that end with a chosen one; padding comes last, as there."""
    first = np.repeat(np.cumsum(log["lengths"], dtype=int) - log["lengths"], log["lengths"])
    last = first + np.repeat(log["lengths"].astype(int), log["lengths"]) - 1
    reward = log["reward"].astype(np.float64)
    totals = [reward[i : last[i] + 1].sum() for i in range(len(reward))]
    returns = np.array(totals, np.float32).astype(float) / HORIZON
    shape = (len(chosen), STEPS)
    obs, action = np.zeros((*shape, OBS)), np.zeros((*shape, ACT))
    aim, time, mask = np.zeros(shape), np.zeros(shape, int), np.zeros(shape, bool)
    for i, end in enumerate(chosen.astype(int)):
        rows = np.arange(max(first[end], end - STEPS + 1), end + 1)
        n = len(rows)
        obs[i, :n], action[i, :n], aim[i, :n] = log["obs"][rows], log["action"][rows], returns[rows]
        time[i, :n], mask[i, :n] = rows - first[end], True
    return tuple(map(torch.from_numpy, (obs, action, aim, time, mask)))


def clipped(model: nn.Module) -> None:
    # DEVIATION: PyTorch adds 1e-6 to the norm that it divides by.
    norm = torch.sqrt(sum((p.grad**2).sum() for p in model.parameters()))
    for weight in model.parameters():
        weight.grad *= min(1.0, 0.25 / float(norm))


def named(model: nn.Module, when: str) -> dict[str, np.ndarray]:
    """The arrays by the names of ours; the bias of keys changes nothing and ours has none."""
    found: dict[str, np.ndarray] = {}
    for name, weight in model.named_parameters():
        array = weight.detach().numpy().copy()
        for theirs, ours in NAMES:
            name = name.replace(theirs, ours)
        if "in_proj" in name:
            place, kind = name.split("in_proj_")
            for part, x in zip(("query", "key", "value"), np.split(array, 3), strict=True):
                if (part, kind) != ("key", "bias"):
                    found[f"{when}/{place}{part}_proj/{kind}"] = x
        else:
            found[f"{when}/{name}"] = array
    return found


NAMES = (
    (".", "/"), ("emb_norm", "first_norm"), ("out_norm", "last_norm"), ("timestep_emb", "time"),
    ("state_emb", "obs"), ("action_emb", "action"), ("return_emb", "returns"),
    ("action_head/0", "head"), ("norm1", "attention_norm"), ("norm2", "inner_norm"),
    ("mlp/0", "inner"), ("mlp/2", "outer"), ("out_proj", "output_proj"),
)  # fmt: skip


if __name__ == "__main__":
    main()
