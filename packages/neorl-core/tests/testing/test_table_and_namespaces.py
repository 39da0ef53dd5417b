"""The lists that the laws stand on: tables of rows, public namespaces and their recorded names."""

import sys
from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import strategies as st

from neorl_core.testing import Row, exports, load_table, namespaces, public_api, table_gaps
from neorl_core.testing.record import main as record

ROWS_FILE = """
import numpy as np
from hypothesis import strategies as st
from neorl_core.testing import Row

def {name}(x):
    return x

ROWS = [Row({name}, st.tuples(st.just(np.zeros(3))), oracle=lambda x: x, laws=[print])]
"""
FACE = """
\"\"\"A namespace.\"\"\"

def {name}(x: int, *, y: float = 1.0) -> int:
    \"\"\"Adds nothing.\"\"\"
    return x

__all__ = ["{name}"]
"""


def first(x):
    return x


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package with two public folders and a public file, private ones, and a test kit."""
    root = tmp_path / "example_package"
    root.mkdir()
    (root / "__init__.py").write_text(
        "from example_package import losses as losses\n"
        "__all__ = ['LEVEL', 'losses']\nLEVEL = 0.95\n"
    )
    (root / "_plain.py").touch()
    (root / "costs.py").write_text(FACE.format(name="cost"))
    names = {"targets": "target", "losses": "loss", "_internal": "hidden", "testing": "kit"}
    for folder, name in names.items():
        (root / folder).mkdir()
        (root / folder / "__init__.py").write_text(FACE.format(name=name))
    monkeypatch.syspath_prepend(tmp_path)
    yield __import__("example_package")
    for name in [name for name in sys.modules if name.startswith("example_package")]:
        del sys.modules[name]


def test_namespaces_are_the_package_and_its_public_folders_and_files(package):
    names = [module.__name__.removeprefix("example_package") for module in namespaces(package)]
    assert names == ["", ".costs", ".losses", ".targets", ".testing"]


def test_exports_are_the_names_of_all_namespaces_but_the_kit(package):
    assert list(exports(package)) == ["LEVEL", "cost", "loss", "target"]
    assert exports(package)["loss"] is package.losses.loss


def test_a_name_in_two_namespaces_is_refused(package):
    package.losses.target = first
    package.losses.__all__.append("target")
    words = "target is exported by example_package.losses and by example_package.targets; keep one"
    with pytest.raises(ValueError, match=words):
        exports(package)


def test_a_record_is_a_file_a_namespace_and_nothing_else(package, tmp_path):
    folder = tmp_path / "public_api"
    folder.mkdir()
    (folder / "example_package.old.txt").touch()
    (folder / "notes.json").touch()
    record(["example_package", str(folder)])
    recorded = {file.name: file.read_text() for file in folder.iterdir()}
    assert recorded == {
        "notes.json": "",
        "example_package.txt": "LEVEL = 0.95\nnamespace losses\n",
        "example_package.costs.txt": "cost(x: int, *, y: float=1.0) -> int\n",
        "example_package.losses.txt": "loss(x: int, *, y: float=1.0) -> int\n",
        "example_package.targets.txt": "target(x: int, *, y: float=1.0) -> int\n",
        "example_package.testing.txt": "kit(x: int, *, y: float=1.0) -> int\n",
    }
    assert public_api(package.losses) == recorded["example_package.losses.txt"]
    with pytest.raises(SystemExit, match="PACKAGE FOLDER"):
        record(["example_package"])


def test_a_table_is_read_from_all_folders_in_order_of_path(tmp_path):
    for path, name in {
        "b/table_x.py": "third",
        "a/table_z.py": "second",
        "a/table_y.py": "one",
    }.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(ROWS_FILE.format(name=name))
    (tmp_path / "a" / "test_y.py").write_text("raise RuntimeError")
    assert [str(row) for row in load_table(tmp_path)] == ["one", "second", "third"]


def test_a_folder_without_rows_is_no_table(tmp_path):
    with pytest.raises(ValueError, match=r"holds no table_\*.py"):
        load_table(tmp_path)
    (tmp_path / "table_x.py").write_text("ROWS = []")
    with pytest.raises(ValueError, match=r"table_x.py exports no ROWS"):
        load_table(tmp_path)


def test_every_gap_of_a_table_is_told():
    row = Row(first, st.tuples(st.just(np.zeros(3))), oracle=first, laws=[print])
    assert table_gaps(["first"], [row], {}) == []
    assert table_gaps(["first", "Record"], [row], {"Record": "a test"}) == []
    assert table_gaps(["first", "second"], [row], {}) == [
        "second has no row in a table_*.py and no entry elsewhere"
    ]
    assert table_gaps([], [row], {"old": "a test"}) == [
        "first has a row but is not exported",
        "old is listed elsewhere but not exported",
    ]
    assert table_gaps(OrderedDict(first=1), [row], {"first": "a test"}) == [
        "first is in the table and elsewhere"
    ]
