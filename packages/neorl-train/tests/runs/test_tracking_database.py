"""A database of MLflow that was left incomplete is never made, and otherwise named."""

import re
import sqlite3
from pathlib import Path

import pytest

from neorl_core import InputError
from neorl_train.runs import MlflowTracker, copy_once, create_run

pytest.importorskip("mlflow", reason="needs the extra 'mlflow'")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # MLflow's own


@pytest.fixture
def run(tmp_path):
    record = {"id": "abc", "config_hash": "sha256:c", "execution_mode": "form", "status": "running"}
    return create_run(tmp_path / "runs", "[training]\nalgorithms = []\n", record)


def test_a_database_that_is_none_is_to_be_moved_away(run):
    """As a full disk leaves it: half made, or without its head."""
    database = run.path.parent / "mlflow.db"
    database.write_bytes(b"no database" * 100)
    tracker = MlflowTracker(run, closing_seconds=900)
    tracker.follow()
    said = tracker.finish()
    assert "not a database" in said
    assert (
        f"move {database} away, which is damaged, and `neorl-train inspect {run.path} --track`"
        in said
    )
    moved = f"move {database} away, which is damaged, and run the same command again"
    with pytest.raises(InputError, match=rf"not a database\); {re.escape(moved)}$"):
        copy_once(run)
    database.unlink()
    with sqlite3.connect(database) as half:  # the first table of the schema, and no version of it
        half.execute("CREATE TABLE experiments (experiment_id INTEGER)")
    half.close()
    tracker = MlflowTracker(run, closing_seconds=900)
    tracker.follow()
    assert f"move {database} away, which is damaged, and " in tracker.finish()


def test_a_process_that_is_killed_leaves_no_incomplete_database(run, monkeypatch):
    """MLflow cannot continue one: it adds the columns of a later version again and stops."""
    from neorl_train.runs import _mlflow

    database, started = run.path.parent / "mlflow.db", []

    def killed(tracking_uri):
        started.append(Path(tracking_uri.removeprefix("sqlite:///")))
        started[0].write_text("the first table")
        started[0].with_name(f"{started[0].name}-journal").write_text("changes to undo")
        raise OSError("duplicate column name: generation [SQL: ALTER TABLE]")

    with monkeypatch.context() as patch:
        patch.setattr(_mlflow, "MlflowClient", killed)
        with pytest.raises(InputError, match=r"\(.*duplicate column name: generation\); move "):
            copy_once(run)
    assert started[0].parent == database.parent
    assert started[0] != database
    assert not database.exists()
    copy_once(run)
    with sqlite3.connect(database) as whole:
        assert whole.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    whole.close()
