"""Fine-tune IQL, Cal-QL and ReBRAC on simulated plants and compare before with after.

Usage:
    python tools/studies/tables/fine_tuning.py              cells without a result yet; all by default
    python tools/studies/tables/fine_tuning.py DMSD-v0      one plant
    python tools/studies/tables/fine_tuning.py DMSD-v0 --learners iql --ways log noiseless faster longer
    python tools/studies/tables/fine_tuning.py --table      print the table of the stored results

A cell is a plant, a learner, a way and a seed: offline training on a log of medium quality (one
ordinary tuning with its operators), then fine-tuning on the simulated plant behind its ranges and
rates. The plant's table, ``tools/studies/benchmarks/results/fine_tuning/PLANT.jsonl``, holds its returns of
the same fresh episodes before and after, the validations while it learned, what happened on the
plant, and whether the critics knew which of the policy's draws earn more. A cell that is there is
left out, so that whoever was interrupted goes on.

Ways: ``balanced``, half of every batch from the log; and controls: ``log`` trains on the log's rows
alone, ``noiseless`` tries IQL's policy without its noise, ``faster`` has critics and values that
follow faster, ``longer`` trains longer.
"""

import argparse
import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from scipy import stats

from cell_table import add_cell, read_table
from learner_settings import flat_settings, learner_with
from learning_table import penalised_data, prices
from neorl_agents import ALGORITHMS, IQL
from neorl_agents.networks import q_values
from neorl_core import Policy, as_arrays
from neorl_core.costs import penalised_reward
from neorl_core.infrastructure import keep_compiled_programs
from neorl_core.infrastructure.command_line import cache_directory
from neorl_envs import collect_log, make
from neorl_envs.recording import quality
from neorl_envs.scoring import score_episodes, scores
from neorl_safety.guards import guard
from neorl_train import fine_tune, train
from neorl_train.configuration import FineTuningConfig
from neorl_train.data import TrainingData
from neorl_train.judging import crossed_estimate, mean_estimates, plant_constraints
from neorl_train.training import Plan, Trained, Watcher, online_counts

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "tools/studies/benchmarks/results/fine_tuning"
ORDER = ("learner", "way", "seed")
PLANTS, LEARNERS, SEEDS = ("DMSD-v0", "CSTR-v0"), ("iql", "rebrac", "cal_ql"), (0, 1, 2)
SIZES: dict[str, Any] = {"hidden": (64, 64), "batch_size": 128}
CHUNK, STEPS, EPISODES, CURVE_EPISODES, LEVEL = 400, 20_000, 200, 32, 0.95
DRAWN, DISCOUNT = 1_000, 0.99  # episodes in which the critics are asked
SETTINGS = FineTuningConfig(environments=8, warm_up=1_000)


@dataclasses.dataclass(frozen=True)
class Way:
    """How a cell is made: updates, share of the log, noise of what is tried, hyperparameters."""

    offline: int = 10_000
    online: int = 8_000
    share: float = 0.5
    noise: bool = True
    changes: dict[str, float] = dataclasses.field(default_factory=dict)


WAYS = {
    "balanced": Way(),
    "log": Way(share=1.0),
    "noiseless": Way(noise=False),
    "faster": Way(changes={"tau": 0.05, "critic_learning_rate": 1e-3, "value_learning_rate": 1e-3}),
    "longer": Way(offline=60_000, online=40_000),
}


class Noiseless(IQL):
    """IQL that tries its mean."""

    def explore(self, state: Any) -> Any:
        """The policy with the least of noise."""
        policy = super().explore(state)
        return dataclasses.replace(policy, log_std=jnp.full_like(policy.log_std, -20.0))


def main() -> None:
    """Measures what is missing, then prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("plants", nargs="*", default=PLANTS)
    parser.add_argument("--learners", nargs="+", default=LEARNERS)
    parser.add_argument("--ways", nargs="+", default=("balanced",), choices=WAYS)
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    keep_compiled_programs(cache_directory())
    if not arguments.table:
        for seed in arguments.seeds:
            for plant in arguments.plants:
                for name in arguments.learners:
                    for way in arguments.ways:
                        path = RESULTS / f"{plant}.jsonl"
                        known = [[x[k] for k in ORDER] for x in read_table(path).cells]
                        if [name, way, seed] not in known:
                            measure(plant, name, way, seed, path)
    print(table())


def measure(plant: str, name: str, way: str, seed: int, path: Path) -> None:
    """One cell; it joins the table last."""
    how, env = WAYS[way], make(plant)
    kind: Any = ALGORITHMS[name] if how.noise else Noiseless
    learner = learner_with(kind, **SIZES, **how.changes)
    data = medium_log(env)
    offline = train(learner, data, (seed,), Plan(how.offline, CHUNK, how.offline))
    online, curve = tuned(env, learner, data, offline, how, seed)
    algorithm: Any = online.algorithm  # a dataclass, as all of ours
    reference = env.tunings()[env.reference]
    counts = online_counts(online)[0]
    states = {"before": offline.states()[0], "after": online.states()[0]}
    price = prices(env, env.spec.cost)
    result = {
        "plant": plant,
        "learner": name,
        "way": way,
        "seed": seed,
        "hyperparameters": flat_settings(algorithm),
        "settings": dataclasses.asdict(SETTINGS) | dataclasses.asdict(how),
        "log_rows": len(data.rows.obs),
        "before": scored(env, offline.policies[0], EPISODES, seed=1).tolist(),
        "after": scored(env, online.policies[0], EPISODES, seed=1).tolist(),
        "reference": scored(env, reference, EPISODES, seed=1).tolist(),
        "curve": curve,
        "curve_reference": float(scored(env, reference, CURVE_EPISODES, seed=7).mean()),
        "knowledge": {
            when: knowledge(env, learner_with(ALGORITHMS[name], **SIZES), state, price)
            for when, state in states.items()
        },
        "online": {field: np.asarray(value).tolist() for field, value in counts._asdict().items()},
    }
    add_cell(path, result, ORDER)
    gain = np.mean(result["after"]) - np.mean(result["before"])
    print(f"{plant} {name} {way} seed {seed}: gain {gain:+.2f}", flush=True)


def tuned(
    env: Any, learner: Any, data: TrainingData, offline: Trained, how: Way, seed: int
) -> tuple[Trained, list[float]]:
    """The fine-tuning, and the scores before it and at every quarter."""
    curve: list[float] = []

    def judged(policy: Policy) -> dict[str, jax.Array]:
        score = scored(env, policy, CURVE_EPISODES, seed=7).mean()
        return {"score": jnp.asarray(score)}

    class Curve(Watcher):
        def validated(self, step: int, metrics: list[dict[str, float]]) -> None:
            curve.append(metrics[0]["score"])

    curve.append(float(judged(offline.policies[0])["score"]))
    online = fine_tune(
        learner,
        offline.states(),
        data,
        env,
        (seed,),
        Plan(how.online, CHUNK, how.online // 4),
        settings=dataclasses.replace(SETTINGS, share=how.share),
        constraints=plant_constraints(env),
        watcher=Curve(),
        validate=judged,
    )
    return online, curve


def medium_log(env: Any) -> TrainingData:
    """A log of medium quality, with the plant's declared penalties taken off the reward."""
    who = quality(env, "medium")
    log = collect_log(env, who.controllers, plan=who.plan, n_steps=STEPS, key=jax.random.key(0))
    return penalised_data(env, log)


def scored(env: Any, policy: Policy, episodes: int, *, seed: int) -> np.ndarray:
    """Return less the declared penalties of every episode, behind the plant's ranges and rates."""
    reference = env.tunings()[env.reference]
    behind = guard(policy, plant_constraints(env), reference, env.spec)
    keys = jax.random.split(jax.random.key(seed), episodes)
    return scores(env, jax.device_get(score_episodes(env, behind, keys)))


def table() -> str:
    """Before, after, gain with intervals, regret, and what happened on the plant."""
    lines = [
        "| Plant | Learner | Way | Seeds | Reference | Before | After | Gain | of each seed "
        "| Regret | Rank correlation, before, after | Over a limit, trips, of episodes |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for plant in PLANTS:
        for name in LEARNERS:
            for way in WAYS:
                stored = read_table(RESULTS / f"{plant}.jsonl").cells
                cells = [x for x in stored if (x["learner"], x["way"]) == (name, way)]
                if cells:
                    lines.append(_line(plant, name, way, cells))
    return "\n".join(lines)


def _line(plant: str, name: str, way: str, cells: list[dict[str, Any]]) -> str:
    before, after = (np.array([cell[key] for cell in cells]) for key in ("before", "after"))
    reference = np.array([cell["reference"] for cell in cells])
    gain = _estimate(after - before)
    regret = np.mean([cell["curve_reference"] - np.mean(cell["curve"]) for cell in cells])
    known = (np.mean([cell["knowledge"][when] for cell in cells]) for when in ("before", "after"))
    episodes = sum(cell["online"]["episodes"] for cell in cells)
    broken = sum(sum(cell["online"]["violated"]) for cell in cells)
    trips = sum(cell["online"]["trips"] for cell in cells)
    entries = [
        plant,
        f"`{name}`",
        way,
        str(len(cells)),
        f"{reference.mean():.1f}",
        _words(_estimate(before)),
        _words(_estimate(after)),
        f"{gain.value:+.1f} [{gain.low:.1f}, {gain.high:.1f}]",
        ", ".join(f"{mean:+.1f}" for mean in (after - before).mean(axis=1)),
        f"{regret:.1f}",
        ", ".join(f"{mean:.2f}" for mean in known),
        f"{broken}, {trips}, of {episodes}",
    ]
    return f"| {' | '.join(entries)} |"


def _words(estimate: Any) -> str:
    return f"{estimate.value:.1f} [{estimate.low:.1f}, {estimate.high:.1f}]"


def _estimate(samples: np.ndarray) -> Any:
    if len(samples) > 1:
        return crossed_estimate(samples, level=LEVEL)
    return mean_estimates(samples.T, level=LEVEL)[0]


def knowledge(env: Any, learner: Any, state: Any, price: Float[Array, " cost"]) -> float:
    """Rank correlation of the critics' advantage of a draw with the one that the plant shows.

    After a third of an episode by the mean policy, one action is drawn from the exploring policy.
    What the draw earns more than the mean action is found by going on with the mean policy, from
    the same state and with the same noise, to the end of the episode; what the critics say is
    ``min_i Q_i(s, draw) - min_i Q_i(s, mean)``. One is right, zero is chance.

    Args:
        env: Simulated plant.
        learner: A learner with critics; its own discount is that of ``DISCOUNT``.
        state: Its state.
        price: Reward that one unit of each cost takes off.
    """
    explore, mean = learner.explore(state), learner.policy(state)
    keys = jax.random.split(jax.random.key(11), DRAWN)
    obs, drawn, usual, earned = jax.jit(_compared)(
        env, as_arrays(explore), as_arrays(mean), price, keys
    )
    maps, critics = as_arrays(state.preparation), as_arrays(state.parameters["critics"])
    obs = maps.obs.to_scaled(obs)
    drawn, usual = (maps.action.to_scaled(action) for action in (drawn, usual))
    of_draw, of_mean = (
        jnp.min(q_values(critics, obs, action), axis=0) for action in (drawn, usual)
    )
    correlation: Any = stats.spearmanr(np.asarray(of_draw - of_mean), np.asarray(earned))
    return float(correlation.statistic)


def _compared(
    env: Any, explore: Policy, mean: Policy, price: Float[Array, " cost"], keys: PRNGKeyArray
) -> tuple[Array, Array, Array, Array]:
    """Observations, draws, mean actions, and what the draws earned more."""
    return jax.vmap(lambda key: _drawn(env, explore, mean, price, key))(keys)


def _drawn(
    env: Any, explore: Policy, mean: Policy, price: Float[Array, " cost"], key: PRNGKeyArray
) -> tuple[Array, Array, Array, Array]:
    for_params, for_reset, for_steps, for_draw = jax.random.split(key, 4)
    params = env.sample_params(for_params)
    state, obs = env.reset(params, for_reset)
    horizon = env.spec.horizon
    keys = jax.random.split(for_steps, horizon)
    carry = (state, obs, jnp.asarray(True))

    def act(carry: Any, action: Array, key: PRNGKeyArray) -> tuple[Any, Array]:
        state, _, going = carry
        state, step = env.step(params, state, action, key)
        reward = jnp.where(going, penalised_reward(step.reward, step.cost, price), 0)
        return (state, step.final_obs, going & ~(step.terminated | step.truncated)), reward

    def go_on(carry: Any, key: PRNGKeyArray) -> tuple[Any, Array]:
        return act(carry, mean((), carry[1], key)[1], key)

    begin = horizon // 3
    carry, _ = jax.lax.scan(go_on, carry, keys[:begin])
    obs = carry[1]

    def earned(action: Array) -> Array:
        after, first = act(carry, action, keys[begin])
        _, later = jax.lax.scan(go_on, after, keys[begin + 1 :])
        return first + jnp.sum(later * DISCOUNT ** (1 + jnp.arange(len(later))))

    drawn, usual = explore((), obs, for_draw)[1], mean((), obs, for_draw)[1]
    return obs, drawn, usual, earned(drawn) - earned(usual)


if __name__ == "__main__":
    main()
