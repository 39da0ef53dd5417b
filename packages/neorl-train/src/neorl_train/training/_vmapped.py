"""Several trainings in one call: their states stacked, the program batched over them."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from neorl_agents.learning import train_chunk
from neorl_core import Policy
from neorl_train.training._queues import Metrics, SeedQueues


class Batched:
    """Trainings that one call advances together, on one device.

    Each seed of a setting has its own key, and each setting one learner: rows are sampled once per
    seed and given to all settings. Trainings that continue after different numbers of updates are
    advanced one by one.
    """

    def __init__(self) -> None:
        self._members: list[_Member] = []
        self._n_updates, self.done, self._started = 0, 0, False
        self._program: Any = None
        self._arguments: tuple[Any, ...] = ()
        self._training: Any = None
        self._metrics: list[list[Metrics]] = []
        self._on_host: tuple[int, Any] = (-1, None)

    def member(self, queues: SeedQueues) -> "_Member":
        """Adds a training to this group.

        Args:
            queues: Its states before the first update, or to be restored.
        """
        return _Member(self, queues)

    def join(self, member: "_Member", n_updates: int) -> None:
        """Adds a training that is about to begin; one with no work left does not join."""
        self._members.append(member)
        self._n_updates = n_updates

    def advance(self, member: "_Member") -> list[Metrics]:
        """The next chunk of one training; the first to request it advances all of them."""
        if not self._started:
            self._begin()
        if self._program is None:
            return member.queues.advance()
        if member.done == self.done:
            first = np.int32(self.done)
            self._training, means = self._program(*self._arguments, self._training, first)
            self.done += self._n_updates
            seeds, members = range(len(member.seeds)), range(len(self._members))
            each = [jax.tree.map(lambda x, s=s: x[s], means) for s in seeds]
            self._metrics = [
                [jax.tree.map(lambda x, m=m: x[m], metrics) for metrics in each] for m in members
            ]
        member.done = self.done
        return self._metrics[self._members.index(member)]

    def states(self, member: "_Member") -> Any | None:
        """Host copies of a training's states, stacked by seed; ``None`` before the first chunk."""
        if self._training is None or member not in self._members:
            return None
        if self._on_host[0] != self.done:
            self._on_host = self.done, jax.device_get(self._training)
        index = self._members.index(member)
        return jax.tree.map(lambda leaf: np.array(leaf[:, index]), self._on_host[1])

    def _begin(self) -> None:
        self._started = True
        if len({member.done for member in self._members}) > 1:
            for member in self._members:
                member.queues.compile(self._n_updates)
            return
        states = [member.queues.stacked() for member in self._members]
        self.done = self._members[0].done
        shared = states[0]
        learners = jax.tree.map(lambda *x: jnp.stack(x), *[stacked.learner for stacked in states])
        self._training = jax.tree.map(
            lambda *x: jnp.stack(x, axis=1), *[stacked.trainings for stacked in states]
        )
        self._arguments = (learners, shared.source, shared.tables, shared.keys)
        lowered = _chunk.lower(
            *self._arguments, self._training, np.int32(0), n_updates=self._n_updates
        )
        self._program = lowered.compile()


class _Member:
    """One training of a group, with the interface of :class:`SeedQueues`."""

    def __init__(self, group: Batched, queues: SeedQueues) -> None:
        self._group, self.queues = group, queues
        self.seeds = queues.seeds
        self.done = 0

    def compile(self, n_updates: int) -> None:
        """Joins the group, whose program is compiled when all have joined."""
        self._group.join(self, n_updates)

    def memory(self) -> None:
        """Unknown until all have joined."""
        return

    def advance(self) -> list[Metrics]:
        """As :meth:`SeedQueues.advance`."""
        return self._group.advance(self)

    def close(self) -> None:
        """Releases the source of the rows."""
        self.queues.close()

    def snapshot(self) -> dict[str, Any]:
        """As :meth:`SeedQueues.snapshot`."""
        states = self._group.states(self)
        before = self.queues.snapshot() if states is None else None
        if before is not None:
            return before
        return {"state": states, "key": self.queues.host_keys()}

    def restore(self, snapshot: dict[str, Any], *, done: int) -> None:
        """As :meth:`SeedQueues.restore`, before the first chunk."""
        self.done = done
        self.queues.restore(snapshot, done=done)

    def policies(self, snapshot: dict[str, Any]) -> list[Policy]:
        """As :meth:`SeedQueues.policies`."""
        return self.queues.policies(snapshot)


@partial(jax.jit, static_argnames="n_updates", donate_argnums=4)
def _chunk(
    learners: Any, source: Any, tables: Any, keys: Any, training: Any, first: Any, *, n_updates: int
) -> Any:
    """A chunk of every seed (first axis of states and keys) of every setting (second axis)."""

    def one(learner: Any, state: Any, key: Any) -> Any:
        return train_chunk(learner, source, state, tables, first, key, n_updates=n_updates)

    settings = jax.vmap(one, in_axes=(0, 0, None))
    return jax.vmap(settings, in_axes=(None, 0, 0))(learners, training, keys)
