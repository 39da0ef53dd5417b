"""One guarded decision beside the bare network in torch, TorchScript and ONNX Runtime.

A network 12-256-256-3 (relu within, tanh behind) for the reactor. Ours: ``Runtime.step`` of a
sealed bundle, that is scalers, network, PID, monitor, supervisor, box and rate, in both forms:
compiled, and by NumPy alone. Theirs: the same network and scalers and a clip to the box, called
plainly, one NumPy observation in and one NumPy action out, without any guard: torch eagerly in
inference mode, TorchScript traced and frozen, ONNX Runtime on the ``policy.onnx`` of the same
bundle. All actions are compared first. One thread each, one core, synchronous dispatch; in turn, in
blocks of ``--calls``, by the clock on the wall and in processor time of all threads.

A guarded decision of FQL's policy comes with it, with the published network of four layers of 512,
in both forms.

Two long runs come with it too: ``--decisions`` decisions in a row, whose memory must not grow, and
a shift of 8 hours at 100 times real time, in the closed loop with its audit log and its file of
state, on a plant that answers at once: no period may be missed and no decision be late.

    python -m hatch run benchmark-latency:run
"""

import argparse
import gc
import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))

from _rounds import (  # pyright: ignore[reportMissingImports]
    RESULTS,
    machine,
    on_one_core,
    write,
)

PARTS = ("latency", "fql", "memory", "shift")
HIDDEN = (256, 256)
FLOW_HIDDEN = (512, 512, 512, 512)
SHIFT, SPEED = 8 * 3600.0, 100.0
SAME = 1e-5
"""Of a channel's range: how far the actions of the peers may lie from ours."""
VERDICT = {
    "answer": "deploy",
    "sentence": "Made for a benchmark.",
    "clauses": [{"name": "return", "bound": 1.0, "relation": ">", "limit": 0.0, "holds": True}],
    "candidate": "network-0",
    "artefact": "policies/network-0.safetensors",
}


def main() -> int:
    """Measures and writes; 0 if nothing grew and nothing was missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15, help="blocks of every variant (15)")
    parser.add_argument("--calls", type=int, default=2000, help="calls of a block (2000)")
    parser.add_argument(
        "--decisions", type=int, default=1_000_000, help="in the long run (1000000)"
    )
    parser.add_argument("--hours", type=float, default=SHIFT / 3600, help="of the shift (8)")
    parser.add_argument(
        "--parts", nargs="+", choices=PARTS, default=PARTS, help="others stay as they are (all)"
    )
    parser.add_argument("--core", type=int, default=0, help="the core to pin to (0); -1 for none")
    parser.add_argument("--out", type=Path, default=RESULTS / "latency.json")
    arguments = parser.parse_args()
    if arguments.core >= 0:
        on_one_core(arguments.core)
    import jax

    jax.config.update("jax_cpu_enable_async_dispatch", False)
    logging.disable(logging.CRITICAL)
    results = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        bundle = made_bundle(Path(folder) / "run", HIDDEN, onnx=True)
        parts: dict[str, Callable[[], dict[str, Any]]] = {
            "latency": lambda: _timings(_variants(bundle), arguments.rounds, arguments.calls),
            "fql": lambda: _flow_policy(Path(folder) / "fql", arguments.rounds, arguments.calls),
            "memory": lambda: _long_run(bundle, arguments.decisions),
            "shift": lambda: _shift(bundle, Path(folder) / "loop", 3600 * arguments.hours),
        }
        for name in arguments.parts:
            facts = machine(("jax", "jaxlib", "numpy", "onnxruntime", "torch"))
            results[name] = {**parts[name](), **facts, "load_at_end": os.getloadavg()[0]}
        results["bytes"] = {name: len(data) for name, data in sorted(bundle.files.items())}
    case = {"obs": 12, "act": 3, "hidden": list(HIDDEN)}
    write(arguments.out, {"benchmark": "latency", "case": case, **results})
    grown = results.get("memory", {}).get("growth_mib", 0)
    shift = results.get("shift", {})
    return 1 if grown > 1 or shift.get("missed") or shift.get("late") else 0


def _flow_policy(folder: Path, rounds: int, calls: int) -> dict[str, Any]:
    """A guarded decision of the policy of an untrained FQL of published size, in both forms."""
    import jax
    import numpy as np

    from neorl_agents import FQL
    from neorl_agents.learning import Networks
    from neorl_agents.testing import statistics_of
    from neorl_core import Transition

    def policy_of(spec: Any, seen: Any) -> Any:
        learner = FQL(networks=Networks(hidden=FLOW_HIDDEN))
        low, high = _ends(spec.action)
        n = 32  # the length of an episode to statistics_of
        action = np.random.default_rng(3).uniform(low, high, (n, len(low))).astype(np.float32)
        zeros = np.zeros(n, np.float32)
        columns: Any = dict(
            obs=seen[:n], action=action, reward=zeros, next_obs=seen[:n], terminated=zeros > 0,
            truncated=zeros > 0, cost=np.zeros((n, len(spec.cost)), np.float32),
        )  # fmt: skip
        log = Transition(**columns)
        return learner.policy(learner.init(spec, statistics_of(log), jax.random.key(0)))

    bundle = made_bundle(folder, policy_of=policy_of)
    low, high = _ends(bundle.manifest.obs)
    middle, span = (low + high) / 2, high - low
    seen = np.random.default_rng(2).uniform(middle - span / 4, middle + span / 4, (64, len(low)))
    timings = _timings(_guarded_forms(bundle, seen.astype(np.float32)), rounds, calls)
    return {"hidden": list(FLOW_HIDDEN), **timings}


class Timed(NamedTuple):
    """One call: microseconds of the clock on the wall and of the processor."""

    wall: float
    processor: float


def _timed(call: Callable[[], Any], count: int) -> list[Timed]:
    times = []
    for _ in range(count):
        used, start = time.process_time_ns(), time.perf_counter_ns()
        call()
        end, used = time.perf_counter_ns(), time.process_time_ns() - used
        times.append(Timed(1e-3 * (end - start), 1e-3 * used))
    return times


def _summary(calls: list[Timed]) -> dict[str, dict[str, float]]:
    return {
        "wall": _percentiles([call.wall for call in calls]),
        "processor": _percentiles([call.processor for call in calls]),
    }


def _percentiles(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    at = {"median": 0.5, "p99": 0.99, "p99.9": 0.999}
    percentiles = {
        name: ordered[min(int(part * len(ordered)), len(ordered) - 1)] for name, part in at.items()
    }
    return {
        name: round(value, 1) for name, value in {**percentiles, "largest": ordered[-1]}.items()
    }


def made_bundle(
    folder: Path,
    hidden: tuple[int, ...] = (64, 64),
    *,
    onnx: bool = False,
    policy_of: Callable[[Any, Any], Any] | None = None,
) -> Any:
    """A sealed bundle of a run that was made by hand: a network for the reactor.

    With ``policy_of`` it holds the policy that this function makes of the channels and of the
    observations that the export compares.
    """
    import jax
    import jax.numpy as jnp
    import numpy as np

    from neorl_agents import save_policy
    from neorl_agents.networks import init_mlp, tanh
    from neorl_agents.policies import NetworkPolicy
    from neorl_core import highs, lows, standardiser, unit_interval
    from neorl_core.infrastructure import head
    from neorl_deploy.export import ExportOptions, export_run
    from neorl_envs.plants import ChemicalReactor
    from neorl_safety.constraints import constraints_to_dict, declared_constraints
    from neorl_safety.guards import default_settings, settings_to_dict

    plant = ChemicalReactor()
    spec = plant.spec
    low, high = (np.array([getattr(c, end) for c in spec.obs]) for end in ("low", "high"))
    seen = np.random.default_rng(0).uniform(low, high, (40, spec.n_obs)).astype(np.float32)
    policy: Any = NetworkPolicy(
        obs=standardiser(
            jnp.asarray((low + high) / 2),
            jnp.asarray((high - low) / 4),
            span=jnp.asarray(high - low),
        ),
        network=init_mlp((spec.n_obs, *hidden, spec.n_action), jax.random.key(0), output=tanh),
        action=unit_interval(spec.action),
        low=jnp.array(lows(spec.action)),
        high=jnp.array(highs(spec.action)),
    )
    if policy_of is not None:
        policy = policy_of(spec, seen)
    (folder / "policies").mkdir(parents=True)
    save_policy(folder / "policies/network-0.safetensors", policy, spec, seen, {})
    fallback = plant.tunings()[plant.reference]
    save_policy(folder / "policies/fallback.safetensors", fallback, spec, seen, {})
    records = [
        {"kind": "rate", "channel": c.name, "up": float(rate), "down": float(rate)}
        for c, rate in zip(spec.action, plant.action_rates(), strict=True)
    ]
    constraints = declared_constraints(spec, records)
    documents = {
        "run": {**head("run", 1), "status": "finished"},
        "constraints": constraints_to_dict(constraints),
        "guard": settings_to_dict(default_settings(spec), spec),
        "evaluation": head("evaluation", 1),
        "verdict": {**head("verdict", 1), **VERDICT},
    }
    for name, document in documents.items():
        (folder / f"{name}.json").write_text(json.dumps(document))
    return export_run(folder, ExportOptions(onnx=onnx))


def _timings(variants: dict[str, Callable[[], Any]], rounds: int, calls: int) -> dict[str, Any]:
    """Microseconds of every variant, in turn."""
    times: dict[str, list[Timed]] = {name: [] for name in variants}
    for call in variants.values():
        _timed(call, 300)
    for _ in range(rounds):
        for name, call in variants.items():
            times[name] += _timed(call, calls)
    summaries = {name: _summary(values) for name, values in times.items()}
    for name, row in summaries.items():
        print(f"{name}: {json.dumps(row)}", flush=True)
    return {"unit": "microseconds", "rounds": rounds, "calls": calls, "microseconds": summaries}


def _variants(bundle: Any) -> dict[str, Callable[[], Any]]:
    """What is timed, by name."""
    import numpy as np
    import onnxruntime
    import torch  # pyright: ignore[reportMissingImports]

    torch.set_num_threads(1)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(bundle.files["policy.onnx"], options)
    module = _torch_policy(bundle).eval()
    rng = np.random.default_rng(2)
    low, high = _ends(bundle.manifest.obs)
    middle, span = (low + high) / 2, high - low
    seen = rng.uniform(middle - span / 4, middle + span / 4, (64, len(low))).astype(np.float32)
    with torch.inference_mode():
        traced = torch.jit.freeze(torch.jit.trace(module, torch.from_numpy(seen[0])))

    def eager(obs: Any, network: Any = module) -> Any:
        with torch.inference_mode():
            return network(torch.from_numpy(obs)).numpy()

    def by_onnx(obs: Any) -> Any:
        return session.run(["action"], {"obs": obs})[0]

    peers = {
        "torch, eager": eager,
        "TorchScript, traced and frozen": lambda obs: eager(obs, traced),
        "ONNX Runtime": by_onnx,
    }
    _require_same(bundle, peers, seen)
    return _guarded_forms(bundle, seen) | {
        name: _bare(policy, seen) for name, policy in peers.items()
    }


def _guarded_forms(bundle: Any, seen: Any) -> dict[str, Callable[[], Any]]:
    from neorl_deploy.runtime import Runtime

    return {
        "Runtime.step, compiled": _guarded(Runtime(bundle), seen),
        "Runtime.step, NumPy alone": _guarded(Runtime(bundle, "numpy"), seen),
    }


def _require_same(bundle: Any, peers: dict[str, Callable[[Any], Any]], seen: Any) -> None:
    """The peers act as the policy: by the answers of the first, whom the export has compared."""
    import numpy as np

    ranges = np.array([c.high - c.low for c in bundle.manifest.action])
    expected = np.stack([peers["ONNX Runtime"](obs) for obs in seen])
    for name, policy in peers.items():
        difference = np.abs(np.stack([policy(obs) for obs in seen]) - expected) / ranges
        if difference.max() > SAME:
            raise SystemExit(f"{name} acts otherwise, by {difference.max():.1e} of a range")


def _bare(policy: Callable[[Any], Any], seen: Any) -> Callable[[], Any]:
    at = [0]

    def decide() -> None:
        at[0] = (at[0] + 1) % len(seen)
        policy(seen[at[0]])

    return decide


def _guarded(runtime: Any, seen: Any) -> Callable[[], Any]:
    from neorl_deploy.runtime import LastSent

    sent = [runtime.step(seen[0], LastSent.UNKNOWN).action]
    at = [0]

    def decide() -> None:
        at[0] = (at[0] + 1) % len(seen)
        sent[0] = runtime.step(seen[at[0]], sent[0]).action

    return decide


def _torch_policy(bundle: Any) -> Any:
    """The network of the bundle with its scalers, as somebody would write it in torch."""
    import numpy as np
    import torch  # pyright: ignore[reportMissingImports]

    from neorl_agents import load_policy

    run = bundle.path.parent
    policy: Any = load_policy(run / "policies/network-0.safetensors").policy

    def tensor(array: Any) -> Any:
        return torch.from_numpy(np.array(array))

    class Policy(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layers: list[Any] = []
            for weight, bias in zip(policy.network.weights, policy.network.biases, strict=True):
                layer = torch.nn.Linear(*weight.shape)
                layer.weight.data, layer.bias.data = tensor(weight.T), tensor(bias)
                layers += [layer, torch.nn.ReLU()]
            self.network = torch.nn.Sequential(*layers[:-1], torch.nn.Tanh())
            self.low, self.high = tensor(policy.low), tensor(policy.high)
            self.offset, self.scale = tensor(policy.obs.offset), tensor(policy.obs.scale)

        def forward(self, obs: Any) -> Any:
            unit = self.network((obs - self.offset) / self.scale)
            action = self.low + (unit + 1) / 2 * (self.high - self.low)
            return torch.clamp(action, self.low, self.high)

    return Policy()


def _ends(channels: Any) -> Any:
    import numpy as np

    return (np.array([getattr(channel, end) for channel in channels]) for end in ("low", "high"))


def _resident() -> float:
    """Resident memory of this process in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _long_run(bundle: Any, decisions: int) -> dict[str, Any]:
    """Decisions in a row, a lost measurement every 1,000, and the memory at ten moments."""
    import numpy as np

    from neorl_deploy.runtime import LastSent, Runtime

    runtime = Runtime(bundle)
    rng = np.random.default_rng(3)
    low, high = _ends(bundle.manifest.obs)
    seen = rng.uniform(low, high, (1000, len(low))).astype(np.float32)
    seen[500, 0] = np.nan
    sent: Any = LastSent.UNKNOWN
    begin, resident = time.perf_counter(), {}
    marks = {int(decisions * part / 10) for part in range(1, 11)}
    for count in range(1, decisions + 1):
        sent = runtime.step(seen[count % 1000], sent).action
        if count in marks:
            resident[count] = round(_resident(), 2)
    first = resident[min(resident)]
    memory = {
        "decisions": decisions,
        "seconds": round(time.perf_counter() - begin, 1),
        "resident_mib": resident,
        "growth_mib": round(resident[max(resident)] - first, 2),
        "grown_after": min(resident),
    }
    print(f"memory: {json.dumps(memory)}", flush=True)
    return memory


class FastClock:
    """The clocks of this machine, so many times as fast."""

    def now(self) -> Any:
        """The moment."""
        from neorl_deploy.loop import Instant

        return Instant(SPEED * time.monotonic(), 1.7e9 + SPEED * time.monotonic())

    def sleep_until(self, monotonic: float) -> None:
        """Waits until the fast clock shows so many seconds."""
        left = monotonic / SPEED - time.monotonic()
        if left > 0:
            time.sleep(left)


class SteadyPlant:
    """A plant near the middle of its ranges, with noise, whose actuators obey at once."""

    def __init__(self, bundle: Any, clock: FastClock) -> None:
        import numpy as np

        self._clock, self._rng = clock, np.random.default_rng(4)
        self.tags = {c.name: (c.low + c.high) / 2 for c in bundle.manifest.obs}
        self.noise = {c.name: 1e-3 * (c.high - c.low) for c in bundle.manifest.obs}
        self.tags |= {c.name: (c.low + c.high) / 2 for c in bundle.manifest.action}

    def read(self, tags: Any) -> list[Any]:
        """Values with noise, stamped now."""
        from neorl_deploy.loop import Reading

        stamp = self._clock.now().wall
        noise = self._rng.normal(size=len(tags))
        return [
            Reading(self.tags[tag] + self.noise.get(tag, 0.0) * one, stamp=stamp)
            for tag, one in zip(tags, noise, strict=True)
        ]

    def write(self, values: Any) -> dict[str, str]:
        """Everything is taken."""
        self.tags.update(values)
        return {}

    def close(self) -> None:
        """Nothing to end."""


def _shift(bundle: Any, folder: Path, seconds: float) -> dict[str, Any]:
    """A shift in the closed loop at 100 times real time."""
    from neorl_deploy.loop import (
        ControlLoop,
        Input,
        LoopSettings,
        Mode,
        Output,
        TagMap,
        audit_log,
        recorder,
        serve,
    )
    from neorl_deploy.runtime import Runtime

    manifest, clock = bundle.manifest, FastClock()
    inputs = tuple(Input(c.name, c.name, c.unit) for c in manifest.obs)
    outputs = tuple(
        Output(c.name, c.name, c.name, c.unit, 1e-3 * (c.high - c.low)) for c in manifest.action
    )
    tags = TagMap(
        f"sha256:{bundle.digest}",
        {"kind": "none"},
        inputs,
        outputs,
        LoopSettings(unattended="the plant has no permit and watches no heartbeat"),
    )
    folder.mkdir()
    log = audit_log(folder / "audit", bundle)
    runtime = Runtime(bundle)
    runtime.self_test()  # as `load_bundle` does: the program is compiled before the first period
    runtime.keep(folder / "state")
    loop = ControlLoop(runtime, tags, SteadyPlant(bundle, clock), clock, record=recorder(log))
    loop.ask(Mode.CLOSED_LOOP, "the benchmark")
    steps = int(seconds / manifest.dt)
    missed, late, took, closed = 0, 0, [], 0
    last = [-1]

    def after(cycle: Any) -> None:
        nonlocal missed, late, closed
        missed += cycle.number - last[0] - 1
        last[0] = cycle.number
        late += any("came late" in note for note in cycle.notes)
        closed += cycle.mode is Mode.CLOSED_LOOP
        took.append((clock.now().monotonic - cycle.at.monotonic) / SPEED)

    gc.collect()  # and what is left is never looked at again, as with the command `serve`
    gc.freeze()
    begin = time.monotonic()
    serve(loop, clock, steps=steps, after=after)
    log.close()
    ordered = sorted(took)
    shift = {
        "hours": seconds / 3600,
        "speed": SPEED,
        "period_s": manifest.dt,
        "period_wall_ms": round(1e3 * manifest.dt / SPEED, 1),
        "periods": steps,
        "seconds": round(time.monotonic() - begin, 1),
        "missed": missed,
        "late": late,
        "closed_loop": closed,
        "step_ms": {
            "median": round(1e3 * ordered[len(ordered) // 2], 2),
            "largest": round(1e3 * ordered[-1], 2),
        },
    }
    print(f"shift: {json.dumps(shift)}", flush=True)
    return shift


if __name__ == "__main__":
    sys.exit(main())
