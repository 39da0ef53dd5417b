"""Options override the file, which overrides the defaults; every mistake is one line."""

import re
import subprocess
import sys
import tomllib
from functools import partial
from pathlib import Path

import optax
import pytest

from neorl_agents import ALGORITHMS
from neorl_agents.optimisers import OPTIMISERS
from neorl_core import InputError
from neorl_train._command.main import GONE, NAMES, SUBCOMMANDS, main
from neorl_train._command.shared import RunArgument, named_run
from neorl_train._command.subcommands.run import RunFlags, read_run_options, single_seed_note
from neorl_train.configuration import config_to_dict, validate
from neorl_train.runs import create_run


def test_options_override_the_file(tmp_path):
    path = tmp_path / "c.toml"
    path.write_text("[training]\nupdates = 1000\nseeds = [5]\n[algorithms.iql]\nexpectile = 0.8\n")
    words = [
        str(path),
        "--training.updates",
        "2000",
        "--algorithms.td3-bc.networks.hidden",
        "8",
        "8",
    ]
    words += ["--penalty", "a", "1", "b", "2", "--output.no-tracking"]
    config, _ = read_run_options(words, ALGORITHMS)
    assert config.training.updates == 2000
    assert config.training.seeds == (5,)
    assert config.algorithms.iql.expectile == 0.8
    assert config.algorithms.td3_bc.networks.hidden == (8, 8)
    assert config.penalty == {"a": 1.0, "b": 2.0}
    assert not config.output.tracking


def test_a_registered_optimiser_is_chosen_by_name(tmp_path):
    OPTIMISERS.register("test_argument_momentum", partial(optax.sgd, momentum=0.9))
    path = tmp_path / "c.toml"
    path.write_text('[algorithms.td3_bc.steps]\noptimiser = "test_argument_momentum"\n')
    words = [str(path), "--algorithms.iql.steps.optimiser", "test_argument_momentum"]
    config, _ = read_run_options(words, ALGORITHMS)
    validate(config)
    plain = config_to_dict(config)["algorithms"]
    assert {name: plain[name]["steps"]["optimiser"] for name in plain} == {
        "bc": "adam",
        "td3_bc": "test_argument_momentum",
        "iql": "test_argument_momentum",
    }
    unknown, _ = read_run_options(
        ["--algorithms.bc.steps.optimiser", "test_argument_momentun"], ALGORITHMS
    )
    with pytest.raises(InputError, match=r"algorithms\.bc\.steps\.optimiser must be one of adam"):
        validate(unknown)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--training.update", "3"],
            "unknown option '--training.update'; did you mean --training.u",
        ),
        (["--algorithms.iql.expectle=0.7"], "did you mean --algorithms.iql.expectile"),
        (["--algorithms.td3_bc.alpa", "1"], "did you mean --algorithms.td3-bc.alpha"),
        (["--zzz"], "unknown option '--zzz'; see `neorl-train run --help`"),
        (["--training.updates", "many"], "training.updates.*'many'; see `neorl-train run --help`"),
        (["--training.updates"], "training.updates.*; see `neorl-train run --help`"),
        (["--algorithms.iql.variant", "x"], "--algorithms.iql.variant: invalid choice: 'x'"),
        (["--data.source", "a", "b"], "unexpected word 'b'"),
        (["nowhere.toml"], "nowhere.toml: there is no such file"),
        (["nowhere.h5"], "nowhere.h5: there is no such log"),
        (["CSTR-v1"], "unknown environment .*'CSTR-v1'; did you mean 'CSTR-v0'"),
        (["--training.updates", "1e5"], "--training.updates must be an integer, got '1e5'"),
        (["--data.held-out", "x"], "--data.held-out must be a number, got 'x'"),
        (["--penalty", "a"], "--penalty takes pairs of a name and a number"),
        (["--limits.rate-up", "a"], "takes pairs of a name and a number, such as --limits.rate-up"),
        (["--classical.manipulated", "a"], "takes pairs of a name and a text, such as --classical"),
        (["--no-tracking"], "did you mean --output.no-tracking"),
        (["--seeds", "4"], "unknown option '--seeds'; did you mean --training.seeds?"),
        (["--quite"], "unknown option '--quite'; did you mean --quiet?"),
        (["--timing"], "unknown option '--timing'; did you mean --timings?"),
    ],
)
def test_a_mistake_is_one_line(words, message, capsys):
    with pytest.raises(InputError, match=message) as error:
        read_run_options(words, ALGORITHMS)
    assert "\n" not in str(error.value)
    assert capsys.readouterr().err == ""


def test_the_first_word_may_be_a_plant_or_a_log(tmp_path):
    log = tmp_path / "log.h5"
    log.touch()
    for word in ("CSTR-v0", str(log)):
        config, _ = read_run_options([word, "--data.seed", "3"], ALGORITHMS)
        assert (config.data.source, config.data.seed) == (word, 3)


def test_flags_are_told_from_the_configuration(tmp_path):
    path = tmp_path / "c.toml"
    path.write_text("[training]\nupdates = 1000\n")
    file = str(path)
    for words, flags in (
        ([file], RunFlags()),
        (["--quiet", file], RunFlags(quiet=True)),
        ([file, "--timings", "--data.seed", "3"], RunFlags(timings=True)),
        (["--timings", file, "--quiet"], RunFlags(quiet=True, timings=True)),
    ):
        config, given = read_run_options(words, ALGORITHMS)
        assert given == flags
        assert config.training.updates == 1000
        assert set(config_to_dict(config)).isdisjoint(vars(flags))


FLAGS = {
    "--quiet": "Print no progress.",
    "--timings": "Print a table of where the time went.",
    "--profile": "Trace the first chunks of every learner into RUN/profile.",
}


@pytest.mark.parametrize("command", NAMES)
def test_help_names_the_flags_that_the_command_takes(command, capsys):
    assert main([command, "--help", *["all"] * (command in ("run", "finetune", "federate"))]) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert "--json" in output or command == "open"  # which serves a page, and prints no result
    for flag, text in FLAGS.items():
        accepted = command in ("run", "resume", "federate", "finetune")
        if flag == "--profile":  # where something is trained by this very command
            accepted = command in ("run", "resume", "finetune")
        assert (flag in output) == accepted
        assert (text in output) == accepted


@pytest.mark.parametrize("command", NAMES)
def test_help_has_an_example(command, capsys):
    assert main([command, "--help"]) == 0
    output = capsys.readouterr().out
    assert "example" in output
    assert f"neorl-train {command}" in output


def test_the_overview_names_every_command(capsys):
    assert main([]) == 0
    output = capsys.readouterr().out
    assert all(f"\n  {name}" in output for name in NAMES)


def test_a_folder_of_runs_that_cannot_be_made(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("a file")
    assert main(["run", "--output.directory", "taken"]) == 2
    output = capsys.readouterr().err
    assert "cannot make the folder taken: File exists; choose another with --output.dir" in output
    assert output.count("\n") == 1


def test_the_version_is_said(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("neorl-train 0.")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rnu"], "unknown command 'rnu'; did you mean 'run'?"),
        (
            ["run", "--training.algorithms", "bc", "--evaluation.candidate", "iql"],
            "choose one of its learners and controllers with --eval",
        ),
        (["resume"], "resume needs a run, and there is none in"),
        (["inspect", "a", "b"], "unexpected word 'b'.*see `neorl-train inspect --help`"),
        (["list", "-x"], "unknown option '-x'; see `neorl-train list --help`"),
        (["list", "runs", "more"], "unexpected word 'more'; .*see `neorl-train list --help`"),
        (["list", "nowhere"], "nowhere: there is no such folder; name the folder that contains"),
        (["inspect", "--helpp"], "unknown option '--helpp'; see `neorl-train inspect --help`"),
        (["inspect", "a", "--quiet"], "unknown option '--quiet'; see `neorl-train inspect --help`"),
        (
            ["resume", "a", "--timing"],
            "'--timing'; did you mean --timings. see `neorl-train resume",
        ),
        (["resume", "nowhere"], "nowhere: there is no such run directory"),
        (["run", "--data.source", "ChemicalReacter-v0"], "did you mean 'ChemicalReactor-v0'?"),
        (["run", "--data.source", "nowhere.h5"], "nowhere.h5: no such file"),
        (["run", "--data.source", "nowhere.csv"], "there is no file nowhere.csv"),
        (["run", "--training.algorithms", "iqll"], "unknown algorithm 'iqll'; did you mean 'iql'?"),
        (
            ["run", "--penalty", "presure", "1"],
            "cost in penalty 'presure'; did you mean 'pressure'",
        ),
        (
            ["run", "--algorithms.iql.expectile", "3"],
            "--algorithms.iql.expectile must be a number in .* got 3.0; see `neorl-train run",
        ),
        (
            ["run", "--algorithms.iql.value-learning-rate", "inf"],
            "--algorithms.iql.value-learning-rate must be a finite number above 0, got inf; see",
        ),
        (
            ["run", "--training.algorithms", "mine:CRR"],
            "unknown algorithm 'mine:CRR'; .*; a class of your own needs an entry point in neorl",
        ),
        (
            ["run", "mine:Tank"],
            "'mine:Tank'; .*; a plant of your own is installed with an entry point neorl.plants",
        ),
        (
            ["run", "--algorithms.sac-n.n-critics", "3"],
            "--algorithms.sac-n.n-critics is an option of sac_n, which this run does not train: it "
            "trains bc, td3_bc, iql; leave it out, or train sac_n too with "
            "`--training.algorithms bc td3_bc iql sac_n`",
        ),
        (
            ["run", "--training.algorithms", "iql", "--algorithms.cql.no-lagrange"],
            "--algorithms.cql.no-lagrange is an option of cql, which .* it trains iql; leave it",
        ),
        (
            ["run", "--training.algorithms", "iqll", "--algorithms.iql.expectile=0.8"],
            "unknown algorithm 'iqll'; did you mean 'iql'?",
        ),
    ],
)
def test_bad_input_ends_with_2_and_one_line(words, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("neorl-train: ")
    assert output.err.count("\n") == 1
    assert re.search(message, output.err), output.err
    assert list(tmp_path.iterdir()) == []


def test_a_run_in_place_of_the_folder_of_runs_is_told(capsys, tmp_path):
    run = create_run(tmp_path / "runs", "", {}).path
    assert main(["list", str(run)]) == 2
    output = capsys.readouterr()
    assert output.err == (
        f"neorl-train: {run} is itself a run; see it with `neorl-train inspect {run}`, "
        f"or all of them with `neorl-train list {run.parent}`\n"
    )
    assert output.out == ""


def test_a_first_list_needs_no_folder(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["list"]) == 0
    listed = capsys.readouterr().out
    assert "none yet; `neorl-train run` starts the first" in listed
    learners = listed.split("\nalgorithms\n")[1].split("\nruns in ")[0].splitlines()
    assert len({len(line) - len(line[2:].split(maxsplit=1)[1]) for line in learners}) == 1, listed


def test_the_module_is_the_command():
    result = subprocess.run(
        [sys.executable, "-m", "neorl_train", "wrong"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    assert result.stderr.startswith("neorl-train: unknown command 'wrong'")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("name", GONE)
def test_a_command_that_is_gone_names_one_that_there_is(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert name not in SUBCOMMANDS
    assert main([name, "runs/0001"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"neorl-train: there is no command {name!r} any more; ")
    assert said.count("\n") == 1
    named = re.search(r"`neorl-train (\S+) \S+( --[a-z]+)?", said)
    if named is None:  # a script took its place
        (script,) = re.findall(r"\S+\.py", said)
        assert (Path(__file__).parents[4] / "docs/pages/how-to/templates" / script).is_file()
    else:
        assert named[2] is None or named[2].strip() in SUBCOMMANDS[named[1]].help("x", [])


def test_a_learner_that_cannot_be_imported_is_named_and_harms_no_list(
    tmp_path, monkeypatch, capsys
):
    """Not a misspelt option: its section is missing because its module is broken."""
    (tmp_path / "slipped.py").write_text("def learn(:\n")
    info = tmp_path / "slipped-0.3.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: slipped\nVersion: 0.3\n")
    (info / "entry_points.txt").write_text("[neorl.algorithms]\nmy_bc = slipped:MyBC\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    why = r"'my_bc' of slipped 0\.3 cannot be imported from slipped:MyBC \(SyntaxError: .*line 1\)"
    (tmp_path / "my.toml").write_text("[algorithms.my_bc]\nrate = 1.0\n")
    for words in (["--algorithms.my-bc.rate", "1"], ["my.toml"]):
        assert main(["run", "--training.algorithms", "my_bc", *words]) == 2
        assert re.search(why, capsys.readouterr().err), words
    assert main(["list"]) == 0
    assert re.search(rf"\n  my_bc +the algorithm {why}.*\n", capsys.readouterr().out)


def test_one_seed_is_told_from_several():
    words = ["--training.seeds", "4"]
    note = single_seed_note(read_run_options(words, ALGORITHMS)[0], words)
    assert note == (
        "--training.seeds 4 trains one seed, number 4; for 4 seeds write --training.seeds 0 1 2 3"
    )
    for other in (["--training.seeds", "0"], ["--training.seeds", "4", "5"], []):
        assert single_seed_note(read_run_options(other, ALGORITHMS)[0], other) == ""


def test_a_dry_run_prints_the_complete_configuration_and_writes_nothing(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    words = ["run", "CSTR-v0", "--training.algorithms", "bc", "--dry-run"]
    assert main(words) == 0
    complete = tomllib.loads(capsys.readouterr().out)
    assert complete["data"]["source"] == "CSTR-v0"
    assert complete["fallback"]["kind"] != "default"  # taken from the plant
    assert list(tmp_path.iterdir()) == []
    assert main([*words, "--training.updates", "0"]) == 2
    assert "training.updates" in capsys.readouterr().err


def test_a_run_is_named_by_its_number_or_is_the_newest(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"inspect needs a run, and there is none in"):
        RunArgument().directory("inspect")
    runs = [create_run(Path("runs"), "", {}).path for _ in range(2)]
    for word, path in (("0001", runs[0]), ("2", runs[1]), ("runs/0001", runs[0])):
        assert RunArgument(word).directory("inspect").path == path
    assert RunArgument().directory("inspect").path == runs[1]
    assert "so the newest is used, runs/0002" in capsys.readouterr().err
    Path("0001").mkdir()  # a folder of that name is meant itself
    assert named_run("0001") == Path("0001")
    assert named_run("0009") == Path("0009")
