"""The memory that a training takes, computed before it is allocated."""

import contextlib
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
from jax.sharding import NamedSharding

from neorl_agents import Learner
from neorl_core import InputError, as_arrays
from neorl_train.data._training_data import StreamedData, TrainingData

CGROUP_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
"""Files in which Linux states the memory limit of a container or a cluster job."""


class TrainingMemory(NamedTuple):
    """Memory of the compiled chunk of a training on the device of its seeds, in bytes.

    On an accelerator it is that of the fullest device; on a CPU that of all devices, because they
    share the memory of the machine.

    Attributes:
        rows: Source of the batches, with the settings of the learner.
        states: The states of all seeds.
        work: Additional memory of the running chunks, according to the compiler's analysis.
        available: Memory of the device or the machine; infinite if unknown.
        place: Name of the device or the machine, as text.
    """

    rows: int
    states: int
    work: int
    available: float
    place: str

    @property
    def total(self) -> int:
        """The sum of all parts."""
        return self.rows + self.states + self.work

    @property
    def is_known(self) -> bool:
        """Whether the available memory is known."""
        return math.isfinite(self.available)

    def __str__(self) -> str:
        """The total with its parts, as text."""
        return (
            f"{memory_text(self.total)} (rows {memory_text(self.rows)}, "
            f"states {memory_text(self.states)}, work {memory_text(self.work)})"
        )


def memory_text(n_bytes: float) -> str:
    """An amount of memory with three digits and its unit.

    Example:
        >>> memory_text(2_340_000)
        '2.34 MB'
    """
    units = ("B", "kB", "MB", "GB", "TB", "PB")
    power = min(int(math.log10(max(n_bytes, 1)) // 3), len(units) - 1)
    return f"{n_bytes / 1000**power:.3g} {units[power]}"


def tree_bytes(tree: Any) -> int:
    """Bytes of all arrays in a tree, which may contain only their shapes."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if hasattr(leaf, "dtype")]
    return sum(int(leaf.size) * leaf.dtype.itemsize for leaf in leaves)


def memory_of(
    programs: Mapping[Any, Any], states: Sequence[tuple[Any, int]], *, together: bool = False
) -> TrainingMemory | None:
    """Memory of compiled chunks.

    ``states`` has the device of every seed and the bytes of its state. The result is ``None`` if
    the backend does not analyse its programs.
    """
    parts: list[tuple[int, int, int]] = []
    for placement, program in programs.items():
        needs = program.memory_analysis()
        if needs is None:
            return None
        own_states = [
            n_bytes for device, n_bytes in states if device is placement or device == placement
        ]
        arguments, reused = needs.argument_size_in_bytes, needs.alias_size_in_bytes
        given = sum(own_states) if together else own_states[0]
        work = needs.temp_size_in_bytes + needs.output_size_in_bytes - reused
        copies = _copies(placement)
        parts.append(
            (copies * max(arguments - given, 0), copies * sum(own_states), copies * max(work, 0))
        )
    device = _devices(next(iter(programs)))[0]
    rows, held, work = max(parts, key=sum)
    if device.platform == "cpu":
        rows, held, work = (sum(part[i] for part in parts) for i in range(3))
    return TrainingMemory(rows, held, work, *available(device))


def available(device: Any) -> tuple[float, str]:
    """Total bytes of the memory that a device uses, and the name of that memory."""
    if device.platform == "cpu":
        return machine_memory(), "this machine has"
    known = device.memory_stats() or {}
    return float(known.get("bytes_limit", math.inf)), f"{device} has"


def machine_memory() -> float:
    """Bytes of memory of this machine, or of its container; infinite if that is unknown."""
    available = math.inf
    with contextlib.suppress(AttributeError, OSError, ValueError):  # Windows has no sysconf
        available = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for limit in CGROUP_LIMITS:
        with contextlib.suppress(OSError, ValueError):
            available = min(available, float(limit.read_text()))
    return available


def require_room(name: str, memory: TrainingMemory, limit: float) -> None:
    """Refuses a training that would not fit.

    It may take at most ``limit`` bytes, regardless of the available memory.
    """
    allowed = min(limit, memory.available)
    if memory.total > allowed:
        from_config = limit < memory.available
        has = f"{'devices.memory allows' if from_config else memory.place} {memory_text(allowed)}"
        raise InputError(
            f"training {name} needs {memory}, and {has}; set a smaller steps.batch_size or "
            "networks.hidden, fewer training.seeds"
            + (
                ", or a lower data.memory, so that the log is read from its file in blocks"
                if memory.rows > memory.total / 4
                else ""
            )
        )


def require_room_for_states(
    learner: Learner,
    data: TrainingData | StreamedData,
    contexts: Sequence[Any],
    seeds: Sequence[int],
    placements: Sequence[Any],
    limit: float,
) -> None:
    """Refuses states and rows that would not fit, by their shapes, before they are allocated."""
    arrays, statistics = as_arrays(learner), data.statistics_for(learner)
    context = contexts[0] if contexts else None

    def initial_state(key: Any) -> Any:
        return arrays.init(data.spec, statistics, key, context=context)

    try:
        state = tree_bytes(jax.eval_shape(initial_state, jax.random.key(0)))
    except (jax.errors.JAXTypeError, jax.errors.JAXIndexError):
        return  # an initial state that depends on values, not only on shapes
    rows = 0 if isinstance(data, StreamedData) else tree_bytes(data.rows)
    device = _devices(placements[0])[0]
    copies = sum(map(_copies, placements))
    memory = TrainingMemory(
        rows * copies, state * len(seeds) * _copies(placements[0]), 0, *available(device)
    )
    if device.platform != "cpu":
        each = -(-len(seeds) // len(placements))
        memory = TrainingMemory(rows, state * each, 0, *available(device))
    require_room(type(learner).__name__, memory, limit)


def _devices(placement: Any) -> list[Any]:
    """The devices of this process that belong to a placement."""
    if isinstance(placement, NamedSharding):
        return sorted(placement.addressable_devices, key=lambda device: device.id)
    return [placement]


def _copies(placement: Any) -> int:
    """Number of this process's devices that hold a copy of the data, if they share memory."""
    devices = _devices(placement)
    return len(devices) if devices[0].platform == "cpu" else 1
