"""Retune controllers at six sites with one type of plant: together, alone, and on pooled logs.

Usage:
    python tools/studies/tables/federation/retuning.py [PLANT ...] [--seeds 0 1]   what is missing
    python tools/studies/tables/federation/retuning.py --page                      the table alone

Every site has constants of its own, the plant's ordinary controller with a tuning of its own, and a
short log of that controller and its operators. Each searches once in the model of its log. ``alone``
judges what that found, ``pooled`` does both on the logs of all sites at one place. ``together`` lets
the sites propose their tunings and vote behind masked sums of three groups, combined by their
median, after which every site picks by its own log. In ``poisoned`` the last site, which is not
counted, proposes a far corner, and sends ten times the reverse of its votes behind its mask.
``FEDORA`` trains one policy for all sites; it is no retuning, and has short training on one plant.
The gain is that of the site's own plant, in paired episodes. It is harmful if its interval lies
below zero, or if more episodes break a limit than before by three points. All sites of a plant share
their compiled programs, because constants are arguments of the simulator.
Results: tools/studies/benchmarks/results/federated_retuning.json, a row for each plant, seed, way and
site.
"""

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neorl_agents.models import HistoryModelSettings
from neorl_agents.retuning import (
    TODAY,
    LearnedPlants,
    PlantFacts,
    RetuneResult,
    RetuneSettings,
    SearchSettings,
    learned_plants,
    retune,
)
from neorl_core import Policy, Transition
from neorl_core.control import tunables, tuned
from neorl_core.costs import limit_kind
from neorl_core.infrastructure import keep_compiled_programs, write_text
from neorl_core.infrastructure.command_line import cache_directory
from neorl_envs import make
from neorl_envs.closed_loop import LoopStep, Start, rollout
from neorl_envs.recording import BehaviourPolicy
from neorl_train.data import changed_plant
from neorl_train.federation import (
    Fault,
    Federation,
    FederationConfig,
    MessagesConfig,
    RetuningSite,
    federate_retuning,
)

sys.path.append(str(Path(__file__).resolve().parents[1]))

from federation.fedora import fedora  # pyright: ignore[reportMissingImports]

ROOT = Path(__file__).resolve().parents[4]
RESULTS = ROOT / "tools/studies/benchmarks/results/federated_retuning.json"
NAMES = ("north", "east", "south", "west", "middle", "last")
CONSTANTS: dict[str, tuple[dict[str, float], ...]] = {
    "CSTR-v0": ({}, {"transfer": 0.95}, {"rate_constant": 1.05}, {"flow": 1.03, "feed_temperature": 0.998}, {"volume": 1.03}, {"transfer": 1.04, "flow": 0.98}),
    "DMSD-v0": ({}, {"stiffness": 0.8}, {"mass": 1.2}, {"damping": 0.7}, {"stiffness": 1.25, "mass": 0.85}, {"damping": 1.3}),
    "ChemicalReactor-v0": ({}, {"rate_constant": 0.95}, {"exchanger_transfer": 0.9}, {"reaction_heat": 1.03}, {"jacket_flow": 0.9}, {"wall_water": 1.1}),
    "SteelAnnealing-v0": ({}, {"emissivity": 0.95}, {"efficiency": 0.97}, {"losses": 1.2}, {"capacity": 1.1}, {"exchange": 0.9}),
    "HVACControl-v0": ({}, {"outdoor": 1.15}, {"solar_gain": 1.2}, {"mass_capacity": 0.85}, {"crowd_sd": 1.3}, {"surface": 1.1, "ground": 1.1}),
    "IndustrialBenchmark-v0": ({}, {"miscalibration_weight": 0.9}, {"noise_mean": 1.3}, {"miscalibration_weight": 1.1}, {"amplification_end": 0.9}, {"tolerance": 1.2}),
    "Pipeline-v0": ({}, {"change": 0.7}, {"change": 1.3}, {"change": 0.85}, {"change": 1.5}, {"change": 1.15}),
    "WaterTreatment-v0": ({}, {"raw_turbidity": 1.25}, {"raw_alkalinity": 0.95}, {"raw_temperature": 0.8}, {"settling": 0.9}, {"flocculator": 1.15}),
    "SupplyChain-v0": ({}, {"demand": 1.1}, {"season": 1.4}, {"demand": 0.92}, {"disruption": 1.5}, {"variability": 1.2}),
    "RobotAssembly-v0": ({}, {"stiffness": 0.8}, {"damping": 1.2}, {"slip": 1.2}, {"stiffness": 1.2}, {"part": 1.02}),
    "PowerGrid-v0": ({}, {"inertia": 0.9}, {"load_sd": 1.3}, {"droop": 1.1}, {"inertia": 1.1}, {"bias": 0.9}),
}  # fmt: skip
"""Factors on the constants of every site's plant; none of them enters a declared reward."""
TUNINGS = 0.7
"""Standard deviation of every site's own tuning around the ordinary one, in steps."""
LEAST_STEPS, LEAST_EPISODES = 4_000, 20
STARTS, KEY = 64, 777
Z, MORE_BROKEN, FAR = 1.96, 0.03, 3.0
SETTINGS = RetuneSettings(
    model=HistoryModelSettings(updates=500, width=32, batch_size=128, learning_rate=3e-3),
    search=SearchSettings(population=10, generations=6, episodes=6),
    regularisations=(0.01,),
    fractions=(1.0, 0.5, 0.25),
    steps=0,
)
TOGETHER = dataclasses.replace(SETTINGS, fractions=(1.0, 0.5))
"""Settings with proposals, of which there are more."""
FEDERATION = Federation(
    FederationConfig(method="retuning", rule="median", byzantine=1, weights="equal"),
    messages=MessagesConfig(secure_sum=True, groups=3),
)
LIAR = (Fault(NAMES[-1], "flipped", factor=10.0),)
WAYS = ("alone", "pooled", "together", "poisoned", "FEDORA")
LEARNED_ON = ("CSTR-v0",)


class Liar(RetuningSite):
    """A site that proposes a far corner, away from what all found, as what runs and as found."""

    corner: np.ndarray

    def propose(self) -> np.ndarray:
        """The corner, twice."""
        return np.stack([self.today + self.corner] * 2)


def measured(name: str, seed: int) -> list[dict[str, Any]]:
    """The rows of all ways at all sites, with logs, models and searches of one seed."""
    begun = time.process_time()
    plant, spec = make(name), make(name).spec
    factors = [factors_of(plant, name, one) for one in CONSTANTS[name]]
    ordinary = jax.tree.map(jnp.asarray, next(iter(plant.tunings().values())))
    declared = tunables(ordinary, spec)
    is_gain = np.asarray([one.kind == "factor" for one in declared])
    draws = np.random.default_rng([seed, 5]).normal(size=(len(NAMES), len(declared)))
    offsets = np.where(is_gain, TUNINGS * draws, 0.0)
    controllers = [
        tuned(ordinary, declared, jnp.asarray(o, jnp.float32), spread=jnp.ones(spec.n_obs))
        for o in offsets
    ]
    logs = [
        log_of(plant, controller, factor, jax.random.key(1_000 * seed + i))
        for i, (controller, factor) in enumerate(zip(controllers, factors, strict=True))
    ]
    facts = PlantFacts(
        tuple(plant.action_rates()), tuple(plant.exogenous), plant.interlock, plant.objective
    )
    models, settings = [], SETTINGS
    for log in logs:
        models.append(learned_plants(log, spec, seed, facts, settings))
        # The sites agree on the history that the first log prefers, and so share their programs.
        history = (models[0].model.history,)
        settings = dataclasses.replace(
            settings, model=dataclasses.replace(settings.model, history=history)
        )
    sites = [
        RetuningSite(site, model, controller, FEDERATION, SETTINGS, seed=seed)
        for site, model, controller in zip(NAMES, models, controllers, strict=True)
    ]
    own = np.stack([site.propose() for site in sites], axis=1)
    finds = {site: own[1, i] - own[0, i] for i, site in enumerate(NAMES)}
    print(f"{name} {seed}: searched after {time.process_time() - begun:.0f} s", flush=True)
    together = federate_retuning(sites, FEDERATION, seed=seed)
    poisoned = federate_retuning(
        [*sites[:-1], liar(models[-1], controllers[-1], offsets, list(finds.values()), seed)],
        FEDERATION, seed=seed, faults=LIAR,
    )  # fmt: skip
    assert together is not None
    assert poisoned is not None
    everything: Any = jax.tree.map(lambda *c: np.concatenate([np.asarray(x) for x in c]), *logs)
    pooled = learned_plants(everything, spec, seed, facts, settings)
    learned = fedora(logs, spec, seed) if name in LEARNED_ON else None
    rows = []
    for i, (site, controller) in enumerate(zip(sites, controllers, strict=True)):
        before = episodes(plant, controller, factors[i], i)
        found: dict[str, RetuneResult] = {
            "alone": retune(models[i], controller, seed, SETTINGS, proposed={site.name: finds[site.name]}),
            "pooled": retune(pooled, controller, seed, SETTINGS),
        }  # fmt: skip
        for way, proposals in (("together", together), ("poisoned", poisoned)):
            if way == "together" or i + 1 < len(NAMES):
                proposed: Mapping[str, Any] = proposals.changes_for(site)
                found[way] = retune(models[i], controller, seed, TOGETHER, proposed=proposed)
        for way, one in found.items():
            row = {"plant": name, "seed": seed, "site": site.name, "way": way}
            after = before if one.chosen == TODAY else episodes(plant, one.policy, factors[i], i)
            rows.append(row | picked(one) | outcome(before, after))
        if learned is not None:
            row = {
                "plant": name,
                "seed": seed,
                "site": site.name,
                "way": "FEDORA",
                "chosen": "policy",
            }
            rows.append(row | outcome(before, episodes(plant, learned, factors[i], i)))
    print(f"{name} {seed}: {time.process_time() - begun:.0f} s of processor", flush=True)
    return rows


def factors_of(plant: Any, name: str, factors: Mapping[str, float]) -> Any:
    """The factors on all constants, in their structure; physically impossible ones are refused."""
    changed_plant(name, factors)
    constants = plant.default_params().constants

    def of_field(field: str) -> Any:
        by, values = factors.get(field, 1.0), getattr(constants, field)
        return jax.tree.map(lambda leaf: jnp.full(jnp.shape(leaf), by, jnp.float32), values)

    return constants._replace(**{field: of_field(field) for field in constants._fields})


def starts_of(plant: Any, factors: Any, keys: Any) -> Start:
    """Starts of one site, whose factors multiply the constants that an episode draws."""

    def one(key: Any) -> Start:
        for_params, for_reset, noise, acting = jax.random.split(key, 4)
        params = plant.sample_params(for_params)
        constants = jax.tree.map(lambda x, f: (x * f).astype(x.dtype), params.constants, factors)
        params = plant.with_constants(params, constants)
        state, obs = plant.reset(params, for_reset)
        horizon = plant.spec.horizon
        return Start(
            params, state, obs, jax.random.split(noise, horizon), jax.random.split(acting, horizon)
        )

    return jax.vmap(one)(keys)


@partial(jax.jit, static_argnums=0)
def _logged(plant: Any, policy: Any, factors: Any, keys: Any) -> Any:
    return jax.vmap(partial(rollout, plant, policy))(starts_of(plant, factors, keys))


def log_of(plant: Any, controller: Policy, factors: Any, key: Any) -> Transition:
    """The log of a site: its controller with its operators."""
    count = max(LEAST_EPISODES, -(-LEAST_STEPS // plant.spec.horizon))
    policy = BehaviourPolicy(controller, plant.operator_plan())
    log = jax.device_get(_logged(plant, policy, factors, jax.random.split(key, count)))
    truncated = np.zeros(log.mask.shape, bool)
    truncated[np.arange(count), log.mask.sum(axis=1) - 1] = True
    rows = log.rows._replace(truncated=truncated & ~log.rows.terminated)
    return jax.tree.map(lambda column: np.asarray(column)[log.mask], rows)


@partial(jax.jit, static_argnums=0)
def _totals(plant: Any, policy: Any, factors: Any, keys: Any) -> Any:
    def add(sums: Any, loop_step: LoopStep) -> Any:
        total, cost, worst = sums
        step = loop_step.step
        return total + step.reward, cost + step.cost, jnp.maximum(worst, step.cost)

    zeros = jnp.zeros(plant.spec.n_cost)
    whole = partial(
        rollout, plant, policy, record=None, sums=(jnp.zeros(()), zeros, zeros), add=add
    )
    return jax.vmap(whole)(starts_of(plant, factors, keys)).sums


def episodes(plant: Any, policy: Policy, factors: Any, site: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns of episodes that nothing else has seen, and whether each breaks a limit."""
    keys = jax.random.split(jax.random.fold_in(jax.random.key(KEY), site), STARTS)
    policy = jax.tree.map(jnp.asarray, policy)
    returns, total, worst = jax.device_get(_totals(plant, policy, factors, keys))
    broken = np.zeros(STARTS, bool)
    for j, channel in enumerate(plant.spec.cost):
        quantity = limit_kind(channel).of_episode(total=total[:, j], worst=worst[:, j])
        broken |= ~(quantity <= channel.limit)
    return np.asarray(returns, np.float64), broken


def liar(
    model: LearnedPlants,
    controller: Policy,
    offsets: np.ndarray,
    finds: list[np.ndarray],
    seed: int,
) -> Liar:
    """The last site as one that lies."""
    middle = np.median(offsets, axis=0)
    towards = np.median(offsets + np.asarray(finds), axis=0) - middle
    corner = np.clip(middle - FAR * np.sign(towards + 1e-9), -FAR, FAR)
    site = Liar(NAMES[-1], model, controller, FEDERATION, SETTINGS, seed=seed, faults=LIAR)
    site.corner = corner - offsets[-1]
    return site


def picked(found: RetuneResult) -> dict[str, Any]:
    """What a site picks, with what its log predicts."""
    one = {prediction.name: prediction for prediction in found.table}[found.chosen]
    return {
        "chosen": found.chosen,
        "predicted": [one.gain, one.low, one.high],
        "values": [change.after for change in found.changes],
    }


def outcome(
    before: tuple[np.ndarray, np.ndarray], after: tuple[np.ndarray, np.ndarray]
) -> dict[str, Any]:
    """The true gain in return, and the share of episodes over a limit before and after."""
    difference = after[0] - before[0]
    half = Z * difference.std(ddof=1) / np.sqrt(len(difference))
    gain = [float(difference.mean() + part * half) for part in (0, -1, 1)]
    broken = [float(one[1].mean()) for one in (before, after)]
    harm = gain[2] < 0 or broken[1] > broken[0] + MORE_BROKEN
    return {
        "returns_before": float(before[0].mean()), "gain": gain, "broken": broken,
        "harm": bool(harm),
    }  # fmt: skip


def table(rows: list[dict[str, Any]]) -> str:
    """A line for each plant: mean true gains of the ways, harm, kept, and picks moved by a lie."""
    ways = [way for way in WAYS if any(row["way"] == way for row in rows)]
    lines = [
        f"| Plant | {' | '.join(ways)} | kept together | picks changed by the false site |",
        "|---" * (3 + len(ways)) + "|",
    ]
    counted = [row for row in rows if row["site"] != NAMES[-1]]
    by_key = {(r["plant"], r["seed"], r["site"], r["way"]): r for r in counted}
    for plant in dict.fromkeys(row["plant"] for row in counted):
        cells, of_plant = [], [row for row in counted if row["plant"] == plant]
        for way in ways:
            some = [row for row in of_plant if row["way"] == way]
            if not some:
                cells.append("not run")
                continue
            gains, harm = [row["gain"][0] for row in some], sum(row["harm"] for row in some)
            error = np.std(gains, ddof=1) / np.sqrt(len(gains))
            cells.append(f"{np.mean(gains):.3g} ± {error:.2g}" + f", harm at {harm}" * (harm > 0))
        together = [row for row in of_plant if row["way"] == "together"]
        kept = sum(row["chosen"] == TODAY for row in together)
        moved = sum(
            not np.allclose(r["values"], by_key[plant, r["seed"], r["site"], "poisoned"]["values"])
            for r in together
        )
        cells += [f"{kept} of {len(together)}", f"{moved} of {len(together)}"]
        lines.append(f"| {plant} ({make(plant).reward_unit}) | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    """Measures what is missing, then prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("plants", nargs="*", default=[])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--page", action="store_true")
    arguments = parser.parse_args()
    keep_compiled_programs(cache_directory())
    rows = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    if not arguments.page:
        for seed in arguments.seeds:
            for name in arguments.plants or CONSTANTS:
                if any((row["plant"], row["seed"]) == (name, seed) for row in rows):
                    continue
                rows += measured(name, seed)
                write_text(RESULTS, json.dumps(rows, indent=1) + "\n")
                jax.clear_caches()
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
