"""What the build of the site fills into the page of a plant, and the picture of a typical run.

Usage:
    python tools/studies/tables/plant_pages.py [NAME ...]  draw the typical runs of plants (all)

The tables come from the plant's declarations, from tools/pages/plant_diagrams.toml, which says what
the channels are, and from tools/studies/baselines/NAME.json, which
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
from neorl_envs.blocks import named_constants

sys.path.append(str(Path(__file__).resolve().parents[2] / "pages"))

from plant_diagrams import diagram, drawn, explained

ROOT = Path(__file__).resolve().parents[3]
PAGES = ROOT / "docs/pages/plants"
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


def penalty(env: Any, cost: Any) -> str:
    """What one unit of a cost takes from the reward, as `neorl-envs plants` says it."""
    weight, unit = env.penalty_weights().get(cost.name, 0), env.reward_unit
    times = " ×" if unit[:1].isdigit() else ""
    return f"{weight:g}{times} {unit} per {cost.unit if cost.unit != '1' else 'unit'}"


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


def overview(name: str) -> str:
    """The head of a plant's page: diagram, channels, costs and a typical run, as Markdown."""
    env: Any = make(name)
    spec = env.spec
    parts = [
        f"{drawn()[name]['about']} Its name in commands is `{name}`.\n",
        f"{drawn()[name]['story']}\n",
        _diagram(env),
        *_picture(env),
        f"## Channels\n\nThe control period is {spec.dt:g} s, and an episode has at most "
        f"{spec.horizon} steps. {TRUTH}{BETWEEN.get(name, '')}\n",
        *_measured(env),
        *_manipulated(env),
        *_costs(env),
    ]
    return "\n".join(parts).rstrip() + "\n"


def baselines(name: str) -> str:
    """The end of a plant's page: what controllers reach, and the constants, as Markdown."""
    env: Any = make(name)
    return "\n".join([*_baselines(env), *_constants(env)]).rstrip() + "\n"


def gallery() -> str:
    """A section for each plant with its diagram, and links to the pages."""
    parts = []
    for name in environment_names():
        env: Any = make(name)
        spec = env.spec
        counts = f"{spec.n_obs} measured and {spec.n_action} manipulated channels"
        limits = ", ".join(f"*{cost.name}*" for cost in spec.cost)
        parts += [
            f"## [{name.removesuffix('-v0')}]({_folder(name)}.md)\n",
            f"{drawn()[name]['about']} It has {counts}, and a period of {spec.dt:g} s. "
            + (f"Limited costs: {limits}.\n" if limits else "It has no costs.\n"),
            _diagram(env),
        ]
    return "\n".join(parts)


def _diagram(env: Any) -> str:
    channels = ([c.name for c in of] for of in (env.spec.obs, env.spec.action))
    return f"{diagram(env.name, *channels)}\n"


def _measured(env: Any) -> list[str]:
    spec = env.spec
    waits = _dead_times(env.instruments, spec.dt)
    rows = [
        (c.name, c.unit, f"{c.low:g} to {c.high:g}", role(env, c.name), wait)
        for c, wait in zip(spec.obs, waits, strict=True)
    ]
    head = ["Measured", "Unit", "Range", "Role", "Dead time", "What it is"]
    return _channel_table(env.name, "measured", head, rows)


def _manipulated(env: Any) -> list[str]:
    spec = env.spec
    waits = _dead_times(env.actuators, spec.dt)
    rows = [
        (c.name, c.unit, f"{c.low:g} to {c.high:g}", f"{r:.4g}" if np.isfinite(r) else "any", wait)
        for c, r, wait in zip(spec.action, env.action_rates(), waits, strict=True)
    ]
    head = ["Manipulated", "Unit", "Range", "Largest change per second", "Dead time", "What it is"]
    return _channel_table(env.name, "manipulated", head, rows)


def role(env: Any, channel: str) -> str:
    """What a measured channel is to a controller, from the declarations of the plant."""
    if channel in env.tracked:
        return f"follows `{env.tracked[channel]}`"
    if channel in env.tracked.values():
        return "setpoint"
    if channel in env.bands():
        low, high = env.bands()[channel]
        return f"kept from {low:g} to {high:g}" if np.isfinite(low) else f"at most {high:g}"
    return "given from outside" if channel in env.exogenous else ""


def _channel_table(
    plant: str, kind: str, head: list[str], rows: list[tuple[str, ...]]
) -> list[str]:
    """A row for each channel, or one for neighbours that differ in their names alone."""
    texts = explained(plant, kind, [row[0] for row in rows])
    alike: list[list[str]] = []
    last: tuple[str, ...] = ()
    for name, *cells in rows:
        now = (*cells, texts[name])
        if now != last:
            alike.append([])
        alike[-1].append(name)
        last = now
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    cells_of = {name: cells for name, *cells in rows}
    for names in alike:
        shown = f"`{names[0]}`" if len(names) == 1 else f"`{names[0]}` to `{names[-1]}`"
        cells = [shown, *cells_of[names[0]], texts[names[0]]]
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]


def _dead_times(devices: Any, dt: float) -> list[str]:
    return [f"{d.dead_time * dt:g} s" if d.dead_time else "" for d in devices]


def _costs(env: Any) -> list[str]:
    if not env.spec.cost:
        return []
    lines = ["| Cost | Unit | Limit | Penalty |", "|---|---|---|---|"]
    for c in env.spec.cost:
        lines.append(f"| {c.name} | {c.unit} | {c.limit:g} per {c.per} | {penalty(env, c)} |")
    return [*lines, ""]


def _ends(env: Any, result: dict[str, Any]) -> str:
    """Least and largest return of the scale, and which policies the return alone would rank wrong."""
    rows = {row["policy"]: row for row in result["rows"] if "lost" not in row}
    random, best = (
        f"{rows[name]['return']:.5g} (score {rows[name]['score']:.5g})"
        for name in ("random", result["reference"])
    )
    text = (
        f" The ends of the scale are the returns of random actions, {random}, and of "
        f"{result['reference']}, {best}, in {result['unit']}."
    )
    ordinary = rows[next(iter(env.tunings()))]
    wrong = [
        name
        for name, row in rows.items()
        if row["return"] > ordinary["return"] and row["score"] < ordinary["score"]
    ]
    if wrong:
        text += (
            f" By its return alone, {', '.join(wrong)} would rank above {ordinary['policy']}: only "
            "the score counts broken limits."
        )
    return text


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
    text += _ends(env, result)
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
    return [f"![A run under {env.reference}](../images/plants/{path.name})", ""]


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
