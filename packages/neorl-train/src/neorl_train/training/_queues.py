"""Seeds side by side: one program for each seed, queued on the devices in turn."""

import concurrent.futures
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import numpy as np

from neorl_core import Policy
from neorl_train.training._feeds import Feed

Device: TypeAlias = Any
Metrics = dict[str, jax.Array]

EXECUTION_MODE = "one program per seed, queued on one device; every core is a device"
"""What, besides configuration, data and key, the bits of a seed are a function of."""


class SeedQueues:
    """The states of all seeds of one training, each on its device, and the program that moves them.

    Every seed runs the very program that it would run alone, so its result is that of its single
    run, bit for bit, whatever the number of seeds and devices. Calls return at once: the devices
    work through their queues side by side.

    Args:
        feed: Program of a chunk, and the rows that it computes from. The program takes settings,
            state, rows, number of the first update and key, gives a state and metrics, and gives
            the buffers of the state away.
        settings: PyTree of arrays that all seeds share; copied to each device once.
        keys: Key of the chunks of every seed.
        begin: Initial state of a seed by its position, called once for each.
        act: Policy of a state.
        seeds: Seeds of the training runs.
        devices: Devices, to which the seeds are dealt in turn.

    Attributes:
        seeds: Seeds of the training runs.
        done: Number of updates that every seed has taken, in calls of ``update``.
    """

    def __init__(
        self,
        feed: Feed,
        settings: Any,
        keys: Sequence[Any],
        begin: Callable[[int], Any],
        act: Callable[[Any], Policy],
        seeds: Sequence[int],
        devices: Sequence[Device],
    ) -> None:
        used = list(devices)[: len(seeds)]
        self.seeds = tuple(seeds)
        self._feed, self._act = feed, act
        self._devices = [used[i % len(used)] for i in range(len(seeds))]
        self._settings = {device: jax.device_put(settings, device) for device in used}
        self._keys = self._placed(list(keys))
        # A chunk takes its state's buffers, so that no two leaves may share one.
        self._states = [
            jax.device_put(begin(i), device, may_alias=False)
            for i, device in enumerate(self._devices)
        ]
        self._programs: dict[Device, Any] = {}
        self._n_updates = 0
        self.done = 0

    def compile(self, n_updates: int) -> None:
        """Compiles the chunk of ``n_updates`` calls of ``update``, once for each device."""
        self._n_updates = n_updates
        first_index = {device: i for i, device in reversed(list(enumerate(self._devices)))}
        with concurrent.futures.ThreadPoolExecutor(len(first_index)) as pool:
            programs = pool.map(lambda i: self._compiled(i, n_updates), first_index.values())
            self._programs = dict(zip(first_index, programs, strict=True))

    def advance(self) -> list[Metrics]:
        """Queues the next chunk for every seed and returns at once.

        Returns:
            The mean metrics of the chunk for each seed, still being worked out.

        Raises:
            RuntimeError: If no chunk was compiled.
        """
        if not self._programs:
            raise RuntimeError("no chunk was compiled; call compile(n_updates) first")
        metrics = []
        for i, device in enumerate(self._devices):
            rows = self._feed.rows(i, device, self.done, self._n_updates)
            self._states[i], means = self._programs[device](*self._arguments(i, rows))
            metrics.append(means)
        self.done += self._n_updates
        return metrics

    def close(self) -> None:
        """Lets go of the file and its readers, where rows are streamed."""
        self._feed.close()

    def snapshot(self) -> dict[str, Any]:
        """All states and keys on the host, stacked by seed; waits for the devices.

        Copied, so that it outlives the next chunk, which gives the buffers away.
        """
        states = jax.tree.map(lambda *leaves: np.stack(leaves), *jax.device_get(self._states))
        keys = np.stack([np.array(jax.random.key_data(key)) for key in self._keys])
        return {"state": states, "key": keys}

    def restore(self, snapshot: dict[str, Any], *, done: int) -> None:
        """Puts back what :meth:`snapshot` gave.

        Args:
            snapshot: All states and keys, stacked by seed.
            done: Number of updates that it was taken after, in calls of ``update``.
        """
        self.done = done
        self._states = self._placed(self.unstacked(snapshot["state"]))
        self._keys = self._placed([jax.random.wrap_key_data(key) for key in snapshot["key"]])

    def policies(self, snapshot: dict[str, Any]) -> list[Policy]:
        """The policies of a snapshot, one for each seed, with host arrays."""
        states = self.unstacked(snapshot["state"])
        return [self._act(state) for state in states]

    def unstacked(self, stacked: Any) -> list[Any]:
        """The tree of each seed, of one that is stacked by seed."""
        leaves, treedef = jax.tree.flatten(stacked)
        return [treedef.unflatten([leaf[i] for leaf in leaves]) for i in range(len(self.seeds))]

    def _placed(self, values: list[Any]) -> list[Any]:
        return [
            jax.device_put(value, device)
            for value, device in zip(values, self._devices, strict=True)
        ]

    def _arguments(self, i: int, rows: Any) -> tuple[Any, ...]:
        device = self._devices[i]
        return (
            self._settings[device],
            self._states[i],
            rows,
            np.int32(self.done),
            self._keys[i],
        )

    def _compiled(self, i: int, n_updates: int) -> Any:
        example = self._feed.example(self._devices[i], n_updates)
        return self._feed.lowered(self._arguments(i, example), n_updates).compile()


def devices_for(seeds: Sequence[int]) -> list[Device]:
    """As many devices of this process as there are seeds to keep busy."""
    return list(jax.local_devices())[: len(seeds)]
