"""The sealed directory: it is read and verified, and nothing in it is executed."""

from neorl_deploy.bundle._manifest import ArrayEntry as ArrayEntry
from neorl_deploy.bundle._manifest import ChannelEntry as ChannelEntry
from neorl_deploy.bundle._manifest import Manifest as Manifest
from neorl_deploy.bundle._read import Bundle as Bundle
from neorl_deploy.bundle._read import read_bundle as read_bundle
from neorl_deploy.bundle._signature import Signer as Signer
from neorl_deploy.bundle._signature import read_public_key as read_public_key
from neorl_deploy.bundle._test_vectors import relative_difference as relative_difference

__all__ = [
    "ArrayEntry",
    "Bundle",
    "ChannelEntry",
    "Manifest",
    "Signer",
    "read_bundle",
    "read_public_key",
    "relative_difference",
]
