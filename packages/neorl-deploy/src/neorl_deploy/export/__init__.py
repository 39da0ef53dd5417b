"""Exports a finished run as a bundle (extra ``export``)."""

from neorl_deploy.export._export import ExportOptions as ExportOptions
from neorl_deploy.export._export import export_run as export_run

__all__ = [
    "ExportOptions",
    "export_run",
]
