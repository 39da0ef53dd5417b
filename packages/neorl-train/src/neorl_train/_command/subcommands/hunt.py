"""``neorl-train hunt``: train independent agents in the treasure hunt."""

import sys
from functools import partial

from neorl_core.infrastructure.command_line import parse_options
from neorl_train._process.signals import StopSignal
from neorl_train.populations import HuntOptions, hunt

USAGE = """neorl-train hunt [--OPTION VALUE ...]

Trains agents that each learn by themselves, in one world where they race for what appears there.
Leaves one line an epoch in epochs.jsonl, checkpoints and hunt.json; the same command continues it.

examples:
  neorl-train hunt --out hunts/0001
  neorl-train hunt --version 2a24efc --agents 10 --epochs 500
  neorl-train hunt --semantics original --seed 3
"""


def command(arguments: list[str]) -> None:
    """``neorl-train hunt [--OPTION VALUE ...]``."""
    options = parse_options(
        HuntOptions, list(arguments), program="neorl-train hunt", description=USAGE
    )
    say = partial(print, file=sys.stderr, flush=True)
    with StopSignal(say) as signal:
        with signal.later():
            text = hunt(options, say=say, stop=signal.requested)
        print(text)
        signal.check()
