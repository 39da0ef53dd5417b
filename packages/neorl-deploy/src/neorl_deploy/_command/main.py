"""The command-line entry point; process-wide switches are set only in ``switches.py``."""

from __future__ import annotations

import argparse
import difflib
import json
import os
import shlex
import sys
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from neorl_deploy._command.loop_commands import (
    add_form,
    add_loop_commands,
    chosen_form,
    promise_warnings,
    read_named,
    trusted_key,
)
from neorl_deploy._command.switches import NUMPY_FORM, prepare_jax, require_jax
from neorl_deploy._command.text import command_prefix, one_line
from neorl_deploy._errors import DeployError, NotDeployable, needs

if TYPE_CHECKING:  # only reading a bundle needs NumPy; the help text of a command does not
    from neorl_deploy.bundle._read import Bundle

EXAMPLES = """\
examples:
  neorl-deploy export                         the newest finished run under ./runs
  neorl-deploy export runs/0003 --out line2.bundle --require-deploy
  neorl-deploy export line2.bundle --form st  as a function block of IEC 61131-3
  neorl-deploy replay                         the newest bundle on the log of its run
  neorl-deploy replay line2.bundle july.h5 --json replay-july.json
  neorl-deploy verify line2.bundle --public-key plant.pem
  neorl-deploy verify loop --show
  neorl-deploy verify loop --decided-by line2.bundle
  neorl-deploy inspect line2.bundle
  neorl-deploy dossier line2.bundle --loop loop
  neorl-deploy renew line2.bundle --out line2-2027.bundle --sign plant-private.pem
  neorl-deploy init line2.bundle --plant plant.toml
  neorl-deploy simulate line2.bundle
  neorl-deploy check line2.bundle tags.toml --by engineer --step valve
  neorl-deploy serve line2.bundle tags.toml
  neorl-deploy serve line2.bundle tags.toml --form stablehlo
  neorl-deploy init line2.bundle --rollout rollout.toml
  neorl-deploy serve line2.bundle tags.toml --rollout rollout.toml
  neorl-deploy mode rollout --by "shift leader: trial of 14 May"
  neorl-deploy mode closed-loop --by "shift leader: trial of 14 May"
  neorl-deploy serve line2.bundle tags.toml --http 8001
  neorl-deploy shadow loop line2.bundle --html shadow.html
  neorl-deploy mlflow line2.bundle --out model
  neorl-deploy http line2.bundle --port 8000
  neorl-deploy completion bash > ~/.local/share/bash-completion/completions/neorl-deploy
  neorl-deploy completion zsh > ~/.zfunc/_neorl-deploy      (a folder of your fpath)
  neorl-deploy completion fish > ~/.config/fish/completions/neorl-deploy.fish

exit codes: 0 done; 2 bad input, or what was checked is not right; 3 the verdict is not "deploy"
(only with --require-deploy)
"""
RENEWAL = """\
Makes the programs of a bundle anew from its sealed NumPy form, with the JAX that is installed
here, before the promise of the JAX that wrote them ends (`verify` says when). Policy, guard,
evidence and test vectors stay; the new program must answer as the sealed operations do. The old
bundle is left as it is, and the new one names it. A signed bundle must be signed anew.
"""
DOSSIER = """\
Collects what the bundle, its run and a loop hold of purpose, data, design, evaluation, guard,
oversight, logging and changes, along Annex IV of the AI Act and ISO/IEC TR 5469. Every statement
names its file with a digest; what no file says is marked "not provided".
"""
SHELLS = ("bash", "zsh", "fish", "tcsh", "powershell")
COMPLETION = """\
Prints a script that completes commands, options, their choices and names of files; needs the extra
completion. For one shell alone, evaluate it:
  eval "$(neorl-deploy completion bash)"
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code: 0 done, 2 bad input, 3 do not deploy."""
    options = _parser().parse_args(arguments)
    try:
        return options.command(options)
    except DeployError as error:
        print(f"neorl-deploy: {one_line(str(error))}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("neorl-deploy: stopped; nothing was left behind", file=sys.stderr)
        return 130


class _Parser(argparse.ArgumentParser):
    """Reports an error in one line and suggests the closest name for a mistyped one."""

    def error(self, message: str) -> NoReturn:
        known = {*self._option_string_actions}
        for action in self._subparsers._group_actions if self._subparsers else []:
            known.update(action.choices or ())
            for sub in getattr(action, "choices", {}).values():
                known.update(sub._option_string_actions)
        given = message.partition(" (choose from ")[0]  # the rest is not the user's input
        near = [
            f"; did you mean {close[0]}?"
            for word in given.replace("'", " ").replace(":", " ").split()
            if (close := difflib.get_close_matches(word, known, n=1)) and word not in known
        ]
        hint = "".join(near[:1]) if "required" not in message else ""
        self.exit(2, f"neorl-deploy: {message}{hint}; see `{self.prog} --help`\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="neorl-deploy",
        description="Seal a trained policy behind its guard, verify it, and run it in shadow.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    version = f"neorl-deploy {metadata.version('neorl-deploy')}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    export = _command(commands, "export", _export, "seal the candidate of a finished run")
    export.add_argument(
        "run", nargs="?", type=Path, metavar="RUN", help="run directory; or a bundle, with --form"
    )
    export.add_argument(
        "--form",
        action="append",
        choices=("st", "plcopen", "c", "fmu"),
        help="also print it beside the bundle: st, a function block in structured text; plcopen, "
        "the same block in PLCopen XML; c, C; fmu, a co-simulation unit; may be repeated",
    )
    export.add_argument(
        "--lreal", action="store_true", help="--form in double precision instead of single"
    )
    export.add_argument("--out", type=Path, help="bundle to write (default RUN/policy.bundle)")
    export.add_argument("--policy", help="another policy of the run, such as bc-0")
    export.add_argument("--overwrite", action="store_true", help="replace an existing bundle")
    export.add_argument(
        "--platforms", default="cpu", help="comma-separated: cpu, cuda, rocm, tpu (default cpu)"
    )
    export.add_argument(
        "--onnx",
        action="store_true",
        help="also write the policy, without its guard, as ONNX (needs the extra onnx)",
    )
    export.add_argument("--sign", type=Path, metavar="KEY", help="ed25519 private key, PEM")
    replay = _command(commands, "replay", _replay, "run a bundle in shadow over a log")
    replay.add_argument("bundle", nargs="?", type=Path, metavar="BUNDLE", help="bundle directory")
    replay.add_argument(
        "log", nargs="?", type=Path, metavar="LOG", help="dataset file, .h5 or .npz"
    )
    place = "where the numbers go (default replay.json beside the bundle); replaces an earlier "
    place += "replay of the same log and no other file"
    replay.add_argument("--json", type=Path, metavar="FILE", help=place)
    add_form(replay, "stablehlo")
    verify = _add_verify(commands)
    renew = _command(commands, "renew", _renew, "make the programs of a bundle anew", RENEWAL)
    renew.add_argument("bundle", type=Path, metavar="BUNDLE", help="bundle directory")
    renew.add_argument(
        "--out", type=Path, help="bundle to write (default NAME-renewed.bundle beside it)"
    )
    renew.add_argument("--overwrite", action="store_true", help="replace an existing bundle")
    renew.add_argument(
        "--sign", type=Path, metavar="KEY", help="ed25519 private key, PEM; for a signed bundle"
    )
    renew.add_argument("--json", action="store_true", help="print the result as JSON")
    inspect = _command(commands, "inspect", _inspect, "print a summary of a bundle")
    inspect.add_argument("bundle", type=Path, metavar="BUNDLE", help="bundle directory")
    inspect.add_argument("--json", action="store_true", help="print the manifest as JSON")
    dossier = _command(
        commands, "dossier", _dossier, "collect what an assessor asks for of a bundle", DOSSIER
    )
    dossier.add_argument("bundle", type=Path, metavar="BUNDLE", help="bundle directory")
    dossier.add_argument("--loop", type=Path, metavar="DIR", help="folder of a loop that ran it")
    dossier.add_argument(
        "--out", type=Path, metavar="FILE", help="default NAME-dossier.md beside the bundle"
    )
    add_loop_commands(commands, _command)
    completion = _command(
        commands, "completion", _completion, "complete words in a shell", COMPLETION
    )
    completion.add_argument("shell", choices=SHELLS, metavar="SHELL", help=" or ".join(SHELLS))
    for command in (export, verify):
        command.add_argument("--json", action="store_true", help="print the result as JSON")
        command.add_argument(
            "--require-deploy",
            action="store_true",
            help='exit 3 unless the verdict is "deploy"'
            + ("; then writes nothing" if command is export else ""),
        )
    for command in (replay, verify, inspect, renew, dossier):
        command.add_argument(
            "--public-key", type=Path, metavar="KEY", help="demand a signature by this key, PEM"
        )
    return parser


def _add_verify(commands) -> argparse.ArgumentParser:
    verify = _command(commands, "verify", _verify, "check every file of a bundle, or an audit log")
    verify.add_argument("bundle", type=Path, metavar="BUNDLE", help="bundle, or folder of a loop")
    verify.add_argument(
        "--decided-by",
        type=Path,
        metavar="BUNDLE",
        help="for an audit log: make every decision again and compare the bits",
    )
    verify.add_argument(
        "--head", metavar="HASH", help="for an audit log: hash of a record that was noted elsewhere"
    )
    verify.add_argument(
        "--show",
        action="store_true",
        help="for an audit log: also print who changed what, when and why",
    )
    verify.add_argument(
        "--self-test",
        action="store_true",
        help="also answer the test vectors on this machine",
    )
    add_form(verify)
    return verify


def _command(commands, name, function, text, description="") -> argparse.ArgumentParser:
    examples = [line for line in EXAMPLES.splitlines() if f"neorl-deploy {name}" in line]
    parser = commands.add_parser(
        name,
        help=text,
        description=description or f"{text[0].upper()}{text[1:]}.",
        epilog="\n".join(["examples:", *examples]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=function)
    return parser


def names() -> tuple[str, ...]:
    """The names of all commands."""
    return tuple(_commands(_parser()))


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parser of every command by its name."""
    groups = parser._subparsers
    assert groups is not None
    choices: Any = groups._group_actions[0].choices
    return dict(choices)


def _completion(options: argparse.Namespace) -> int:
    with needs("completion", "completion"):
        import shtab
    parser = _parser()
    for command in _commands(parser).values():
        for action in command._actions:
            if action.type is Path:
                vars(action)["complete"] = shtab.FILE
    print(shtab.complete(parser, options.shell))
    return 0


def _export(options: argparse.Namespace) -> int:
    from neorl_deploy._command.text import bundle_lines, verdict_lines
    from neorl_deploy.training_run import newest_run

    run = options.run or newest_run(Path("runs"))
    if run.suffix == ".bundle" and not options.form and (run / "checksums.json").exists():
        raise DeployError(
            f"{run} is a sealed bundle already; print it for a controller with --form st, plcopen, "
            "c or fmu, or name a run"
        )
    if run.suffix == ".bundle" and options.form:
        _print_lines(_printed_forms(_bundle_to_print(run, options), options))
        return 0
    bundle = _exported(run, options)
    printed = _printed_forms(bundle, options) if options.form else []
    if options.json:
        print(json.dumps(_summary(bundle, "export")))
        return 0
    _print_lines(bundle_lines(bundle))
    _print_lines(verdict_lines(bundle))
    _print_lines(printed)
    print(f"Next: {command_prefix()} replay {_replay_arguments(bundle.path, run)}")
    return 0


def _exported(run: Path, options: argparse.Namespace) -> Bundle:
    prepare_jax()
    from neorl_deploy.export._export import ExportOptions, export_run

    return export_run(
        run,
        ExportOptions(
            out=options.out,
            policy=options.policy,
            require_deploy=options.require_deploy,
            overwrite=options.overwrite,
            platforms=tuple(options.platforms.split(",")),
            sign_key=options.sign,
            onnx=options.onnx,
        ),
        progress=lambda line: print(one_line(f"export, {line}"), file=sys.stderr, flush=True),
    )


def _bundle_to_print(path: Path, options: argparse.Namespace) -> Bundle:
    from neorl_deploy.bundle._read import read_bundle

    bundle = read_bundle(path)
    if options.require_deploy and bundle.manifest.verdict != "deploy":
        raise NotDeployable(f"the verdict of {path} is {bundle.manifest.verdict!r}")
    return bundle


def _printed_forms(bundle: Bundle, options: argparse.Namespace) -> list[str]:
    from neorl_deploy.forms import write_forms

    written = write_forms(bundle, options.form, long=options.lreal)
    return [f"wrote {path}" for path in written]


def _summary(bundle: Bundle, kind: str) -> dict[str, Any]:
    """What identifies a bundle and its verdict, as plain JSON."""
    from neorl_deploy.bundle._strict_json import head

    return {
        **head(kind, 1),
        "bundle": str(bundle.path),
        "digest": f"sha256:{bundle.digest}",
        "run": bundle.manifest.run,
        "verdict": bundle.manifest.verdict,
    }


def _replay_arguments(bundle: Path, run: Path) -> str:
    """Arguments of ``replay``: the bundle, and a log if none is found beside the bundle."""
    from neorl_deploy.training_run import log_of_run

    beside, log = log_of_run(bundle.resolve().parent), log_of_run(run)
    arguments = [str(bundle)]
    if beside is None or not beside.is_file():
        arguments.append(str(log) if log is not None and log.is_file() else "LOG.h5")
    return " ".join(map(shlex.quote, arguments))


def _replay(options: argparse.Namespace) -> int:
    if options.form == "stablehlo":
        require_jax(other=NUMPY_FORM)
    from neorl_deploy._command.replay_text import replay_lines
    from neorl_deploy._command.text import limit_lines, verdict_lines
    from neorl_deploy.shadow._log import read_log
    from neorl_deploy.shadow._replay import (
        replay,
        replay_path,
        require_place,
        require_same_log,
        write_replay,
    )
    from neorl_deploy.training_run import REPORT, log_of, newest_bundle

    path = options.bundle or newest_bundle(Path("runs"))
    numbers = options.json or replay_path(path)
    require_place(numbers)
    bundle = read_named(path, options)
    log = read_log(options.log or log_of(path))
    require_same_log(numbers, log)
    result = replay(bundle, log, options.form)
    _print_lines(verdict_lines(bundle))
    _print_lines(limit_lines(bundle))
    _print_lines(replay_lines(result))
    write_replay(numbers, result.report)
    print(f"Numbers as JSON: {numbers}")
    report = path.resolve().parent / REPORT
    if report.is_file():
        print(f"Report of the run: {report}")
    return 0


def _verify(options: argparse.Namespace) -> int:
    from neorl_deploy._command.audit_command import audit_of, verify_audit
    from neorl_deploy._command.text import bundle_lines, limit_lines, proof_lines, verdict_lines

    audit = audit_of(options.bundle)
    _require_options_of(options, audit=audit is not None)
    if audit is not None:
        return verify_audit(
            audit,
            options.decided_by,
            options.head,
            trusted_key=trusted_key(options),
            show=options.show,
            as_json=options.json,
        )
    bundle, worst = read_named(options.bundle, options), None
    if options.self_test:
        from neorl_deploy.runtime._forms import open_programs
        from neorl_deploy.runtime._load import require_trial
        from neorl_deploy.runtime._runtime import Runtime

        form = chosen_form(options, bundle)
        if form == "stablehlo":
            open_programs(bundle)
        require_trial(bundle, form=form)
        worst = float(Runtime(bundle, form).self_test())
    trusted = options.public_key is not None
    if options.json:
        until = bundle.manifest.promised_until
        proofs = {"signed_by": bundle.signed_by or None, "trusted": trusted, "self_test": worst}
        promise = {"jax": bundle.manifest.jax, "promised_until": until and until.isoformat()}
        print(json.dumps({**_summary(bundle, "bundle-verification"), **proofs, **promise}))
    else:
        if worst is not None:
            print(
                "Test vectors answered on this machine, largest difference "
                f"{worst:.1e} of a channel's size"
            )
        _print_lines(bundle_lines(bundle))
        _print_lines(limit_lines(bundle))
        _print_lines(verdict_lines(bundle))
        _print_lines(proof_lines(bundle, trusted=trusted))
        _print_lines(promise_warnings(bundle))
    if options.require_deploy and bundle.manifest.verdict != "deploy":
        raise NotDeployable(f"the verdict of {options.bundle} is {bundle.manifest.verdict!r}")
    return 0


def _require_options_of(options: argparse.Namespace, *, audit: bool) -> None:
    """Refuses options that would be ignored, so that no requested check is silently skipped."""
    own = ("decided_by", "head", "show")
    other = ("self_test", "require_deploy") if audit else own
    if skipped := [f"--{name.replace('_', '-')}" for name in other if getattr(options, name)]:
        kind, other_kind = ("an audit log", "a bundle") if audit else ("a bundle", "an audit log")
        raise DeployError(
            f"{' or '.join(skipped)} applies to {other_kind}, and {options.bundle} is {kind}; name "
            f"{other_kind}, or leave the option out"
        )


def _renew(options: argparse.Namespace) -> int:
    require_jax()
    from neorl_deploy._command.text import bundle_lines
    from neorl_deploy.export._renew import PROBES, renew_bundle

    renewal = renew_bundle(
        options.bundle,
        options.out,
        sign_key=options.sign,
        trusted_key=trusted_key(options),
        overwrite=options.overwrite,
    )
    if options.json:
        facts = {"before": f"sha256:{renewal.before.digest}", "difference": renewal.difference}
        print(json.dumps({**_summary(renewal.bundle, "renewal"), **facts}))
        return 0
    print(
        f"On {PROBES} steps the new program answers as the sealed operations, largest difference "
        f"{renewal.difference:.1e} of a channel's size; the test vectors are answered as before"
    )
    _print_lines(bundle_lines(renewal.bundle))
    print("It is another bundle: a loop that goes on with it begins stopped, until a release")
    return 0


def _inspect(options: argparse.Namespace) -> int:
    from neorl_deploy._command.text import inspect_lines

    bundle = read_named(options.bundle, options)
    if options.json:
        print(json.dumps(bundle.manifest.document, indent=2))
    else:
        _print_lines(inspect_lines(bundle))
    return 0


def _dossier(options: argparse.Namespace) -> int:
    from neorl_deploy.bundle._files import is_in_bundle
    from neorl_deploy.dossier import NOT_PROVIDED, dossier, evidence_of

    bundle = read_named(options.bundle, options)
    evidence = evidence_of(bundle, options.loop)
    out = options.out or bundle.path.with_name(f"{bundle.path.stem}-dossier.md")
    if is_in_bundle(out) or not out.parent.is_dir():
        raise DeployError(f"{out} lies inside a bundle, or in no folder; choose another --out")
    text = dossier(evidence, out.parent)
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise DeployError(f"cannot write {out}: {error.strerror}") from error
    headings = text.count("\n## ") - 1
    print(f"{out}: {headings} headings, {text.count(chr(10) + NOT_PROVIDED)} not provided")
    if evidence.run is None:
        print("The run is not beside the bundle, so its settings, report and sheets are not listed")
    return 0


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        print(one_line(line))
