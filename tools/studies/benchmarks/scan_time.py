"""How long a scan of a printed controller takes, beside a bare PID in the same program.

The C of a bundle and, where matiec's ``iec2c`` is on the path, its structured text through that
compiler, each by ``gcc -O2``, are stepped through the rows of their test sheet, over and over. The
peer is one PID in velocity form for every actuator, with limits and nothing else: no guard, no
fallback, no quality of inputs. A mean is processor time of many scans; the worst is the clock of
single scans, and above the 99.9th percentile it is mostly the machine's interrupts.

    python tools/studies/benchmarks/scan_time.py pid=pid.bundle network=network.bundle

The bundles are those of the tutorial *one controller in every form*.
"""

import argparse
import csv
import io
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from _rounds import RESULTS, machine, summary, write

SCANS, ROUNDS = 200_000, 9
FLAGS = ("-O2", "-w", "-ffp-contract=off")
MAIN = """\
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static double seconds(clockid_t id) {{
  struct timespec t; clock_gettime(id, &t); return t.tv_sec + 1e-9 * t.tv_nsec;
}}
static int ascending(const void *a, const void *b) {{
  double x = *(const double *)a, y = *(const double *)b; return (x > y) - (x < y);
}}
void start(void); void step(const double *given, double *answer);
static const double rows[{n_rows}][{width}] = {{{rows}}};
static double answer[{outputs}], one[{scans}]; volatile double sink;
int main(void) {{
  start();
  for (int i = 0; i < {scans}; i++) {{ step(rows[i % {n_rows}], answer); sink = answer[0]; }}
  double begin = seconds(CLOCK_PROCESS_CPUTIME_ID);
  for (int i = 0; i < {scans}; i++) {{ step(rows[i % {n_rows}], answer); sink = answer[0]; }}
  double mean = (seconds(CLOCK_PROCESS_CPUTIME_ID) - begin) / {scans};
  for (int i = 0; i < {scans}; i++) {{
    double at = seconds(CLOCK_MONOTONIC);
    step(rows[i % {n_rows}], answer); sink = answer[0];
    one[i] = seconds(CLOCK_MONOTONIC) - at;
  }}
  qsort(one, {scans}, sizeof(double), ascending);
  printf("%.6f %.6f %.6f\\n", 1e6 * mean, 1e6 * one[{scans} * 999L / 1000], 1e6 * one[{scans} - 1]);
}}
"""
PEER = """\
static float held[{n}], before[{n}], last[{n}];
void start(void) {{ for (int i = 0; i < {n}; i++) held[i] = before[i] = last[i] = 0; }}
void step(const double *given, double *answer) {{
  for (int i = 0; i < {n}; i++) {{
    float error = 0.5f - (float)given[i], change = error - before[i];
    held[i] += 2.0f * change + 0.01f * error + 0.1f * (change - last[i]);
    held[i] = held[i] < 0 ? 0 : held[i] > 100 ? 100 : held[i];
    before[i] = error; last[i] = change; answer[i] = held[i];
  }}
}}
"""


def main() -> int:
    """Measures and writes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bundles", nargs="+", help="NAME=FOLDER of a bundle")
    parser.add_argument("--out", type=Path, default=RESULTS / "scan_time.json")
    arguments = parser.parse_args()
    programs: dict[str, list[str]] = {}
    operations = {}
    with tempfile.TemporaryDirectory() as name:
        for given in arguments.bundles:
            label, _, path = given.partition("=")
            operations[label] = prepare(label, Path(path), Path(name), programs)
        times: dict[str, dict[str, list[float]]] = {
            label: {"mean": [], "p99.9": [], "worst": []} for label in programs
        }
        for _ in range(ROUNDS):  # in turn, so that the machine's moods meet all
            for label, command in programs.items():
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                for kind, value in zip(times[label], done.stdout.split(), strict=True):
                    times[label][kind].append(float(value))
    # Of the fastest rounds, since a processor changes its clock between rounds.
    fastest = {label: min(of["mean"]) for label, of in times.items()}
    ratios = {
        f"{label} / bare PID": mean / fastest[f"{label.partition(':')[0]}: bare PID"]
        for label, mean in fastest.items()
        if not label.endswith("bare PID")
    }
    result: dict[str, Any] = {
        "benchmark": "scan_time",
        "command": f"python tools/studies/benchmarks/scan_time.py {' '.join(sys.argv[1:])}",
        "unit": "microseconds a scan: processor time of many, clock of single ones",
        "scans": SCANS,
        "operations": operations,
        "variants": {
            label: {kind: summary(values) for kind, values in of.items()}
            for label, of in times.items()
        },
        "ratios of the fastest rounds": ratios,
        **machine(("numpy",)),
    }
    write(arguments.out, result)
    for label, of in times.items():
        mean, rare = min(of["mean"]), statistics.median(of["p99.9"])
        print(f"{label}: {mean:.3f} us a scan, {rare:.3f} us for all but one in 1,000")
    return 0


def prepare(label: str, bundle: Path, folder: Path, programs: dict[str, list[str]]) -> int:
    """Compiles the forms of a bundle and the peer; returns the counted operations of a scan."""
    from neorl_deploy.bundle import read_bundle
    from neorl_deploy.forms import c_source, form_of, operations_of, structured_text, write_forms

    copied = folder / f"{label}.bundle"  # forms are written beside their bundle
    shutil.copytree(bundle, copied)
    read = read_bundle(copied)
    form = form_of(read)
    (sheet,) = [Path(path) for path in write_forms(read, ["c"]) if str(path).endswith(".csv")]
    rows = rows_of(sheet.read_text(), [variable.name for variable in form.inputs])
    sheet.unlink()
    inputs = range(len(form.inputs))
    name, outputs = form.name, [variable.name for variable, _ in form.outputs]
    peer = PEER.format(n=len(read.manifest.action))
    printed = c_source(form)
    c = printed[f"{name}.c"].replace(f'#include "{name}.h"', printed[f"{name}.h"])
    take = "".join(f"in.{form.inputs[i].name} = given[{i}];" for i in inputs)
    give = "".join(f"answer[{i}] = out.{output};" for i, output in enumerate(outputs))
    c += (
        f"\nstatic {name}_state m; static {name}_inputs in; static {name}_outputs out;"
        f"void start(void) {{ {name}_init(&m); }}"
        f"void step(const double *given, double *answer) {{ {take} {name}_step(&m, &in, &out); {give} }}"
    )
    sources: dict[str, tuple[str, list[str]]] = {"bare PID": (peer, []), "C": (c, [])}
    iec2c = shutil.which("iec2c")
    if iec2c:
        place = folder / f"{label}-st"
        place.mkdir()
        (place / "block.st").write_text(structured_text(form))
        library = Path(iec2c).resolve().parent / "lib"
        subprocess.run(
            [iec2c, "-I", library, "-T", place, place / "block.st"], check=True, capture_output=True
        )
        block, take = (
            name.upper(),
            "".join(f"block.{form.inputs[i].name.upper()}.value = given[{i}];" for i in inputs),
        )
        give = "".join(f"answer[{i}] = block.{o.upper()}.value;" for i, o in enumerate(outputs))
        text = (
            '#include "iec_std_lib.h"\n#include "POUS.h"\n#include "POUS.c"\n'
            f"TIME __CURRENT_TIME; BOOL __DEBUG; static {block} block;"
            f"void start(void) {{ {block}_init__(&block, 0); }}"
            f"void step(const double *given, double *answer) {{ {take} {block}_body__(&block); {give} }}"
        )
        sources["structured text"] = text, ["-I", str(library / "C"), "-I", str(place)]
    for kind, (text, further) in sources.items():
        place = folder / f"{label}-{kind.replace(' ', '-')}"
        place.mkdir(exist_ok=True)
        (place / "form.c").write_text(text)
        values = ",".join(f"{{{','.join(map(repr, row))}}}" for row in rows)
        (place / "main.c").write_text(
            MAIN.format(
                n_rows=len(rows),
                width=len(form.inputs),
                rows=values,
                outputs=len(outputs),
                scans=SCANS,
            )
        )
        command = ["gcc", *FLAGS, *further, "main.c", "form.c", "-o", "scan", "-lm"]
        subprocess.run(command, cwd=place, check=True)
        programs[f"{label}: {kind}"] = [str(place / "scan")]
    return operations_of(form)


def rows_of(sheet: str, names: list[str]) -> list[list[float]]:
    """The inputs of every row of a test sheet, finite, as numbers."""
    words = {"TRUE": 1.0, "FALSE": 0.0}
    kept = []
    for row in csv.DictReader(io.StringIO(sheet)):
        values = [words.get(row[name].upper()) for name in names]
        numbers = [float(row[n]) if v is None else v for n, v in zip(names, values, strict=True)]
        if all(abs(number) < 1e30 for number in numbers):
            kept.append(numbers)
    return kept


if __name__ == "__main__":
    raise SystemExit(main())
