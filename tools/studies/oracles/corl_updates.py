"""A hundred updates of CORL's own classes in float64, stored for the tests of neorl-agents.

CORL's losses, orders, targets and optimisers are imported and run as they are; networks are
narrower than its 256 (their sizes are written into its classes). What is taken out, because our
definitions differ there on purpose, is marked DEVIATION below and in the learners' docstrings.

PyTorch is no dependency of this repository; in an environment of its own, with a checkout of
`github.com/corl-team/CORL` at eeeeef2671235fcce3a3eb255576a207d78840e6:

    uv venv /tmp/torch
    uv pip install --python /tmp/torch/bin/python torch==2.13.0 numpy
    /tmp/torch/bin/python tools/studies/oracles/corl_updates.py /tmp/CORL
"""

import argparse
import itertools
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from _updates import (
    ACT,
    BATCH,
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
COLUMNS = ("obs", "action", "reward", "next_obs", "terminated")
RATE = 3e-4


class Draws:
    """Recorded noise in place of PyTorch's generator."""

    def __init__(self) -> None:
        self.call, self.number = 0, 0

    def next(self, table: str, shape: Any) -> torch.Tensor:
        """The next draw of this call."""
        drawn = noise(LOG[table], self.call, self.number, tuple(shape))
        self.number += 1
        return torch.from_numpy(drawn)


DRAWS = Draws()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corl", type=Path, help="checkout of CORL")
    parser.add_argument("--out", type=Path, default=FIXTURES / "corl_updates.npz")
    arguments = parser.parse_args()
    stub_modules("d4rl", "gym", "pyrallis", "wandb", "tqdm", "tqdm.auto")
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    torch.randn_like = lambda like: DRAWS.next("normal", like.shape)  # type: ignore[assignment]
    torch.distributions.normal._standard_normal = lambda shape, **_: DRAWS.next("normal", shape)
    modules = {
        name: imported(arguments.corl / "algorithms" / folder, name)
        for folder, names in (
            ("offline", ("any_percent_bc", "td3_bc", "iql", "cql", "awac", "sac_n", "edac")),
            ("finetune", ("cal_ql",)),
        )
        for name in names
    }
    mean, scale = modules["td3_bc"].compute_mean_std(LOG["obs"].astype(np.float64), 1e-3)
    log = LOG | {"mean": mean, "scale": scale, "kept": best_rows(modules)}
    cases = {name: run(modules, (mean, scale)) for name, run in CASES.items()}
    save(arguments.out, log, cases, f"CORL eeeeef2, torch {torch.__version__}, float64")


def batch(call: int, moments: tuple[np.ndarray, np.ndarray], *more: str) -> list[torch.Tensor]:
    """The rows of one call as CORL's buffers give them, one column a tensor of rank two."""
    mean, scale = moments
    columns = []
    for name in (*COLUMNS, *more):
        values = LOG[name][LOG["chosen"][call]].astype(np.float64)
        if name.endswith("obs"):
            values = (values - mean) / scale
        columns.append(torch.from_numpy(values.reshape(BATCH, -1)))
    return columns


def recorded(
    step: Callable[[list[torch.Tensor]], dict[str, float]],
    parts: dict[str, Any],
    moments: tuple[np.ndarray, np.ndarray],
    *,
    calls: int = UPDATES,
    more: tuple[str, ...] = (),
) -> dict[str, np.ndarray]:
    """What ``calls`` of a training step made of ``parts``, and every loss on the way.

    A part is a network, two of them (an ensemble), or a number.
    """
    for name, part in parts.items():
        if not name.startswith("target_"):
            # Starting values are rounded, so that they are short in the file.
            for tensor in tensors(part):
                tensor.data = tensor.data.to(torch.float32).to(torch.float64)
    for name, part in parts.items():
        if name.startswith("target_"):
            online = tensors(parts[name.removeprefix("target_")])
            for slow, fast in zip(tensors(part), online, strict=True):
                slow.data.copy_(fast.data)
    record = {
        f"before/{name}": array
        for name, array in laid_out(parts).items()
        if not name.startswith("target_")
    }
    losses: dict[str, list[float]] = {}
    with patch.object(torch.Tensor, "uniform_", drawn_uniformly):
        for call in range(calls):
            DRAWS.call, DRAWS.number = call, 0
            for name, value in step(batch(call, moments, *more)).items():
                losses.setdefault(name, []).append(float(value))
    record |= {f"after/{name}": array for name, array in laid_out(parts).items()}
    return record | {f"loss/{name}": np.array(values) for name, values in losses.items()}


def drawn_uniformly(tensor: torch.Tensor, *_: float) -> torch.Tensor:
    return tensor.copy_(DRAWS.next("uniform", tensor.shape))


def tensors(part: Any) -> list[torch.Tensor]:
    if isinstance(part, torch.Tensor):
        return [part]
    networks = part if isinstance(part, tuple) else (part,)
    return [tensor for network in networks for tensor in network.parameters()]


def laid_out(parts: dict[str, Any]) -> dict[str, np.ndarray]:
    """Every number by a name that says where it stands, matrices as ``(in, out)``."""
    named = {}
    for name, part in parts.items():
        if isinstance(part, torch.Tensor):
            named[name] = part.detach().numpy().reshape(()).copy()
            continue
        members = [arrays_of(one) for one in (part if isinstance(part, tuple) else (part,))]
        for key in members[0]:
            stacked = [member[key] for member in members]
            one = np.stack(stacked) if isinstance(part, tuple) else stacked[0]
            named[f"{name}/{key}"] = one
    return named


def arrays_of(network: nn.Module) -> dict[str, np.ndarray]:
    """Weights and biases layer by layer; of a Gaussian also its log-deviation."""
    plain = [layer for layer in network.modules() if isinstance(layer, nn.Linear)]
    if plain:
        layers = [(layer.weight.detach().T.numpy(), layer.bias.detach().numpy()) for layer in plain]
    else:
        layers = [
            (layer.weight.detach().numpy(), layer.bias.detach().numpy()[:, 0])
            for layer in network.critic[::2]
        ]
    if hasattr(network, "log_sigma"):
        *layers, mean, spread = layers
        layers += [tuple(np.concatenate(both, axis=-1) for both in zip(mean, spread, strict=True))]
    prefix, log_std = "", getattr(network, "log_std", getattr(network, "_log_std", None))
    named = {}
    if log_std is not None:
        prefix, named = "mean/", {"log_std": log_std.detach().numpy().copy()}
    for i, (weight, bias) in enumerate(layers):
        named |= {f"{prefix}weights/{i}": weight.copy(), f"{prefix}biases/{i}": bias.copy()}
    return named


def perceptron(inputs: int, outputs: int, depth: int, *last: nn.Module) -> nn.Sequential:
    """CORL's layers with a width of our own."""
    widths = [inputs, *[HIDDEN] * depth]
    hidden = [
        layer for a, b in itertools.pairwise(widths) for layer in (nn.Linear(a, b), nn.ReLU())
    ]
    return nn.Sequential(*hidden, nn.Linear(HIDDEN, outputs), *last)


def adam(module: nn.Module, rate: float = RATE) -> torch.optim.Adam:
    return torch.optim.Adam(module.parameters(), lr=rate)


def best_rows(modules: dict[str, Any]) -> np.ndarray:
    """Rows of the best quarter of the episodes, by CORL's filter of behaviour cloning."""
    ends = (LOG["terminated"] | LOG["truncated"]).astype(np.float64)
    # The last episode has no end; CORL drops it.
    dataset = {"rewards": LOG["reward"].astype(np.float64), "terminals": ends}
    dataset |= {name: np.arange(ROWS) for name in ("observations", "actions", "next_observations")}
    modules["any_percent_bc"].keep_best_trajectories(dataset, 0.25, 1.0)
    return np.sort(dataset["observations"]).astype(np.uint8)


def bc(modules: dict[str, Any], moments: Any) -> dict[str, np.ndarray]:
    module = modules["any_percent_bc"]
    actor = module.Actor(OBS, ACT, 1.0)
    actor.net = perceptron(OBS, ACT, 2, nn.Tanh())
    learner = module.BC(1.0, actor, adam(actor))
    return recorded(learner.train, {"actor": actor}, moments)


def td3_bc(modules: dict[str, Any], moments: Any) -> dict[str, np.ndarray]:
    module = modules["td3_bc"]
    actor, critics = module.Actor(OBS, ACT, 1.0), [module.Critic(OBS, ACT) for _ in range(2)]
    actor.net = perceptron(OBS, ACT, 2, nn.Tanh())
    for critic in critics:
        critic.net = perceptron(OBS + ACT, 1, 2)
    pairs = [part for critic in critics for part in (critic, adam(critic))]
    learner = module.TD3_BC(1.0, actor, adam(actor), *pairs)
    parts = {
        "actor": actor,
        "critics": tuple(critics),
        "target_actor": learner.actor_target,
        "target_critics": (learner.critic_1_target, learner.critic_2_target),
    }
    return recorded(learner.train, parts, moments, calls=2 * UPDATES)


def iql(modules: dict[str, Any], moments: Any) -> dict[str, np.ndarray]:
    module = modules["iql"]
    actor = module.GaussianPolicy(OBS, ACT, 1.0, HIDDEN).double()
    q, value = module.TwinQ(OBS, ACT, HIDDEN), module.ValueFunction(OBS, HIDDEN)
    # An expectile whose complement CORL's float32 holds exactly.
    learner = module.ImplicitQLearning(
        1.0, actor, adam(actor), q, adam(q), value, adam(value), iql_tau=0.75, max_steps=UPDATES
    )
    parts = {
        "actor": actor,
        "critics": (q.q1, q.q2),
        "value": value,
        "target_critics": (learner.q_target.q1, learner.q_target.q2),
    }
    return recorded(learner.train, parts, moments)


def cql_parts(module: Any) -> tuple[Any, list[Any]]:
    actor = module.TanhGaussianPolicy(OBS, ACT, 1.0, log_std_offset=0.0).double()
    actor.base_network = perceptron(OBS, 2 * ACT, 3)
    # DEVIATION: CORL trains a factor and an offset of the log-deviation besides; here they stand
    # at one and zero.
    for scalar in (actor.log_std_multiplier, actor.log_std_offset):
        scalar.requires_grad_(False)
    critics = [module.FullyConnectedQFunction(OBS, ACT) for _ in range(2)]
    for critic in critics:
        critic.network = perceptron(OBS + ACT, 1, 3)
    return actor, critics


def cql_like(
    modules: dict[str, Any], moments: Any, name: str, kind: str, **options: Any
) -> dict[str, np.ndarray]:
    actor, critics = cql_parts(modules[name])
    pairs = [part for critic in critics for part in (critic, adam(critic))]
    actor_optimiser = torch.optim.Adam(actor.base_network.parameters(), lr=RATE)
    learner = getattr(modules[name], kind)(
        *pairs, actor, actor_optimiser, -float(ACT), policy_lr=RATE, bc_steps=0, **options
    )
    parts = {
        "actor": actor.base_network,
        "critics": tuple(critics),
        "target_critics": (learner.target_critic_1, learner.target_critic_2),
        "log_temperature": learner.log_alpha.double().constant,
        "log_multiplier": learner.log_alpha_prime.double().constant,
    }
    more = ("mc_return",) if name == "cal_ql" else ()
    record = recorded(learner.train, parts, moments, more=more)
    kept = ("policy_loss", "cql_qf1_diff", "cql_qf2_diff", "log_pi", "alpha")
    wanted = {f"loss/{loss}" for loss in kept}
    return {k: v for k, v in record.items() if not k.startswith("loss/") or k in wanted}


def cql(modules: dict[str, Any], moments: Any) -> dict[str, np.ndarray]:
    return cql_like(modules, moments, "cql", "ContinuousCQL", cql_alpha=10.0)


def cql_lagrange(modules: dict[str, Any], moments: Any) -> dict[str, np.ndarray]:
    options = {"cql_importance_sample": False, "cql_lagrange": True, "cql_target_action_gap": 2.0}
    more = {"cql_temp": 0.7, "backup_entropy": True, "cql_alpha": 5.0}
    return cql_like(modules, moments, "cql", "ContinuousCQL", **options, **more)


def cal_ql(modules: dict[str, Any], moments: Any) -> dict[str, np.ndarray]:
    return cql_like(modules, moments, "cal_ql", "CalQL", cql_alpha=10.0)


def awac(modules: dict[str, Any], moments: Any) -> dict[str, np.ndarray]:
    module = modules["awac"]
    actor = module.Actor(OBS, ACT, HIDDEN).double()
    critics = [module.Critic(OBS, ACT, HIDDEN) for _ in range(2)]
    pairs = [part for critic in critics for part in (critic, adam(critic))]
    learner = module.AdvantageWeightedActorCritic(actor, adam(actor), *pairs, awac_lambda=1 / 3)
    parts = {
        "actor": actor,
        "critics": tuple(critics),
        "target_critics": (learner._target_critic_1, learner._target_critic_2),
    }
    return recorded(learner.update, parts, moments)


def soft(modules: dict[str, Any], moments: Any, name: str, kind: str) -> dict[str, np.ndarray]:
    module = modules[name]
    # DEVIATION: CORL adds 1e-6 to 1 - tanh^2 before the logarithm; ours is exact.
    module.torch = without_slack()
    actor = module.Actor(OBS, ACT, HIDDEN)
    critic = module.VectorizedCritic(OBS, ACT, HIDDEN, 4)
    # Heads that matter: those of the paper start within 0.003 of zero.
    for layer in (actor.mu, actor.log_sigma, critic.critic[-1]):
        nn.init.uniform_(layer.weight, -0.3, 0.3)
    for tensor in (*actor.parameters(), *critic.parameters()):
        tensor.data += torch.from_numpy(0.1 * np.random.default_rng(2).normal(size=tensor.shape))
    learner = getattr(module, kind)(actor, adam(actor), critic, adam(critic))
    learner.log_alpha = torch.zeros(1, requires_grad=True)
    learner.alpha_optimizer = torch.optim.Adam([learner.log_alpha], lr=RATE)
    learner.alpha = learner.log_alpha.exp().detach()
    parts = {
        "actor": actor,
        "critics": critic,
        "target_critics": learner.target_critic,
        "log_temperature": learner.log_alpha,
    }
    return recorded(learner.update, parts, moments)


def without_slack() -> types.SimpleNamespace:
    names = {name: getattr(torch, name) for name in dir(torch)}
    return types.SimpleNamespace(**names | {"log": lambda x: torch.log(x - 1e-6)})


CASES: dict[str, Callable[[dict[str, Any], Any], dict[str, np.ndarray]]] = {
    "bc": bc,
    "td3_bc": td3_bc,
    "iql": iql,
    "cql": cql,
    "cql_lagrange": cql_lagrange,
    "cal_ql": cal_ql,
    "awac": awac,
    "sac_n": lambda modules, moments: soft(modules, moments, "sac_n", "SACN"),
    "edac": lambda modules, moments: soft(modules, moments, "edac", "EDAC"),
}


if __name__ == "__main__":
    main()
