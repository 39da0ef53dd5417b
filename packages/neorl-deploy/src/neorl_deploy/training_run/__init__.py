"""A finished training run, read without the training stack."""

from neorl_deploy.training_run._newest import log_of as log_of
from neorl_deploy.training_run._newest import newest_bundle as newest_bundle
from neorl_deploy.training_run._newest import newest_run as newest_run
from neorl_deploy.training_run._run import Run as Run
from neorl_deploy.training_run._run import read_run as read_run

__all__ = [
    "Run",
    "log_of",
    "newest_bundle",
    "newest_run",
    "read_run",
]
