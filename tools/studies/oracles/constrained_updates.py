"""A hundred updates of published learners under cost limits in float64, for neorl-agents' tests.

BCQ-Lag of OSRL and CAPS of its authors are imported and run as they are; DEVIATION marks what is
taken out because our definitions differ there on purpose. In an environment of its own, with
checkouts of `github.com/liuzuxin/OSRL` at 03a4586 and `github.com/yassineCh/CAPS` at f578c22:

    uv venv /tmp/torch
    uv pip install --python /tmp/torch/bin/python torch==2.13.0 numpy
    /tmp/torch/bin/python tools/studies/oracles/constrained_updates.py /tmp/OSRL /tmp/CAPS
"""

import argparse
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from _updates import (
    ACT,
    FIXTURES,
    HIDDEN,
    OBS,
    ROWS,
    UPDATES,
    draw_log,
    imported,
    noise,
    save,
    stub_modules,
)
from torch import nn

LOG = draw_log()
LIMIT, HORIZON, LARGEST, SAMPLES = 0.03125, 10, 10.0, 4
Record = dict[str, np.ndarray]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("osrl", type=Path, help="checkout of OSRL")
    parser.add_argument("caps", type=Path, help="checkout of CAPS")
    parser.add_argument("--out", type=Path, default=FIXTURES / "constrained_updates.npz")
    arguments = parser.parse_args()
    torch.set_default_dtype(torch.float64)
    stub_modules("fsrl", "fsrl.utils", "gymnasium", "tqdm", "tqdm.auto")
    LOG["cost"] = costs()
    osrl = at_root(arguments.osrl, "osrl/algorithms", "bcql")
    cases = {
        "bcq_lag": bcq_lag(osrl, costly="larger"),
        "bcq_lag_osrl": bcq_lag(osrl, costly="smaller"),
        "caps": caps(at_root(arguments.caps, "osrl/algorthims", "capsiql")),
    }
    origin = f"OSRL 03a4586, CAPS f578c22, torch {torch.__version__}, float64"
    save(arguments.out, {"cost": LOG["cost"]}, cases, origin)


def costs() -> np.ndarray:
    """One cost of every row, zero in about half of them; short in the file."""
    rng = np.random.default_rng(9)
    drawn = rng.exponential(size=(ROWS, 1)) * (rng.uniform(size=(ROWS, 1)) < 0.5)
    return drawn.astype(np.float32)


def at_root(checkout: Path, folder: str, name: str) -> Any:
    """A module whose package lies in the checkout; the other checkout has the same package."""
    for known in [known for known in sys.modules if known.startswith("osrl")]:
        del sys.modules[known]
    # Their packages import every learner and simulator; the modules are enough.
    stub_modules("osrl", "osrl.common")
    sys.modules["osrl.common.net"] = imported(checkout / "osrl/common", "net")
    del sys.modules["net"]
    return imported(checkout / folder, name)


class Draws:
    """The draws of a call, in the order in which they are asked for."""

    call = number = 0

    def next(self, shape: Any) -> torch.Tensor:
        """The next draw."""
        drawn = torch.from_numpy(noise(LOG["normal"], self.call, self.number, tuple(shape)))
        self.number += 1
        return drawn


class Losses:
    """What their trainers log."""

    def __init__(self) -> None:
        self.values: dict[str, list[float]] = {}

    def store(self, **stats: float) -> None:
        """One more value of each."""
        for name, value in stats.items():
            self.values.setdefault(name, []).append(float(value))


class Controller:
    """DEVIATION: the error is smoothed and the integrator clamped, as in the paper on it."""

    def __init__(self, gains: tuple[float, float, float], limit: float) -> None:
        self.gains, self.limit = gains, limit
        self.error = self.cost = self.integral = self.value = 0.0

    def control(self, qc: torch.Tensor) -> torch.Tensor:
        """The multiplier after costs of this value."""
        kp, ki, kd = self.gains
        measured = float(qc.mean())
        excess, before = measured - self.limit, self.cost
        self.error = 0.95 * self.error + 0.05 * excess
        self.cost = 0.95 * self.cost + 0.05 * measured
        self.integral = min(max(self.integral + ki * excess, 0.0), LARGEST)
        value = kp * self.error + self.integral + kd * max(self.cost - before, 0.0)
        self.value = min(max(value, 0.0), LARGEST)
        return torch.tensor(self.value)


def bcq_lag(code: Any, costly: str) -> Record:
    torch.manual_seed(0)
    sizes = [HIDDEN, HIDDEN]
    model = code.BCQL(
        OBS, ACT, 1.0, sizes, sizes, HIDDEN, SAMPLES, cost_limit=LIMIT, episode_len=HORIZON
    )
    # DEVIATION: ReLU, as in the code of BCQ's authors.
    model.actor.pi = perceptron(OBS + ACT, ACT, nn.Tanh())
    rounded(model.actor, model.critic, model.cost_critic, model.vae)
    for name in ("actor", "critic", "cost_critic"):
        setattr(model, f"{name}_old", code.deepcopy(getattr(model, name)))
    model.controller = Controller((0.1, 0.003, 0.001), model.qc_thres)
    larger = costly == "larger"

    def cost_critic_loss(obs: Any, next_obs: Any, action: Any, cost: Any, done: Any) -> Any:
        # DEVIATION: a termination ends the costs too: the step of the reward's critics on costs.
        with swapped(model, "critic"), swapped(model, "critic_old"), swapped(model, "critic_optim"):
            # DEVIATION: of costs the larger of two values weighs more.
            model.lmbda = 1 - model.lmbda if larger else model.lmbda
            loss, stats = type(model).critic_loss(model, obs, next_obs, action, cost, done)
            model.lmbda = 1 - model.lmbda if larger else model.lmbda
        return loss, {"loss/cost_critic_loss": stats["loss/critic_loss"]}

    model.cost_critic_loss = cost_critic_loss
    if larger:
        acted = model.actor_loss

        def actor_loss(obs: Any) -> Any:
            # DEVIATION: of two values of a cost the larger counts.
            of_costs = model.cost_critic.predict
            model.cost_critic.predict = lambda o, a: (torch.max(*of_costs(o, a)[:2]),) * 4
            result = acted(obs)
            model.cost_critic.predict = of_costs
            return result

        model.actor_loss = actor_loss
    losses = Losses()
    trainer = code.BCQLTrainer(model, None, losses, 1e-3, 1e-3, 1e-3)

    def named(when: str) -> Record:
        vae = model.vae
        parts = {
            "encoder": stacked([vae.e1, vae.e2, (vae.mean, vae.log_std)]),
            "decoder": stacked([vae.d1, vae.d2, vae.d3]),
            "actor": stacked(linears(model.actor)),
            "critics": ensemble(model.critic.q1_nets[0], model.critic.q2_nets[0]),
            "cost_critics": ensemble(model.cost_critic.q1_nets[0], model.cost_critic.q2_nets[0]),
            "multipliers": {"value": np.array([model.controller.value])},
        }
        if when == "after":
            parts |= {
                "target_actor": stacked(linears(model.actor_old)),
                "target_critics": ensemble(
                    model.critic_old.q1_nets[0], model.critic_old.q2_nets[0]
                ),
                "target_cost_critics": ensemble(
                    model.cost_critic_old.q1_nets[0], model.cost_critic_old.q2_nets[0]
                ),
            }
        return {f"{when}/{part}/{key}": x for part, of in parts.items() for key, x in of.items()}

    draws, record = Draws(), named("before")
    torch.randn_like = lambda like: draws.next(like.shape)  # type: ignore[assignment]
    torch.randn = lambda shape: draws.next(shape)  # type: ignore[assignment]
    for draws.call in range(UPDATES):
        draws.number = 0
        trainer.train_one_step(*batch(draws.call))
    return record | named("after") | logged(losses)


def caps(code: Any) -> Record:
    torch.manual_seed(0)
    model = code.CapsIQL(OBS, ACT, 1.0, 3, hidden_dim=HIDDEN, iql_tau=0.7, iql_tau_cost=0.7)
    rounded(model.reward_q, model.cost_q, model.reward_v, model.cost_v, model.actor)
    for name in ("reward_q", "cost_q"):
        setattr(model, f"{name}_target", code.copy.deepcopy(getattr(model, name)))
    log_stds = model.actor.log_stds
    for log_std in log_stds:
        # Made as float32 whatever the default is.
        log_std.data = log_std.data.to(torch.float64)
    losses = Losses()
    trainer = code.CapsIQLTrainer(model, None, losses)
    # DEVIATION: the deviations of heads, which lie in a list that no optimiser sees, are trained,
    # and the heads' rate stays.
    model.actor_optim = torch.optim.Adam([*model.actor.parameters(), *log_stds], lr=3e-4)
    model.actor_lr_schedule = SimpleNamespace(step=lambda: None)
    for optimiser in (model.reward_q_optim, model.cost_q_optim):
        # Half of our loss; by half of Adam's offset the step is the same.
        optimiser.param_groups[0]["eps"] = 0.5e-8

    def named(when: str) -> Record:
        heads = [model.actor.tasks[f"a_{k}"] for k in range(3)]
        mean = stacked([*linears(model.actor.net), tuple(heads)])
        log_std = np.concatenate([x.detach().numpy() for x in log_stds]).copy()
        # Theirs are values of what costs save, ours of costs.
        parts = {
            "value": stacked(linears(model.reward_v)),
            "cost_value": negated(stacked(linears(model.cost_v))),
            "critics": ensemble(model.reward_q.q1, model.reward_q.q2),
            "cost_critics": negated(ensemble(model.cost_q.q1, model.cost_q.q2)),
            "actor": {f"mean/{key}": x for key, x in mean.items()} | {"log_std": log_std},
        }
        if when == "after":
            slow, slow_cost = model.reward_q_target, model.cost_q_target
            parts["target_critics"] = ensemble(slow.q1, slow.q2)
            parts["target_cost_critics"] = negated(ensemble(slow_cost.q1, slow_cost.q2))
        return {f"{when}/{part}/{key}": x for part, of in parts.items() for key, x in of.items()}

    record = named("before")
    for call in range(UPDATES):
        trainer.train_one_step(*batch(call), call)
    return record | named("after") | logged(losses)


def batch(call: int) -> list[torch.Tensor]:
    """Observations, next observations, actions, rewards, costs and ends, scaled as CORL does."""
    obs = LOG["obs"].astype(np.float64)
    mean, scale = obs.mean(0), obs.std(0) + 1e-3
    chosen = LOG["chosen"][call]
    columns = [(LOG[name].astype(np.float64) - mean) / scale for name in ("obs", "next_obs")]
    columns += [LOG[name].astype(np.float64) for name in ("action", "reward", "cost", "terminated")]
    rows = [column[chosen] for column in columns]
    return [torch.from_numpy(x[:, 0] if x.shape[1:] == (1,) else x) for x in rows]


@contextmanager
def swapped(model: Any, name: str) -> Any:
    """The parts of the reward's critics and of the costs' critics in each other's place."""
    parts = vars(model) if name in vars(model) else model._modules
    other = f"cost_{name}"
    parts[name], parts[other] = parts[other], parts[name]
    yield
    parts[name], parts[other] = parts[other], parts[name]


def perceptron(inputs: int, outputs: int, last: nn.Module) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(),
        nn.Linear(HIDDEN, outputs), last,
    )  # fmt: skip


def rounded(*networks: nn.Module) -> None:
    """Starting values that are short in the file."""
    for network in networks:
        for tensor in network.parameters():
            tensor.data = tensor.data.to(torch.float32).to(torch.float64)


def linears(network: nn.Module) -> list[Any]:
    return [layer for layer in network.modules() if isinstance(layer, nn.Linear)]


def stacked(layers: list[Any]) -> Record:
    """Weights ``(in, out)`` and biases layer by layer; several in one place stand side by side."""
    named = {}
    for i, layer in enumerate(layers):
        beside = layer if isinstance(layer, tuple) else (layer,)
        weights = [one.weight.detach().numpy().T for one in beside]
        biases = [one.bias.detach().numpy() for one in beside]
        named |= {f"weights/{i}": np.hstack(weights), f"biases/{i}": np.concatenate(biases)}
    return named


def ensemble(*members: nn.Module) -> Record:
    arrays = [stacked(linears(member)) for member in members]
    return {key: np.stack([one[key] for one in arrays]) for key in arrays[0]}


def negated(arrays: Record) -> Record:
    """The network of minus the values: its last layer with the other sign."""
    last = max(key.rpartition("/")[2] for key in arrays)
    return {key: -x if key.endswith(f"/{last}") else x for key, x in arrays.items()}


def logged(losses: Losses) -> Record:
    return {name: np.array(values) for name, values in losses.values.items()}


if __name__ == "__main__":
    main()
