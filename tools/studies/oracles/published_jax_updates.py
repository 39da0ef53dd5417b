"""A hundred updates of published JAX code in float64, stored for the tests of neorl-agents.

ReBRAC by CORL's own functions, IQL by its authors' (which our variant `original` follows), XQL by
its authors'. Their losses, orders, targets and modules are imported and run as they are; only
`jax.tree_multimap`, which JAX no longer has, and the Gaussian of TensorFlow Probability, which no
longer loads beside it, are given by others. DEVIATION marks what is taken out because our
definition differs there on purpose.

In an environment of its own, with checkouts of `github.com/corl-team/CORL` at eeeeef2,
`github.com/ikostrikov/implicit_q_learning` at 09d7002 and `github.com/Div99/XQL` at dff09af:

    uv venv /tmp/jax
    uv pip install --python /tmp/jax/bin/python jax==0.10.2 flax==0.12.8 optax==0.2.8 chex
    /tmp/jax/bin/python tools/studies/oracles/published_jax_updates.py /tmp/CORL /tmp/IQL /tmp/XQL
"""

import argparse
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import flax
import jax
import jax.numpy as jnp
import numpy as np
import optax
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

LOG = draw_log()
RATE, DISCOUNT, TAU = 3e-4, 0.99, 0.005
Record = dict[str, np.ndarray]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corl", type=Path, help="checkout of CORL")
    parser.add_argument("iql", type=Path, help="checkout of implicit_q_learning")
    parser.add_argument("xql", type=Path, help="checkout of XQL")
    parser.add_argument("--out", type=Path, default=FIXTURES / "published_jax_updates.npz")
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    jax.tree_multimap = jax.tree.map
    stub_modules("d4rl", "gym", "pyrallis", "wandb", "tqdm", "tqdm.auto")
    stub_modules("tensorflow_probability", "tensorflow_probability.substrates")
    substrates = sys.modules["tensorflow_probability.substrates"]
    substrates.jax.distributions.MultivariateNormalDiag = Gaussian
    cases = {
        "rebrac": rebrac(imported(arguments.corl / "algorithms/offline", "rebrac")),
        "iql_original": iql(learners(arguments.iql)),
        "xql": xql(learners(arguments.xql / "offline")),
    }
    save(arguments.out, {}, cases, f"JAX {jax.__version__}, flax {flax.__version__}, float64")


class Gaussian:
    """In place of that of TensorFlow Probability, which does not load beside this JAX."""

    def __init__(self, loc: Any, scale_diag: Any) -> None:
        self.loc, self.scale = loc, scale_diag

    def log_prob(self, value: Any) -> Any:
        """Summed over the channels."""
        return jax.scipy.stats.norm.logpdf(value, self.loc, self.scale).sum(-1)


def learners(folder: Path) -> types.SimpleNamespace:
    """The modules of a checkout whose files import one another by short names."""
    names = ("common", "policy", "value_net", "actor", "critic", "learner")
    for name in names:
        sys.modules.pop(name, None)

    def compiled(function: Any, *, static_argnames: Any = ()) -> Any:
        # Their function that samples names an argument that it does not have; JAX refuses that now.
        known = [name for name in static_argnames if name != "distribution"]
        return jit(function, static_argnames=known)

    jit = jax.jit
    with patch.object(jax, "jit", compiled):
        return types.SimpleNamespace(**{name: imported(folder, name) for name in names})


def rows(call: int) -> dict[str, np.ndarray]:
    """The rows of one call in float64, observations standardised as CORL does."""
    obs = LOG["obs"].astype(np.float64)
    mean, scale = obs.mean(0), obs.std(0) + 1e-3
    batch = {name: LOG[name][LOG["chosen"][call]].astype(np.float64) for name in COLUMNS}
    return batch | {name: (batch[name] - mean) / scale for name in ("obs", "next_obs")}


COLUMNS = ("obs", "action", "reward", "next_obs", "next_action", "terminated")


def rounded(tree: Any) -> Any:
    """Weights with some of everything: no zero bias, short in the file."""
    rng = np.random.default_rng(4)

    def leaf(x: Any) -> Any:
        moved = np.asarray(x) + 0.1 * rng.normal(size=np.shape(x))
        return jnp.asarray(moved.astype(np.float32), jnp.float64)

    return jax.tree.map(leaf, tree)


def recorded(
    start: dict[str, Any], step: Callable[[dict[str, Any], int], Any], calls: int
) -> Record:
    """``start`` and what ``calls`` of ``step`` make of it; targets start where networks do."""
    state, losses = dict(start), {}
    for call in range(calls):
        state, info = step(state, call)
        for name, value in info.items():
            losses.setdefault(f"loss/{name}", []).append(float(np.mean(value)))
    record: Record = {}
    for when, trees in (("before", start), ("after", state)):
        for part, tree in trees.items():
            if when == "after" or not part.startswith("target_"):
                named = {f"{when}/{part}/{key}": x for key, x in laid_out(tree).items()}
                record |= {key: np.asarray(x) for key, x in named.items()}
    return record | {name: np.array(values) for name, values in losses.items()}


def laid_out(tree: dict[str, Any]) -> dict[str, Any]:
    """The arrays of one network by names that say where they stand."""
    if "Critic_1" in tree:
        both = [laid_out(tree[name]) for name in ("Critic_0", "Critic_1")]
        return {key: np.stack([one[key] for one in both]) for key in both[0]}
    if len(tree) == 1:
        return laid_out(*tree.values())
    if "log_stds" in tree:
        hidden = [tree["MLP_0"][f"Dense_{i}"] for i in range(2)]
        return {"log_std": tree["log_stds"]} | layers([*hidden, tree["Dense_0"]], "mean/")
    dense = [tree[f"Dense_{i}"] for i in range(sum(name.startswith("Dense") for name in tree))]
    named = layers(dense)
    for i in range(len(dense) - 1):
        if f"LayerNorm_{i}" in tree:
            norm = tree[f"LayerNorm_{i}"]
            named |= {f"gains/{i}": norm["scale"], f"shifts/{i}": norm["bias"]}
    return named


def layers(dense: list[Any], prefix: str = "") -> dict[str, Any]:
    named = {}
    for i, layer in enumerate(dense):
        named |= {f"{prefix}weights/{i}": layer["kernel"], f"{prefix}biases/{i}": layer["bias"]}
    return named


def rebrac(module: Any) -> Record:
    actor_module = module.DetActor(ACT, HIDDEN, layernorm=False)
    critic_module = module.EnsembleCritic(HIDDEN, 2)
    obs, action = jnp.zeros((1, OBS)), jnp.zeros((1, ACT))
    actor_weights = rounded(actor_module.init(jax.random.PRNGKey(0), obs))
    critic_weights = rounded(critic_module.init(jax.random.PRNGKey(1), obs, action))
    actor = module.ActorTrainState.create(
        apply_fn=actor_module.apply,
        params=actor_weights,
        target_params=actor_weights,
        tx=optax.adam(1e-3),
    )
    critic = module.CriticTrainState.create(
        apply_fn=critic_module.apply,
        params=critic_weights,
        target_params=critic_weights,
        tx=optax.adam(1e-3),
    )
    common = {"gamma": DISCOUNT, "actor_bc_coef": 0.3, "critic_bc_coef": 0.5, "tau": TAU}
    common |= {"policy_noise": 0.2, "noise_clip": 0.5}
    metrics = module.Metrics.create(
        ["critic_loss", "q_min", "actor_loss", "bc_mse_policy", "bc_mse_random", "action_mse"]
    )
    key = jax.random.PRNGKey(0)

    @jax.jit
    def update(actor: Any, critic: Any, batch: Any, drawn: Any, delayed: bool) -> Any:
        jax.random.normal = lambda key, shape, *dtype: drawn
        both = (key, actor, critic, batch)
        _, actor, critic, new = jax.lax.cond(
            delayed,
            lambda: module.update_td3(*both, metrics=metrics, normalize_q=True, **common),
            lambda: module.update_td3_no_targets(*both, metrics=metrics, **common),
        )
        return actor, critic, new.accumulators["critic_loss"][0]

    def step(state: dict[str, Any], call: int) -> Any:
        raw = rows(call)
        names = {"obs": "states", "action": "actions", "reward": "rewards", "next_obs":
                 "next_states", "next_action": "next_actions", "terminated": "dones"}  # fmt: skip
        batch = {names[name]: values for name, values in raw.items()}
        drawn = noise(LOG["normal"], call, 0, batch["actions"].shape)
        nonlocal actor, critic
        actor, critic, loss = update(actor, critic, batch, drawn, call % 2 == 1)
        return parts(), {"critic_loss": loss}

    def parts() -> dict[str, Any]:
        own = {"actor": actor.params["params"], "critics": critic.params["params"]}
        slow = {
            "target_actor": actor.target_params["params"],
            "target_critics": critic.target_params["params"],
        }
        return own | slow

    return recorded(parts(), step, 2 * UPDATES)


def models(code: Any) -> dict[str, Any]:
    """The networks of IQL's learner with our weights, and its optimisers."""
    policy = code.policy.NormalTanhPolicy(
        (HIDDEN, HIDDEN), ACT, log_std_scale=1e-3, log_std_min=-5.0,
        state_dependent_std=False, tanh_squash_distribution=False,
    )  # fmt: skip
    schedule = optax.cosine_decay_schedule(-RATE, UPDATES)
    falling = optax.chain(optax.scale_by_adam(), optax.scale_by_schedule(schedule))
    hidden, obs, action = (HIDDEN, HIDDEN), jnp.zeros((1, OBS)), jnp.zeros((1, ACT))
    described = {
        "actor": (policy, (obs,), falling),
        "critics": (code.value_net.DoubleCritic(hidden), (obs, action), optax.adam(RATE)),
        "value": (code.value_net.ValueCritic(hidden), (obs,), optax.adam(RATE)),
    }
    made = {}
    for name, (network, inputs, optimiser) in described.items():
        weights = rounded(network.init(jax.random.PRNGKey(0), *inputs)["params"])
        made[name] = code.common.Model(
            step=1, apply_fn=network, params=weights, tx=optimiser,
            opt_state=optimiser.init(weights),
        )  # fmt: skip
    return made | {"target_critics": made["critics"]}


def steps_of(code: Any, *settings: Any) -> Record:
    """A hundred calls of ``_update_jit``."""
    networks = models(code)

    def step(state: dict[str, Any], call: int) -> Any:
        batch = rows(call)
        columns = (batch["obs"], batch["action"], batch["reward"], 1 - batch["terminated"])
        given = code.common.Batch(*map(jnp.asarray, (*columns, batch["next_obs"])))
        order = ("actor", "critics", "value", "target_critics")
        _, *new, info = code.learner._update_jit(
            jax.random.PRNGKey(0), *(networks[name] for name in order), given, DISCOUNT, TAU,
            *settings,
        )  # fmt: skip
        networks.update(dict(zip(order, new, strict=True)))
        losses = {name: info[name] for name in ("value_loss", "actor_loss", "critic_loss")}
        return {name: model.params for name, model in networks.items()}, losses

    start = {name: model.params for name, model in networks.items()}
    return recorded(start, step, UPDATES)


def iql(code: Any) -> Record:
    return steps_of(code, 0.7, 3.0)


class Settings(types.SimpleNamespace):
    """What XQL reads from its command line, as a static argument of its compiled update."""

    __hash__ = object.__hash__


def xql(code: Any) -> Record:
    # DEVIATION: half of Huber's loss with width 20 for the critics; ours is the paper's square.
    code.critic.huber_loss = lambda x, delta: x**2
    off = {"sample_random_times": 0, "noise": False, "log_loss": False, "grad_pen": False}
    settings = Settings(num_v_updates=1, max_clip=7.0, **off)
    double, vanilla = True, False
    return steps_of(code, 0.7, 3.0, 2.0, double, vanilla, settings)


if __name__ == "__main__":
    main()
