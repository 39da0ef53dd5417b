"""Checkpoints of a training state: Orbax behind a simple interface, with our own digests.

Orbax is imported on first use, because that takes most of a second.
"""

import contextlib
import gc
import hashlib
import io
import json
import logging
import shutil
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import jax
import numpy as np

from neorl_core import InputError
from neorl_core.infrastructure import check_head, head
from neorl_train.runs._directory import require_free_space

CLOSED_LOOP = "Event loop is closed"

_lock = threading.Lock()
_writes = 0
_previous_hook = sys.excepthook


def begin_write() -> None:
    """Marks the beginning of a write; Orbax's output is suppressed until all writes have ended."""
    global _writes, _previous_hook
    with _lock:
        if not _writes:
            _previous_hook = sys.excepthook
            sys.excepthook = _unless_closed
            logging.getLogger("absl").addFilter(_unless_orbax)
        _writes += 1


def end_write() -> None:
    """Marks a successful end; after a failure the output stays off, as threads keep failing."""
    global _writes
    with _lock:
        _writes -= 1
        if not _writes:
            logging.getLogger("absl").removeFilter(_unless_orbax)
            if sys.excepthook is _unless_closed:
                sys.excepthook = _previous_hook


def _unless_orbax(record: logging.LogRecord) -> bool:
    return "orbax" not in Path(record.pathname).parts


def _unless_closed(
    kind: type[BaseException], error: BaseException, where: TracebackType | None
) -> None:
    if not (kind is RuntimeError and str(error) == CLOSED_LOOP):
        _previous_hook(kind, error, where)


VERSION = 1


class DamagedError(Exception):
    """The stored bytes differ from those that were saved."""


def named_leaves(tree: Any) -> dict[str, Any]:
    """The leaves of a tree by dotted path, in the order of the tree."""
    flat, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in flat}


def stored_leaves(tree: Any) -> dict[str, Any]:
    """The leaves that are written; empty ones are left out, because Orbax hangs on them."""
    return {
        name: leaf if isinstance(leaf, jax.Array) else np.asarray(leaf)
        for name, leaf in named_leaves(tree).items()
        if leaf.size
    }


def make_manifest(tree: Any, identity: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest of a tree of arrays.

    It contains its own digest.
    """
    leaves = {
        name: {**_form(leaf), "sha256": leaf_digest(leaf)}
        for name, leaf in named_leaves(tree).items()
    }
    body = {**head("checkpoint", VERSION), "identity": dict(identity), "leaves": leaves}
    return {**body, "digest": _digest(body)}


def leaf_digest(leaf: Any) -> str:
    """SHA-256 of the values of one array; for a typed key, of its data."""
    if isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return hashlib.sha256(np.ascontiguousarray(np.asarray(leaf)).tobytes()).hexdigest()


def tree_digest(tree: Any) -> str:
    """SHA-256 over the names and values of all leaves."""
    digests = {name: leaf_digest(leaf) for name, leaf in named_leaves(tree).items()}
    return f"sha256:{_digest(digests)}"


def check_manifest(manifest: Any) -> None:
    """Refuses a manifest that does not match its digest.

    Raises:
        DamagedError: If it does not match.
    """
    try:
        check_head(manifest, "checkpoint", VERSION, "its manifest")
    except InputError as error:
        raise DamagedError(str(error)) from None
    body = {name: value for name, value in manifest.items() if name != "digest"}
    if manifest.get("digest") != _digest(body):
        raise DamagedError("its manifest has changed since it was written")


def check_template(template: Any, manifest: Mapping[str, Any], where: str) -> None:
    """Refuses to restore into a tree of another form; nothing is ever cast.

    Raises:
        InputError: Names the first path that is missing, unexpected, or of another shape or type.
    """
    expected, stored = named_leaves(template), manifest["leaves"]
    for name, leaf in expected.items():
        if name not in stored:
            raise InputError(
                f"{where} has no {name}; it was written by another version or algorithm"
            )
        wanted, found = _form(leaf), {key: stored[name][key] for key in ("shape", "dtype")}
        if wanted != found:
            raise InputError(
                f"{where}: {name} is {found['dtype']}{found['shape']}, "
                f"expected {wanted['dtype']}{wanted['shape']}"
            )
    extra = [name for name in stored if name not in expected]
    if extra:
        raise InputError(
            f"{where} has {extra[0]}, which is not expected; "
            "it was written by another version or algorithm"
        )


def check_leaves(leaves: Mapping[str, Any], manifest: Mapping[str, Any]) -> None:
    """Compares loaded values with the digests computed when they were saved.

    Raises:
        DamagedError: Names the first leaf that differs.
    """
    for name, leaf in leaves.items():
        if leaf_digest(leaf) != manifest["leaves"][name]["sha256"]:
            raise DamagedError(f"the values of {name} have changed since they were written")


def _form(leaf: Any) -> dict[str, Any]:
    return {"shape": list(leaf.shape), "dtype": str(leaf.dtype)}


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


ARRAYS, MANIFEST = "arrays", "manifest"
SETTLE_SECONDS = 0.2
"""Seconds during which the threads of a failed read may run into the loop that it closed."""


VALUE = "value"
"""Name of what checkpoints are compared by, among Orbax's metrics."""


class Restored(NamedTuple):
    """Content of a restored checkpoint.

    Attributes:
        step: Step of the checkpoint.
        tree: Restored values, in the form of the template.
    """

    step: int
    tree: Any


class Checkpoints:
    """The checkpoints of one training state, in one folder, the newest kept. Not thread-safe.

    A checkpoint appears under its number only when it is complete, so a process killed while
    writing leaves the previous one intact. Orbax does not detect flipped bits in its data files;
    the digests of every leaf, stored with the values and compared after loading, do.

    Args:
        folder: Folder of the checkpoints; created if it is missing.
        identity: Run and algorithm of the state, as plain JSON; checkpoints of another identity are
            not restored.
        interval: Number of steps between two checkpoints.
        keep: Number of checkpoints kept.
        print_line: Called with one line for every damaged checkpoint that is skipped.
        best: Whether the checkpoint that was saved with the smallest value is kept beside them.
    """

    def __init__(
        self,
        folder: Path,
        *,
        identity: Mapping[str, Any],
        interval: int,
        keep: int,
        print_line: Callable[[str], None],
        best: bool = False,
    ) -> None:
        self.folder = folder
        self._identity = dict(identity)
        self._print_line = print_line
        self._interval, self._keep, self.keeps_best = interval, keep, best
        self._manager: Any = None
        self._pending: Any = None

    def part(self, name: str) -> "Checkpoints":
        """Checkpoints of a part that is trained earlier, in a folder beside this one.

        Args:
            name: Name of the part.
        """
        return Checkpoints(
            self.folder.with_name(f"{self.folder.name}.{name}"),
            identity={**self._identity, "part": name},
            interval=self._interval,
            keep=self._keep,
            print_line=self._print_line,
        )

    def save(
        self, step: int, tree: Any, *, force: bool = False, value: float | None = None
    ) -> bool:
        """Writes a checkpoint in the background.

        The values are read before this returns, so the caller may donate their buffers. An error of
        the previous checkpoint is raised here.

        Args:
            step: Number of the checkpoint.
            tree: Tree of NumPy or JAX arrays, which may include typed keys; leaves may have size
                zero.
            force: Whether to write it even if ``step`` is not a multiple of the interval.
            value: What it is compared by; the smallest is the best.

        Returns:
            Whether a checkpoint is being written.
        """
        self.wait()
        manager = self._open()
        if step in self.steps() or not (force or manager.should_save(step)):
            return False
        leaves = stored_leaves(tree)
        require_free_space(self.folder, sum(leaf.nbytes for leaf in leaves.values()))
        manifest = make_manifest(tree, {**self._identity, "step": step})
        items = {ARRAYS: leaves, MANIFEST: manifest}
        metrics = {} if value is None else {"metrics": {VALUE: value}}
        begin_write()
        self._pending = manager.save_checkpointables_async(step, items, force=force, **metrics)
        return True

    def best(self, template: Any) -> Restored | None:
        """Loads the checkpoint with the smallest value; of equal ones the newest.

        Args:
            template: As of :meth:`restore`.

        Returns:
            Step and values, or ``None`` if no intact checkpoint has a value.

        Raises:
            InputError: If the checkpoint has another form or identity.
        """
        self.wait()
        known = [one for one in self._open().checkpoints if one.metrics]
        for one in sorted(known, key=lambda one: (one.metrics[VALUE], -one.step)):
            try:
                return Restored(one.step, self._load(one.step, template))
            except DamagedError as error:
                name = f"{self.folder.name}/{one.step}"
                self._print_line(f"checkpoint {name} is damaged ({error}) and is skipped")
        return None

    def wait(self) -> None:
        """Returns when the last checkpoint is on disk; raises its error if it failed."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()
            end_write()

    def close(self) -> None:
        """Waits for the last checkpoint and releases the folder."""
        manager, self._manager = self._manager, None
        try:
            self.wait()
        except BaseException:
            with contextlib.suppress(Exception):  # the same error again
                if manager is not None:
                    manager.close()
            raise
        if manager is not None:
            manager.close()

    def steps(self) -> list[int]:
        """The numbers of the complete checkpoints, oldest first, without opening them."""
        return complete_steps(self.folder)

    def restore(self, template: Any) -> Restored | None:
        """Loads the newest intact checkpoint; damaged newer ones are reported and removed.

        Args:
            template: Arrays of the expected shapes and types. NumPy arrays are restored as NumPy
                arrays, JAX arrays with the sharding of the template, on any devices.

        Returns:
            Step and values, or ``None`` if the folder contains no checkpoint at all.

        Raises:
            InputError: If the checkpoint has another form or identity, or if there are checkpoints
                but none is intact.
        """
        damaged = []
        for step in reversed(self.steps()):
            try:
                tree = self._load(step, template)
            except DamagedError as error:
                self._print_line(
                    f"checkpoint {self.folder.name}/{step} is damaged ({error}) and is skipped"
                )
                damaged.append(step)
                continue
            self._remove(damaged)
            return Restored(step, tree)
        if damaged:
            raise InputError(
                f"none of the {len(damaged)} checkpoints in {self.folder} is intact; restore the "
                "folder from a copy, or delete it to train from the start"
            )
        return None

    def _load(self, step: int, template: Any) -> Any:
        where = f"checkpoint {self.folder.name}/{step}"
        manifest = _read(partial(self._items, step, MANIFEST, None))
        check_manifest(manifest)
        _check_identity(manifest["identity"], self._identity, where)
        check_template(template, manifest, where)
        abstract = {name: _abstract(leaf) for name, leaf in stored_leaves(template).items()}
        leaves = _read(partial(self._items, step, ARRAYS, abstract))
        check_leaves(leaves, manifest)
        values = [leaves.get(name, leaf) for name, leaf in named_leaves(template).items()]
        return jax.tree.unflatten(jax.tree.structure(template), values)

    def _items(self, step: int, item: str, template: Any) -> Any:
        return self._open().load_checkpointables(step, {item: template})[item]

    def _remove(self, steps: list[int]) -> None:
        if steps:
            self.close()
            for step in steps:
                shutil.rmtree(self.folder / str(step))

    def _open(self) -> Any:
        if self._manager is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            from orbax.checkpoint import v1 as ocp

            registry = ocp.handlers.local_registry(include_global_registry=True)
            registry.add(ocp.handlers.JsonHandler, checkpointable_name=MANIFEST)
            context = ocp.Context()
            context.checkpointables.registry = registry
            if jax.process_count() > 1:
                self._manager = _ManagerOfOneProcess(
                    self.folder, context, self._interval, self._keep
                )
                return self._manager
            training: Any = ocp.training
            every = training.save_decision_policies.FixedIntervalPolicy(self._interval)
            policies = training.preservation_policies
            kept = newest = policies.LatestN(self._keep)
            if self.keeps_best:
                smallest = policies.BestN(
                    get_metric_fn=lambda metrics: metrics[VALUE],
                    reverse=True,  # what comes last in Orbax's order is kept
                    n=1,
                    keep_checkpoints_without_metrics=False,
                )
                kept = policies.AnyPreservationPolicy([newest, smallest])
            self._manager = training.Checkpointer(
                self.folder.absolute(),
                save_decision_policy=every,
                preservation_policy=kept,
                cleanup_tmp_directories=True,
                context=context,
            )
        return self._manager


class _ManagerOfOneProcess:
    """Replaces Orbax's ``Checkpointer`` in one of several processes, without waiting for others.

    That class creates its folder jointly with all processes, and so does its save function; the
    underlying manager need not. The format is the same.

    Args:
        folder: An existing folder.
        context: Orbax's context, changed to this process only.
        interval: Number of steps between two checkpoints.
        keep: Number of checkpoints kept.
    """

    def __init__(self, folder: Path, context: Any, interval: int, keep: int) -> None:
        import orbax.checkpoint as ocp

        options_here: Any = context.multiprocessing
        options_here.primary_host, options_here.active_processes = (
            jax.process_index(),
            {jax.process_index()},
        )
        options_here.barrier_sync_key_prefix = "neorl"
        self._folder, self._context = folder.absolute(), context
        options = ocp.CheckpointManagerOptions(
            save_interval_steps=interval,
            max_to_keep=keep,
            create=False,
            cleanup_tmp_directories=True,
            multiprocessing_options=options_here.v0(),
        )
        self._manager = ocp.CheckpointManager(self._folder, options=options)
        self.should_save, self.close = self._manager.should_save, self._manager.close

    def save_checkpointables_async(self, step: int, items: Any, *, force: bool) -> Any:
        from orbax.checkpoint import args

        values: Any = {ARRAYS: args.PyTreeSave(items[ARRAYS])}
        values[MANIFEST] = args.JsonSave(items[MANIFEST])
        self._manager.save(step, args=args.Composite(**values), force=force)
        return self

    def load_checkpointables(self, step: int, template: Any) -> Any:
        from orbax.checkpoint import v1 as ocp

        with self._context:
            return ocp.load_checkpointables(str(self._folder / str(step)), template)

    def result(self) -> None:
        """Waits for the last checkpoint and raises its error if it failed."""
        self._manager.wait_until_finished()
        self._manager.check_for_errors()


def complete_steps(folder: Path) -> list[int]:
    """The numbers of the complete checkpoints in a folder, oldest first; does not need Orbax."""
    if not folder.is_dir():
        return []
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdecimal())


def import_ahead() -> threading.Thread:
    """Imports Orbax in the background, so that the first checkpoint need not wait for it."""
    thread = threading.Thread(target=_import_orbax, name="import orbax", daemon=True)
    thread.start()
    return thread


def _import_orbax() -> None:
    from orbax.checkpoint import v1

    del v1


def _abstract(leaf: Any) -> Any:
    if isinstance(leaf, jax.Array):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)
    return np.empty(leaf.shape, leaf.dtype)


def _check_identity(stored: Mapping[str, Any], expected: Mapping[str, Any], where: str) -> None:
    for name in expected:
        if stored.get(name) != expected[name]:
            raise InputError(
                f"{where} belongs to another run: its {name} is {stored.get(name)!r}, "
                f"expected {expected[name]!r}"
            )


def _read(load: Callable[[], Any]) -> Any:
    """The result of ``load``; anything that Orbax cannot read is reported as damaged in one line.

    When Orbax fails, it leaves tasks and coroutines behind, and Python reports each at length when
    it is collected. They are therefore collected here, and the reports dropped.

    Raises:
        DamagedError: If it fails.
    """
    hook, level, failure = sys.unraisablehook, logging.root.manager.disable, ""
    sys.unraisablehook = _ignore_unraisable
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            try:
                return load()
            except Exception as error:
                failure = type(error).__name__
            time.sleep(SETTLE_SECONDS)
            gc.collect()
    finally:
        sys.unraisablehook = hook
        logging.disable(level)
    raise DamagedError(f"it cannot be read: {failure}")


def _ignore_unraisable(unraisable: Any) -> None:
    del unraisable
