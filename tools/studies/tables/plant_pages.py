"""The tables of every plant's page, which the build of the site fills in, and its picture.

Usage:
    python tools/studies/tables/plant_pages.py [NAME ...]  draw the typical runs of plants (all)

The tables come from the plant's declarations and from tools/studies/baselines/NAME.json, which
tools/studies/tables/baseline_table.py measures.
"""

import argparse
import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from baseline_table import RESULTS, table
from neorl_envs import environment_names, make
from neorl_envs._command.describe import penalty
from neorl_envs.blocks import named_constants

ROOT = Path(__file__).resolve().parents[3]
PAGES = ROOT / "docs/pages/reference/envs/plants"
PICTURES = ROOT / "docs/pages/images/plants"
COLOURS = 64
TRUTH = (
    "Rewards, costs, trips and successes are computed from the plant's true state at the end of "
    "each period, never from the readings. If you compute them again from the measured columns of "
    "a log, you get other numbers where instruments are noisy or late, or where a quantity is not "
    "measured. The columns `reward` and `cost` of a log hold the true ones."
)
BETWEEN = {
    "RobotAssembly-v0": " The force is the exception: its peak within the period counts.",
    "PowerGrid-v0": " A frequency may swing further between two samples; 6 % further was observed.",
    "SteelAnnealing-v0": " A sample stands for up to 56 m of strip.",
}


def main() -> int:
    """Draws the pictures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="plants (all)")
    for name in parser.parse_args().names or environment_names():
        draw(name)
    return 0


def page_of(name: str) -> Path:
    """The reference page of a plant, called after its folder."""
    return PAGES / f"{_folder(name)}.md"


def tables(name: str) -> str:
    """All tables of a plant as Markdown."""
    env: Any = make(name)
    parts = [*_channels(env), *_costs(env), *_baselines(env), *_picture(env), *_constants(env)]
    return "\n".join(parts).rstrip() + "\n"


def _channels(env: Any) -> list[str]:
    spec = env.spec
    lines = [f"## {env.name}", ""]
    lines += [f"Control period {spec.dt:g} s, at most {spec.horizon} steps.", ""]
    lines += [f"{TRUTH}{_between_samples(env)}", ""]
    lines += ["| Measured | Unit | Range | Dead time |", "|---" * 4 + "|"]
    for c, wait in zip(spec.obs, _dead_times(env.instruments, spec.dt), strict=True):
        lines.append(f"| {c.name} | {c.unit} | {c.low:g} to {c.high:g} | {wait} |")
    head = "| Manipulated | Unit | Range | Largest change per second | Dead time |"
    lines += ["", head, "|---" * 5 + "|"]
    waits = _dead_times(env.actuators, spec.dt)
    for c, rate, wait in zip(spec.action, env.action_rates(), waits, strict=True):
        shown = f"{rate:.4g}" if np.isfinite(rate) else "no limit"
        lines.append(f"| {c.name} | {c.unit} | {c.low:g} to {c.high:g} | {shown} | {wait} |")
    return [*lines, ""]


def _between_samples(env: Any) -> str:
    return BETWEEN.get(env.name, "")


def _dead_times(devices: Any, dt: float) -> list[str]:
    return [f"{d.dead_time * dt:g} s" if d.dead_time else "" for d in devices]


def _costs(env: Any) -> list[str]:
    if not env.spec.cost:
        return []
    lines = ["| Cost | Unit | Limit | Penalty |", "|---|---|---|---|"]
    for c in env.spec.cost:
        lines.append(f"| {c.name} | {c.unit} | {c.limit:g} per {c.per} | {penalty(env, c)} |")
    return [*lines, ""]


def _baselines(env: Any) -> list[str]:
    path = RESULTS / f"{env.name}.json"
    if not path.exists():
        return []
    result = json.loads(path.read_text())
    text = (
        f"Means and standard errors over {result['episodes']} episodes; the score is the return "
        "minus the declared penalties. *Within limit* is the share of episodes that stay within "
        "the limit to the end; an episode that trips counts as outside every limit, and nothing "
        "after the trip is added to its costs."
    )
    if any(row["policy"].endswith(", shifted") for row in result["rows"]):
        text += (
            f" *Shifted* draws the constants with a spread of {result['shifted']:g} in place of "
            f"{result['spread']:g}."
        )
    if "test_mode" in result:
        factors = ", ".join(f"{name} x {x:g}" for name, x in result["test_mode"].items())
        modes = [row for row in result["rows"] if "lost" in row]
        lost = [
            f"{row['policy'].removesuffix(', test mode')} "
            f"{row['lost']:.3g} ± {row['lost_error']:.2g}"
            for row in modes
        ]
        text += (
            f" In *test mode*, the constants change: {factors}. With the same random numbers, "
            f"these controllers lose: {', '.join(lost)}."
        )
    search = next((row for row in result["rows"] if "candidates" in row), None)
    if search:
        text += (
            f" The best constant action was searched among {search['candidates']} candidates on "
            f"{search['search_episodes']} other episodes."
        )
    return ["## Baselines", "", text, "", *table(result), "", *_identified(env, result["costs"])]


def _identified(env: Any, costs: list[str]) -> list[str]:
    """Controllers that were fitted on the plant's own log."""
    path = RESULTS / "classical" / f"{env.name}.json"
    lines = ["## Identified from the log", ""]
    if not path.exists():
        return [
            *lines,
            "LQG and MPC have not been measured on the present version of this plant.",
            "",
        ]
    result = json.loads(path.read_text())
    reasons = {row.get("reason") for row in result["rows"]}
    if not result["episodes"]:
        reason = str(reasons.pop()).replace(": ", "; ")
        return [*lines, f"LQG and MPC do not apply: {reason}.", ""]
    effort = result.get("settings", {}).get("effort")
    lines.append(
        f"LQG and MPC use a linear model, of order two at most, identified from "
        f"{result['log_rows']} rows of mixed quality (`tools/studies/tables/classical_table.py`), and ran "
        f"{result['episodes']} of the same episodes. "
        + (f"Their effort is {effort:g}." if effort else "All other settings are the defaults.")
    )
    head = [
        "",
        f"return [{env.reward_unit}]",
        "score",
        *costs,
        *(f"{c} within limit" for c in costs),
    ]
    head = [*head, "trips"]
    lines += ["", f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for row in result["rows"]:
        if "reason" in row:
            lines.append(f"| {row['policy']} | not fitted: {row['reason']} " + "| " * len(head))
            continue
        pairs = [f"{row[x]:.4g} ± {row[x + '_error']:.2g}" for x in ("return", "score")]
        shares = [f"{100 * row['kept'][c]:.3g} %" for c in costs]
        sums = [f"{row['cost'][c]:.3g}" for c in costs]
        cells = [row["policy"], *pairs, *sums, *shares, f"{100 * row['trips']:.3g} %"]
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]


def _constants(env: Any) -> list[str]:
    declared = list(named_constants(getattr(env, "constants", ())))
    if not declared:
        return []
    lines = ["## Constants", "", "| Constant | Value | Unit | Spread | Source |", "|---" * 5 + "|"]
    for name, c, value in declared:
        spread = f"{c.spread:g}" if c.spread else ""
        lines.append(f"| {name} | {_value(value)} | {c.unit} | {spread} | {c.source} |")
    kept = [f"`{relation}`" for relation in env.relations]
    return [*lines, "", f"Constants and initial states must satisfy {', '.join(kept)}.", ""]


def _value(value: Any) -> str:
    array = np.asarray(value)
    if array.size > 12:
        low, high = array.min(), array.max()
        return f"{' by '.join(map(str, array.shape))} values, {low:.5g} to {high:.5g}"
    return ", ".join(f"{number:.6g}" for number in array.ravel())


def _picture(env: Any) -> list[str]:
    path = PICTURES / f"{_folder(env.name)}.png"
    if not path.exists():
        return []
    return [f"![A run under {env.reference}](../../../images/plants/{path.name})", ""]


def draw(name: str) -> None:
    """A typical run under the reference, with few colours."""
    import jax
    from PIL import Image

    from neorl_envs.render import png, trends
    from neorl_envs.scoring import run_episode

    env: Any = make(name)
    rows = run_episode(env, env.tunings()[env.reference], jax.random.key(0))
    title = f"{name}, {env.reference}"
    figure = trends(env.spec, rows, bands=env.bands(), tracked=env.tracked, title=title)
    picture = Image.open(io.BytesIO(png(figure, dpi=72))).convert("RGB")
    PICTURES.mkdir(parents=True, exist_ok=True)
    few = picture.quantize(COLOURS, dither=Image.Dither.NONE)
    few.save(PICTURES / f"{_folder(name)}.png", optimize=True)


def _folder(name: str) -> str:
    return type(make(name)).__module__.split(".")[2]  # a folder of plants, or a file


if __name__ == "__main__":
    sys.exit(main())
