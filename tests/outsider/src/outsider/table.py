"""Logs of the tank as a text table: a line of names, then episode, level, inflow."""

import numpy as np

from neorl_envs import DatasetError
from neorl_envs.datasets import dataset_from_columns
from outsider.tank import HIGH_LEVEL, SETPOINT, Tank

FIRST = b"episode level inflow\n"


class TableReader:
    """Rows of one episode follow each other; reward and cost follow from the level."""

    suffixes = (".table",)

    def recognises(self, path, first_bytes):
        return FIRST.startswith(first_bytes)

    def read(self, path):
        try:
            rows = np.loadtxt(path, skiprows=1, ndmin=2)
            episode, level, inflow = rows.T
        except ValueError as error:
            raise DatasetError(f"{path}: expected three numbers a line, got {error}") from error
        follows = episode[1:] == episode[:-1]
        # The last row of an episode has no level after it.
        now, after = np.flatnonzero(follows), np.flatnonzero(follows) + 1
        return dataset_from_columns(
            Tank().spec,
            obs=level[now, None],
            action=inflow[now, None],
            reward=-np.abs(level[after] - SETPOINT),
            cost=np.maximum(level[after] - HIGH_LEVEL, 0)[:, None],
            next_obs=level[after, None],
            terminated=np.zeros(len(now), bool),
            truncated=np.append(np.diff(episode[now]) != 0, True),
            attributes={"name": path.stem},
            source=str(path),
        )


READER = TableReader()
