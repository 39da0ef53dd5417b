"""One pick from each published log of NeoRL-2, its score predicted before the simulator is asked.

Usage:
    python tools/studies/tables/neorl2_blind.py predict LOGS [--only TASK ...]     pick and predict
    python tools/studies/tables/neorl2_blind.py ask CHECKOUT [--only TASK ...]     ask the simulator
    python tools/studies/tables/neorl2_blind.py collect CHECKOUT --actors FOLDER   log of Pipeline
    python tools/studies/tables/neorl2_blind.py                                    print the table

``predict`` types two commands for each log: ``neorl-train run`` trains the learners (and fits and
retunes controllers where the benchmark describes a loop), ``neorl-train choose`` makes one pick of
all of them from the log alone. The settings are those of :data:`TASKS`, the same for all logs, and
were committed before the simulator was first asked; a changed setting is a new row, with
``--look 2``. LOGS is a folder of files as polixir/neorl2_dataset has them; each is held to the
digest in the benchmark's own list.

Of Pipeline the published log is not at hand (the file in polixir/neorl2_dataset is of another
version), but the policies that filled it are. ``collect`` runs the three of them that the authors
name for training, in the benchmark's simulator as their ``get_data.py`` does; FOLDER has their files
``mean_reward_*.pth``, of which the weights alone are read. Its columns of past values are left out,
since a plant model has a memory of its own.

The predicted score is the return of the pick in replayed episodes of the learned model, with its
interval, as the page of ``choose`` shows it. Where the model must not be used, today's controller is
kept, and the prediction is the mean of the log with its 95 % interval.

``ask`` runs the pick in the benchmark's own code, a checkout of polixir/NeoRL2, in an environment
that has neorl and also mujoco, imageio, box2d, onnxruntime, pandas < 3, setuptools < 81 and
numpy < 2.4. torch is not needed: an empty stand-in takes its place, and rewards take their NumPy
branch. Episodes are added to those that are stored, one at a time.
Result: tools/studies/benchmarks/results/neorl2_blind.json, a row for each look at each task.
"""

import argparse
import dataclasses
import functools
import hashlib
import importlib
import json
import os
import re
import resource
import subprocess
import sys
import types
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from neorl_core.infrastructure import write_text
from neorl_train.judging import NEORL2_RETURNS

ROOT = Path(__file__).resolve().parents[3]
RESULT = ROOT / "tools/studies/benchmarks/results/neorl2_blind.json"
LEARNERS = ("bc", "td3_bc", "iql")
UPDATES = 10_000
CONTROLLERS = ("pid_imitation", "lqg")
RUN = (
    "--training.algorithms", *LEARNERS, "--training.seeds", "0",
    "--training.updates", str(UPDATES), "--output.no-tracking",
)  # fmt: skip
CHOOSE = ("--show", "model", "values", "--value-updates", "0")


@dataclasses.dataclass(frozen=True)
class Task:
    """What the benchmark says of one task, and what is published of it.

    Attributes:
        file: Name of the log.
        md5: Its digest in the benchmark's list.
        best: Best published learner and its score, tuned on the simulator.
        exogenous: Observations that no action influences: targets, heating powers, patients.
        loops: Measured observation, action and observation that carries the setpoint.
        measured: Further observations of the state, for identified controllers.
        episodes: How often the simulator is asked.
        columns: How many of the observations are used, from the first on; all of them if 0.
    """

    file: str
    md5: str
    best: tuple[str, float]
    exogenous: tuple[str, ...] = ()
    loops: tuple[tuple[str, str, str], ...] = ()
    measured: tuple[str, ...] = ()
    episodes: int = 50
    columns: int = 0

    def commands(self, log: Path, folder: Path) -> tuple[list[str], list[str]]:
        """The two commands of a user."""
        run = ["run", str(log), *RUN, "--output.directory", str(folder)]
        choose = ["choose", str(folder / "0001"), *CHOOSE, "--output", str(folder / "choice.html")]
        if self.loops:
            run += ["--classical.controllers", *CONTROLLERS, "--classical.manipulated"]
            run += [word for pv, op, _ in self.loops for word in (pv, op)]
            run += ["--classical.setpoint-channel"]
            run += [word for pv, _, sp in self.loops for word in (pv, sp)]
            if self.measured:
                run += ["--classical.measured", *self.measured]
            if self.measured:
                # The benchmark describes no dead time of DMSD; trying 30 steps takes minutes.
                run += ["--classical.lqg.longest-delay", "3"]
            run += ["--retuning.controller", CONTROLLERS[0]]
            run += ["--retuning.exogenous", *self.exogenous]
        elif self.exogenous:
            choose += ["--exogenous", *self.exogenous]
        return run, choose


def names(first: int, last: int) -> tuple[str, ...]:
    """Observations by the names that the reader gives them."""
    return tuple(f"obs_{i}" for i in range(first, last + 1))


TRAIN, VALIDATION = "{}-high-100000-train.npz", "{}-high-20000-val.npz"
TASKS = {
    "DMSD": Task(
        TRAIN,
        "88dfa39aa18904e809056b51c2e6319b",
        ("EDAC", 78.7),
        exogenous=("obs_4", "obs_5"),
        loops=(("obs_0", "action_0", "obs_4"), ("obs_1", "action_1", "obs_5")),
        measured=("obs_2", "obs_3"),
    ),
    "Simglucose": Task(
        TRAIN, "6195a3634379f576958440b7e0c8fc53", ("BC", 75.1), names(1, 30), episodes=20
    ),
    "SafetyHalfCheetah": Task(TRAIN, "c35efec4a25fb45837487ba00f74e1ed", ("CQL", 71.2)),
    # Of these three the file for training is not in the copy at hand, so the published file for
    # validation is the log. For RocketRecovery and Fusion it is longer than what the benchmark
    # trains on by default (100 and 20 episodes).
    "RocketRecovery": Task(VALIDATION, "0b25bd998e92b4f808f8ee5207ce06dd", ("RAMBO", 81.8)),
    "RandomFrictionHopper": Task(VALIDATION, "2628f354222de37803451c63e84a1269", ("MOPO", 35.8)),
    "Fusion": Task(
        VALIDATION, "9baa5556fac98b86ab9b58040da17d86", ("RAMBO", 63.9), names(9, 14), episodes=10
    ),
}


TASKS["Pipeline"] = Task(
    "{}-collected.npz",
    "",
    ("TD3+BC", 82.0),
    exogenous=("obs_1",),
    loops=(("obs_0", "action_0", "obs_1"),),
    episodes=30,
    columns=2,
)
COLLECTED = 40
"""Episodes of the log of Pipeline."""


def normalised(task: str, returns: Any) -> Any:
    """NeoRL-2's score of a return: 0 is its lower anchor, 100 its expert."""
    low, high = NEORL2_RETURNS[task]
    return 100 * (np.asarray(returns, np.float64) - low) / (high - low)


def log_returns(path: Path) -> np.ndarray:
    """Returns of the logged episodes."""
    with np.load(path) as columns:
        ends = np.flatnonzero((columns["done"] > 0) | (columns["truncated"] > 0))
        reward = columns["reward"].astype(np.float64)
    starts = np.concatenate([[0], ends[:-1] + 1])
    return np.add.reduceat(reward[: ends[-1] + 1], starts)


def predict(name: str, logs: Path, runs: Path, look: int) -> dict[str, Any]:
    """Trains, fits and chooses from one log; nothing else is read."""
    task = TASKS[name]
    log = logs / task.file.format(name)
    digest = hashlib.md5(log.read_bytes(), usedforsecurity=False).hexdigest()
    if task.md5 and digest != task.md5:
        raise SystemExit(f"{log}: its digest is {digest}, and the benchmark lists {task.md5}")
    folder = runs / f"{name}-{look}"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    commands = task.commands(log, folder)
    relative = [
        [word.replace(f"{logs}/", "").replace(f"{runs}/", "") for word in words]
        for words in commands
    ]
    scores = normalised(name, log_returns(log))
    reach = 1.96 * scores.std(ddof=1) / np.sqrt(len(scores))
    logged = [float(x) for x in (scores.mean(), scores.mean() - reach, scores.mean() + reach)]
    row: dict[str, Any] = {
        "task": name,
        "look": look,
        "commands": [" ".join(["neorl-train", *words]) for words in relative],
        "log": logged,
        "logged_episodes": len(scores),
    }
    begun = [["resume", str(folder / "0001")], commands[1]]  # after an interruption
    for words in begun if (folder / "0001/run.json").is_file() else commands:
        done = subprocess.run(
            [sys.executable, "-m", "neorl_train", *words], stderr=subprocess.PIPE, text=True
        )
        print(done.stderr, file=sys.stderr)
        if done.returncode == 2:
            refused = done.stderr.strip().splitlines()[-1].replace(f"{runs}/", "")
            return row | {"refused": refused, "predicted": logged, "scores": []}
        done.check_returncode()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    choice = json.loads((folder / "choice.json").read_text())
    predictions = {one["prediction"]["name"]: one["prediction"] for one in choice["candidates"]}
    pick, by_log = choice["chosen"], bool(choice["warnings"])
    own = predictions[pick]
    ends = [own["returns"], *(own["returns"] + s * own["returns_reach"] for s in (-1, 1))]
    artefact = policy_file(folder / "0001", pick)
    return row | {
        "pick": pick,
        "sha256": hashlib.sha256(artefact.read_bytes()).hexdigest(),
        "kept": pick == choice["incumbent"],
        "refused_model": choice["warnings"],
        "predicted": logged if by_log else [float(x) for x in normalised(name, ends)],
        "candidates": [
            {
                "name": one["name"],
                "predicted": float(normalised(name, one["returns"])),
                "refusals": len(one["refusals"]),
            }
            for one in predictions.values()
        ],
        "seconds": round(sum(after[:2]) - sum(before[:2]), 1),
        "scores": [],
    }


def collect(actors: Path, file: Path) -> None:
    """Runs the published policies of Pipeline in turns, as polixir/neorl2_dataset does."""
    import gymnasium

    paths = sorted(actors.glob("mean_reward_*.pth"))
    if len(paths) != 4:
        raise SystemExit(f"{actors}: expected the four published files, found {len(paths)}")
    laws = [actor(path) for path in (paths[0], *paths[2:])]
    env: Any = gymnasium.make("Pipeline", disable_env_checker=True)
    rows: dict[str, list[Any]] = {}
    for episode in range(COLLECTED):
        obs, _ = env.reset(seed=episode)
        over = False
        while not over:
            action = np.clip(laws[episode % 3](obs), -1, 1)
            after, reward, terminated, truncated, _ = env.step(action)
            over = bool(terminated) or bool(truncated)
            columns = {"obs": obs, "action": action, "next_obs": after, "reward": float(reward)}
            for key, value in (columns | {"done": terminated, "truncated": truncated}).items():
                rows.setdefault(key, []).append(value)
            obs = after
    kept = TASKS["Pipeline"].columns
    arrays = {key: np.asarray(values, np.float32) for key, values in rows.items()}
    for key in ("obs", "next_obs"):
        arrays[key] = arrays[key][:, :kept]
    np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    print(
        f"{file}: {COLLECTED} episodes, score {normalised('Pipeline', log_returns(file)).mean():.1f}"
    )


def actor(path: Path) -> Any:
    """A published actor: two layers of 256 with ReLU, and the mean of the action."""
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if re.search(r"/data/[0-5]$", name)]
        parts = [np.frombuffer(archive.read(name), np.float32) for name in sorted(names)]
    weights = [
        part.reshape(len(bias), -1) for part, bias in zip(parts[::2], parts[1::2], strict=True)
    ]

    def law(obs: Any) -> np.ndarray:
        for weight, bias in zip(weights[:2], parts[1::2], strict=False):
            obs = np.maximum(weight @ obs + bias, 0)
        return weights[2] @ obs + parts[5]

    return law


def policy_file(run: Path, pick: str) -> Path:
    """The artefact of a candidate of a run, or of a kept controller that the search left as it is."""
    path = run / "policies" / f"{pick}.safetensors"
    if path.is_file() or json.loads((run / "run.json").read_text())["changes"]:
        return path
    return path.with_name("retuned-0.safetensors")


def ask(row: dict[str, Any], runs: Path, episodes: int) -> None:
    """Adds the scores of the pick in the benchmark's simulator, episode by episode."""
    import gymnasium
    import jax

    from neorl_agents import load_policy

    name = row["task"]
    path = policy_file(runs / f"{name}-{row['look']}/0001", row["pick"])
    if hashlib.sha256(path.read_bytes()).hexdigest() != row["sha256"]:
        raise SystemExit(f"{path} is not the policy of the prediction; run predict again")
    policy = load_policy(path).policy
    first = jax.jit(lambda obs: policy(policy.initial_carry(), obs, jax.random.key(0)))
    then = jax.jit(
        lambda carry, sent, obs: policy(policy.sent(carry, sent), obs, jax.random.key(0))
    )
    given = {"render_mode": None} if name == "RocketRecovery" else {}
    env: Any = gymnasium.make(name, disable_env_checker=True, **given)
    space: Any = env.action_space
    kept = TASKS[name].columns or None
    while len(row["scores"]) < episodes:
        seed = 10_000 + len(row["scores"])
        np.random.seed(seed)  # noqa: NPY002 (the simulators draw from it)
        obs, _ = env.reset(seed=seed)
        carry, action = first(np.asarray(obs, np.float32)[:kept])
        total, over = 0.0, False
        while not over:
            sent = np.clip(np.asarray(action, np.float32), space.low, space.high)
            obs, reward, terminated, truncated, _ = env.step(sent.astype(space.dtype))
            total += float(np.asarray(reward).reshape(()))
            over = bool(terminated) or bool(truncated)
            if not over:
                carry, action = then(carry, sent, np.asarray(obs, np.float32)[:kept])
        row["scores"].append(round(float(normalised(name, total)), 3))
        save(row)
        print(f"{name}: episode {len(row['scores'])}, {row['scores'][-1]:.1f}", flush=True)


def use_simulators(checkout: Path) -> None:
    """Makes the benchmark's code importable without torch, and its networks quick to open."""
    torch: Any = types.ModuleType("torch")
    torch.Tensor = type("Tensor", (), {})
    sys.modules["torch"] = torch
    sys.path.insert(0, str(checkout))
    import onnxruntime

    session: Any = onnxruntime.InferenceSession
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1

    @functools.cache
    def opened(path: str) -> Any:  # Fusion opens its 21 files anew at every reset
        return session(path, options, providers=["CPUExecutionProvider"])

    onnxruntime.InferenceSession = opened
    warnings.filterwarnings("ignore")
    importlib.import_module("neorl2")
    # NumPy 2 keeps single precision in a product with a Python number, NumPy 1 did not, and Box2D
    # takes no numbers of single precision.
    doubled: Any = types.ModuleType("numpy")
    doubled.__dict__.update(np.__dict__, float32=np.float64)
    rocket: Any = importlib.import_module("neorl2.envs.rocketrecovery")
    rocket.np = doubled


def stored() -> list[dict[str, Any]]:
    """The rows so far."""
    return json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.is_file() else []


def save(row: dict[str, Any]) -> None:
    """Puts a row in its place."""
    rows = {(one["task"], one["look"]): one for one in stored()}
    rows[row["task"], row["look"]] = row
    order = sorted(rows, key=lambda key: (list(TASKS).index(key[0]), key[1]))
    write_text(RESULT, json.dumps([rows[key] for key in order], indent=1) + "\n")


def page() -> str:
    """The table of the stored rows, with what it comes to in a sentence."""
    lines = [
        "| Task | The log | Best published | Pick | Predicted | True | Interval right |",
        "|---|---|---|---|---|---|---|",
    ]
    right = harm = asked = 0
    for row in stored():
        value, low, high = row["predicted"]
        learner, best = TASKS[row["task"]].best
        pick = f"`{row['pick']}`{' (kept)' * row['kept']}" if "pick" in row else "none: refused"
        title = row["task"] + f", look {row['look']}" * (row["look"] > 1)
        true, word = "not asked", ""
        if len(row["scores"]) > 1:
            mean, error = truth(row)
            true, inside = f"{mean:.1f} ± {error:.1f}", low <= mean <= high
            word = "yes" if inside else "**no**"
            asked, right = asked + 1, right + inside
            harm += mean + 1.96 * error < row["log"][0]
        lines.append(
            f"| {title} | {row['log'][0]:.1f} | {best:.1f} ({learner}) | {pick} "
            f"| {value:.1f} [{low:.1f}, {high:.1f}] | {true} | {word} |"
        )
    means = [truth(row)[0] for row in stored() if len(row["scores"]) > 1 and row["look"] == 1]
    if means:
        lines += [
            "",
            f"The interval held the true mean in {right} of {asked} looks, {harm} of the picks "
            f"were surely below their log, and the mean of the true scores of first "
            f"looks is {np.mean(means):.1f}.",
        ]
    return "\n".join(lines)


def truth(row: dict[str, Any]) -> tuple[float, float]:
    """Mean of the true scores and its standard error."""
    scores = np.asarray(row["scores"], np.float64)
    return float(scores.mean()), float(scores.std(ddof=1) / np.sqrt(len(scores)))


def main() -> int:
    """Predicts, asks or prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("step", nargs="?", choices=("predict", "ask", "collect"))
    parser.add_argument("folder", nargs="?", type=Path, help="LOGS or CHECKOUT")
    parser.add_argument("--only", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--look", type=int, default=1)
    parser.add_argument("--episodes", type=int, default=0, help="in place of the task's own")
    parser.add_argument("--runs", type=Path, default=ROOT / "build/neorl2_blind")
    parser.add_argument("--actors", type=Path, help="folder of the published policies of Pipeline")
    arguments = parser.parse_args()
    rows = {row["task"]: row for row in stored() if row["look"] == arguments.look}
    if arguments.step == "predict":
        for name in arguments.only:
            if name not in rows:
                save(predict(name, arguments.folder, arguments.runs, arguments.look))
    elif arguments.step == "collect":
        use_simulators(arguments.folder.absolute())
        collect(arguments.actors, arguments.actors / TASKS["Pipeline"].file.format("Pipeline"))
    elif arguments.step == "ask":
        use_simulators(arguments.folder.absolute())
        for name in arguments.only:
            if "pick" in rows.get(name, {}):
                ask(rows[name], arguments.runs, arguments.episodes or TASKS[name].episodes)
    print(page())
    return 0


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    sys.exit(main())
