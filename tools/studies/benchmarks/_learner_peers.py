"""The contenders of ``learners.py``: a function that does some steps, and their number."""

import importlib
import importlib.machinery
import itertools
import sys
import types
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np

ROWS = 100_000
SIZES = {
    "industrial": {"obs": 12, "act": 3, "width": 64, "batch": 64},
    "d4rl": {"obs": 17, "act": 6, "width": 256, "batch": 256},
}
LEARNERS = {
    "bc": ("corl", "d3rlpy", "unifloral"),
    "td3_bc": ("corl", "d3rlpy", "unifloral"),
    "iql": ("corl", "d3rlpy", "unifloral"),
    "iql_corl": ("corl", "unifloral"),
    "awac": ("corl", "d3rlpy"),
    "cql": ("corl", "d3rlpy"),
    "rebrac": ("corl", "unifloral"),
    "sac_n": ("corl", "unifloral"),
    "edac": ("corl", "unifloral"),
}
"""Every learner with the peers that have it. IQL in CORL's form is theirs to the last pass; the
original, our default, has one more pass of the value, as it asks for it after its step."""

DEPTH = {name: 3 for name in LEARNERS} | dict.fromkeys(("bc", "td3_bc", "iql"), 2)
N_CRITICS, N_SAMPLES = 10, 10
OPTIONS: dict[str, dict[str, Any]] = {
    "iql_corl": {"variant": "corl"},
    "cql": {"n_samples": N_SAMPLES},
    "sac_n": {"n_critics": N_CRITICS},
    "edac": {"n_critics": N_CRITICS},
}
"""What ours are given besides their size."""
Work = tuple[Callable[[], Any], int]


def contender(peer: str, learner: str, size: dict[str, int], arguments: Any) -> Work:
    """A function that does some steps of one learner, and their number."""
    name = learner.removesuffix("_corl")
    return PEERS[peer](
        name, size, arguments, **(OPTIONS.get(learner, {}) if peer == "ours" else {})
    )


@cache
def columns(obs: int, act: int) -> dict[str, np.ndarray]:
    """Random rows by D4RL's names."""
    rng = np.random.default_rng(0)
    rows = {
        "observations": rng.normal(size=(ROWS, obs)),
        "actions": rng.uniform(-0.99, 0.99, size=(ROWS, act)),
        "rewards": rng.normal(size=ROWS),
        "next_observations": rng.normal(size=(ROWS, obs)),
        "terminals": np.arange(1, ROWS + 1) % 1000 == 0,
    }
    return {name: values.astype(np.float32) for name, values in rows.items()}


def steps_of_a_call(size: dict[str, int], arguments: Any) -> int:
    """So many that dispatch of a compiled scan does not count, and few enough for slow learners."""
    return 200 if size["width"] < 256 or arguments.device == "gpu" else 10


def ours(learner: str, size: dict[str, int], arguments: Any, **options: Any) -> Work:
    """A chunk of the training loop, which draws its batches from the log itself."""
    import jax
    import jax.numpy as jnp

    from neorl_agents import ALGORITHMS
    from neorl_agents.learning import Log, Networks, Steps, begin_training, train_chunk
    from neorl_core import as_arrays

    networks = Networks(hidden=(size["width"],) * DEPTH[learner])
    plain = ALGORITHMS[learner](networks=networks, steps=Steps(batch_size=size["batch"]), **options)
    spec, log, statistics = _log(size)
    unread = {name: None for name in log._fields if name not in plain.fields}
    tables = jax.tree.map(jnp.asarray, plain.sampler.tables(log._replace(**unread)))
    key, arrays = jax.random.key(0), as_arrays(plain)
    state = plain.init(spec, statistics, key)
    held: list[Any] = [begin_training(arrays, Log(), state, tables, key), 0]
    steps = steps_of_a_call(size, arguments)
    updates = steps // plain.batches_per_update

    def work() -> None:
        first = jnp.int32(held[1])
        held[0], metrics = train_chunk(
            arrays, Log(), held[0], tables, first, key, n_updates=updates
        )
        held[1] += updates
        jax.block_until_ready((held[0], metrics))

    return work, steps


def _log(size: dict[str, int]) -> tuple[Any, Any, Any]:
    """Specification, the rows as ours reads them, and the statistics that it asks for."""
    from neorl_core import Channel, DataStatistics, FieldStatistics, Spec, Transition

    rows: dict[str, Any] = dict(columns(size["obs"], size["act"]))
    none: Any = np.zeros(ROWS, bool)
    log = Transition(
        rows["observations"],
        rows["actions"],
        rows["rewards"],
        cost=rows["rewards"][:, None][:, :0],
        next_obs=rows["next_observations"],
        next_action=np.roll(rows["actions"], -1, axis=0),
        terminated=rows["terminals"] > 0,
        truncated=none,
    )
    spec = Spec(
        obs=tuple(Channel(f"x{i}", "1", -5.0, 5.0) for i in range(size["obs"])),
        action=tuple(Channel(f"u{i}", "1", -1.0, 1.0) for i in range(size["act"])),
        cost=(),
        dt=1.0,
        horizon=1000,
    )

    def summary(x: Any) -> Any:
        return FieldStatistics(np.float32(len(x)), x.mean(0), x.std(0), x.min(0), x.max(0))  # pyright: ignore[reportArgumentType]

    one = summary(np.ones(2, np.float32))
    obs, action, reward = (summary(x) for x in (log.obs, log.action, log.reward))
    return spec, log, DataStatistics(obs, action, reward, one, one, one)


def corl(learner: str, size: dict[str, int], arguments: Any) -> Work:
    """CORL's own step on batches of its own buffer."""
    stub_modules("d4rl", "gym", "pyrallis", "wandb", "tqdm", "tqdm.auto")
    if learner == "rebrac":
        module = imported(arguments.corl / "algorithms/offline", "rebrac")
        return _corl_rebrac(module, size, arguments)
    import torch  # pyright: ignore[reportMissingImports]

    torch.set_num_threads(1)
    device = "cuda" if arguments.device == "gpu" else "cpu"
    torch.set_default_device(device)  # Networks and their noise; rows and constants are told below.
    name = "any_percent_bc" if learner == "bc" else learner
    module = imported(arguments.corl / "algorithms/offline", name)
    buffer = module.ReplayBuffer(size["obs"], size["act"], ROWS, device)
    buffer.load_d4rl_dataset(columns(size["obs"], size["act"]))
    train = _corl_step(module, learner, size)
    return lambda: train(buffer.sample(size["batch"])), 1


def _corl_step(module: Any, learner: str, size: dict[str, int]) -> Callable[[Any], Any]:
    obs, act, width = size["obs"], size["act"], size["width"]
    if learner in ("bc", "td3_bc", "cql"):
        return _corl_wide(module, learner, size)
    if learner == "iql":
        actor = module.GaussianPolicy(obs, act, 1.0, width)
        q, value = module.TwinQ(obs, act, width), module.ValueFunction(obs, width)
        parts = (actor, _adam(actor), q, _adam(q), value, _adam(value))
        return _on_its_device(module.ImplicitQLearning, 1.0, *parts).train
    if learner == "awac":
        actor = module.Actor(obs, act, width)
        critics = [module.Critic(obs, act, width) for _ in range(2)]
        return module.AdvantageWeightedActorCritic(actor, _adam(actor), *_pairs(critics)).update
    actor = module.Actor(obs, act, width)
    critic = module.VectorizedCritic(obs, act, width, N_CRITICS)
    kind = module.EDAC if learner == "edac" else module.SACN
    return _on_its_device(kind, actor, _adam(actor), critic, _adam(critic)).update


def _corl_wide(module: Any, learner: str, size: dict[str, int]) -> Callable[[Any], Any]:
    """Where a width of 256 stands in CORL's networks, their layers are put in its place."""
    import torch  # pyright: ignore[reportMissingImports]

    obs, act, width = size["obs"], size["act"], size["width"]

    def layers(inputs: int, outputs: int, *last: Any) -> Any:
        widths = [inputs, *[width] * DEPTH[learner]]
        inner = [
            layer
            for a, b in itertools.pairwise(widths)
            for layer in (torch.nn.Linear(a, b), torch.nn.ReLU())
        ]
        return torch.nn.Sequential(*inner, torch.nn.Linear(width, outputs), *last)

    if learner == "cql":
        actor = module.TanhGaussianPolicy(obs, act, 1.0)
        actor.base_network = layers(obs, 2 * act)
        critics = [module.FullyConnectedQFunction(obs, act) for _ in range(2)]
        for critic in critics:
            critic.network = layers(obs + act, 1)
        options = {"bc_steps": 0, "cql_alpha": 10.0, "cql_n_actions": N_SAMPLES}
        given = (*_pairs(critics), actor, _adam(actor, 3e-5), -float(act))
        return _on_its_device(module.ContinuousCQL, *given, **options).train
    actor = module.Actor(obs, act, 1.0)
    actor.net = layers(obs, act, torch.nn.Tanh())
    if learner == "bc":
        return _on_its_device(module.BC, 1.0, actor, _adam(actor)).train
    critics = [module.Critic(obs, act) for _ in range(2)]
    for critic in critics:
        critic.net = layers(obs + act, 1)
    return _on_its_device(module.TD3_BC, 1.0, actor, _adam(actor), *_pairs(critics)).train


def _on_its_device(kind: Any, *parts: Any, **options: Any) -> Any:
    """One of CORL's trainers, whose constants are created on the device of its networks."""
    import torch  # pyright: ignore[reportMissingImports]

    return kind(*parts, device=str(torch.get_default_device()), **options)


def _adam(network: Any, rate: float = 3e-4) -> Any:
    import torch  # pyright: ignore[reportMissingImports]

    return torch.optim.Adam(network.parameters(), lr=rate)


def _pairs(critics: list[Any]) -> list[Any]:
    return [part for critic in critics for part in (critic, _adam(critic))]


def _corl_rebrac(module: Any, size: dict[str, int], arguments: Any) -> Work:
    """Pairs of its two updates in a scan; its training loop chooses between them by a condition."""
    import jax
    import jax.numpy as jnp
    import optax

    rows = columns(size["obs"], size["act"])
    names = {"states": "observations", "rewards": "rewards", "next_states": "next_observations"}
    data = {ours: jnp.asarray(rows[theirs]) for ours, theirs in names.items()}
    data |= {"actions": jnp.asarray(rows["actions"]), "dones": jnp.asarray(rows["terminals"])}
    data["next_actions"] = jnp.roll(data["actions"], -1, axis=0)
    actor_net = module.DetActor(size["act"], size["width"], layernorm=False)
    critic_net = module.EnsembleCritic(size["width"], 2)
    key = jax.random.PRNGKey(0)
    obs, act = data["states"][:1], data["actions"][:1]
    made: list[Any] = [(actor_net, (obs,), module.ActorTrainState)]
    made.append((critic_net, (obs, act), module.CriticTrainState))
    states = []
    for network, inputs, kind in made:
        weights = network.init(key, *inputs)
        optimiser = optax.adam(1e-3)
        states.append(
            kind.create(apply_fn=network.apply, params=weights, target_params=weights, tx=optimiser)
        )
    metrics = module.Metrics.create(
        ["critic_loss", "q_min", "actor_loss", "bc_mse_policy", "bc_mse_random", "action_mse"]
    )
    common = {"gamma": 0.99, "actor_bc_coef": 0.01, "critic_bc_coef": 0.01, "tau": 0.005}
    common |= {"policy_noise": 0.2, "noise_clip": 0.5}
    steps = steps_of_a_call(size, arguments)

    def pair(carry: Any, _: None) -> Any:
        key, actor, critic, metrics, data = carry
        for update, more in (
            (module.update_td3_no_targets, {}), (module.update_td3, {"normalize_q": True})
        ):  # fmt: skip
            key, batch_key = jax.random.split(key)
            index = jax.random.randint(batch_key, (size["batch"],), 0, ROWS)
            batch = {name: column[index] for name, column in data.items()}
            both = (key, actor, critic, batch)
            key, actor, critic, metrics = update(*both, metrics=metrics, **common, **more)
        return (key, actor, critic, metrics, data), None

    block = jax.jit(lambda carry: jax.lax.scan(pair, carry, length=steps // 2)[0])
    held = [(key, *states, metrics, data)]

    def work() -> None:
        held[0] = jax.block_until_ready(block(held[0]))

    return work, steps


def d3rlpy(learner: str, size: dict[str, int], arguments: Any) -> Work:
    """Its own update on batches of its own dataset."""
    import torch  # pyright: ignore[reportMissingImports]

    library = importlib.import_module("d3rlpy")
    torch.set_num_threads(1)
    rows = columns(size["obs"], size["act"])
    dataset = library.dataset.MDPDataset(
        rows["observations"], rows["actions"], rows["rewards"][:, None], rows["terminals"]
    )
    layers = library.models.VectorEncoderFactory([size["width"]] * DEPTH[learner])
    encoders = ["encoder_factory"] if learner == "bc" else ["actor", "critic"]
    options = {"encoder_factory": layers}
    if encoders[0] == "actor":
        options = {f"{name}_encoder_factory": layers for name in encoders}
    if learner == "iql":
        options["value_encoder_factory"] = layers
    if learner == "cql":
        options |= {"alpha_learning_rate": 0.0, "n_action_samples": N_SAMPLES}
    name = {"bc": "BC", "td3_bc": "TD3PlusBC", "iql": "IQL", "awac": "AWAC", "cql": "CQL"}[learner]
    config = getattr(library.algos, f"{name}Config")(batch_size=size["batch"], **options)
    algorithm = config.create(device="cuda:0" if arguments.device == "gpu" else "cpu")
    algorithm.build_with_dataset(dataset)
    return lambda: algorithm.update(dataset.sample_transition_batch(size["batch"])), 1


def unifloral(learner: str, size: dict[str, int], arguments: Any) -> Work:
    """A scan over its own training step, two critic steps of which are one of TD3's kind."""
    import flax.linen  # pyright: ignore[reportMissingImports]
    import jax
    import jax.numpy as jnp

    stub_modules("d4rl", "gym", "tyro", "wandb")
    module = imported(arguments.unifloral / "algorithms", learner)
    dense = flax.linen.Dense

    def layer(features: int, **more: Any) -> Any:
        return dense(size["width"] if features == 256 else features, **more)

    module.nn = types.SimpleNamespace(**(vars(flax.linen) | {"Dense": layer}))
    rows = columns(size["obs"], size["act"])
    data = {"obs": rows["observations"], "action": rows["actions"], "reward": rows["rewards"]}
    data |= {"next_obs": rows["next_observations"], "done": rows["terminals"]}
    data["next_action"] = np.roll(rows["actions"], -1, axis=0)
    dataset = module.Transition(**{n: jnp.asarray(data[n]) for n in module.Transition._fields})
    args = module.Args(batch_size=size["batch"])
    state, step = _unifloral_step(module, args, learner, size, dataset)
    steps = steps_of_a_call(size, arguments)
    calls = steps // (2 if learner in ("td3_bc", "rebrac") else 1)
    block = jax.jit(lambda carry: jax.lax.scan(step, carry, None, calls))
    held = [(jax.random.PRNGKey(1), state)]

    def work() -> None:
        held[0], _ = jax.block_until_ready(block(held[0]))

    return work, steps


def _unifloral_step(
    module: Any, args: Any, learner: str, size: dict[str, int], dataset: Any
) -> tuple[Any, Any]:
    """The agent's state and its step, put together as its script does."""
    import jax
    import jax.numpy as jnp

    moments = (dataset.obs.mean(axis=0), dataset.obs.std(axis=0))
    obs, act = jnp.zeros(size["obs"]), jnp.zeros(size["act"])
    networks: dict[str, tuple[Any, list[Any]]] = {}
    if learner in ("sac_n", "edac"):
        networks["actor"] = (module.TanhGaussianActor(size["act"]), [obs])
        networks["vec_q"] = (module.VectorQ(N_CRITICS), [obs, act])
        networks["alpha"] = (module.EntropyCoef(), [])
    elif learner == "rebrac":
        flags = (args.actor_ln, args.norm_obs)
        networks["actor"] = (module.DeterministicTanhActor(size["act"], *moments, *flags), [obs])
        critic = module.DualQNetwork(*moments, args.critic_ln, args.norm_obs)
        networks["dual_q"] = (critic, [obs, act])
    else:
        kind = "TanhGaussianActor" if learner == "iql" else "DeterministicTanhActor"
        networks["actor"] = (getattr(module, kind)(size["act"], *moments), [obs])
        if learner != "bc":
            networks["dual_q"] = (module.DualQNetwork(*moments), [obs, act])
        if learner == "iql":
            networks["value"] = (module.StateValueFunction(*moments), [obs])
    key = jax.random.PRNGKey(0)
    states = {
        name: module.create_train_state(args, key, *networks[name.removesuffix("_target")])
        for name in module.AgentTrainState._fields
    }
    applied = [network.apply for network, _ in networks.values()]
    return module.AgentTrainState(**states), module.make_train_step(args, *applied, dataset)


def stub_modules(*names: str) -> None:
    """Modules that the code of others imports and this run does not need."""
    for name in names:
        if name not in sys.modules:
            module = MagicMock(name=name)
            module.__spec__ = importlib.machinery.ModuleSpec(name, None)
            sys.modules[name] = module


def imported(folder: Path, name: str) -> Any:
    """A module of a checkout; named after its folder's neighbours, so not kept under its name."""
    if not (folder / f"{name}.py").is_file():
        raise FileNotFoundError(f"no {name}.py in {folder}; see the head of learners.py")
    path = str(folder)
    sys.path.insert(0, path)
    try:
        sys.modules.pop(name, None)
        return importlib.import_module(name)
    finally:
        sys.path.remove(path)


PEERS: dict[str, Callable[[str, dict[str, int], Any], Work]] = {
    "ours": ours,
    "corl": corl,
    "d3rlpy": d3rlpy,
    "unifloral": unifloral,
}
