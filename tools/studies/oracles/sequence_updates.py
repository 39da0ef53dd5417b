"""A hundred updates of two decision transformers in float64, stored for neorl-agents' tests.

CORL's, and the constrained one of OSRL. Their modules and their schedules are run as they are;
DEVIATION marks what is taken out because our definition differs there on purpose. In an environment
of its own, with checkouts of `github.com/corl-team/CORL` at eeeeef2 and of
`github.com/liuzuxin/OSRL` at 03a4586:

    uv venv /tmp/torch
    uv pip install --python /tmp/torch/bin/python torch==2.13.0 numpy
    /tmp/torch/bin/python tools/studies/oracles/sequence_updates.py /tmp/CORL /tmp/OSRL
"""

import argparse
import functools
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _updates import FIXTURES, UPDATES, imported, save, stub_modules
from constrained_updates import at_root
from torch import nn

STEPS, HORIZON, OBS, ACT, WIDTH, LAYERS, HEADS = 4, 8, 3, 2, 8, 2, 2
EPISODES, BATCH, RATE, WARMUP, COST_WEIGHT = 12, 8, 1e-3, 30, 0.5


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corl", type=Path, help="checkout of CORL")
    parser.add_argument("osrl", type=Path, help="checkout of OSRL")
    parser.add_argument("--out", type=Path, default=FIXTURES / "sequence_updates.npz")
    arguments = parser.parse_args()
    torch.set_default_dtype(torch.float64)
    stub_modules("d4rl", "gym", "pyrallis", "wandb", "tqdm", "tqdm.auto", "fsrl", "fsrl.utils")
    stub_modules("gymnasium")
    # DEVIATION: ours is GELU by the tanh.
    nn.GELU = functools.partial(nn.GELU, approximate="tanh")
    log = draw_log()
    cases = {
        "dt": recorded(imported(arguments.corl / "algorithms/offline", "dt"), log),
        "cdt": constrained(at_root(arguments.osrl, "osrl/algorithms", "cdt"), log),
    }
    save(arguments.out, log, cases, f"PyTorch {torch.__version__}, float64")


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
    cost = np.random.default_rng(7).uniform(0.1, 1, size=rows)
    columns["cost"] = np.where(cost > 0.5, cost, 0).astype(np.float32)
    return columns | {"lengths": lengths.astype(np.uint8), "chosen": chosen}


def recorded(code: Any, log: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    torch.manual_seed(0)
    model = code.DecisionTransformer(
        OBS, ACT, STEPS, HORIZON - STEPS, WIDTH, LAYERS, HEADS
    )  # fmt: skip
    started(model)
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


def constrained(code: Any, log: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    torch.manual_seed(0)
    model = code.CDT(
        OBS, ACT, 1.0, STEPS, HORIZON - STEPS, WIDTH, LAYERS, HEADS, use_rew=True, use_cost=True,
        stochastic=True, target_entropy=-1.0,
    )  # fmt: skip
    model.action_head, model.cost_pred_head = Gaussian(), Forecast()
    started(model)
    temperature = torch.tensor(float(np.float32(np.log(0.1))), requires_grad=True)
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=RATE, weight_decay=1e-4, betas=(0.9, 0.999)
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda n: min((n + 1) / WARMUP, 1))
    slow = torch.optim.Adam([temperature], lr=RATE, betas=(0.9, 0.999))
    record, losses = named(model, "before", OF_CDT), []
    for chosen in log["chosen"]:
        obs, action, returns, time, mask = windows(log, chosen)
        budgets = windows(log, chosen, "cost")[2]
        # DEVIATION: ours has the token of the cost before that of the return.
        policy, costs, _ = model(obs, action, budgets, returns, time, padding_mask=~mask)
        likelihood = policy.log_prob(action)[mask].mean()
        entropy = policy.entropy()[mask].mean()
        # DEVIATION: the mean over steps whose next one is known too, and the cost with them.
        followed = mask[:, :-1] & mask[:, 1:]
        dear = (budgets[:, :-1] - budgets[:, 1:] > 1e-6).long()
        forecast = nn.functional.nll_loss(costs[:, :-1][followed], dear[followed])
        loss = -(likelihood + temperature.exp().detach() * entropy) + COST_WEIGHT * forecast
        optimiser.zero_grad()
        loss.backward()
        clipped(model)
        optimiser.step()
        slow.zero_grad()
        (temperature.exp() * (entropy - model.target_entropy).detach()).backward()
        slow.step()
        schedule.step()
        losses.append(float(loss.detach()))
    record |= named(model, "after", OF_CDT) | {"loss/actor_loss": np.array(losses)}
    return record | {"loss/log_temperature": np.array([float(temperature.detach())])}


class Gaussian(nn.Module):
    """DEVIATION: a Gaussian around a tanh, with deviations within bounds; one layer for both."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, 2 * ACT)

    def forward(self, x: torch.Tensor) -> torch.distributions.Normal:
        """The distribution of the action."""
        mean, spread = self.linear(x).chunk(2, dim=-1)
        return torch.distributions.Normal(
            torch.tanh(mean), torch.exp(-5 + 7 * (torch.tanh(spread) + 1) / 2)
        )


class Forecast(nn.Module):
    """DEVIATION: the odds of two classes by one number, which is their difference."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Both logits."""
        odds = self.linear(x)
        return torch.cat([torch.zeros_like(odds), odds], dim=-1)


def started(model: nn.Module) -> None:
    """Weights that differ from one another, short in the file."""
    rng = np.random.default_rng(6)
    with torch.no_grad():
        for weight in model.parameters():
            moved = weight.numpy() + 0.1 * rng.normal(size=tuple(weight.shape))
            weight.copy_(torch.from_numpy(moved.astype(np.float32).astype(np.float64)))


def windows(
    log: dict[str, np.ndarray], chosen: np.ndarray, ahead: str = "reward"
) -> tuple[torch.Tensor, ...]:
    """Up to STEPS rows of one episode that end with a chosen one; padding comes last, as there."""
    first = np.repeat(np.cumsum(log["lengths"], dtype=int) - log["lengths"], log["lengths"])
    last = first + np.repeat(log["lengths"].astype(int), log["lengths"]) - 1
    reward = log[ahead].astype(np.float64)
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
    trained = [weight for weight in model.parameters() if weight.grad is not None]
    norm = torch.sqrt(sum((weight.grad**2).sum() for weight in trained))
    for weight in trained:
        weight.grad *= min(1.0, 0.25 / float(norm))


def named(
    model: nn.Module, when: str, more: tuple[tuple[str, str], ...] = ()
) -> dict[str, np.ndarray]:
    """The arrays by the names of ours; the bias of keys changes nothing and ours has none."""
    by_name: dict[str, np.ndarray] = {}
    for name, weight in model.named_parameters():
        array = weight.detach().numpy().copy()
        if name.startswith("state_pred_head"):
            continue  # of a loss whose weight is zero
        for theirs, ours in (*more, *NAMES):
            name = name.replace(theirs, ours)
        if "in_proj" in name:
            place, kind = name.split("in_proj_")
            for part, x in zip(("query", "key", "value"), np.split(array, 3), strict=True):
                if (part, kind) != ("key", "bias"):
                    by_name[f"{when}/{place}{part}_proj/{kind}"] = x
        else:
            by_name[f"{when}/{name}"] = array
    return by_name


OF_CDT = (
    (".", "/"), ("return_emb", "costs"), ("cost_emb", "returns"),
    ("cost_pred_head/linear", "forecast"), ("action_head/linear", "head"),
)  # fmt: skip
NAMES = (
    (".", "/"), ("emb_norm", "first_norm"), ("out_norm", "last_norm"), ("timestep_emb", "time"),
    ("state_emb", "obs"), ("action_emb", "action"), ("return_emb", "returns"),
    ("action_head/0", "head"), ("norm1", "attention_norm"), ("norm2", "inner_norm"),
    ("mlp/0", "inner"), ("mlp/2", "outer"), ("out_proj", "output_proj"),
)  # fmt: skip


if __name__ == "__main__":
    main()
