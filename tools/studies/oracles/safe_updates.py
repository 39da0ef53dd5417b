"""A hundred updates of CPQ, COptiDICE and FISOR in float64, stored for neorl-agents' tests.

CPQ and COptiDICE of OSRL and FISOR of its authors are imported and run; DEVIATION marks what is
taken out because our definitions differ there on purpose. Of FISOR everything is theirs except the
network of the actor: the weights of its regression are read from the gradient of their loss, and a
Gaussian takes the place of their diffusion model. In an environment of its own, with checkouts of
`github.com/liuzuxin/OSRL` at 03a4586 and `github.com/ZhengYinan-AIR/FISOR` at 2097e8b:

    uv venv /tmp/both
    uv pip install --python /tmp/both/bin/python torch==2.13.0 jax==0.10.2 flax==0.12.8 optax==0.2.8
    /tmp/both/bin/python tools/studies/oracles/safe_updates.py /tmp/OSRL /tmp/FISOR
"""

import argparse
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import constrained_updates as shared
import flax
import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
from _updates import ACT, BATCH, FIXTURES, HIDDEN, OBS, UPDATES, imported, save, stub_modules
from constrained_updates import HORIZON, LIMIT, Record, ensemble, linears, stacked
from published_jax_updates import laid_out, rounded
from torch import nn

RATE, SAMPLES, WIDE_LIMIT = 3e-4, 4, 0.5
"""By this limit actions are safe at first, then some of them, and none in the end."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("osrl", type=Path, help="checkout of OSRL")
    parser.add_argument("fisor", type=Path, help="checkout of FISOR")
    parser.add_argument("--out", type=Path, default=FIXTURES / "safe_updates.npz")
    arguments = parser.parse_args()
    torch.set_default_dtype(torch.float64)
    jax.config.update("jax_enable_x64", True)
    stub_modules("fsrl", "fsrl.utils", "gymnasium", "tqdm", "tqdm.auto", "gym", "gym.utils")
    shared.LOG["cost"] = shared.costs()
    algorithms = "osrl/algorithms"
    cases = {
        "cpq": cpq(shared.at_root(arguments.osrl, algorithms, "cpq")),
        "coptidice": coptidice(shared.at_root(arguments.osrl, algorithms, "coptidice")),
        "fisor": fisor(imported(arguments.fisor, "jaxrl5.agents.fisor.fisor")),
    }
    origin = f"OSRL 03a4586, FISOR 2097e8b, torch {torch.__version__}, JAX {jax.__version__}"
    save(arguments.out, {}, cases, f"{origin}, flax {flax.__version__}, float64")


def cpq(code: Any) -> Record:
    torch.manual_seed(0)
    sizes = [HIDDEN, HIDDEN]
    model = code.CPQ(
        OBS, ACT, 1.0, sizes, sizes, HIDDEN, SAMPLES, beta=0.5, num_q=2, num_qc=2,
        cost_limit=WIDE_LIMIT, episode_len=HORIZON,
    )  # fmt: skip
    shared.rounded(model.actor, model.critic, model.cost_critic, model.vae)
    for name in ("critic", "cost_critic"):
        setattr(model, f"{name}_old", code.deepcopy(getattr(model, name)))
    larger(model.cost_critic)
    larger(model.cost_critic_old)
    model.setup_optimizers(1e-4, 1e-3, 1e-4, 1e-3)
    draws, losses = shared.Draws(), shared.Losses()
    torch.randn_like = lambda like: draws.next(like.shape)  # type: ignore[assignment]
    torch.distributions.normal._standard_normal = lambda shape, **_: draws.next(shape)

    def named(when: str) -> Record:
        vae, own = model.vae, model.actor
        parts: dict[str, Record] = {
            "encoder": stacked([vae.e1, vae.e2, (vae.mean, vae.log_std)]),
            "decoder": stacked([vae.d1, vae.d2, vae.d3]),
            "actor": stacked([*linears(own.net), (own.mu_layer, own.log_std_layer)]),
            "critics": ensemble(*model.critic.q_nets),
            "cost_critics": ensemble(*model.cost_critic.q_nets),
        }
        if when == "after":
            parts["target_critics"] = ensemble(*model.critic_old.q_nets)
            parts["target_cost_critics"] = ensemble(*model.cost_critic_old.q_nets)
        flat = {f"{when}/{part}/{key}": x for part, of in parts.items() for key, x in of.items()}
        return flat | {f"{when}/log_penalty": np.array([float(model.log_alpha)])}

    record = named("before")
    for draws.call in range(UPDATES):
        obs, next_obs, action, reward, cost, done = shared.batch(draws.call)
        draws.number = 0
        losses.store(**model.vae_loss(obs, action)[1])
        draws.number = 3
        losses.store(**model.critic_loss(obs, next_obs, action, reward, done)[1])
        loss = penalised_step(model, draws, obs, next_obs, action, cost, done)
        losses.store(**{"loss/cost_loss": loss})
        draws.number = 4
        losses.store(**model.actor_loss(obs)[1])
        model.sync_weight()
    return record | named("after") | shared.logged(losses)


def larger(critic: Any) -> None:
    """DEVIATION: of two values of a cost the larger counts."""

    def predict(obs: torch.Tensor, action: torch.Tensor) -> Any:
        values = critic(obs, action)
        return torch.max(*values), values

    critic.predict = predict


def penalised_step(
    model: Any,
    draws: Any,
    obs: torch.Tensor,
    next_obs: torch.Tensor,
    action: torch.Tensor,
    cost: torch.Tensor,
    done: torch.Tensor,
) -> float:
    """DEVIATION: the step of cost critics and penalty as the paper has it, restated.

    In OSRL's no gradient reaches the critics through the penalised values, which are those of the
    target, of actions that are not squashed, and averaged over all actions with zero for those of
    the log; and costs go on behind a termination.
    """
    with torch.no_grad():
        draws.number = 2
        following = model.cost_critic_old.predict(next_obs, model._actor_forward(next_obs)[0])[0]
        target = cost + model.gamma * (1 - done) * following
        normal = model.actor(obs, True, True, True)[2]
        draws.number = 1
        noise = draws.next((BATCH, SAMPLES, ACT)).transpose(0, 1)
        actions = torch.tanh(normal.mean + normal.stddev * noise).reshape(-1, ACT)
        again = obs.repeat(SAMPLES, 1)
        _, mean, std = model.vae(again, actions)
        divergence = (mean**2 + std**2 - 1 - 2 * torch.log(std)).mean(1) / 2
        unusual = divergence >= torch.quantile(divergence, 0.75)
    excess = model.cost_critic.predict(again, actions)[0][unusual].mean() - model.qc_thres
    penalty = model.log_alpha.exp()
    loss = model.cost_critic.loss(target, model.cost_critic(obs, action)) - penalty * excess
    model.cost_critic_optim.zero_grad()
    loss.backward()
    model.cost_critic_optim.step()
    model.log_alpha = (model.log_alpha - model.alpha_lr * penalty * excess.detach()).clamp(-5, 5)
    return loss.item()


def coptidice(code: Any) -> Record:
    torch.manual_seed(0)
    sizes = [HIDDEN, HIDDEN]
    # DEVIATION: no bound on the cost, episodes that begin in all states, rows without noise.
    model = code.COptiDICE(
        OBS, ACT, 1.0, "softchi", 1.0, np.zeros(OBS), np.zeros(ACT), sizes, sizes,
        cost_ub_epsilon=0, cost_limit=LIMIT, episode_len=HORIZON,
    )  # fmt: skip
    # DEVIATION: the threshold of one step.
    model.qc_thres = LIMIT / HORIZON
    # DEVIATION: multipliers are cut at zero, and theirs are a soft-plus.
    code.F = SimpleNamespace(relu=torch.relu, softplus=lambda x: x)
    model.lmbda = torch.full((1,), 0.25, requires_grad=True)
    model.actor = Gaussian()
    shared.rounded(model.actor, model.nu_network)
    corrections = model._optimal_w
    # DEVIATION: the weights of the regression are those before the step, as in the authors' code.
    kept: list[Any] = []

    def once(*rows: torch.Tensor) -> Any:
        first = len(kept) % 2 == 0
        kept.append(corrections(*rows) if first else tuple(x.detach() for x in kept[-1]))
        return kept[-1]

    model._optimal_w = once
    losses = shared.Losses()
    trainer = code.COptiDICETrainer(model, None, losses, RATE, RATE, RATE)

    def named(when: str) -> Record:
        of = {"nu": stacked(linears(model.nu_network)), "actor/mean": stacked(linears(model.actor))}
        flat = {f"{when}/{part}/{key}": x for part, named in of.items() for key, x in named.items()}
        log_std, price = (x.detach().numpy().copy() for x in (model.actor.log_std, model.lmbda))
        return flat | {f"{when}/actor/log_std": log_std, f"{when}/multipliers": price}

    torch.randn_like = lambda like: torch.zeros(like.shape)  # type: ignore[assignment]
    record = named("before")
    for call in range(UPDATES):
        rows = shared.batch(call)
        trainer.train_one_step((*rows, torch.ones(BATCH)))
        model.lmbda.data.clamp_(min=0)
    return record | named("after") | shared.logged(losses)


class Gaussian(nn.Module):
    """DEVIATION: theirs scores logged actions before the tanh by which the policy acts."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = shared.perceptron(OBS, ACT, nn.Tanh())
        self.log_std = nn.Parameter(torch.zeros(ACT))

    def forward(self, obs: torch.Tensor, *_: bool) -> Any:
        """Nothing, nothing and the distribution of the action."""
        deviation = self.log_std.clamp(-5, 2).exp()
        return None, None, torch.distributions.Normal(self.mean(obs), deviation)


def fisor(code: Any) -> Record:
    code.get_weight_decay_mask = lambda weights: jax.tree.map(lambda _: True, weights)
    jax.random.normal = lambda key, shape: jnp.zeros(shape)
    spaces = (SimpleNamespace(shape=(n,), sample=lambda n=n: np.zeros(n)) for n in (OBS, ACT))
    agent = code.FISOR.create(
        0, *spaces, critic_hidden_dims=(HIDDEN, HIDDEN), critic_hyperparam=0.9,
        cost_critic_hyperparam=0.9, cost_temperature=5.0, cost_ub=150.0,
        actor_objective="feasibility",
    )  # fmt: skip
    # Their loss is the mean over two critics, half of ours; by half of Adam's offset the step is
    # the same.
    half = optax.adam(RATE, eps=0.5e-8)
    for name, slow in (("critic", "target_critic"), ("safe_critic", "safe_target_critic")):
        weights = rounded(getattr(agent, name).params)
        fast = getattr(agent, name).replace(params=weights, tx=half, opt_state=half.init(weights))
        agent = agent.replace(**{name: fast, slow: getattr(agent, slow).replace(params=weights)})
    for name in ("value", "safe_value"):
        network = getattr(agent, name)
        weights = rounded(network.params)
        network = network.replace(params=weights, opt_state=network.tx.init(weights))
        agent = agent.replace(**{name: network})

    # One number a row in place of the diffusion model: the square of what their actor's loss
    # weighs, so that the gradient of their loss gives the weight.
    def weighed(weights: Any, *_: Any, **__: Any) -> Any:
        return jnp.pad(weights["params"]["rows"], ((0, 0), (0, ACT - 1)))

    ones = {"rows": jnp.ones((BATCH, 1))}
    probe = code.TrainState.create(apply_fn=weighed, params=ones, tx=optax.sgd(1.0))
    rng = np.random.default_rng(8)
    shapes = [(OBS, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, ACT)]
    drawn = {f"mean/weights/{i}": rng.normal(size=shape) / 3 for i, shape in enumerate(shapes)}
    drawn |= {f"mean/biases/{i}": rng.normal(size=shape[1]) / 9 for i, shape in enumerate(shapes)}
    actor = jax.tree.map(lambda x: jnp.asarray(np.float32(x), float), drawn)
    actor["log_std"] = jnp.zeros(ACT)
    adam = optax.adam(RATE)

    @jax.jit
    def update(agent: Any, actor: Any, moments: Any, rows: Any) -> Any:
        agent, of_value = code.FISOR.update_vc(agent, rows)
        agent, more = code.FISOR.update_v(agent, rows)
        # DEVIATION: theirs moves the actor first, by the values from before their steps.
        probed, _ = code.FISOR.update_actor(
            agent.replace(score_model=probe, target_score_model=probe), rows
        )
        weights = (1 - probed.score_model.params["rows"][:, 0]) * BATCH / 2
        agent, of_critic = code.FISOR.update_qc(agent, rows)
        agent, last = code.FISOR.update_q(agent, rows)
        loss, slopes = jax.value_and_grad(regression)(actor, rows, weights)
        steps, moments = adam.update(slopes, moments)
        losses = {"actor_loss": loss, "weighted_rows": (weights > 0).mean()}
        losses |= of_value | more | {name: 2 * x for name, x in (of_critic | last).items()}
        return agent, optax.apply_updates(actor, steps), moments, losses

    record, losses, moments = of_fisor(agent, actor, "before"), shared.Losses(), adam.init(actor)
    for call in range(UPDATES):
        rows = dict(zip(COLUMNS, (x.numpy() for x in shared.batch(call)), strict=True))
        rows["masks"] = 1 - rows["masks"]
        # A violation is a cost above the even share of the limit; theirs is any cost.
        rows["costs"] = np.where(rows["costs"] > LIMIT / HORIZON, 25.0, -1.0)
        agent, actor, moments, info = update(agent, actor, moments, rows)
        losses.store(**{f"loss/{name}": x for name, x in info.items() if name in LOSSES})
    return record | of_fisor(agent, actor, "after") | shared.logged(losses)


LOSSES = (
    "safe_value_loss", "safe_critic_loss", "value_loss", "critic_loss", "actor_loss",
    "weighted_rows",
)  # fmt: skip
COLUMNS = ("observations", "next_observations", "actions", "rewards", "costs", "masks")


def regression(actor: dict[str, Any], rows: dict[str, Any], weights: Any) -> Any:
    """DEVIATION: the weighted likelihood of a Gaussian around a tanh."""
    x = rows["observations"]
    for i in range(3):
        x = x @ actor[f"mean/weights/{i}"] + actor[f"mean/biases/{i}"]
        x = jnp.tanh(x) if i == 2 else jax.nn.relu(x)
    deviation = jnp.exp(jnp.clip(actor["log_std"], -5, 2))
    likelihood = jax.scipy.stats.norm.logpdf(rows["actions"], x, deviation).sum(-1)
    return -(weights * likelihood).mean()


def of_fisor(agent: Any, actor: Any, when: str) -> Record:
    """The arrays of all networks by the names of ours."""
    parts = {"critics": agent.critic, "cost_critics": agent.safe_critic}
    parts |= {"value": agent.value, "cost_value": agent.safe_value}
    if when == "after":
        parts |= {"target_critics": agent.target_critic}
        parts |= {"target_cost_critics": agent.safe_target_critic}
    record = {f"{when}/actor/{key}": np.asarray(x) for key, x in actor.items()}
    for part, network in parts.items():
        inner = network.params
        while "MLP_0" not in inner:
            (inner,) = inner.values()
        last = next(value for name, value in inner.items() if name != "MLP_0")
        arrays = laid_out(inner["MLP_0"] | {"Dense_2": last})
        record |= {f"{when}/{part}/{key}": np.asarray(x) for key, x in arrays.items()}
    return record


if __name__ == "__main__":
    main()
