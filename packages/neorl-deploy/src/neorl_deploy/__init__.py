"""Policy bundles and the runtime that executes them."""

from neorl_deploy._errors import BundleError as BundleError
from neorl_deploy._errors import DeployError as DeployError
from neorl_deploy._errors import NotDeployable as NotDeployable

__all__ = [
    "BundleError",
    "DeployError",
    "NotDeployable",
]
