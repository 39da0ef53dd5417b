"""Devices that share every batch: a mesh, and a source that divides rows among its devices."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import equinox as eqx
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, PRNGKeyArray

from neorl_agents.learning import Source
from neorl_core import InputError

AXIS = "batch"
Placement: TypeAlias = Any
"""Location of a training: a device, or a sharding that copies its state to several."""


def placements_for(seeds: Sequence[int], batch_devices: int = 1) -> list[Placement]:
    """Places for the seeds of a training: devices of this process, or groups of devices.

    Args:
        seeds: Seeds of the training runs.
        batch_devices: Number of devices that share every batch. 0 means one, or all devices of all
            processes if there are several processes.

    Raises:
        InputError: If there are too few devices, or if several processes would not share each
            batch.
    """
    processes, devices = jax.process_count(), list(jax.devices())
    size = batch_devices or (len(devices) if processes > 1 else 1)
    if size > len(devices):
        raise InputError(
            f"devices.batch is {size}, and there {_are(len(devices))} ({devices[0].platform}); "
            f"give `--devices.batch {len(devices)}`, or, to split the cores of this machine, set "
            f"XLA_FLAGS=--xla_force_host_platform_device_count={size}"
        )
    if processes > 1 and size != len(devices):
        raise InputError(
            f"devices.batch is {size}, and {processes} processes have {len(devices)} devices: all "
            "of them share each batch, so leave devices.batch at 0"
        )
    if size == 1:
        return list(jax.local_devices())[: len(seeds)]
    groups = [devices[i : i + size] for i in range(0, len(devices) - size + 1, size)]
    return [copied_to(group) for group in groups[: len(seeds)]]


def _are(count: int) -> str:
    return "is 1 device" if count == 1 else f"are {count} devices"


def copied_to(devices: Sequence[Any]) -> NamedSharding:
    """A placement in which every given device has a copy of the state."""
    return NamedSharding(Mesh(np.array(list(devices)), (AXIS,)), PartitionSpec())


def batch_devices_of(placements: Sequence[Placement]) -> int:
    """Number of devices that share a batch."""
    return placements[0].mesh.size if isinstance(placements[0], NamedSharding) else 1


def require_equal_parts(name: str, batch_size: int, placements: Sequence[Placement]) -> None:
    """Refuses batches that cannot be divided among the devices."""
    size = batch_devices_of(placements)
    if batch_size % size:
        raise InputError(
            f"{name} takes batches of {batch_size} rows, which is not a multiple of {size} "
            f"devices; set steps.batch_size to {batch_size // size * size or size}, or fewer "
            "devices"
        )


def put(tree: Any, placement: Placement, **options: Any) -> Any:
    """As ``jax.device_put``, but works even if other processes hold some of the devices.

    In that case every process must give the same numbers.
    """
    if isinstance(placement, NamedSharding) and not placement.is_fully_addressable:
        return jax.tree.map(lambda leaf: _put_everywhere(leaf, placement), tree)
    return jax.device_put(tree, placement, **options)


def _put_everywhere(leaf: Any, placement: NamedSharding) -> Any:
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        data = np.asarray(jax.random.key_data(leaf))
        return jax.random.wrap_key_data(_from_host(data, placement), impl=jax.random.key_impl(leaf))
    return _from_host(np.array(leaf), placement)


def _from_host(array: np.ndarray, placement: NamedSharding) -> jax.Array:
    return jax.make_array_from_callback(array.shape, placement, lambda index: array[index])


def put_own_rows(batches: Any, placement: NamedSharding) -> Any:
    """Assembles batches of which this process has only the rows of its own devices.

    Args:
        batches: Those rows, in the order of the processes; axes are update, batch of the update,
            row of the batch.
        placement: All devices of all processes.
    """
    rows = NamedSharding(placement.mesh, PartitionSpec(None, None, AXIS))
    return jax.tree.map(lambda local: jax.make_array_from_process_local_data(rows, local), batches)


class SharedBatches(eqx.Module):
    """The batches of another source, with the rows of each divided among several devices.

    The rows and their order are those of the source, whatever the number of devices. The compiler
    adds the sums over devices that means over a batch need.

    Attributes:
        source: A source without memory.
        placement: Devices that share a batch; static.
    """

    source: Source
    placement: NamedSharding = eqx.field(static=True)

    @property
    def cycle(self) -> int:
        """Zero: the source never advances."""
        return 0

    def begin(self, learner: Any, state: Any, tables: Any, keys: Any) -> tuple[()]:
        """Nothing is remembered."""
        return ()

    def advance(
        self, learner: Any, state: Any, memory: Any, tables: Any, number: Any, key: Any
    ) -> tuple[()]:
        """Nothing is remembered."""
        return ()

    def batches(
        self, learner: Any, memory: Any, tables: Any, numbers: Array, key: PRNGKeyArray
    ) -> Any:
        """Batches of the source; axes are update, batch of the update, row of the batch."""
        rows = NamedSharding(self.placement.mesh, PartitionSpec(None, None, AXIS))
        drawn = self.source.batches(learner, memory, tables, numbers, key)
        return jax.tree.map(lambda leaf: jax.lax.with_sharding_constraint(leaf, rows), drawn)

    def metrics(self, memory: Any) -> dict[str, Any]:
        """No metrics."""
        return {}
