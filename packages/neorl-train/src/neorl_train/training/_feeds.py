"""What a chunk of updates is computed from: rows on the device, or batches out of a file."""

from collections.abc import Generator, Sequence
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from neorl_agents import Algorithm
from neorl_agents.sampling import sampler_of
from neorl_core import Transition
from neorl_train.experience._streamed import StreamedData
from neorl_train.experience._training_data import TrainingData
from neorl_train.training._chunk import train_chunk, update


class Feed(Protocol):
    """Rows or batches for the chunks of several seeds."""

    def lowered(self, arguments: tuple[Any, ...], n_updates: int) -> Any:
        """The program of a chunk, with the rows of :meth:`example` as its third argument."""
        ...

    def example(self, device: Any, n_updates: int) -> Any:
        """Arrays of the shapes that :meth:`rows` gives."""
        ...

    def rows(self, number: int, device: Any, done: int, n_updates: int) -> Any:
        """What the seed of that number computes its next chunk from, on its device."""
        ...

    def close(self) -> None:
        """Lets go of files and threads."""
        ...


class MemoryFeed:
    """All rows, once on every device; the program draws from them.

    Args:
        algorithm: Learner whose sampler makes the tables.
        data: The rows.
        devices: Devices.
        program: Jitted program of a chunk; ``train_chunk`` by default.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        data: TrainingData,
        devices: Sequence[Any],
        program: Any = train_chunk,
    ) -> None:
        self._program = program
        columns = {name: getattr(data.rows, name) for name in algorithm.fields}
        rows = Transition(*(columns.get(name) for name in Transition._fields))  # pyright: ignore[reportArgumentType]
        tables = sampler_of(algorithm).tables(rows)
        self._tables = {device: jax.device_put(tables, device) for device in devices}

    def lowered(self, arguments: tuple[Any, ...], n_updates: int) -> Any:
        """The program that draws its rows."""
        return self._program.lower(*arguments, n_updates=n_updates)

    def example(self, device: Any, n_updates: int) -> Any:
        """The tables themselves."""
        return self._tables[device]

    def rows(self, number: int, device: Any, done: int, n_updates: int) -> Any:
        """The tables, for every seed and chunk."""
        return self._tables[device]

    def close(self) -> None:
        """Nothing is open."""


class StreamFeed:
    """Batches of every seed out of the file, read ahead while the devices work."""

    def __init__(self, algorithm: Algorithm, data: StreamedData, seeds: Sequence[int]) -> None:
        self._data, self._seeds = data, tuple(seeds)
        # Masked rows are left out, so that there is no mask, as in memory.
        wanted = set(algorithm.fields) - {"mask"}
        self._fields = [name for name in Transition._fields if name in wanted]
        self._per_update, self._size = algorithm.batches_per_update, algorithm.batch_size
        self._open: dict[int, tuple[int, Generator[Transition, None, None]]] = {}

    def lowered(self, arguments: tuple[Any, ...], n_updates: int) -> Any:
        """The program that is given its batches."""
        return train_batches.lower(*arguments)

    def example(self, device: Any, n_updates: int) -> Any:
        """Zeros."""
        n_batches = n_updates * self._per_update
        empty = self._data.empty(self._fields, batch_size=self._size, n_batches=n_batches)
        return jax.device_put(self._shaped(empty), device)

    def rows(self, number: int, device: Any, done: int, n_updates: int) -> Any:
        """The next batches of a seed; reading starts anew where it was not the last to stop."""
        expected, source = self._open.get(number, (-1, None))
        if expected != done or source is None:
            if source is not None:
                source.close()
            source = self._data.chunks(
                self._fields,
                batch_size=self._size,
                seed=self._seeds[number],
                n_batches=n_updates * self._per_update,
                first=done * self._per_update,
            )
        batches = next(source)
        self._open[number] = (done + n_updates, source)
        return jax.device_put(self._shaped(batches), device)

    def close(self) -> None:
        """Ends the reading threads."""
        for _, source in self._open.values():
            source.close()
        self._open = {}

    def _shaped(self, batches: Transition) -> Transition:
        split = (-1, self._per_update)
        return jax.tree.map(lambda c: np.reshape(c, (*split, *c.shape[1:])), batches)


@partial(jax.jit, donate_argnums=1)
def train_batches(
    algorithm: Algorithm,
    state: Any,
    batches: Transition,
    first: Int[Array, ""],
    key: PRNGKeyArray,
) -> tuple[Any, dict[str, Float[Array, ""]]]:
    """Updates on given batches: one for every row of their first axis.

    Args:
        algorithm: Learner with array leaves.
        state: State; its buffers are given away.
        batches: Leading axes ``(update, batches_per_update, batch_size)``.
        first: Number of the first update.
        key: Key of the run's chunks.

    Returns:
        The state, and the mean of every metric.
    """
    n_updates = jax.tree.leaves(batches)[0].shape[0]
    numbers = first + jnp.arange(n_updates, dtype=jnp.int32)
    _, update_key = jax.random.split(key)
    keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(update_key, numbers)
    state, metrics = jax.lax.scan(partial(update, algorithm), state, (batches, keys))
    return state, jax.tree.map(jnp.mean, metrics)
