"""A hundred updates of learners on rollouts in a model in float64, for neorl-agents' tests.

MOPO, MOBILE, COMBO and RAMBO of OfflineRL-Kit are imported and run; DEVIATION marks what is taken
out because our definitions differ there on purpose. RAMBO's step of the model is restated: theirs
predicts reward and observation by one network and draws a batch of its own for every step. Rows of
the log and predicted ones are both taken from the recorded log, for an update does not know where a
row comes from but by its place in the batch. In an environment of its own, with a checkout of
`github.com/yihaosun1124/OfflineRL-Kit` at e3ce697:

    uv venv /tmp/torch
    uv pip install --python /tmp/torch/bin/python torch==2.13.0 numpy
    /tmp/torch/bin/python tools/studies/oracles/rollouts/rollout_updates.py /tmp/OfflineRL-Kit
"""

import argparse
import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import nn

sys.path.append(str(Path(__file__).resolve().parents[1]))
import constrained_updates as shared
from _updates import ACT, BATCH, FIXTURES, HIDDEN, OBS, UPDATES, imported, noise, save, stub_modules
from constrained_updates import LOG, Record, ensemble, linears, stacked

ACTOR_RATE, RATE, DISCOUNT, TAU = 1e-4, 3e-4, 0.99, 0.005
MEMBERS, SAMPLES, PENALTY, CONSERVATIVE, ADVERSARIAL, BOUND = 3, 2, 0.7, 0.6, 0.3, 0.01
CLIP, LOW, HIGH = 8.0, -10.0, 0.5


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kit", type=Path, help="checkout of OfflineRL-Kit")
    parser.add_argument("--out", type=Path, default=FIXTURES / "rollout_updates.npz")
    arguments = parser.parse_args()
    torch.set_default_dtype(torch.float64)
    stub_modules("gym", "gym.spaces", "tqdm", "tensorboard", "torch.utils.tensorboard", "pandas")
    stub_modules("matplotlib", "matplotlib.pyplot", "gym.envs", "gym.envs.mujoco")
    LOG["cost"] = shared.costs()
    kit = Kit(arguments.kit)
    cases = {
        "mopo": mopo(kit),
        "mobile": mobile(kit),
        "combo": combo(kit, "mix"),
        "combo_model": combo(kit, "model"),
        "rambo": rambo(kit),
    }
    origin = f"OfflineRL-Kit e3ce697, torch {torch.__version__}, float64"
    save(arguments.out, {}, cases, origin)


class Draws:
    """The recorded draws of an update, in the order in which their code asks for them."""

    def __init__(self) -> None:
        self.call = 0
        self.queue: list[int | torch.Tensor] = []

    def next(self, shape: Any, **_: Any) -> torch.Tensor:
        """The next draw: that of a number, or one that was made before."""
        given = self.queue.pop(0)
        drawn = given if isinstance(given, torch.Tensor) else self.of(given, tuple(shape))
        assert drawn.shape == torch.Size(shape)
        return drawn

    def of(self, number: int, shape: tuple[int, ...], table: str = "normal") -> torch.Tensor:
        """A draw by its number."""
        return torch.from_numpy(noise(LOG[table], self.call, number, shape))


class Kit:
    """Their modules, in float64 and with our definitions where those differ."""

    def __init__(self, checkout: Path) -> None:
        self.policies = {
            name: imported(checkout, f"offlinerlkit.policy.model_based.{name}")
            for name in ("mopo", "mobile", "combo")
        }
        self.nets = imported(checkout, "offlinerlkit.nets")
        self.modules = imported(checkout, "offlinerlkit.modules")
        self.dynamics = imported(checkout, "offlinerlkit.modules.dynamics_module")
        names = {name: getattr(torch, name) for name in dir(torch)}
        # Their networks turn everything into float32.
        wide = SimpleNamespace(**names | {"float32": torch.float64})
        for name in ("actor_module", "critic_module", "dynamics_module"):
            imported(checkout, f"offlinerlkit.modules.{name}").torch = wide
        # DEVIATION: they add 1e-6 to 1 - tanh^2 before the logarithm; ours is exact.
        wrapper = imported(checkout, "offlinerlkit.modules.dist_module").TanhNormalWrapper
        wrapper.log_prob = log_density
        # DEVIATION: between the bounds, the soft clamp reaches both of them.
        self.dynamics.soft_clamp = soft_clamp
        # DEVIATION: MOBILE's targets are not cut off at zero.
        self.policies["mobile"].torch = SimpleNamespace(**names | {"clamp": lambda x, *_: x})
        self.draws = Draws()
        torch.distributions.normal._standard_normal = self.draws.next

    def parts(self) -> tuple[Any, list[Any], dict[str, Any]]:
        """An actor, two critics, and their optimisers with the temperature."""
        torch.manual_seed(0)
        modules, sizes = self.modules, [HIDDEN, HIDDEN]
        head = modules.TanhDiagGaussian(HIDDEN, ACT, unbounded=True, conditioned_sigma=True)
        actor = modules.ActorProb(self.nets.MLP(OBS, sizes), head)
        critics = [modules.Critic(self.nets.MLP(OBS + ACT, sizes)) for _ in range(2)]
        shared.rounded(actor, *critics)
        log_alpha = torch.zeros(1, requires_grad=True)
        alpha = (-float(ACT), log_alpha, torch.optim.Adam([log_alpha], lr=ACTOR_RATE))
        options = {"tau": TAU, "gamma": DISCOUNT, "alpha": alpha}
        options["actor_optim"] = torch.optim.Adam(actor.parameters(), lr=ACTOR_RATE)
        return actor, critics, options

    def policy(self, name: str, **more: Any) -> Any:
        """MOPO's or COMBO's policy, whose critics have an optimiser each."""
        actor, critics, options = self.parts()
        for number, critic in enumerate(critics, 1):
            options[f"critic{number}"] = critic
            options[f"critic{number}_optim"] = torch.optim.Adam(critic.parameters(), lr=RATE)
        module = self.policies[name]
        kind = getattr(module, f"{name.upper()}Policy")
        return kind(dynamics=None, actor=actor, **options, **more)


def log_density(normal: Any, action: torch.Tensor, raw: torch.Tensor) -> torch.Tensor:
    """The density of a tanh-Gaussian, from the number before the tanh."""
    density = torch.distributions.Normal.log_prob(normal, raw)
    slope = 2 * (np.log(2) - torch.logaddexp(raw, -raw))
    return (density - slope).sum(-1, keepdim=True)


def soft_clamp(x: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    high = torch.maximum(high, low + 1)
    upper = high - nn.functional.softplus(high - x)
    width = nn.functional.softplus(high - low)
    return low + (high - low) * nn.functional.softplus(upper - low) / width


def halves(call: int, logged: int) -> dict[str, dict[str, torch.Tensor]]:
    """A batch as their trainer gives it: the rows of the log, and the predicted ones."""
    obs, next_obs, action, reward, _, done = shared.batch(call)
    columns = {
        "observations": obs, "actions": action, "next_observations": next_obs,
        "rewards": reward[:, None], "terminals": done[:, None],
    }  # fmt: skip
    return {
        "real": {name: column[:logged] for name, column in columns.items()},
        "fake": {name: column[logged:] for name, column in columns.items()},
    }


def named(when: str, actor: Any, critics: Any, targets: Any, log_alpha: torch.Tensor) -> Record:
    head = (actor.dist_net.mu, actor.dist_net.sigma)
    parts = {"actor": stacked([*linears(actor.backbone), head]), "critics": ensemble(*critics)}
    if when == "after":
        parts["target_critics"] = ensemble(*targets)
    flat = {f"{when}/{part}/{key}": x for part, of in parts.items() for key, x in of.items()}
    return flat | {f"{when}/log_temperature": log_alpha.detach().numpy()[0].copy()}


def recorded(policy: Any, step: Callable[[], dict[str, float]], draws: Draws) -> Record:
    """What a hundred steps made of a policy with two critics, and every loss on the way."""
    critics = [policy.critic1, policy.critic2]
    targets = [policy.critic1_old, policy.critic2_old]
    log_alpha, losses = policy._log_alpha, shared.Losses()
    record = named("before", policy.actor, critics, targets, log_alpha)
    for draws.call in range(UPDATES):
        given = step()
        both = given["loss/critic1"] + given["loss/critic2"]
        losses.store(**{"loss/actor": given["loss/actor"], "loss/critics": both})
    # Their temperature is cut off at one, which it never reaches here.
    assert float(log_alpha.detach()) < 0
    record |= named("after", policy.actor, critics, targets, log_alpha)
    return record | shared.logged(losses)


def mopo(kit: Kit) -> Record:
    policy, draws = kit.policy("mopo"), kit.draws

    def step() -> dict[str, float]:
        draws.queue = [0, 1]
        return policy.learn(halves(draws.call, BATCH // 4))

    return recorded(policy, step, draws)


def combo(kit: Kit, states: str) -> Record:
    """With one action of each kind: of several, their soft maximum is over three at a time."""
    space = SimpleNamespace(low=[-1.0], high=[1.0])
    policy = kit.policy(
        "combo", action_space=space, cql_weight=CONSERVATIVE, with_lagrange=False,
        num_repeart_actions=1, rho_s=states,
    )  # fmt: skip
    draws, still = kit.draws, SimpleNamespace(zero_grad=lambda: None, step=lambda: None)
    own = (policy.actor_optim, policy.critic1_optim, policy.critic2_optim)
    # The rows in whose states values are lowered are the last of the batch.
    led = BATCH if states == "mix" else BATCH // 2

    def learn(optimisers: tuple[Any, ...], tau: float) -> dict[str, float]:
        policy.actor_optim, policy.critic1_optim, policy.critic2_optim = optimisers
        policy._is_auto_alpha, policy._tau = optimisers[0] is not still, tau
        sampled = [draws.of(number, (BATCH, ACT))[-led:] for number in (2, 3)]
        draws.queue = [4, 0, *sampled]
        return policy.learn(halves(draws.call, BATCH // 2))

    def step() -> dict[str, float]:
        # DEVIATION: critics first, as in MOPO; theirs begins with the actor. So it is called twice,
        # and each time the optimisers of the others stand still.
        first = learn((still, *own[1:]), TAU)
        return first | {"loss/actor": learn((own[0], still, still), 0.0)["loss/actor"]}

    def uniform(*_: Any) -> torch.Tensor:
        return draws.of(1, (BATCH, ACT), "uniform")[-led:]

    with patch.object(torch.Tensor, "uniform_", uniform):
        return recorded(policy, step, draws)


def mobile(kit: Kit) -> Record:
    actor, critics, options = kit.parts()
    critics = nn.ModuleList(critics)
    both = [p for critic in critics for p in critic.parameters()]
    # DEVIATION: theirs is the mean over both critics, ours the sum; Adam knows that by its epsilon.
    options["critics_optim"] = torch.optim.Adam(both, lr=RATE, eps=0.5e-8)
    model = members(kit)
    draws = kit.draws

    def sample_next_obss(obs: torch.Tensor, action: torch.Tensor, number: int) -> torch.Tensor:
        # DEVIATION: no reward in this network.
        mean, log_variance = model(torch.cat([obs, action], -1).clamp(-CLIP, CLIP))
        drawn = draws.of(0, (BATCH, number, MEMBERS, OBS)).movedim(0, 2)
        return obs + mean + torch.exp(log_variance / 2) * drawn

    policy = kit.policies["mobile"].MOBILEPolicy(
        SimpleNamespace(sample_next_obss=sample_next_obss), actor, critics,
        penalty_coef=PENALTY, num_samples=SAMPLES, **options,
    )  # fmt: skip
    losses = shared.Losses()
    record = named("before", actor, critics, policy.critics_old, policy._log_alpha)
    record |= {f"before/change/{key}": x for key, x in of_members(model).items()}
    for draws.call in range(UPDATES):
        flat = draws.of(1, (BATCH, SAMPLES, MEMBERS, ACT)).movedim(0, 2).reshape(-1, ACT)
        draws.queue = [flat, 2, 3]
        given = policy.learn(halves(draws.call, BATCH // 4))
        both = 2 * given["loss/critic"]
        losses.store(**{"loss/actor": given["loss/actor"], "loss/critics": both})
    assert float(policy._log_alpha.detach()) < 0
    record |= named("after", actor, critics, policy.critics_old, policy._log_alpha)
    return record | shared.logged(losses)


def members(kit: Kit) -> Any:
    """Their ensemble of networks for the change of the observation."""
    model = kit.dynamics.EnsembleDynamicsModel(
        OBS, ACT, [HIDDEN], MEMBERS, MEMBERS, weight_decays=[0.0, 0.0], with_reward=False
    )
    for layer in (*model.backbones, model.output_layer):
        drawn = np.random.default_rng(5).normal(size=layer.bias.shape)
        layer.bias.data += 0.1 * torch.from_numpy(drawn)
        for tensor in (layer.weight, layer.bias):
            tensor.data = tensor.data.to(torch.float32).to(torch.float64)
    return model


def of_members(model: Any) -> Record:
    layers = [*model.backbones, model.output_layer]
    named = {"low": model.min_logvar, "high": model.max_logvar}
    for number, layer in enumerate(layers):
        named |= {f"networks/weights/{number}": layer.weight}
        named |= {f"networks/biases/{number}": layer.bias[:, 0]}
    return {key: x.detach().numpy().copy() for key, x in named.items()}


class Outcome(nn.Module):
    """DEVIATION: reward and log-odds of an end, from observation, action and next observation."""

    def __init__(self) -> None:
        super().__init__()
        rng = np.random.default_rng(6)
        sizes = (2 * OBS + ACT, HIDDEN, 2)
        self.layers = nn.ParameterList()
        for n_in, n_out in itertools.pairwise(sizes):
            scale = 1 / np.sqrt(n_in)
            for shape in ((MEMBERS, n_in, n_out), (MEMBERS, 1, n_out)):
                drawn = (scale * rng.normal(size=shape)).astype(np.float32)
                self.layers.append(nn.Parameter(torch.from_numpy(drawn).double()))

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """The outputs of every member."""
        first, offset, last, bias = self.layers
        x = torch.cat([x.expand(MEMBERS, *x.shape[-2:]) for x in inputs], -1).clamp(-CLIP, CLIP)
        return nn.functional.silu(x @ first + offset) @ last + bias

    def arrays(self) -> Record:
        """The weights by the names of our leaves."""
        named = {}
        for number in range(2):
            weight, bias = self.layers[2 * number], self.layers[2 * number + 1][:, 0]
            named |= {f"networks/weights/{number}": weight, f"networks/biases/{number}": bias}
        return {key: x.detach().numpy().copy() for key, x in named.items()}


def rambo(kit: Kit) -> Record:
    policy, draws = kit.policy("mopo"), kit.draws
    model, outcome = members(kit), Outcome()
    optimisers = [
        torch.optim.Adam([p for p in part.parameters() if p.requires_grad], lr=RATE)
        for part in (model, outcome)
    ]
    adversarial = []

    def step() -> dict[str, float]:
        draws.queue = [0, 1]
        parts = halves(draws.call, BATCH // 2)
        given = policy.learn(parts)
        losses = model_losses(policy, model, outcome, draws, **parts)
        adversarial.append(losses[0].item())
        for optimiser, loss in zip(optimisers, losses, strict=True):
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        return given

    parts = {"change": of_members(model), "outcome": outcome.arrays()}
    record = {f"before/{part}/{key}": x for part, of in parts.items() for key, x in of.items()}
    record |= recorded(policy, step, draws)
    parts = {"change": of_members(model), "outcome": outcome.arrays()}
    record |= {f"after/{part}/{key}": x for part, of in parts.items() for key, x in of.items()}
    return record | {"loss/model": np.array(adversarial)}


def model_losses(
    policy: Any, model: Any, outcome: Outcome, draws: Draws, *, real: Any, fake: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """DEVIATION: RAMBO's step of the model, equations 8 to 10 of its paper, restated.

    The density is that of the observation alone, for the reward is predicted from it; next values
    are those of the target critics; the deviation is that of the batch; the model's own losses are
    sums over numbers and members; actions are sampled.
    """
    size = len(fake["rewards"])
    inputs = torch.cat([fake["observations"], fake["actions"]], -1)
    mean, log_variance = model(inputs.clamp(-CLIP, CLIP))
    std = torch.exp(log_variance / 2)
    uniform = draws.of(2, (size, 1), "uniform")[:, 0]
    chosen = ((uniform + 1) / 2 * MEMBERS).long().clamp(max=MEMBERS - 1), torch.arange(size)
    with torch.no_grad():
        change = mean[chosen] + std[chosen] * draws.of(3, (size, OBS))
        following = fake["observations"] + change
        answers = outcome(fake["observations"], fake["actions"], following)[chosen]
        draws.queue = [4]
        action, _ = policy.actforward(following)
        value, here = (
            torch.minimum(*(critic(obs, act) for critic in pair))
            for obs, act, pair in (
                (following, action, (policy.critic1_old, policy.critic2_old)),
                (fake["observations"], fake["actions"], (policy.critic1, policy.critic2)),
            )
        )
        advantage = answers[:, :1] + DISCOUNT * (answers[:, 1:] <= 0) * value - here
        advantage = advantage - advantage.mean()
        advantage = advantage / (advantage.square().mean().sqrt() + 1e-6)
    densities = torch.distributions.Normal(mean, std).log_prob(change).sum(-1)
    # Without the constant of the normal density, as ours.
    mixture = torch.logsumexp(densities, 0) - np.log(MEMBERS) + OBS * np.log(2 * np.pi) / 2
    against = (advantage[:, 0] * mixture).mean()
    truth = real["next_observations"] - real["observations"]
    inputs = torch.cat([real["observations"], real["actions"]], -1)
    mean, log_variance = model(inputs.clamp(-CLIP, CLIP))
    normal = torch.distributions.Normal(mean, torch.exp(log_variance / 2))
    fit = -normal.log_prob(truth).sum(-1).sum(0).mean()
    gap = torch.clamp(model.max_logvar - model.min_logvar, min=1).sum()
    answers = outcome(real["observations"], real["actions"], real["next_observations"])
    errors = (real["rewards"] - answers[..., :1]).square()[..., 0] / 2
    ended = real["terminals"].expand(MEMBERS, -1, 1)
    ends = nn.functional.binary_cross_entropy_with_logits(answers[..., 1:], ended, reduction="none")
    own = (errors + ends[..., 0]).sum(0).mean()
    return ADVERSARIAL * against + fit + BOUND * gap, own


if __name__ == "__main__":
    main()
