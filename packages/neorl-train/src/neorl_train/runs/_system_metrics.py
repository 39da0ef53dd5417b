"""Load of the machine, under MLflow's names for system metrics."""

import contextlib
import importlib.util
from typing import Any

SAMPLE_SECONDS = 10.0


class SystemMetrics:
    """Processor, memory, disk and network from MLflow's own monitors; empty without ``psutil``."""

    def __init__(self) -> None:
        self._monitors: list[Any] = []
        if importlib.util.find_spec("psutil") is None:
            return
        from mlflow.system_metrics.metrics.cpu_monitor import CPUMonitor
        from mlflow.system_metrics.metrics.disk_monitor import DiskMonitor
        from mlflow.system_metrics.metrics.network_monitor import NetworkMonitor

        self._monitors = [CPUMonitor(), DiskMonitor(), NetworkMonitor()]
        with contextlib.suppress(Exception):  # a machine without such a device or its driver
            from mlflow.system_metrics.metrics.gpu_monitor import GPUMonitor

            self._monitors.append(GPUMonitor())

    def sample(self) -> dict[str, float]:
        """The present values, by name without ``system/``; unreadable ones are left out."""
        metrics: dict[str, float] = {}
        for monitor in self._monitors:
            with contextlib.suppress(Exception):  # a failure here must not end a run
                monitor.collect_metrics()
                metrics |= {name: float(v) for name, v in monitor.aggregate_metrics().items()}
                monitor.clear_metrics()
        return metrics
