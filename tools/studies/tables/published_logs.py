"""Make published logs and record their hashes, in packages/neorl-envs/.../published/logs.json.

Usage:
    python tools/studies/tables/published_logs.py  small logs that are missing or outdated
    python tools/studies/tables/published_logs.py --size full NAME ...  full ones, of given qualities
    python tools/studies/tables/published_logs.py --plain NAME ...         as the daily tests compile
    python tools/studies/tables/published_logs.py --page  print the table of the records alone

A log whose settings and numerical environment are recorded already is left out, unless --again is
given. A record whose settings have changed is replaced. Each log is kept as soon as it is made, so
an interrupted run goes on where it stopped. ``neorl-envs collect NAME --quality Q --size S`` makes
one of them and says whether it equals the record.
"""

import argparse
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
RECORDS = ROOT / "packages/neorl-envs/src/neorl_envs/published/logs.json"
QUALITIES = ("random", "medium", "mixed", "expert")


def main() -> int:
    """Makes what is missing, then prints the table of the records."""
    arguments = _arguments()
    if not arguments.page:
        _make(arguments)
    print(table())
    return 0


def _make(arguments: argparse.Namespace) -> None:
    import jax

    if arguments.plain:
        _compile_as_the_tests()
    from neorl_core.infrastructure import keep_compiled_programs
    from neorl_envs import collect_log, environment_names, make
    from neorl_envs.published import (
        SPREAD,
        log_size,
        log_statistics,
        numerical_environment,
        settings_digest,
    )
    from neorl_envs.recording import quality

    keep_compiled_programs()
    here = numerical_environment()
    for name in arguments.names or environment_names():
        env: Any = make(name)
        steps = log_size(name, arguments.size)
        for chosen in arguments.quality:
            identity = {"plant": name, "quality": chosen, "seed": arguments.seed, "steps": steps}
            digest = settings_digest(env, chosen, seed=arguments.seed, n_steps=steps, spread=SPREAD)
            old = _record(identity)
            content = old["content"] if old.get("settings") == digest else {}
            if here in content and not arguments.again:
                continue
            started_at, used = time.perf_counter(), time.process_time()
            policies, plan = quality(env, chosen)
            key = jax.random.key(arguments.seed)
            log = collect_log(env, policies, plan=plan, n_steps=steps, key=key, spread=SPREAD)
            figures = log_statistics(log)
            new = {**identity, "settings": digest, **figures}
            new["content"] = {**content, here: log.content_hash}
            _keep(new)
            print(
                f"{name} {chosen} {log.n_rows} rows: {time.perf_counter() - started_at:.1f} s, "
                f"{time.process_time() - used:.1f} processor s, peak "
                f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB, "
                f"{log.content_hash}",
                flush=True,
            )


def _compile_as_the_tests() -> None:
    """As the tests do; XLA reads its flags when a device is first asked for."""
    import jax

    before = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{before} --xla_cpu_use_fusion_emitters=false"
    jax.config.update("jax_disable_most_optimizations", True)
    jax.devices()
    os.environ["XLA_FLAGS"] = before


def records() -> list[dict[str, Any]]:
    """All records, sorted."""
    logs = json.loads(RECORDS.read_text())["logs"] if RECORDS.exists() else []
    order = {quality: i for i, quality in enumerate(QUALITIES)}
    return sorted(logs, key=lambda r: (r["plant"], r["steps"], order[r["quality"]], r["seed"]))


def _record(identity: dict[str, Any]) -> dict[str, Any]:
    return next((r for r in records() if _same(r, identity)), {})


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(one[name] == other[name] for name in ("plant", "quality", "seed", "steps"))


def _keep(record: dict[str, Any]) -> None:
    """Writes the table with the record in it, a line each."""
    others = [r for r in records() if not _same(r, record)]
    RECORDS.write_text(_text([*others, record]))
    RECORDS.write_text(_text(records()))


def _text(logs: list[dict[str, Any]]) -> str:
    lines = ",\n".join(json.dumps(record) for record in logs)
    return f'{{"format": "neorl-published-logs", "version": 1, "logs": [\n{lines}\n]}}\n'


def table() -> str:
    """The table of the records."""
    head = ["Plant", "Quality", "Seed", "Rows", "Episodes", "Mean return", "Content", "Settings"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for r in records():
        content = "; ".join(f"`{x[7:19]}` ({where})" for where, x in sorted(r["content"].items()))
        cells = [r["plant"], r["quality"], r["seed"], r["rows"], r["episodes"]]
        cells += [f"{r['returns'][0]:.6g}", content, f"`{r['settings'][7:15]}`"]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="plants (all)")
    parser.add_argument("--size", choices=("small", "full"), default="small")
    parser.add_argument("--quality", nargs="+", choices=QUALITIES, default=QUALITIES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--again", action="store_true", help="make recorded logs again too")
    parser.add_argument("--plain", action="store_true", help="compile with few optimisations")
    parser.add_argument("--page", action="store_true", help="only print the table")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
