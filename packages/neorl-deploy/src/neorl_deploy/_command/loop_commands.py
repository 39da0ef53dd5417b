"""The commands around a running loop: draft its tags, run it, ask it for a mode."""

from __future__ import annotations

import argparse
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from neorl_deploy._command.switches import prepare_jax
from neorl_deploy._command.text import one_line
from neorl_deploy._errors import DeployError
from neorl_deploy.bundle._read import Bundle

if TYPE_CHECKING:
    from neorl_deploy.loop._control import ControlLoop
    from neorl_deploy.loop._cycle import Cycle

HANGS = 5
"""Periods without a step after which the process of a loop ends itself."""


def add_loop_commands(commands, add) -> None:
    """Adds ``init``, ``serve`` and ``mode`` to the parsers of the command.

    Args:
        commands: The sub-parsers.
        add: Adds one, as :func:`neorl_deploy._command.main.main` does for every command.
    """
    init = add(commands, "init", _init, "draft the tag map that binds a bundle to a plant")
    init.add_argument("bundle", type=Path, metavar="BUNDLE", help="bundle directory")
    init.add_argument("--plant", type=Path, metavar="FILE", help="plant.toml of the log")
    init.add_argument("--out", type=Path, default=Path("tags.toml"), help="default tags.toml")
    serve = add(commands, "serve", _serve, "run a bundle beside a plant, in shadow at first")
    serve.add_argument("bundle", type=Path, metavar="BUNDLE", help="bundle directory")
    serve.add_argument("tags", type=Path, metavar="TAGS", help="tag map, drafted by init")
    serve.add_argument("--directory", type=Path, default=Path("loop"), help="default loop")
    serve.add_argument("--start", choices=("shadow", "manual"), default="shadow")
    serve.add_argument("--steps", type=int, help="end after so many periods")
    serve.add_argument(
        "--keep", type=int, metavar="N", help="files of 64 MiB of the audit log to keep (all)"
    )
    serve.add_argument(
        "--trial", action="store_true", help='let a policy that is "worth a trial" close the loop'
    )
    add_form(serve)
    mode = add(commands, "mode", _mode, "ask a running loop for a mode, or stop it")
    mode.add_argument("mode", metavar="MODE", help="manual, shadow, advisory, closed-loop or stop")
    mode.add_argument("--by", required=True, help="who asks, and why; it is recorded")
    mode.add_argument("--directory", type=Path, default=Path("loop"), help="default loop")
    http = add(commands, "http", _http, "answer inference requests over HTTP; writes to no plant")
    http.add_argument("bundle", type=Path, metavar="BUNDLE", help="bundle directory")
    http.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    http.add_argument("--port", type=int, default=8000, help="default 8000")
    http.add_argument("--name", default="policy", help="name of the model (policy)")
    http.add_argument("--token-file", type=Path, help="a token that clients must send")
    http.add_argument("--rate", type=float, default=200.0, help="requests a second (200)")
    for command in (init, serve, http):
        command.add_argument(
            "--public-key", type=Path, metavar="KEY", help="demand a signature by this key, PEM"
        )


def add_form(command: argparse.ArgumentParser) -> None:
    """Adds ``--form``: in which of a bundle's forms it decides."""
    command.add_argument(
        "--form",
        choices=("stablehlo", "numpy"),
        default="stablehlo",
        help="stablehlo: compiled, needs the extra jax; numpy: by NumPy alone (stablehlo)",
    )


def _init(options: argparse.Namespace) -> int:
    from neorl_deploy.loop._tag_draft import draft_tags
    from neorl_deploy.loop._tags import TODO

    text = draft_tags(_verified(options), plant=options.plant, name=str(options.out))
    try:
        with options.out.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise DeployError(
            f"{options.out} is there already; name another place with --out"
        ) from None
    except OSError as error:
        raise DeployError(f"cannot write {options.out}: {error.strerror}") from error
    left = text.count(f'"{TODO}"')
    print(one_line(f"{options.out}: {left} entries to complete (marked {TODO})"))
    return 0


def _serve(options: argparse.Namespace) -> int:
    from neorl_deploy.loop._connection import connect
    from neorl_deploy.loop._control import ControlLoop
    from neorl_deploy.loop._modes import Mode
    from neorl_deploy.loop._plant import SystemClock
    from neorl_deploy.loop._record import audit_log, recorder
    from neorl_deploy.loop._serve import Watchdog, only_one, serve, take_orders
    from neorl_deploy.loop._tags import read_tags
    from neorl_deploy.runtime._load import load_bundle

    if options.form == "stablehlo":
        prepare_jax()
    bundle = _verified(options)
    tags, clock, folder = read_tags(options.tags, bundle), SystemClock(), options.directory
    ending, ended = threading.Event(), threading.Event()
    with only_one(folder):
        runtime = load_bundle(bundle.path, state=folder / "state", form=options.form)
        plant = connect(tags)
        log = audit_log(folder / "audit", bundle, form=options.form, files=options.keep)
        loop = ControlLoop(
            runtime,
            tags,
            plant,
            clock,
            start=Mode(options.start),
            trial=options.trial,
            record=recorder(log),
        )
        dog = Watchdog(HANGS * runtime.manifest.dt)
        threading.Thread(target=dog.watch, args=(clock, ended), daemon=True).start()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: ending.set())
        print(f"Running in {folder}, in {loop.mode}; ask for a mode with `neorl-deploy mode`")
        try:
            serve(
                loop,
                _Awake(clock, ending),
                steps=options.steps,
                ended=ending.is_set,
                before=lambda: take_orders(folder, loop),
                after=lambda cycle: _turned(cycle, dog, loop),
            )
        finally:
            ended.set()
            plant.close()
            log.close()
    print(f"Ended in {loop.mode}; nothing is written any more")
    print(f"Head of the audit log: {log.head}")
    return 0


def _turned(cycle: Cycle, dog, loop: ControlLoop) -> None:
    from neorl_deploy.loop._serve import cycle_line

    dog.feed(cycle.at.monotonic)
    if cycle.mode != cycle.before or cycle.notes:
        print(one_line(cycle_line(cycle)), flush=True)


class _Awake:
    """A clock whose sleep ends where the process is asked to end."""

    def __init__(self, clock, ending: threading.Event) -> None:
        self.now, self._ending = clock.now, ending

    def sleep_until(self, monotonic: float) -> None:
        """Waits until then, or until the end."""
        left = monotonic - self.now().monotonic
        if left > 0:
            self._ending.wait(left)


def _http(options: argparse.Namespace) -> int:
    prepare_jax()
    from neorl_deploy.runtime._load import load_bundle
    from neorl_deploy.serving._limits import ServingLimits, read_token
    from neorl_deploy.serving._server import require_token_beyond_this_machine, serve_http

    if not options.rate > 0 or not 0 < options.port < 65_536 or not options.name.isidentifier():
        raise DeployError("--rate is above zero, --port from 1 to 65535, --name one word")
    token = "" if options.token_file is None else read_token(options.token_file)
    limits = ServingLimits(token=token, rate=options.rate, burst=max(1, round(options.rate)))
    require_token_beyond_this_machine(options.host, limits)
    runtime = load_bundle(_verified(options).path)
    print(f"http://{options.host}:{options.port}/v2/models/{options.name}/infer", flush=True)
    serve_http(runtime, host=options.host, port=options.port, name=options.name, limits=limits)
    print("Ended; no request was cut off")
    return 0


def _mode(options: argparse.Namespace) -> int:
    from neorl_deploy.loop._serve import order

    order(options.directory, options.mode, options.by)
    print(f"Asked the loop in {options.directory} for {options.mode}")
    return 0


def _verified(options: argparse.Namespace) -> Bundle:
    from neorl_deploy.bundle._read import read_bundle
    from neorl_deploy.bundle._signature import read_public_key

    key = options.public_key
    return read_bundle(options.bundle, trusted_key=None if key is None else read_public_key(key))
