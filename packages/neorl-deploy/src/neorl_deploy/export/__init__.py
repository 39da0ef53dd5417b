"""Exports a finished run as a bundle (extra ``export``)."""

from neorl_deploy.export._export import ExportOptions as ExportOptions
from neorl_deploy.export._export import export_run as export_run
from neorl_deploy.export._renew import Renewal as Renewal
from neorl_deploy.export._renew import renew_bundle as renew_bundle

__all__ = [
    "ExportOptions",
    "Renewal",
    "export_run",
    "renew_bundle",
]
