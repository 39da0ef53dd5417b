"""Graph policies trained on LoadBalance, beside random and greedy moves and diffusion.

    python tools/studies/tables/graphs/load_balance.py

Trains every learner with every seed on the graph of the source (14 nodes, chance of a link 0.35,
seed 7: 82 directed links), and on one whose links and nodes change; judges all on the same fresh
episodes, and writes one JSON file a plant into ``tools/studies/baselines/graph``. A learner that is there
already with as many updates is not trained again. ``--show`` prints the tables.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neorl_agents import PPO, Reinforce
from neorl_agents.learning import Networks
from neorl_core.infrastructure import write_json
from neorl_envs.graph_plants import LoadBalance, diffusion_rewards, load_balance
from neorl_train import train_online
from neorl_train.configuration import OnlineConfig
from neorl_train.training import Plan

OUT = Path(__file__).parents[2] / "baselines" / "graph"
EPISODES, ENVIRONMENTS = 500, 32
PLANTS: dict[str, LoadBalance] = {
    "source": load_balance(14, edge_prob=0.35, seed=7),
    "changing": load_balance(14, edge_prob=0.35, change=0.05, fewest=8),
}
PUBLISHED = {
    "random": -105.3, "greedy": -61.6, "trained, sampled": -104.9, "trained, arg-max": -136.0,
}  # fmt: skip
"""Returns measured in the source's own program on this graph; its spread goes from 0.289 to 0.154
both at random and trained."""


def ppo(kind: str) -> PPO:
    """PPO with another discount, trace and rate than its defaults, and shorter rollouts."""
    networks = Networks(hidden=(32, 32), kind=kind)
    return PPO(
        discount=0.95, trace=0.9, learning_rate=1e-3, rollout=25, actions="choice",
        networks=networks,
    )  # fmt: skip


def reinforce(kind: str) -> Reinforce:
    """REINFORCE on whole episodes."""
    networks = Networks(hidden=(32, 32), kind=kind)
    return Reinforce(
        discount=0.95, actor_learning_rate=3e-3, value_learning_rate=1e-2, rollout=50,
        actions="choice", networks=networks,
    )  # fmt: skip


LEARNERS = {
    "ppo_gcn": (ppo("gcn"), 100),
    "ppo_gat": (ppo("gat"), 100),
    "ppo_mlp": (ppo("mlp"), 100),
    "reinforce_gcn": (reinforce("gcn"), 400),
}
"""Learner and number of its updates, of one rollout each."""


def judged(plant: LoadBalance, policy: Any, keys: Any) -> dict[str, float]:
    """Mean return, and spread of the loads at the start and at the end, over fresh episodes."""

    def episode(key: Any) -> tuple[Any, Any, Any]:
        of_plant, for_reset, for_steps = jax.random.split(key, 3)
        params = plant.sample_params(of_plant)
        state, obs = plant.reset(params, for_reset)

        def step(now: Any, step_key: Any) -> tuple[Any, Any]:
            state, obs = now
            acting, noise = jax.random.split(step_key)
            _, action = policy(policy.initial_carry(), obs, acting)
            state, step = plant.step(params, state, action, noise)
            return (state, step.obs), step.reward

        (last, _), rewards = jax.lax.scan(
            step, (state, obs), jax.random.split(for_steps, plant.horizon)
        )
        first, end = (plant.spread(params, x.loads) for x in (state, last))
        return jnp.sum(rewards), first, end

    return _means(jax.jit(jax.vmap(episode))(keys))


def diffusion(plant: LoadBalance, keys: Any) -> dict[str, float]:
    """The ceiling: every link moves load at every step."""

    def episode(key: Any) -> Any:
        rewards = diffusion_rewards(plant, plant.sample_params(key), jax.random.fold_in(key, 1))
        return jnp.sum(rewards), rewards[0] / -10, rewards[-1] / -10

    return _means(jax.jit(jax.vmap(episode))(keys))


def _means(episodes: Any) -> dict[str, float]:
    total, first, last = (np.asarray(x, float) for x in episodes)
    return {
        "return": float(total.mean()),
        "standard_error": float(total.std(ddof=1) / np.sqrt(len(total))),
        "spread_start": float(first.mean()),
        "spread_end": float(last.mean()),
    }


def trained(plant: LoadBalance, name: str, seed: int) -> dict[str, Any]:
    """One training and what its policy is worth, by its likeliest move and by draws."""
    learner, updates = LEARNERS[name]
    started_at = time.perf_counter()
    done = train_online(
        learner, plant, (seed,), Plan(updates, updates, updates),
        settings=OnlineConfig(environments=ENVIRONMENTS),
    )  # fmt: skip
    seconds = time.perf_counter() - started_at
    keys, state = jax.random.split(jax.random.key(2026), EPISODES), done.states()[0]
    drawn = judged(plant, learner.explore(state), keys)
    return {
        **judged(plant, done.policies[0], keys),
        "return_drawn": drawn["return"],
        "updates": updates,
        "steps": updates * learner.rollout * ENVIRONMENTS,
        "seconds": round(seconds, 1),
    }


def table(result: dict[str, Any]) -> str:
    """The rows of one plant as Markdown; the gap is that from random to greedy moves."""
    moves = result["moves"]
    low, high = moves["random"]["return"], moves["greedy"]["return"]
    lines = ["| Who | return | gap closed | spread at the end |", "|---|---|---|---|"]
    for name, means in moves.items():
        lines.append(
            f"| {name} | {means['return']:.1f} | {(means['return'] - low) / (high - low):.0%} | "
            f"{means['spread_end']:.3f} |"
        )
    for name, seeds in result["learners"].items():
        returns = np.asarray([means["return"] for means in seeds.values()])
        gaps, end = (returns - low) / (high - low), [s["spread_end"] for s in seeds.values()]
        lines.append(
            f"| {name}, {len(returns)} seeds | {returns.mean():.1f} ({returns.min():.1f} to "
            f"{returns.max():.1f}) | {gaps.mean():.0%} ({gaps.min():.0%} to {gaps.max():.0%}) | "
            f"{np.mean(end):.3f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Trains what is missing, or prints the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--plants", nargs="*", default=list(PLANTS), choices=list(PLANTS))
    parser.add_argument("--learners", nargs="*", default=list(LEARNERS), choices=list(LEARNERS))
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the results")
    parser.add_argument("--show", action="store_true", help="print the tables, train nothing")
    arguments = parser.parse_args()
    for name in arguments.plants:
        file, plant = arguments.out / f"load_balance_{name}.json", PLANTS[name]
        result = json.loads(file.read_text()) if file.exists() else {}
        if not arguments.show:
            keys = jax.random.split(jax.random.key(2026), EPISODES)
            moves = {move: judged(plant, policy, keys) for move, policy in plant.tunings().items()}
            moves["diffusion"] = diffusion(plant, keys)
            result = {"learners": {}, **result, "episodes": EPISODES, "moves": moves}
            if name == "source":
                result["published"] = PUBLISHED
            for learner in arguments.learners:
                seeds = result["learners"].setdefault(learner, {})
                for seed in arguments.seeds:
                    if seeds.get(str(seed), {}).get("updates") != LEARNERS[learner][1]:
                        seeds[str(seed)] = trained(plant, learner, seed)
                        file.parent.mkdir(parents=True, exist_ok=True)
                        write_json(file, result)
                        print(name, learner, seed, seeds[str(seed)], flush=True)
        print(f"\n{name}\n\n{table(result)}")


if __name__ == "__main__":
    main()
