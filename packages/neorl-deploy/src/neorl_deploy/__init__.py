"""The policy bundle and its runtime."""

from neorl_deploy._bundle import Bundle as Bundle
from neorl_deploy._bundle import read_bundle as read_bundle
from neorl_deploy._errors import BundleError as BundleError
from neorl_deploy._errors import DeployError as DeployError
from neorl_deploy._errors import NotDeployable as NotDeployable
from neorl_deploy._export import ExportOptions as ExportOptions
from neorl_deploy._export import export_run as export_run
from neorl_deploy._log_file import Log as Log
from neorl_deploy._log_file import read_log as read_log
from neorl_deploy._manifest import ArrayEntry as ArrayEntry
from neorl_deploy._manifest import ChannelEntry as ChannelEntry
from neorl_deploy._manifest import Manifest as Manifest
from neorl_deploy._replay import Replay as Replay
from neorl_deploy._replay import replay as replay
from neorl_deploy._runtime import Decision as Decision
from neorl_deploy._runtime import Runtime as Runtime
from neorl_deploy._runtime import load_bundle as load_bundle

__all__ = [
    "ArrayEntry",
    "Bundle",
    "BundleError",
    "ChannelEntry",
    "Decision",
    "DeployError",
    "ExportOptions",
    "Log",
    "Manifest",
    "NotDeployable",
    "Replay",
    "Runtime",
    "export_run",
    "load_bundle",
    "read_bundle",
    "read_log",
    "replay",
]
