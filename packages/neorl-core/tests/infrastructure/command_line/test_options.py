"""Options are the fields of a dataclass; every mistake is one line with the nearest option."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tyro

from neorl_core import InputError
from neorl_core.infrastructure.command_line import parse_options


@dataclasses.dataclass(frozen=True)
class Clip:
    norm: float = 1.0


@dataclasses.dataclass(frozen=True)
class Training:
    updates: int = 1000
    rate: float = 1e-3
    shuffle: bool = True
    clip: Clip = Clip()


@dataclasses.dataclass(frozen=True)
class Options:
    """Does something with a file.

    example: program act log.h5
    """

    file: tyro.conf.Positional[Path]
    training: Training = Training()
    penalty: dict[str, float] = dataclasses.field(default_factory=dict)
    dry_run: tyro.conf.FlagCreatePairsOff[bool] = False


def parsed(*words: str) -> Options:
    return parse_options(Options, words, program="program act")


def test_words_become_typed_values() -> None:
    options = parsed("log.h5", "--training.updates", "5", "--penalty", "heat", "2", "--dry-run")
    assert options.file == Path("log.h5")
    assert options.training == Training(updates=5)
    assert options.penalty == {"heat": 2.0}
    assert options.dry_run
    assert not parsed("a", "--training.no-shuffle").training.shuffle


@dataclasses.dataclass(frozen=True)
class Tables:
    """Settings of which one consists of tables."""

    steps: int = 1
    loops: tuple[dict[str, Any], ...] = ()


def test_an_option_of_tables_is_referred_to_the_configuration_file() -> None:
    """It was called unknown, with its own name as the suggestion."""
    with pytest.raises(InputError, match="--loops consists of tables, so it can be given in a"):
        parse_options(Tables, ["--loops", "one"], program="program act")


def test_of_an_option_that_is_given_twice_the_last_counts_and_it_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = parsed("log.h5", "--training.updates", "5", "--dry-run", "--training.updates=7")
    assert options.training.updates == 7
    output = capsys.readouterr().err
    assert output == "program act: --training.updates is given twice; the last one counts\n"


def test_defaults_may_be_given() -> None:
    default = Training(updates=7, rate=0.5)
    options = parse_options(Training, ["--updates", "8"], program="p", default=default)
    assert options == Training(updates=8, rate=0.5)


def test_help_has_the_docstring(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        parsed("--help")
    assert stop.value.code == 0
    output = capsys.readouterr().out
    assert "usage: program act" in output
    assert "example: program act log.h5" in output


@dataclasses.dataclass(frozen=True)
class Learner:
    """Learns with :class:`Training` and ``more``.

    Attributes:
        rate: How fast.
        training: How long.
    """

    rate: float = 0.5
    training: Training = Training(updates=77)


@dataclasses.dataclass(frozen=True)
class Many:
    """Has many sections."""

    learners: Learner = Learner()
    low_rate: Training = Training(rate=0.25)
    quiet: tyro.conf.FlagCreatePairsOff[bool] = False


@pytest.mark.parametrize(
    ("words", "there", "absent"),
    [
        (
            [],
            ["Has many sections.", "--quiet", "learners  ", "Learns with Training and more."],
            ["--learners", "--low-rate"],
        ),
        (["low-rate"], ["--low-rate.updates", "0.25"], ["--quiet", "--learners", "many"]),
        (["low_rate"], ["--low-rate.rate"], ["--learners"]),
        (["--learners.rate"], ["--learners.rate", "--learners.training.rate"], ["--low-rate"]),
        (["training"], ["--learners.training.rate", "77"], ["--learners.rate", "--low-rate"]),
        (["training", "low-rate"], ["--learners.training.rate", "--low-rate.rate"], ["--quiet"]),
        (["all"], ["--quiet", "--learners.rate", "--low-rate.rate", "Has many"], []),
    ],
)
def test_help_by_section(
    words: list[str], there: list[str], absent: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        parse_options(Many, ["x", "--help", *words], program="program act", by_section=True)
    assert stop.value.code == 0
    output = capsys.readouterr().out
    assert [word for word in there if word not in output] == []
    assert [word for word in absent if word in output] == []
    assert "usage: program act" in output


def test_help_shows_the_values_that_are_given(capsys: pytest.CaptureFixture[str]) -> None:
    default = Many(low_rate=Training(updates=321))
    with pytest.raises(SystemExit):
        parse_options(Many, ["-h", "low-rate"], program="p", default=default, by_section=True)
    assert "321" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--quiet",),
        ("--low_rate.updates=5", "--learners.training.no-shuffle"),
        ("--learners.rate", "0.125", "--learners.training.rate", "2"),
    ],
)
def test_sections_that_nobody_names_keep_their_values(words: tuple[str, ...]) -> None:
    """A parser of the named sections gives what one of all options does."""
    default = Many(low_rate=Training(updates=321), learners=Learner(rate=0.75))
    given = {"program": "p", "default": default}
    options = parse_options(Many, words, by_section=True, **given)
    assert options == parse_options(Many, words, **given)
    assert (options == default) == (not words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--low-rate.updats", "5"), "mean --low-rate.updates?"),
        (("--low-rat.rate", "5"), "or --low-rate.rate?"),
        (("--low-rate.updates", "x"), "--low-rate.updates must be an integer, got 'x'"),
        (("--quiet", "x"), "unexpected word 'x'"),
    ],
)
def test_a_mistake_among_named_sections_is_the_same_line(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError) as error:
        parse_options(Many, words, program="p", default=Many(), by_section=True)
    assert message in str(error.value)
    output = capsys.readouterr()
    assert output.err == output.out == ""


def test_an_unknown_section_is_named_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r"unknown section 'low-rat'; did you mean 'low-rate'"):
        parse_options(Many, ["--help", "low-rat"], program="p", by_section=True)


MISTAKES = {
    "a mistyped option": (["a", "--training.updats", "3"], "did you mean --training.updates?"),
    "with a value": (["a", "--training.updats=3"], "unknown option '--training.updats'; did"),
    "without its section": (["a", "--updates", "3"], "did you mean --training.updates?"),
    "underscores": (["a", "--dry_rum"], "did you mean --dry-run?"),
    "a negation": (["a", "--training.no-shufle"], "did you mean --training.no-shuffle?"),
    "of another name": (
        ["a", "--training.folder", "x"],
        "unknown option '--training.folder'; section training has --training.updates, ",
    ),
    "of a section that is mistyped": (["a", "--trainig.updats", "3"], "mean --training.updates?"),
    "of another section": (["a", "--file.rate", "3"], "did you mean --training.rate?"),
    "of a section inside": (["a", "--training.norm", "3"], "did you mean --training.clip.norm?"),
    "a value of a switch": (
        ["a", "--training.shuffle", "False"],
        "--training.shuffle takes no value, got 'False'; --training.no-shuffle switches it off",
    ),
    "nothing like it": (["a", "--zzz"], "unknown option '--zzz'; see `program act --help`"),
    "a word too many": (["a", "b"], "unexpected word 'b'; options begin with --; see"),
    "no file": ([], "PATH file (required)"),
    "an integer": (["a", "--training.updates", "x"], "updates must be an integer, got 'x'"),
    "a number": (["a", "--training.rate", "x"], "--training.rate must be a number, got 'x'"),
    "pairs": (
        ["a", "--penalty", "heat"],
        "--penalty takes pairs of a name and a number, such as --penalty NAME 0.75; 'heat' has no "
        "value",
    ),
    "a number in a pair": (
        ["a", "--penalty", "heat", "0.5", "cold", "0,75", "--training.updates", "3"],
        "a name and a number, such as --penalty NAME 0.75; got '0,75' for cold",
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_one_line(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    words, message = MISTAKES[case]
    with pytest.raises(InputError) as error:
        parsed(*words)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert str(error.value).endswith("see `program act --help`")
    output = capsys.readouterr()
    assert output.err == output.out == ""


def test_a_positional_word_is_no_option() -> None:
    with pytest.raises(InputError) as error:
        parsed("a", "--file", "b")
    assert "did you mean --file" not in str(error.value)


WITHOUT_FRAMES = """
import dataclasses
from neorl_core.infrastructure.command_line import parse_options
Options = dataclasses.make_dataclass("Options", [("updates", int, 1)])
try:
    parse_options(Options, ["--updates", "x"], program="p")
except ValueError as error:
    print(error)
"""


def test_a_terminal_without_frames_says_the_same() -> None:
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C", "PYTHONUTF8": "0"}
    command = [sys.executable, "-c", WITHOUT_FRAMES]
    completed = subprocess.run(command, env=ascii_only, capture_output=True, text=True, check=True)
    assert completed.stdout == "--updates must be an integer, got 'x'; see `p --help`\n"
