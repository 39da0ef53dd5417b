"""What one algorithm is trained on."""

import dataclasses

from neorl_core import DataStatistics, Spec, Transition


@dataclasses.dataclass(frozen=True)
class TrainingData:
    """What one algorithm is trained on.

    Attributes:
        rows: The training split as host arrays, physical units, the penalised reward; without
            masked rows, so its own ``mask`` is ``None``.
        statistics: Of the same split, the same reward.
        spec: Channels, period and horizon.
    """

    rows: Transition
    statistics: DataStatistics
    spec: Spec
