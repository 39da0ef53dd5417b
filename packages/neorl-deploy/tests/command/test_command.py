"""The commands as a person types them: output, exit codes, one-line errors."""

import json
import re
import shlex
import shutil
import subprocess
import sys

import jax
import pytest

from neorl_deploy._command.main import _replay_arguments, main
from neorl_deploy._command.text import _origin, _rows
from neorl_deploy.bundle import read_bundle


@pytest.mark.parametrize("command", ["", "export", "replay", "verify", "inspect"])
def test_help_has_examples(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([*command.split(), "--help"])
    assert stop.value.code == 0
    assert f"neorl-deploy {command}" in capsys.readouterr().out.split("examples:")[1]


@pytest.mark.parametrize(
    "words", [["--help"], ["exprot"], ["export", "--help"], ["completion", "bash"]]
)
def test_the_command_answers_without_importing_numpy(words):
    code = (
        f"import sys; from neorl_deploy._command.main import main\ntry:\n    main({words!r})\n"
        "finally:\n    assert not {'jax', 'numpy'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == (2 if words == ["exprot"] else 0), done.stderr


def test_the_three_commands_without_arguments(command, run_directory, monkeypatch):
    """Row N34: export, verify and replay work without arguments."""
    monkeypatch.chdir(run_directory.parent.parent)
    code, out, err = command.run("export")
    assert code == 0
    stages = ["reading iql-0 of runs/0001 and its guard", "lowering the programs for cpu"]
    stages += ["answering the test vectors", "comparing the answers of a fresh process"]
    assert err.splitlines() == [f"export, {i} of 4: {stages[i - 1]}" for i in (1, 2, 3, 4)]
    assert "0001/policy.bundle" in out
    assert "Verdict of run 0001: deploy" in out
    out = command("replay")
    assert "Shadow over 200 rows of 5 episodes" in out
    assert "% of the steps an actuator moves as fast as it may" in out
    assert "rate_active" not in out
    assert "the limit on the rate of\n  change acts wherever" in out
    assert "  valve between 0 and 100 %\n" in out
    assert "(pid): valve holds level at 1 m; jacket holds temperature at 335 K\n" in out
    assert "A typical episode" in out
    report = json.loads((run_directory / "replay.json").read_text())
    assert report["bundle"]["verdict"] == "deploy"
    out = command("verify", "runs/0001/policy.bundle", "--self-test")
    assert "  jacket between 280 and 320 K\n" in out
    assert "Fallback, where the policy cannot act (pid): valve holds level" in out
    assert "Every file matches checksums.json" in out
    assert "does not rule out a forger: compare the digest" in out
    assert "Every byte" not in out
    assert "exists; choose another place with --out" in command.refused("export")
    verified = json.loads(command("verify", "runs/0001/policy.bundle", "--json"))
    until = read_bundle("runs/0001/policy.bundle").manifest.promised_until
    assert verified.pop("digest") == f"sha256:{report['bundle']['digest']}"
    assert verified == {
        "format": "neorl-bundle-verification",
        "version": 1,
        "bundle": "runs/0001/policy.bundle",
        "run": "0001",
        "verdict": "deploy",
        "signed_by": None,
        "trusted": False,
        "self_test": None,
        "jax": jax.__version__,
        "promised_until": until and until.isoformat(),
    }
    out = command("inspect", "runs/0001/policy.bundle")
    assert "280 to 400 K" in out
    assert "Costs that the verdict judges but no part of the bundle enforces\n  " in out
    assert "valve rises by at most 0.5 % per second and falls by at most 0.5 % per second" in out
    assert "jacket may change at any rate" in out
    out = command("inspect", "runs/0001/policy.bundle", "--json")
    assert json.loads(out)["format"] == "neorl-bundle"


def test_a_policy_that_must_not_be_deployed_is_exported_loudly_and_gated(command, run_directory):
    path = run_directory / "verdict.json"
    document = json.loads(path.read_text())
    reason = "The guarded iql-0 should not be deployed: its gain in return is not above 0."
    failed = {**document["clauses"][0], "bound": -1.0, "holds": False}
    refusal = {"answer": "do not deploy", "sentence": reason, "clauses": [failed]}
    path.write_text(json.dumps({**document, **refusal}))
    error = command.refused("export", run_directory, "--require-deploy", code=3)
    assert "'do not deploy'; nothing was written" in error
    assert not (run_directory / "policy.bundle").exists()
    out = command("export", run_directory)
    assert "*** DO NOT DEPLOY ***" in out
    assert reason in out
    bundle = str(run_directory / "policy.bundle")
    command("verify", bundle)
    command.refused("verify", bundle, "--require-deploy", code=3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["export", "no/such/run"], "is not a run directory"),
        (["export"], "no finished run under runs"),
        (["replay"], "no bundle under runs"),
        (["replay", "no.bundle", "no.h5"], "does not exist"),
        (["verify", "no.bundle"], "does not exist"),
        (["inspect", "no.bundle"], "does not exist"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(
    command, tmp_path, monkeypatch, arguments, message
):
    monkeypatch.chdir(tmp_path)
    error = command.refused(*arguments)
    assert message in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["verify", "replay", "inspect"])
def test_a_run_in_place_of_its_bundle_is_told(command, run_directory, exported, name):
    error = command.refused(name, run_directory)
    assert (
        f"is a run without a bundle; make one with `neorl-deploy export {run_directory}`" in error
    )
    bundle = shutil.copytree(exported, run_directory / "policy.bundle")
    error = command.refused(name, run_directory)
    assert f"{run_directory} is a run; name its bundle, {bundle}\n" in error
    assert error.count("\n") == 1
    error = command.refused("export", bundle)
    assert f"{bundle} is a sealed bundle already; print it" in error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["xport"], "did you mean export?"),
        (["foo"], "'completion'); see `neorl-deploy --help`"),
        (["completion", "csh"], "invalid choice: 'csh' (choose from 'bash', 'zsh', 'fish',"),
        (["completion"], "SHELL"),
        (["export", "--plaforms", "cpu"], "did you mean --platforms?"),
        (["export", "--form", "ld"], "(choose from 'st', 'plcopen', 'c', 'fmu'); see"),
        (["verify"], "BUNDLE"),
        ([], "COMMAND"),
    ],
)
def test_a_mistyped_word_is_one_line_with_the_nearest_name(arguments, message, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("neorl-deploy: ")
    assert error.count("\n") == 1


def test_a_check_that_would_be_skipped_is_refused(command, exported, tmp_path):
    error = command.refused("verify", exported, "--head", "7c1f")
    assert "--head applies to an audit log, and" in error
    loop = tmp_path / "loop"
    (loop / "audit").mkdir(parents=True)
    (loop / "orders").mkdir()
    (loop / "audit" / "audit-000001.jsonl").write_text("")
    error = command.refused("verify", loop, "--require-deploy", "--self-test")
    assert "--self-test or --require-deploy applies to a bundle, and" in error
    error = command.refused("verify", loop, "--head", "7c1f")
    assert "the whole hash of a record (64 digits), got '7c1f'" in error
    assert f"`neorl-deploy verify {loop}` checks its audit log" in command.refused("inspect", loop)


@pytest.mark.parametrize("words", [["verify", "--self-test"], ["replay"], ["http"]])
def test_without_jax_the_form_that_needs_none_is_named(command, exported, monkeypatch, words):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    form = [] if words == ["replay"] else ["--form", "stablehlo"]
    error = command.refused(*words, exported, *form)
    assert 'pip install "./packages/neorl-deploy[jax]"; or add --form numpy' in error


def test_a_log_is_replayed_without_jax(exported, finished_run, tmp_path):
    code = (
        "import sys; sys.modules['jax'] = None; from neorl_deploy._command.main import main; "
        "sys.exit(main(sys.argv[1:]))"
    )
    numbers = tmp_path / "replay.json"
    words = ["replay", str(exported), str(finished_run / "dataset.h5"), "--json", str(numbers)]
    command = [sys.executable, "-c", code, *words, "--form", "numpy"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Shadow over 200 rows of 5 episodes" in done.stdout
    assert numbers.is_file()


def test_the_origin_of_a_policy_is_said_as_far_as_it_is_recorded():
    recorded = {"algorithm": "bc", "seed": 0, "updates": 500, "source": "CSTR-v0"}
    assert _origin(recorded) == "bc, seed 0, 500 updates, on CSTR-v0"
    foreign = {**recorded, "origin": "my-learners 0.3"}
    assert _origin(foreign) == "bc, from my-learners 0.3, seed 0, 500 updates, on CSTR-v0"
    assert _origin({"algorithm": "pid", "origin": "", "source": ""}) == "pid"
    assert _origin(None) == ""
    assert _rows({"dataset": {"rows": 40, "episodes": 2}}) == ", 40 rows in 2 episodes"
    assert _rows({}) == ""


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (["neorl-deploy", "ver"], "verify"),
        (["neorl-deploy", "--v"], "--version"),
        (["neorl-deploy", "verify", "--self"], "--self-test"),
        (["neorl-deploy", "serve", "--tok"], "--token-file"),
        (["neorl-deploy", "serve", "--form", "n"], "numpy"),
        (["neorl-deploy", "serve", "line"], "line2.bundle"),
        (["neorl-deploy", "export", "--sign", "line"], "line2.bundle"),
    ],
)
def test_bash_completes(command, typed, expected, tmp_path):
    (tmp_path / "line2.bundle").mkdir()
    script = command("completion", "bash")
    words = f"COMP_WORDS=({' '.join(typed)}); COMP_CWORD={len(typed) - 1}"
    call = '_shtab_neorl_deploy neorl-deploy; echo "${COMPREPLY[@]}"'
    code = f"{script}\n{words}; {call}"
    done = subprocess.run(
        ["bash", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == expected


def test_completion_without_its_library_says_what_to_install(command, monkeypatch):
    monkeypatch.setitem(sys.modules, "shtab", None)
    error = command.refused("completion", "bash")
    assert 'pip install "./packages/neorl-deploy[completion]"' in error


def test_the_other_shells_complete_the_same_words(command):
    for shell in ("zsh", "fish", "tcsh", "powershell"):
        script = command("completion", shell)
        assert "self-test" in script
        assert "rollout" in script


def test_the_version_is_printed(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out.startswith("neorl-deploy 0.")


def test_the_next_line_of_an_export_works_wherever_the_bundle_lies(
    command, run_directory, tmp_path, monkeypatch
):
    monkeypatch.delenv("HATCH_ENV_ACTIVE", raising=False)
    monkeypatch.chdir(run_directory.parent.parent)
    bundle = tmp_path / "line 2.bundle"

    out = command("export", "runs/0001", "--out", bundle)
    (line,) = re.findall(r"(?m)^Next: neorl-deploy (.+)$", out)
    words = shlex.split(line)
    assert words == ["replay", str(bundle), "runs/0001/dataset.h5"]
    command(*words)
    assert _replay_arguments(run_directory / "policy.bundle", run_directory).endswith(
        "/policy.bundle"
    )
    (run_directory / "dataset.h5").unlink()
    assert shlex.split(_replay_arguments(bundle, run_directory)) == [str(bundle), "LOG.h5"]


def test_a_place_for_the_numbers_that_cannot_be_written(command, exported, finished_run, tmp_path):
    place = tmp_path / "none" / "replay.json"
    log = str(finished_run / "dataset.h5")
    code, out, error = command.run("replay", exported, log, "--json", place)
    assert code == 2
    assert "choose a place with --json" in error
    assert out == "", "the refusal comes before the replay, not after it"
    place = tmp_path / "replay.json"
    command("replay", exported, log, "--json", place)
    assert json.loads(place.read_text())["log"]["path"] == log


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("run.json", "it exists and is not an earlier replay"),
        ("dataset.h5", "it exists and is not an earlier replay"),
        ("line.bundle/manifest.json", "it lies in a bundle"),
        ("line.bundle/numbers.json", "it lies in a bundle"),
    ],
)
def test_numbers_replace_no_file_of_another_kind(command, run_directory, exported, name, message):
    shutil.copytree(exported, run_directory / "line.bundle")
    place, log = run_directory / name, str(run_directory / "dataset.h5")
    files = {path: path.read_bytes() for path in run_directory.rglob("*") if path.is_file()}
    error = command.refused("replay", exported, log, "--json", place)
    assert f"cannot write {place}: {message}" in error
    assert error.count("\n") == 1
    assert {path: path.read_bytes() for path in run_directory.rglob("*") if path.is_file()} == files


def test_a_replay_of_another_log_leaves_the_first_numbers(
    command, bundle, log_columns, write_log, tmp_path
):
    logs = [tmp_path / "june.h5", tmp_path / "july.h5"]
    for log, episodes in zip(logs, (2, 3), strict=True):
        write_log(log, log_columns(episodes))
    command("replay", bundle, logs[0])
    command("replay", bundle, logs[0])  # the same log again
    first = (tmp_path / "replay.json").read_bytes()
    error = command.refused("replay", bundle, logs[1])
    assert f"holds the replay of another log, {logs[0]}; choose a place with --json" in error
    assert (tmp_path / "replay.json").read_bytes() == first
    command("replay", bundle, logs[1], "--json", tmp_path / "july.json")


def test_a_closed_pipe_is_no_error(exported):
    command = f"{sys.executable} -m neorl_deploy inspect {exported} | head -1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Bundle ")
    assert done.stderr == ""
