"""What the build of the site writes into its pages: tables of stored results, and help texts.

A page has a line ``<!-- built: NAME -->`` or ``<!-- built: NAME ARGUMENT -->`` where the table
belongs, and `BLOCKS` says what makes it. The pages of `PAGES` are made as a whole. None of it is
committed: the scripts in tools/studies store results, and what is written here follows them.

The pages of docs/results come into the folder ``results`` of the site. They are in no menu and in
no search, and are reached by links alone.

Usage:
    python tools/pages/built.py FOLDER  copy all pages to a folder with everything filled in
"""

import json
import re
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

import benchmark_figures
import row_proofs

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "docs/pages"
RESULTS = ROOT / "docs/results"
OUT_OF_SEARCH = "---\nsearch:\n  exclude: true\nhide:\n  - navigation\n---\n\n"
MARK = re.compile(r"(?m)^<!-- built: (\w+)(?: (\S+))? -->$")
STUDIES = ROOT / "tools/studies/tables"
PUBLISHED_DEFAULTS = (
    ROOT / "packages/neorl-agents/tests/algorithms/fixtures/published_defaults.toml"
)


def study(name: str) -> Any:
    """A module of the studies, which finds its neighbours as it does when it is run as a script."""
    beside = STUDIES.joinpath(*name.split(".")[:-1])
    sys.path += [str(place) for place in (STUDIES, beside) if str(place) not in sys.path]
    return import_module(name)


def stored(module: Any) -> Any:
    """The results that a study keeps in one file."""
    return json.loads(module.RESULT.read_text(encoding="utf-8"))


def family_pools() -> str:
    module = study("choice.family_pools")
    return module.tables(sorted(module.rows(), key=lambda row: row["plant"]))


def demo_verdicts() -> str:
    module = study("choice.demo_verdicts")
    return module.table(stored(module))


def policy_selection() -> str:
    module = study("choice.policy_selection")
    return module.page(stored(module))


def verdict_errors() -> str:
    module = study("choice.verdict_errors")
    return module.page(stored(module))


def retuning() -> str:
    return study("choice.retuning_page").section(study("retuning_table").every_row())


def load_balance(graph: str) -> str:
    module = study("graphs.load_balance")
    file = module.OUT / f"load_balance_{graph}.json"
    return module.table(json.loads(file.read_text(encoding="utf-8")))


def declared_graph(plant: str) -> str:
    module = study("graphs.declared")
    return module.table(json.loads(module.OUT.read_text(encoding="utf-8"))[plant])


def federated_graph() -> str:
    module = study("graphs.federated")
    return module.table(json.loads(module.OUT.read_text(encoding="utf-8"))["gcn"])


def benchmark_learners() -> str:
    module = study("learning_page")
    logs: dict[str, dict[str, tuple[float, float, float]]] = {}
    names = []
    for path in sorted(module.RESULTS.glob("*-v0-*.jsonl")):
        plant, _, quality = path.stem.rpartition("-")
        names.append(f"{plant.removesuffix('-v0')}, {quality}")
        cells = module.read_cells(path)
        runs = {name: [one["scores"] for one in of_name] for name, of_name in cells.items()}
        for name in runs:
            if name != "bc" and min(len(runs[name]), len(runs["bc"])) > 1:
                mean, low, high = module.difference_to_cloning(runs, name)
                logs.setdefault(name, {})[names[-1]] = mean, low, high
    order = [name for name in module.COMPARED if name in logs]
    return benchmark_figures.learners(names, {name: logs[name] for name in order})


def benchmark_retuned() -> str:
    module = study("choice.retuning_page")
    results = {}
    for plant, rows in study("retuning_table").every_row().items():
        kind = module.Kind(module.LOGS[0], False, module.PICK)
        stored_rows = json.loads((module.BASELINES / f"{plant}.json").read_text(encoding="utf-8"))
        returns = {row["policy"]: row["return"] for row in stored_rows["rows"]}
        best = returns[stored_rows["reference"]]
        results[plant.removesuffix("-v0")] = [
            (
                module.answer(row),
                tuple(gain / (best - returns[row["controller"]]) for gain in row["gain"]),
                f"gain {module.gain_words(row['gain'])} {module.make(plant).reward_unit}",
            )
            for row in rows
            if module.kind_of(row) == kind
        ]
    return benchmark_figures.retuned(results)


def log_lengths() -> str:
    """The curve of logs of growing length and its table."""
    module = study("choice.log_lengths")
    return f"{benchmark_figures.lengths(module.curve())}\n\n{module.page()}"


def published_defaults() -> str:
    """Where our default is not that of the published script, and learners that have none."""
    from neorl_agents import ALGORITHMS
    from neorl_train.configuration import DEMO_HYPERPARAMETERS

    facts = tomllib.loads(PUBLISHED_DEFAULTS.read_text(encoding="utf-8"))
    lines = ["| Learner | Argument there | There | Here | Why |", "|---|---|---|---|---|"]
    for name, one in facts["learners"].items():
        source = facts["sources"][one["source"]]
        link = f"https://{source['repository']}/blob/{source['commit']}/{one['file']}"
        learner = ALGORITHMS[name]()
        for argument, theirs, field, *why in one["arguments"]:
            if why and not why[0].startswith("the same"):
                own = f"`{field}` {attrgetter(field)(learner)}" if field else "none"
                lines.append(f"| `{name}` | [`{argument}`]({link}) | {theirs} | {own} | {why[0]} |")
    without = "; ".join(f"`{name}` ({why})" for name, why in facts["without"].items())
    runs = "; ".join(
        f"`{name}` {', '.join(f'`{field}` {value}' for field, value in _flat(settings))}"
        for name, settings in DEMO_HYPERPARAMETERS.items()
    )
    last = f"A run from the command line has other defaults than the class for three: {runs}."
    return "\n".join([*lines, "", f"Not compared: {without}.", "", last])


def _flat(settings: dict[str, Any], where: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{where}{name}.")
        else:
            yield where + name, value


def changelog() -> str:
    """The changelogs of the six packages on one page."""
    parts = ["# Changelog", "Nothing has been released yet. Each package has its own versions."]
    for file in sorted(ROOT.glob("packages/neorl-*/CHANGELOG.md")):
        _, _, entries = file.read_text(encoding="utf-8").partition("\n## ")
        entries = re.sub(r"(?m)^### .+\n+", "", re.sub(r"(?m)^## ", "### ", f"## {entries}"))
        entries = entries.replace("../../docs/pages/", "")
        parts += [f"## {file.parent.name}", entries.strip()]
    return "\n\n".join(parts) + "\n"


def learner_speeds() -> str:
    """Times of an update beside other libraries, with the interval of every ratio."""
    peers = {"corl": "CORL", "d3rlpy": "d3rlpy", "unifloral": "unifloral"}
    result = json.loads(benchmark_figures.SPEEDS.read_text(encoding="utf-8"))
    lines = [f"| Size | Learner | ours, µs | {' | '.join(peers.values())} |"]
    lines.append("|---" * (3 + len(peers)) + "|")
    for case in result["cases"]:
        words = []
        for peer in peers:
            low, high = case["intervals"].get(peer, (None, None))
            words.append(f"{case['ratios'][peer]:.3g} [{low:.3g}, {high:.3g}]" if low else "")
        ours = f"{case['times']['ours']['median']:,.0f}"
        size = "D4RL" if case["size"] == "d4rl" else case["size"]
        lines.append(f"| {size} | `{case['learner']}` | {ours} | {' | '.join(words)} |")
    return "\n".join(lines)


def federation() -> str:
    module = study("federation.table")
    return module.tables(json.loads(module.RESULTS.read_text(encoding="utf-8")))


def federated_retuning() -> str:
    module = study("federation.retuning")
    return module.table(json.loads(module.RESULTS.read_text(encoding="utf-8")))


def namespaces(package: str) -> str:
    """The namespaces of a package, as the table of its README has them, with links to their pages.

    Rows that stand for the package itself have no page and are left out.
    """
    readme = (ROOT / f"packages/neorl-{package}/README.md").read_text(encoding="utf-8")
    rows = re.findall(rf"(?m)^\| \[?`(?:neorl_{package}\.)?([\w.]+)`(?:\]\S+)? \| (.+) \|$", readme)
    lines = []
    for name, text in rows:
        page = f"{name.partition('.')[0]}.md"
        if name != "top" and (SOURCE / "reference" / package / page).is_file():
            lines.append(f"| [`{name}`]({page}) | {text.replace('../../docs/pages/', '../../')} |")
    return "\n".join(["| Namespace | What it holds |", "|---|---|", *lines])


def walks() -> str:
    """The record of tools/walks.py, with its goals."""
    record = json.loads((ROOT / "tests/gates/walks.json").read_text(encoding="utf-8"))
    lines = ["| Counted | Record | Goal |", "|---|---|---|"]
    lines += [f"| {n} | {k} | {record['goals'][n]} |" for n, k in record["walks"].items()]
    lines += ["", "| Package | Rooms | Files | Lines of code |", "|---|---|---|---|"]
    lines += [
        f"| `{package}` | {of['rooms']} | {of['files']} | {of['code']:,} |"
        for package, of in record["sizes"].items()
    ]
    return "\n".join(lines)


BLOCKS: dict[str, Callable[..., str]] = {
    "aim_curve": lambda: study("aim_curve").table(),
    "benchmark_learners": benchmark_learners,
    "benchmark_retuned": benchmark_retuned,
    "benchmark_speeds": benchmark_figures.speeds,
    "candidate_pools": lambda: study("choice.candidate_pools").page(),
    "declared_graph": declared_graph,
    "demo_verdicts": demo_verdicts,
    "family_pools": family_pools,
    "federated_graph": federated_graph,
    "federation": federation,
    "federated_retuning": federated_retuning,
    "head_room": lambda: study("head_room").page(),
    "held_out_modes": lambda: study("choice.held_out_modes").page(),
    "learner_counts": lambda name: study("learner_numbers").counts(name),
    "learner_speeds": learner_speeds,
    "learner_numbers": lambda page: study("learner_numbers").section(page),
    "learners_in_a_model": lambda: "\n".join(study("model_based.rollout_table").page_rows()),
    "learners_in_a_model_compared": lambda: study("learner_numbers").comparison(),
    "limits": lambda: study("limits.limits_table").page(),
    "load_balance": load_balance,
    "log_lengths": log_lengths,
    "namespaces": namespaces,
    "neorl2_blind": lambda: study("neorl2_blind").page(),
    "outside_plants": lambda: study("outside_plants").page(),
    "plant": lambda name: study("plant_pages").overview(name),
    "plant_baselines": lambda name: study("plant_pages").baselines(name),
    "plants": lambda: study("plant_pages").gallery(),
    "policy_selection": policy_selection,
    "pool_estimators": lambda: study("choice.pool_estimators").page(),
    "published_defaults": published_defaults,
    "published_logs": lambda: study("published_logs").table(),
    "retuning": retuning,
    "row_proofs": row_proofs.table,
    "verdict_errors": verdict_errors,
    "verdicts_on_plants": lambda: study("choice.verdicts_on_plants").page(),
    "walks": walks,
}
"""What makes the table of a name; some take the argument that stands behind it."""
PAGES: dict[str, Callable[[], str]] = {
    "changelog.md": changelog,
    "results/learners-compared.md": lambda: study("learning_page").page(),
    "results/learning-on-every-plant.md": lambda: study("plant_learning").page(),
    **{
        f"reference/commands/{program}.md": lambda program=program: import_module(
            "command_pages"
        ).page_of(program)
        for program in ("neorl-train", "neorl-envs", "neorl-deploy")
    },
}
"""Pages that are made as a whole."""


def filled(text: str) -> str:
    """A page with a table in place of every mark.

    Raises:
        KeyError: If a mark names a table that nothing makes.
    """

    def table(match: re.Match[str]) -> str:
        arguments = [match[2]] if match[2] else []
        return BLOCKS[match[1]](*arguments).rstrip("\n")

    return MARK.sub(table, text)


def sources() -> list[Path]:
    """Every file that the site is made from."""
    return sorted([*SOURCE.rglob("*.*"), *RESULTS.rglob("*.*")])


def place(path: Path) -> Path:
    """Where a source goes, relative to the folder of the site's pages."""
    if path.is_relative_to(RESULTS):
        return Path("results") / path.relative_to(RESULTS)
    return path.relative_to(SOURCE)


def page(path: Path) -> str:
    """A source of Markdown with tables filled in and links as they are on the site."""
    text = path.read_text(encoding="utf-8")
    if path.is_relative_to(RESULTS):
        return OUT_OF_SEARCH + filled(text.replace("../pages/", "../"))
    return filled(text.replace("../results/", "results/"))


def copy_pages(folder: Path, fresh: Iterable[Path] | None = None) -> None:
    """Writes the pages into a folder, filled in; what is unchanged there keeps its time.

    Args:
        folder: Where they go.
        fresh: The sources to copy; without it all of them, and the pages made as a whole.
    """
    texts = {}
    if fresh is None:
        texts = {
            folder / name: OUT_OF_SEARCH * name.startswith("results/") + make()
            for name, make in PAGES.items()
        }
        wanted = {folder / place(path) for path in sources()} | set(texts)
        for path in folder.rglob("*.*"):
            if path not in wanted:
                path.unlink()
    for path in sources() if fresh is None else fresh:
        target = folder / place(path)
        if path.suffix == ".md":
            texts[target] = page(path)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    for target, text in texts.items():
        if not target.is_file() or target.read_text(encoding="utf-8") != text:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit((__doc__ or "").partition("Usage:")[2].strip())
    copy_pages(Path(sys.argv[1]))
