"""Record of a running episode, from which images are rendered."""

from typing import Any

import numpy as np

from neorl_core import Transition
from neorl_envs.plants._protocol import Plant


class EpisodeRecord:
    """The steps of one episode so far, on the host."""

    def __init__(self, env: Plant) -> None:
        """Creates an empty record for a plant."""
        self._env = env
        self._rows: list[tuple] = []

    def begin(self, obs: np.ndarray) -> None:
        """Clears the record and stores the first observation of a new episode."""
        self._rows = [(obs,)]

    def add(self, obs: np.ndarray, applied: np.ndarray, reward: Any, cost: np.ndarray) -> None:
        """Adds one step."""
        self._rows.append((obs, applied, reward, cost))

    def picture(self) -> np.ndarray:
        """Trends of the episode, as an array ``(height, width, 3)`` of bytes."""
        from neorl_envs.render import picture, trends

        env = self._env
        figure = trends(env.spec, self._trajectory(), bands=env.bands(), tracked=env.tracked)
        return picture(figure)

    def _trajectory(self) -> Transition:
        n, spec = len(self._rows) - 1, self._env.spec
        obs = np.stack([row[0] for row in self._rows])
        widths = {"action": (spec.n_action,), "reward": (), "cost": (spec.n_cost,)}
        columns: dict[str, Any] = {
            name: np.reshape([row[i] for row in self._rows[1:]], (n, *width))
            for i, (name, width) in enumerate(widths.items(), start=1)
        }
        never: Any = np.zeros(n, np.bool_)
        columns |= {"obs": obs[:-1], "next_obs": obs[1:]}
        return Transition(**columns, terminated=never, truncated=never)
