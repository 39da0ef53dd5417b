"""Compiled programs on disk that processes share, each entry either complete or absent.

JAX writes an entry of its persistent cache in place and only once. A second process may read half
of it, and a process killed while writing leaves half of it for good. So every process gets its own
folder with hard links to the shared entries, and shares what it compiles by a single link::

    shared/complete/KEY-cache         entries, each linked here when it was complete
    shared/processes/ID/KEY-cache     what JAX reads and writes in one process
    shared/processes/ID/lock          held while that process lives
"""

import atexit
import contextlib
import os
import secrets
import shutil
import sys
import tempfile
import warnings
import zlib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import IO, Any

VARIABLE = "NEORL_COMPILATION_CACHE"
"""Environment variable with the path of the shared folder; JAX itself does not read it."""

_SUFFIX = "-cache"
_ZLIB, _ZSTD = b"\x78", b"\x28\xb5\x2f\xfd"
_ATTEMPTS = 100


class CompiledPrograms:
    """The compiled programs of this process: its own folder, synchronised with the shared one.

    Attributes:
        shared: Folder that all processes share.
        folder: Folder of this process inside ``shared``, for ``jax_compilation_cache_dir``.
    """

    def __init__(self, shared: Path) -> None:
        """Creates the folder of this process, with a link to every shared entry.

        Removes the folders of processes that have ended.

        Args:
            shared: Folder that all processes share; created if it does not exist.

        Raises:
            OSError: If the folder is not writable.
        """
        self.shared = shared.absolute()
        self._complete = self.shared / "complete"
        self._complete.mkdir(parents=True, exist_ok=True)
        processes = self.shared / "processes"
        processes.mkdir(exist_ok=True)
        _remove_dead(processes)
        self.folder, self._lock = _locked_folder(processes)
        self._process = os.getpid()
        self._linked: set[str] = set()
        self.take()

    def take(self) -> None:
        """Links what other processes have published; call it while no thread is compiling."""
        for name in sorted(_entries(self._complete) - self._linked):
            with contextlib.suppress(OSError):
                entry = self._complete / name
                if not entry.stat().st_size:  # power was lost before it reached the disk
                    entry.unlink()
                    continue
                _link(entry, self.folder / name)
                self._linked.add(name)

    def publish(self) -> None:
        """Shares what this process has compiled, except incompletely written entries."""
        for name in sorted(_entries(self.folder) - self._linked):
            with contextlib.suppress(OSError):
                if _is_complete((self.folder / name).read_bytes()):
                    _link(self.folder / name, self._complete / name)
                    self._linked.add(name)

    def close(self) -> None:
        """Publishes, then removes the folder of this process; once, and not in a forked child."""
        if os.getpid() != self._process or self._lock < 0:
            return
        self.publish()
        os.close(self._lock)
        self._lock = -1
        shutil.rmtree(self.folder, ignore_errors=True)


_current: CompiledPrograms | None = None


def keep_compiled_programs(default: Path | None = None) -> CompiledPrograms | None:
    """Keeps what this process compiles for later ones; call it before anything is compiled.

    The shared folder is given by ``NEORL_COMPILATION_CACHE``, else by JAX's configuration
    (``JAX_COMPILATION_CACHE_DIR``), else by ``default``. Small programs are kept too, unless the
    environment says otherwise. They are in a folder of this jaxlib version inside the shared one,
    because no other version can read them. A folder on another host, or one with a size limit, is
    left to JAX.
    If the folder is not writable, nothing is kept. A second call has no effect.

    Args:
        default: Shared folder if neither the environment nor JAX's configuration names one.

    Returns:
        The folder of this process, which is published and removed when the process ends; ``None``
        if nothing is kept.
    """
    import jax  # imported here, since commands that only print their help import this module

    global _current
    config: Any = jax.config
    configured = config.jax_compilation_cache_dir
    if _current is not None and configured == str(_current.folder):
        return _current
    folder = os.environ.get(VARIABLE) or configured or default
    left_to_jax = "://" in str(folder) or config.jax_compilation_cache_max_size != -1
    if not folder or left_to_jax or not config.jax_enable_compilation_cache:
        return None
    try:
        _current = CompiledPrograms(Path(folder) / f"jaxlib-{metadata.version('jaxlib')}")
    except OSError:
        jax.config.update("jax_compilation_cache_dir", None)
        return None
    atexit.register(_current.close)
    jax.config.update("jax_compilation_cache_dir", str(_current.folder))
    for name, value in (
        # XLA's own caches would put the folder's path into the key of every entry.
        ("jax_persistent_cache_enable_xla_caches", "none"),
        ("jax_persistent_cache_min_compile_time_secs", 0.0),
        ("jax_persistent_cache_min_entry_size_bytes", -1),
    ):
        if name.upper() not in os.environ:
            jax.config.update(name, value)
    return _current


def publish_compiled_programs() -> None:
    """Shares what this process has compiled so far, if :func:`keep_compiled_programs` was called.

    This happens at the end of the process anyway; a long process that may be killed calls it
    earlier.
    """
    if _current is not None and os.getpid() == _current._process:
        _current.publish()


def cache_fault() -> str:
    """Whether JAX rejects what an earlier process has compiled, in one line; empty if it does not.

    On some Intel servers it rejects every entry of its cache for processors, because an entry names
    ``+prefer-no-gather`` as a feature that the processor must have, and logs an error for each. The
    cache is then switched off in this process, which would only have cost time. A tiny program is
    compiled to find out, or read from the cache, in milliseconds. Call it once, when the devices
    are known.

    Returns:
        One line; empty if the cache works, if it is not used, and in the first process that uses
        it, which cannot know yet.

    Source: https://github.com/jax-ml/jax/issues/38445
    """
    if _current is None:
        return ""
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    def entries() -> set[str]:
        return {name for name in _entries(folder) if name.startswith(f"jit_{_probe.__name__}-")}

    def listen(event: str, **_: object) -> None:
        events.append(event)

    folder, events = _current.folder, []
    before = entries()
    jax.monitoring.register_event_listener(listen)
    try:
        with _errors_of_libraries() as log:
            jax.jit(_probe)(0.0).block_until_ready()
            log.seek(0)
            rejected = b"machine type for execution" in log.read()
    finally:
        jax.monitoring.unregister_event_listener(listen)
    # JAX keeps an entry that it could not read, so a new one means that there was none.
    is_first = entries() != before or not before
    missed = f"{_EVENTS}cache_misses" in events and f"{_EVENTS}cache_hits" not in events
    if is_first or not (rejected or missed):
        return ""
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()
    return (
        "JAX rejects the compiled programs that it kept on this machine "
        "(github.com/jax-ml/jax/issues/38445), so every command compiles its programs again"
    )


_EVENTS = "/jax/compilation_cache/"


def _probe(x: Any) -> Any:
    """A program that takes no time to compile, but does need the processor."""
    return 3 * x + 1


@contextlib.contextmanager
def _errors_of_libraries() -> Iterator[IO[bytes]]:
    """Keeps what libraries that are not Python write to standard error in a file for a moment."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with tempfile.TemporaryFile() as log, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            os.dup2(log.fileno(), 2)
            yield log
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _entries(folder: Path) -> set[str]:
    """Names of the entries; empty if the folder was removed."""
    try:
        with os.scandir(folder) as entries:
            return {entry.name for entry in entries if entry.name.endswith(_SUFFIX)}
    except FileNotFoundError:
        return set()


def _link(source: Path, target: Path) -> None:
    """Links a file under a second name, or copies it, atomically; an existing target is kept."""
    with contextlib.suppress(FileExistsError):
        try:
            os.link(source, target)
        except FileExistsError:
            raise
        except OSError:
            temporary = target.with_name(f"{secrets.token_hex(8)}.tmp")
            try:
                shutil.copyfile(source, temporary)
                os.replace(temporary, target)
            finally:
                temporary.unlink(missing_ok=True)


def _is_complete(entry: bytes) -> bool:
    """Whether the compressed stream of an entry is complete and its checksum right."""
    if entry.startswith(_ZLIB):
        stream = zlib.decompressobj()
        try:
            stream.decompress(entry)
        except zlib.error:
            return False
        return stream.eof and not stream.unused_data
    if entry.startswith(_ZSTD):
        return _is_complete_zstd(entry)
    return False


def _is_complete_zstd(entry: bytes) -> bool:
    try:
        # In Python 3.14 and later.
        from compression import zstd as library  # pyright: ignore[reportMissingImports]
    except ImportError:
        try:
            import zstandard as library  # pyright: ignore[reportMissingImports]
        except ImportError:
            return False
    try:
        library.decompress(entry)
    except Exception:
        return False
    return True


def _locked_folder(processes: Path) -> tuple[Path, int]:
    """A new folder and the descriptor of its lock, which is held until this process ends."""
    for _ in range(_ATTEMPTS):
        folder = processes / secrets.token_hex(8)
        folder.mkdir()
        try:
            descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        except FileNotFoundError:
            continue
        # Before it was locked, another process may have taken the new folder for an abandoned one.
        if _try_lock(descriptor) and (folder / "lock").exists():
            return folder, descriptor
        os.close(descriptor)
    raise OSError(f"no folder in {processes} can be locked; name another one in {VARIABLE}")


def _remove_dead(processes: Path) -> None:
    """Removes the folders whose lock no process holds."""
    for folder in processes.iterdir():
        with contextlib.suppress(OSError):
            if _is_dead(folder):
                (folder / "lock").unlink(missing_ok=True)
                folder.rmdir()


def _is_dead(folder: Path) -> bool:
    """Whether the process of a folder has ended; if so, the folder is emptied."""
    try:
        descriptor = os.open(folder / "lock", os.O_RDWR)
    except FileNotFoundError:
        return True
    try:
        if not _try_lock(descriptor):
            return False
        for entry in folder.iterdir():
            if entry.name != "lock":
                entry.unlink()
        # Remove the lock while holding it, so that nobody takes the folder; Windows cannot remove
        # open files.
        with contextlib.suppress(PermissionError):
            (folder / "lock").unlink()
        return True
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    """Locks a file until its descriptor is closed; false if another process holds the lock."""
    try:
        import fcntl
    except ImportError:
        import msvcrt

        try:
            # pyright looks at the modules of the machine that it runs on.
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # pyright: ignore
        except OSError:
            return False
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
