"""Help is read from the source of the options, completion is made of the same."""

import dataclasses
import importlib
import math
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from neorl_core.infrastructure import Range
from neorl_core.infrastructure.command_line import (
    Program,
    Section,
    Subcommand,
    declared_keys,
    declared_section,
    declared_table,
    section_of,
    summary_of,
)
from neorl_core.infrastructure.command_line._declared import Setting

SOURCE = '''
"""Options of a command."""

import dataclasses
import math
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal, TYPE_CHECKING

if TYPE_CHECKING:
    from a_source_that_is_missing import Nothing

from neorl_core.infrastructure import setting
from neorl_core.infrastructure.command_line import Positional

LOADED.append(__name__)
Rule = Literal["mean", "median"]
WIDTHS = (8, 16)
MOST = 9
def text() -> str:
    return """
to the left of its code"""


USAGE = """neorl-x run [LOG] [--OPTION VALUE ...]

Trains.

examples:
  neorl-x run"""


@dataclasses.dataclass(frozen=True)
class Clip:
    """Clips.

    Attributes:
        norm: The :func:`norm`, in ``%`` of `x`;
            on two lines.
        rule: How to.
    """

    kind: ClassVar[str] = "clip"
    norm: float = setting(1.0, above=-1, high=MOST, also=math.inf)
    rule: Rule = "mean"


TIGHT = Clip(norm=-0.5)


@dataclasses.dataclass(frozen=True)
class Training(Clip):
    """Trains with :class:`Clip` and ``more``. Another sentence.

    Attributes:
        widths: Widths. Of layers.
        norm: Another text.
        on: Whether.
    """

    norm: float = 2.0
    widths: tuple[int, ...] = setting(WIDTHS, low=1, static=True)
    on: bool = True
    clip: Clip = replace(TIGHT, rule="median")
    low_clip: Clip = Clip(norm=Clip.norm)


@dataclasses.dataclass(frozen=True)
class Output:
    """Where to.

    Attributes:
        quiet: Say nothing.
    """

    quiet: bool = False


@dataclasses.dataclass(frozen=True)
class Run(Output, Training):
    """Does something with a file.

    example: neorl-x act log.h5
    """

    training: Training = dataclasses.field(default_factory=Training)

    @property
    def first(
        self,
    ) -> int:
        """Is not read, nor what it contains."""
        unread: int = 5

        return unread

    penalty: dict[str, float] = dataclasses.field(default_factory=dict)
    limit: dict[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    out: Path | None = None
    where: Path = Path("here")
    tables: tuple[dict[str, float], ...] = ()
    logs: Positional[tuple[Path, ...]] = ()
    learners: Any = None


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Sweeps.

    Attributes:
        processes: How many.
    """

    processes: int
'''
TABLES = """
from x_options import Clip, Training

MORE = {"training": Training}
TABLE = dict({Clip.kind: Clip, **MORE})
"""


@pytest.fixture(autouse=True)
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The modules ``x_options`` and ``x_tables``, and the list of those that were imported."""
    from neorl_core.infrastructure.command_line import _declared

    loaded: list[str] = []
    monkeypatch.setattr("builtins.LOADED", loaded, raising=False)
    (tmp_path / "x_options.py").write_text(SOURCE)
    (tmp_path / "x_tables.py").write_text(TABLES)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    yield loaded
    for name in ("x_options", "x_tables"):
        sys.modules.pop(name, None)
    _declared._names.cache_clear()


def learners() -> dict[str, Any]:
    return declared_table("x_tables", "TABLE")


@pytest.fixture
def program() -> Program:
    first = ("training.widths", "penalty", "quiet")
    return Program(
        name="neorl-x",
        overview="usage: neorl-x COMMAND\n",
        subcommands={
            "run": Subcommand("x_options", "Run", first, {"learners": learners}),
            "sweep": Subcommand("x_options:sweep", "Sweep"),
        },
        prepare=lambda: pytest.fail("prepared"),
        when_memory_ends="",
    )


def shown(program: Program, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert program.run(words) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("name", ["Clip", "Training", "Output", "Run", "Sweep"])
def test_a_class_that_is_read_has_the_options_of_the_class_that_is_imported(
    name: str, sources: list[str]
) -> None:
    """Names, types, defaults and texts, in the order of the fields."""
    declared = declared_section("x_options", name)
    assert sources == []
    imported = getattr(importlib.import_module("x_options"), name)
    assert sources == ["x_options"]
    assert section_of(imported) == declared
    assert list(section_of(imported).fields) == list(declared.fields)
    if name != "Sweep":
        assert section_of(imported()) == declared


def test_texts_are_plain_and_inherited() -> None:
    clip = declared_section("x_options", "Clip")
    assert clip.summary == "Clips."
    assert clip.fields["norm"].text == "The norm, in % of `x`; on two lines."
    training = declared_section("x_options", "Training")
    assert training.summary == "Trains with Clip and more. Another sentence."
    assert [training.fields[name].text for name in ("rule", "norm")] == ["How to.", "Another text."]


def test_ranges_are_read_and_inherited() -> None:
    clip, training = (declared_section("x_options", name).fields for name in ("Clip", "Training"))
    norm = Range(above=-1, high=9, also=math.inf)
    assert training["norm"] == Setting(float, 2.0, "Another text.", norm)
    assert clip["norm"] == Setting(float, 1.0, "The norm, in % of `x`; on two lines.", norm)
    assert training["widths"][-1] == Range(low=1)
    assert training["on"][-1] is None


def test_a_table_is_read(sources: list[str]) -> None:
    assert declared_keys("x_tables", "TABLE") == ["clip", "training"]
    table = declared_table("x_tables", "TABLE")
    assert table["training"]() == declared_section("x_options", "Training")
    assert sources == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("x: int = f()", "defines no f"),
        ("x: int = a @ b", "has a value that cannot be read"),
        ("x: complex = 1", "defines no complex"),
        ("x: (int, int) = 1", "has an annotation that cannot be read"),
        ("x: int = y", "defines no y"),
        ("x: int = One.missing", "has One.missing, which cannot be read"),
    ],
)
def test_what_cannot_be_read_is_named(line: str, message: str, tmp_path: Path) -> None:
    from neorl_core.infrastructure.command_line import _declared

    _declared._names.cache_clear()
    (tmp_path / "x_tables.py").write_text(f"class One:\n    pass\nclass Two:\n    {line}\n")
    with pytest.raises(LookupError, match=message):
        declared_section("x_tables", "Two")


@pytest.mark.parametrize("module", ["x_nowhere", "sys", "x_options.inner"])
def test_a_module_without_source_is_named(module: str) -> None:
    with pytest.raises(LookupError, match=f"{module} has no source"):
        declared_section(module, "Options")


def test_the_first_page_shows_what_matters_and_the_sections(
    program: Program, capsys: pytest.CaptureFixture[str], sources: list[str]
) -> None:
    page = shown(program, capsys, "run", "a.toml", "--help")
    for text in (
        "usage: neorl-x run [LOG] [--OPTION VALUE ...]\n\nTrains.\n",
        "--training.widths [INT ...]",
        "Widths. (at least 1; default: 8 16)",
        "--quiet ",
        "\n  training       Trains with Clip and more.",
        "\n  low-clip       Clips.",
        "\n  learners.NAME  NAME is one of clip, training.",
        "\n  (none)         --norm, --rule, --widths, --on, --quiet, --penalty, --limit, --out",
        "`neorl-x run --help training`",
        "\nexamples:\n  neorl-x run",
    ):
        assert text in page
    assert page.index("--training.widths") < page.index("--penalty") < page.index("\nexamples:")
    assert "--training.norm" not in page
    assert sources == []
    assert shown(program, capsys, "help", "run") == page


@pytest.mark.parametrize(
    ("words", "there", "absent"),
    [
        (["low-clip"], ["--low-clip.norm", "1.0"], ["--quiet", "--training", "Trains."]),
        (["low_clip"], ["--low-clip.rule CHOICE", "One of mean, median."], ["--training"]),
        (["--training.on"], ["--training.no-on", "--training.clip.norm", "-0.5"], ["--clip"]),
        (["training"], ["--training.on", "--training.low-clip.norm"], ["--learners.training"]),
        (["learners.training"], ["--learners.training.clip.norm"], ["--learners.clip", "--quiet"]),
        (["learners"], ["--learners.training.clip.norm", "--learners.clip.norm"], ["--quiet"]),
        (["quiet"], ["--quiet", "--penalty [NAME FLOAT ...]", "LOGS"], ["--low-clip", "--tables"]),
        (["low-clip", "training.clip"], ["--low-clip.norm", "--training.clip.norm"], ["ng.on"]),
        (
            ["all"],
            ["--quiet", "--learners.clip.rule", "--low-clip.norm", "Trains."],
            ["--learners "],
        ),
    ],
)
def test_help_by_section(
    program: Program,
    words: list[str],
    there: list[str],
    absent: list[str],
    capsys: pytest.CaptureFixture[str],
    sources: list[str],
) -> None:
    output = shown(program, capsys, "run", "--help", *words)
    assert [word for word in there if word not in output] == []
    assert [word for word in absent if word in output] == []
    assert output.startswith("usage: neorl-x run")
    assert sources == []


def test_only_the_sections_of_a_table_that_are_named_are_made(
    program: Program, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[str] = []

    def table() -> dict[str, Any]:
        def read(name: str) -> Section:
            made.append(name)
            return declared_section("x_options", "Clip")

        return {name: lambda name=name: read(name) for name in ("one", "two")}

    tables = {"learners": table}
    run = program.subcommands["run"]._replace(tables=tables)
    program = dataclasses.replace(program, subcommands={"run": run})
    for words in ([], ["training"], ["two"], ["learners.two"]):
        shown(program, capsys, "run", "--help", *words)
    assert made == ["two", "two"]


def test_an_unknown_section_is_named_with_the_nearest(
    program: Program, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.run(["run", "--help", "low-clap"]) == 2
    assert "unknown section 'low-clap'; did you mean 'low-clip'?" in capsys.readouterr().err


def test_a_command_without_usage_is_described_by_its_class(
    program: Program, capsys: pytest.CaptureFixture[str]
) -> None:
    page = shown(program, capsys, "sweep", "-h")
    assert page.startswith(
        "usage: neorl-x sweep --processes INT [--OPTION VALUE ...]\n\nSweeps.\n\noptions:\n"
    )
    assert "How many. (required)" in page


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (["neorl-x", "sw"], "sweep"),
        (["neorl-x", "--v"], "--version"),
        (["neorl-x", "sweep", "--pro"], "--processes"),
        (["neorl-x", "run", "--learners.cl"], "--learners.clip.norm --learners.clip.rule"),
        (["neorl-x", "run", "--training.rule", "me"], "mean median"),
        (["neorl-x", "run", "x_ta"], "x_tables.py"),
        (["neorl-x", "run", "--out", "x_ta"], "x_tables.py"),
    ],
)
def test_bash_completes(
    program: Program,
    typed: list[str],
    expected: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    script = shown(program, capsys, "completion", "bash")
    words = f"COMP_WORDS=({' '.join(typed)}); COMP_CWORD={len(typed) - 1}"
    code = f'{script}\n{words}; _shtab_neorl_x neorl-x; echo "${{COMPREPLY[@]}}"'
    completed = subprocess.run(
        ["bash", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert completed.stdout.strip() == expected


def test_the_other_shells_have_the_same_words(
    program: Program, capsys: pytest.CaptureFixture[str]
) -> None:
    for shell in ("zsh", "fish"):
        script = shown(program, capsys, "completion", shell)
        assert "learners.clip.norm" in script
        assert "Sweeps." in script


@pytest.mark.parametrize(
    ("words", "message"),
    [([], "takes one of bash, zsh,"), (["csh"], "unknown shell 'csh'; did you mean 'tcsh'?")],
)
def test_completion_of_no_shell_is_told(
    program: Program, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.run(["completion", *words]) == 2
    assert message in capsys.readouterr().err
    assert "fpath" in shown(program, capsys, "completion", "--help")


def test_a_dataclass_without_a_docstring_is_summed_up_by_its_name() -> None:
    bare = dataclasses.make_dataclass("Bare", ["level"])
    assert (bare.__doc__ or "").startswith("Bare(")
    assert summary_of(bare) == "Bare"
    bare.__doc__ = "Bare(level) holds the level."
    assert summary_of(bare) == "Bare(level) holds the level."
