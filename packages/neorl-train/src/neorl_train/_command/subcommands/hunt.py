"""``neorl-train hunt``: trains independent agents in the treasure hunt."""

import json
import sys
from functools import partial

from neorl_core.infrastructure.command_line import parse_options
from neorl_train._command.results import print_json
from neorl_train._command.run_argument import take_flag
from neorl_train._process.signals import StopSignal
from neorl_train.populations import HuntOptions, hunt

USAGE = """neorl-train hunt [--OPTION VALUE ...]

Trains independent agents in one world, in which they compete for treasures. Writes one line per
epoch to epochs.jsonl, checkpoints and hunt.json; the same command continues the training.
Progress appears after some hundred epochs; choose about 2,000. Random play earns a score of 23.

examples:
  neorl-train hunt --out hunts/0001
  neorl-train hunt --version 2a24efc --agents 10 --epochs 500
  neorl-train hunt --semantics original --seed 3
  neorl-train hunt --json                    (print JSON in place of text)
"""


def command(arguments: list[str]) -> None:
    """``neorl-train hunt [--OPTION VALUE ...]``."""
    words, as_json = take_flag("--json", arguments)
    options = parse_options(HuntOptions, words, program="neorl-train hunt")
    print_line = partial(print, file=sys.stderr, flush=True)
    with StopSignal(print_line) as signal:
        with signal.later():
            text = hunt(options, print_line=print_line, stop=signal.requested)
        if as_json:
            result = json.loads((options.out / "hunt.json").read_text(encoding="utf-8"))
            print_json("hunt", result)
        else:
            print(text)
        signal.check()
