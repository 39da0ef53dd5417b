"""Commands for a running loop: draft its tag map, run it, request a mode."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from neorl_deploy._command.switches import NUMPY_FORM, require_jax, settle_memory
from neorl_deploy._command.text import command_prefix, one_line
from neorl_deploy._errors import DeployError

if TYPE_CHECKING:
    from neorl_deploy.audit._log import AuditLog
    from neorl_deploy.bundle._read import Bundle
    from neorl_deploy.loop._board import Board
    from neorl_deploy.loop._cycle import Cycle
    from neorl_deploy.loop._plant import Plant
    from neorl_deploy.loop._serve import OrderBox, Watchdog
    from neorl_deploy.loop._staged_rollout import StagedRollout
    from neorl_deploy.loop._tags import TagMap
    from neorl_deploy.runtime._forms import FormName

MODE_HELP = (
    "manual, shadow, advisory, closed-loop, stop or release (of a stop); rollout, full (of a "
    "roll-out)"
)
HANG_PERIODS = 5
"""Periods without a step after which the process of a loop terminates itself."""


def add_loop_commands(commands, add) -> None:
    """Adds ``init``, ``serve`` and ``mode`` to the parsers of the command."""
    init = add(commands, "init", _init, "draft the tag map that binds a bundle to a plant")
    init.add_argument("bundle", type=Path, metavar="BUNDLE", help="bundle directory")
    init.add_argument("--plant", type=Path, metavar="FILE", help="plant.toml of the log")
    init.add_argument(
        "--out", type=Path, default=Path("tags.toml"), help="tag map to write (tags.toml)"
    )
    init.add_argument(
        "--rollout", type=Path, metavar="FILE", help="also draft a plan of a roll-out"
    )
    serve = _add_serve(commands, add)
    check = add(commands, "check", _check, "compare a tag map with its plant before closing")
    check.add_argument("bundle", type=Path, metavar="BUNDLE", help="bundle directory")
    check.add_argument("tags", type=Path, metavar="TAGS", help="tag map, drafted by init")
    check.add_argument("--by", required=True, help="who checks; it is recorded")
    check.add_argument(
        "--step",
        action="append",
        default=[],
        metavar="CHANNEL",
        help="an actuator that this person moves by a small step during the check; repeatable",
    )
    check.add_argument(
        "--directory", type=Path, default=Path("loop"), help="folder of the loop (loop)"
    )
    simulate = add(commands, "simulate", _simulate, "run a plant to try a bundle on, by OPC UA")
    simulate.add_argument("bundle", type=Path, metavar="BUNDLE", help="bundle directory")
    simulate.add_argument("--port", type=int, default=4840, help="port of the server (4840)")
    simulate.add_argument(
        "--out", type=Path, default=Path("simulated.toml"), help="tag map (simulated.toml)"
    )
    simulate.add_argument("--scans", type=int, help="end after this many scans")
    simulate.add_argument(
        "--grant", action="store_true", help="grant every loop that asks, as a person would"
    )
    mode = add(commands, "mode", _mode, "ask a running loop for a mode, or stop it")
    mode.add_argument("mode", metavar="MODE", help=MODE_HELP)
    mode.add_argument("--by", required=True, help="who asks, and why; it is recorded")
    mode.add_argument(
        "--directory", type=Path, default=Path("loop"), help="folder of the loop (loop)"
    )
    shadow = add(commands, "shadow", _shadow, "compare what a loop proposed with what was done")
    shadow.add_argument("loop", type=Path, metavar="LOOP", help="folder of a loop")
    shadow.add_argument("bundle", type=Path, metavar="BUNDLE", help="bundle that decided")
    shadow.add_argument(
        "--json", type=Path, metavar="FILE", help="results as JSON (LOOP/shadow.json)"
    )
    shadow.add_argument("--html", type=Path, metavar="FILE", help="also write a page")
    http = add(commands, "http", _http, "answer inference requests over HTTP; writes to no plant")
    http.add_argument("bundle", type=Path, metavar="BUNDLE", help="bundle directory")
    http.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    http.add_argument("--port", type=int, default=8000, help="port to listen on (8000)")
    http.add_argument("--name", default="policy", help="name of the model (policy)")
    http.add_argument("--token-file", type=Path, help="file with a token that clients must send")
    _add_host_name(http)
    http.add_argument("--rate", type=float, default=200.0, help="requests a second (200)")
    add_form(http)
    model = add(commands, "mlflow", _mlflow, "write a folder that MLflow loads as a model")
    model.add_argument("bundle", type=Path, metavar="BUNDLE", help="bundle directory")
    model.add_argument("--out", type=Path, default=Path("model"), help="folder to write (model)")
    for command in (init, serve, check, simulate, shadow, http):
        command.add_argument(
            "--public-key", type=Path, metavar="KEY", help="demand a signature by this key, PEM"
        )


def _add_serve(commands, add) -> argparse.ArgumentParser:
    serve = add(commands, "serve", _serve, "run a bundle beside a plant, in shadow at first")
    serve.add_argument("bundle", type=Path, metavar="BUNDLE", help="bundle directory")
    serve.add_argument("tags", type=Path, metavar="TAGS", help="tag map, drafted by init")
    serve.add_argument(
        "--directory", type=Path, default=Path("loop"), help="folder of the loop (loop)"
    )
    serve.add_argument(
        "--start",
        choices=("shadow", "manual"),
        default="shadow",
        help="shadow: record what the policy would do; manual: only watch; neither writes to the "
        "plant (shadow)",
    )
    serve.add_argument("--steps", type=int, help="end after this many periods")
    serve.add_argument(
        "--keep", type=int, metavar="N", help="files of 64 MiB of the audit log to keep (all)"
    )
    serve.add_argument(
        "--audit-key", type=Path, metavar="KEY", help="ed25519 key that signs what --keep removes"
    )
    serve.add_argument(
        "--trial", action="store_true", help='let a policy that is "worth a trial" close the loop'
    )
    serve.add_argument(
        "--rollout",
        type=Path,
        metavar="PLAN",
        help="introduce the policy in stages, by this plan (drafted by init)",
    )
    serve.add_argument(
        "--http",
        type=int,
        metavar="PORT",
        help="port for state, metrics and a page (needs the extra http)",
    )
    serve.add_argument(
        "--host", default="127.0.0.1", help="address that --http listens on (127.0.0.1)"
    )
    serve.add_argument(
        "--token-file", type=Path, help="file with a token that clients of --http must send"
    )
    _add_host_name(serve)
    add_form(serve)
    return serve


def _add_host_name(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--host-name",
        action="append",
        default=[],
        metavar="NAME",
        help="name of the server for clients, besides localhost and addresses; repeatable",
    )


def add_form(command: argparse.ArgumentParser, default: str | None = None) -> None:
    """Adds ``--form``, which selects the form of the bundle that decides."""
    command.add_argument(
        "--form",
        choices=("stablehlo", "numpy"),
        default=default,
        help="stablehlo: compiled, needs the extra jax; numpy: needs NumPy alone "
        f"({default or 'the form of record, which is numpy where the bundle has it'})",
    )


def chosen_form(options: argparse.Namespace, bundle: Bundle) -> FormName:
    """The form that the user named, or the form of record; JAX is prepared where it is needed."""
    form = options.form or bundle.manifest.form_of_record
    if form == "numpy":
        return "numpy"
    require_jax(other=NUMPY_FORM if options.form else "")
    return "stablehlo"


def _init(options: argparse.Namespace) -> int:
    from neorl_deploy.loop._staged_rollout import draft_plan
    from neorl_deploy.loop._tags import TODO, draft_tags

    bundle = read_named(options.bundle, options)
    text = draft_tags(bundle, plant=options.plant, name=str(options.out))
    _write_draft(options.out, text)
    if options.rollout is not None:
        _write_draft(options.rollout, draft_plan(bundle.manifest))
        print(
            one_line(
                f"{options.rollout}: its [limits] are the measuring ranges, which a plant rarely "
                "leaves; replace them by the limits that count as good"
            )
        )
    to_complete = text.count(f'"{TODO}"')
    print(one_line(f"{options.out}: {to_complete} entries are left to complete (marked {TODO})"))
    serve = f"{command_prefix()} serve {options.bundle} {options.out}"
    print(one_line(f"Next: complete them and the address, then {serve}    (runs in shadow)"))
    return 0


def _write_draft(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise DeployError(f"{path} exists already; name another place") from None
    except OSError as error:
        raise DeployError(f"cannot write {path}: {error.strerror}") from error


def _serve(options: argparse.Namespace) -> int:
    from neorl_deploy.loop._board import Board
    from neorl_deploy.loop._check import RECORD, unchecked
    from neorl_deploy.loop._control import ControlLoop
    from neorl_deploy.loop._cycle import recorder
    from neorl_deploy.loop._locks import ActuatorLocks, loop_lock
    from neorl_deploy.loop._modes import Mode
    from neorl_deploy.loop._plant import SystemClock, connect
    from neorl_deploy.loop._serve import (
        OrderBox,
        ProcessMark,
        Watchdog,
        drop_old_orders,
        serve,
    )
    from neorl_deploy.loop._staged_rollout import StagedRollout, read_plan
    from neorl_deploy.loop._tags import read_tags, shared_tags
    from neorl_deploy.runtime._load import load_bundle

    bundle = read_named(options.bundle, options)
    form = chosen_form(options, bundle)
    if form == "stablehlo":
        for line in promise_warnings(bundle):
            print(one_line(line), file=sys.stderr)
    tags, clock, folder = read_tags(options.tags, bundle), SystemClock(), options.directory
    for line in shared_tags(tags, options.tags):
        print(one_line(line))
    plan = None if options.rollout is None else read_plan(options.rollout, bundle.manifest)
    ending, ended = threading.Event(), threading.Event()
    with loop_lock(folder):
        for line in drop_old_orders(folder):
            print(one_line(line))
        runtime = load_bundle(bundle.path, state=folder / "state", form=form)
        plant = connect(tags)
        _require_stamps(plant, tags, options.tags)
        log = _audit_log(options, bundle, tags, form)
        mark = ProcessMark(folder)
        loop = ControlLoop(
            runtime,
            tags,
            plant,
            clock,
            start=Mode(options.start),
            trial=options.trial,
            record=recorder(log),
            unchecked=unchecked(tags, log.standing(RECORD)),
            held=mark.begin(runtime),
            locks=ActuatorLocks(tags, f"the loop in {folder.resolve()}"),
        )
        rollout = None if plan is None else StagedRollout(plan, loop, log)
        board = Board(runtime.manifest, None if rollout is None else lambda: _status(rollout))
        watchdog = Watchdog(HANG_PERIODS * runtime.manifest.dt)
        threading.Thread(target=watchdog.watch, args=(clock, ended), daemon=True).start()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: ending.set())
        if hasattr(signal, "SIGUSR1"):  # not on Windows
            signal.signal(signal.SIGUSR1, lambda *_: loop.stop("the signal SIGUSR1"))
        orders = OrderBox(folder, loop, rollout)
        settle_memory()
        print(
            f"Running in {loop.mode}, recorded in the folder {folder}; ask for another mode with "
            "`neorl-deploy mode`"
        )
        if loop.stopped:
            release = f"{command_prefix()} mode release --by NAME --directory {folder}"
            print(one_line(f"It is not closed before a release ({loop.stopped}): {release}"))
        try:
            with _http_server(options, board, runtime.manifest.dt, orders):
                serve(
                    loop,
                    _InterruptibleClock(clock, ending),
                    steps=options.steps,
                    ended=ending.is_set,
                    before=orders.take,
                    after=lambda cycle: _after_cycle(cycle, watchdog, board, rollout, orders),
                )
        finally:
            ended.set()
            loop.leave()
            mark.end(loop)
            plant.close()
            log.close()
    print(f"Ended in {loop.mode}; the loop no longer writes to the plant")
    print(f"Head of the audit log: {log.head}")
    return 0


def _require_stamps(plant: Plant, tags: TagMap, source: Path) -> None:
    """Requires a time stamp of every measurement whose age the tag map limits.

    A server that does not answer yet is no error: the loop waits for it, and does not close before
    it knows.
    """
    from neorl_deploy.loop._inputs import without_stamp
    from neorl_deploy.loop._plant import PlantError, readings_of

    try:
        readings = readings_of(plant, [row.tag for row in tags.inputs])
    except PlantError:
        return
    except DeployError:
        plant.close()
        raise
    for row, reading in zip(tags.inputs, readings, strict=True):
        if why := without_stamp(row, reading):
            plant.close()
            raise DeployError(f"{source}, {row.channel}: {why}")


def promise_warnings(bundle: Bundle) -> Iterator[str]:
    """What to do about programs that a newer JAX may soon not open any more; else nothing."""
    from neorl_deploy.bundle._promise import warning_lines

    today = datetime.datetime.now(datetime.UTC).date()
    return warning_lines(bundle.manifest, bundle.path, today)


def _audit_log(
    options: argparse.Namespace, bundle: Bundle, tags: TagMap, form: FormName
) -> AuditLog:
    from neorl_deploy.audit._chain import AuditError
    from neorl_deploy.bundle._signature import Signer
    from neorl_deploy.loop._cycle import audit_log

    try:
        return audit_log(
            options.directory / "audit",
            bundle,
            tags=tags,
            form=form,
            files=options.keep,
            signer=None if options.audit_key is None else Signer(options.audit_key),
        )
    except AuditError as error:
        advice = "keep that folder as it is, and start in another one with --directory"
        raise AuditError(f"{error}; {advice}") from error


def _http_server(options: argparse.Namespace, board: Board, dt: float, orders: OrderBox):
    """The HTTP server that runs beside the loop, if one was requested."""
    if options.http is None:
        return contextlib.nullcontext()
    from neorl_deploy.serving._limits import ServingLimits, read_token
    from neorl_deploy.serving._loop_app import beside

    token = "" if options.token_file is None else read_token(options.token_file)
    print(f"http://{options.host}:{options.http}/", flush=True)
    limits = ServingLimits(token=token, names=tuple(options.host_name))
    return beside(board, dt, host=options.host, port=options.http, limits=limits, stop=orders.stop)


def _status(rollout: StagedRollout) -> tuple[str, str]:
    return str(rollout.stage), rollout.why


def _after_cycle(
    cycle: Cycle,
    watchdog: Watchdog,
    board: Board,
    rollout: StagedRollout | None,
    orders: OrderBox,
) -> None:
    from neorl_deploy.loop._serve import cycle_line

    watchdog.step_ended(cycle.at.monotonic)
    orders.settle()
    board.after(cycle)
    if rollout is not None:
        before = rollout.stage
        rollout.after(cycle)
        if rollout.stage is not before:
            print(one_line(f"roll-out: {rollout.stage} ({rollout.why})"), flush=True)
    if cycle.mode != cycle.before or cycle.notes:
        print(one_line(cycle_line(cycle)), flush=True)


class _InterruptibleClock:
    """A clock whose sleep ends when the process is asked to terminate."""

    def __init__(self, clock, ending: threading.Event) -> None:
        self.now, self._ending = clock.now, ending

    def sleep_until(self, monotonic: float) -> None:
        """Waits until the given time, or until the process is asked to terminate."""
        remaining = monotonic - self.now().monotonic
        if remaining > 0:
            self._ending.wait(remaining)


def _http(options: argparse.Namespace) -> int:
    from neorl_deploy.runtime._load import loaded_runtime
    from neorl_deploy.serving._limits import ServingLimits, read_token
    from neorl_deploy.serving._server import require_token_beyond_this_machine, serve_http

    if not options.rate > 0 or not 0 < options.port < 65_536 or not options.name.isidentifier():
        raise DeployError("--rate must be above zero, --port from 1 to 65535, and --name one word")
    token = "" if options.token_file is None else read_token(options.token_file)
    limits = ServingLimits(
        token=token,
        rate=options.rate,
        burst=max(1, round(options.rate)),
        names=tuple(options.host_name),
    )
    require_token_beyond_this_machine(options.host, limits)
    bundle = read_named(options.bundle, options)
    runtime = loaded_runtime(bundle, chosen_form(options, bundle))
    settle_memory()
    print(f"http://{options.host}:{options.port}/v2/models/{options.name}/infer", flush=True)
    serve_http(runtime, host=options.host, port=options.port, name=options.name, limits=limits)
    print("Ended; no request was cut off")
    return 0


def _shadow(options: argparse.Namespace) -> int:
    from neorl_deploy._command.audit_command import audit_of
    from neorl_deploy._command.replay_text import shadow_lines
    from neorl_deploy.dashboard import still_page
    from neorl_deploy.shadow._from_audit import shadow_comparison
    from neorl_deploy.shadow._replay import require_place, write_replay

    folder = audit_of(options.loop)
    if folder is None:
        raise DeployError(f"{options.loop} is not the folder of a loop: it has no audit log")
    numbers = options.json or options.loop / "shadow.json"
    require_place(numbers)
    bundle = read_named(options.bundle, options)
    result = shadow_comparison(folder, bundle)
    for line in shadow_lines(result):
        print(one_line(line))
    write_replay(numbers, result.report)
    print(one_line(f"Numbers as JSON: {numbers}"))
    if options.html is not None:
        _write_draft(options.html, still_page(folder, bundle))
        print(one_line(f"Page: {options.html}"))
    return 0


def _mlflow(options: argparse.Namespace) -> int:
    from neorl_deploy.mlflow_model import write_mlflow_model

    folder = write_mlflow_model(options.bundle, options.out)
    print(one_line(f"{folder}: mlflow.pyfunc.load_model({str(folder)!r})"))
    return 0


def _check(options: argparse.Namespace) -> int:
    from neorl_deploy.audit._log import AS_BEFORE
    from neorl_deploy.loop._check import check_record, check_tags
    from neorl_deploy.loop._cycle import audit_log
    from neorl_deploy.loop._locks import loop_lock
    from neorl_deploy.loop._plant import SystemClock, connect
    from neorl_deploy.loop._tags import read_tags

    bundle = read_named(options.bundle, options)
    tags = read_tags(options.tags, bundle)
    odd = sorted(set(options.step) - {output.channel for output in tags.outputs})
    if odd or not options.by.strip():
        raise DeployError(f"there is no actuator {', '.join(odd)}" if odd else "say who with --by")
    with loop_lock(options.directory), contextlib.closing(connect(tags)) as plant:
        findings = check_tags(
            tags, bundle.manifest, plant, SystemClock(), steps=options.step, ask=_show
        )
        log = audit_log(options.directory / "audit", bundle, tags=tags, files=AS_BEFORE)
        with contextlib.closing(log):
            record = check_record(tags, findings, options.by)
            log.append(record, durable=True, standing=True)
    for finding in findings:
        print(
            one_line(f"{'not ' if finding.fault else ''}right: {': '.join(filter(None, finding))}")
        )
    faults = len(record["faults"])
    print(one_line(f"{faults} of {len(findings)} are not right; recorded in {options.directory}"))
    return 2 if faults else 0


def _show(text: str) -> None:
    print(one_line(text), flush=True)


def _simulate(options: argparse.Namespace) -> int:
    from neorl_deploy._simulated import OpcUaServer, SimulatedPlant, simulated_tags

    bundle = read_named(options.bundle, options)
    dt = bundle.manifest.dt
    seconds = min(1.0, dt / 4)
    ending = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ending.set())
    # A beat may be missed once: two periods, and the part of one in which a decision may be late.
    server = OpcUaServer(options.port)
    plant = SimulatedPlant(bundle.manifest, server, patience=round(2.5 * dt / seconds))
    try:
        _write_draft(options.out, simulated_tags(bundle, server))
        print(one_line(f"{server.address}: a scan every {seconds:g} s; tag map: {options.out}"))
        print(
            one_line(f"Next: {command_prefix()} serve {options.bundle} {options.out}"), flush=True
        )
        done, before = 0, plant.state
        while not ending.is_set() and (options.scans is None or done < options.scans):
            state, done = plant.scan(), done + 1
            if (state.active, state.reason) != (before.active, before.reason):
                print(one_line(plant.line()), flush=True)
            if options.grant:
                plant.set("NEORL.GRANT", plant.get("NEORL.OWNER") != state.granted)
            before = state
            ending.wait(seconds)
    finally:
        server.close()
    return 0


def _mode(options: argparse.Namespace) -> int:
    from neorl_deploy.loop._serve import order

    order(options.directory, options.mode, options.by)
    print(f"Asked the loop in {options.directory} for {options.mode}")
    return 0


def read_named(path: Path, options: argparse.Namespace) -> Bundle:
    """The bundle at a path, with the signature that the user demands."""
    from neorl_deploy.bundle._read import read_bundle

    return read_bundle(path, trusted_key=trusted_key(options))


def trusted_key(options: argparse.Namespace) -> str | None:
    """The key of ``--public-key``, if it was given."""
    from neorl_deploy.bundle._signature import read_public_key

    return None if options.public_key is None else read_public_key(options.public_key)
