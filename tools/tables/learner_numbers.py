"""Write the section "Expected numbers" of every learner's page from the stored cells.

Usage:
    python tools/tables/learner_numbers.py
"""

from pathlib import Path

import numpy as np

from learning_page import (
    OFFICIAL,
    PUBLISHED,
    RESULTS,
    ROOT,
    WITHOUT_PLANT,
    between,
    log_name,
    missing,
    over_cloning,
    read_cells,
    read_controllers,
    trips,
)

PAGES = {
    "awac": ("awac",),
    "bc": ("bc",),
    "cql": ("cql", "cal_ql"),
    "fql": ("fql",),
    "iql": ("iql",),
    "rebrac": ("rebrac",),
    "sac-n-edac": ("sac_n", "edac"),
    "td3-bc": ("td3_bc",),
    "xql": ("xql",),
}
BEGIN = "## Expected numbers"
END = "## Try it"


def main() -> None:
    for page in PAGES:
        path = page_of(page)
        path.write_text(current(page, path.read_text()))


def page_of(page: str) -> Path:
    return ROOT / f"docs/pages/learners/{page}.md"


def current(page: str, text: str) -> str:
    """The page with its section as the cells have it."""
    before = text.partition(BEGIN)[0].partition(END)[0].rstrip()
    return f"{before}\n\n{BEGIN}\n\n{section(page)}\n\n{END}{text.partition(END)[2]}"


def section(page: str) -> str:
    """Text and table of one page: a row for each learner and log."""
    rows = [
        row
        for path in sorted(RESULTS.glob("*.jsonl"), key=lambda path: (path.stem != OFFICIAL, path))
        if WITHOUT_PLANT not in path.stem
        for name in PAGES[page]
        if (row := _row(path, name))
    ]
    heads = (
        "| learner | log | updates | seeds | mean ± standard deviation over seeds "
        "| difference to BC [95 %] | trips |"
    )
    heads += " controller |"
    published = [f"`{name}` {PUBLISHED[name]}" for name in PAGES[page] if name in PUBLISHED]
    footnotes = (
        f"\n\nPublished for NeoRL-2's DMSD (best ± its deviation / median / worst of a grid of "
        f"settings): {'; '.join(published)}."
        if published
        else ""
    )
    left = missing(PAGES[page])
    note = [left, ""] if left else []
    return "\n".join([TEXT, "", *note, heads, "|" + "---|" * 8, *rows]) + footnotes


def _row(path: Path, name: str) -> str:
    cells = read_cells(path)
    if name not in cells:
        return ""
    runs = {key: [one["scores"] for one in cells[key]] for key in {name, "bc"} & set(cells)}
    means = [float(np.mean(run)) for run in runs[name]]
    spread = f" ± {between(runs[name])}" if len(means) > 1 else ""
    log = log_name(path)
    controllers = read_controllers(path)
    best = max(controllers, key=lambda key: float(np.mean(controllers[key])), default="")
    updates = f"{cells[name][0]['updates']:,}"
    row = [f"`{name}`", log, updates, str(len(means)), f"{np.mean(means):.4g}{spread}"]
    row += [over_cloning(name, runs), trips(cells[name])]
    row += [f"{best} {np.mean(controllers[best]):.4g}" if best else ""]
    return f"| {' | '.join(row)} |"


TEXT = """Scores are returns minus the plant's penalties. All policies run the same
episodes, without a guard. Learners use their last networks, two layers of 64, and batches of
128 rows; nothing is tuned to a plant. Scores on NeoRL-2's tasks are normalised. *Trips* is the
share of episodes that the plant ended. [Learners compared](../explanation/learners-compared.md)
has all settings and the other learners. `tools/tables/learner_numbers.py` makes this table."""


if __name__ == "__main__":
    main()
