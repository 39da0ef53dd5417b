"""Sites that train one policy together and share no data."""

from typing import TYPE_CHECKING

from neorl_core.infrastructure import lazy_names

if TYPE_CHECKING:
    from neorl_train.federation._client import Client as Client
    from neorl_train.federation._client import Proximal as Proximal
    from neorl_train.federation._coordinator import Coordinator as Coordinator
    from neorl_train.federation._engine import Federated as Federated
    from neorl_train.federation._engine import RoundRecord as RoundRecord
    from neorl_train.federation._engine import federate as federate
    from neorl_train.federation._engine import federation_checkpoints as federation_checkpoints
    from neorl_train.federation._flower import join_federation as join_federation
    from neorl_train.federation._flower import serve_federation as serve_federation
    from neorl_train.federation._messages import Compressed as Compressed
    from neorl_train.federation._messages import Introduction as Introduction
    from neorl_train.federation._messages import RoundStart as RoundStart
    from neorl_train.federation._messages import Update as Update
    from neorl_train.federation._messages import compress as compress
    from neorl_train.federation._messages import decompress as decompress
    from neorl_train.federation._messages import n_bytes as n_bytes
    from neorl_train.federation._privacy import Pairings as Pairings
    from neorl_train.federation._privacy import epsilon as epsilon
    from neorl_train.federation._retuning import Proposals as Proposals
    from neorl_train.federation._retuning import RetuningSite as RetuningSite
    from neorl_train.federation._retuning import federate_retuning as federate_retuning
    from neorl_train.federation._settings import Fault as Fault
    from neorl_train.federation._settings import Federation as Federation
    from neorl_train.federation._settings import FederationConfig as FederationConfig
    from neorl_train.federation._settings import GossipConfig as GossipConfig
    from neorl_train.federation._settings import MessagesConfig as MessagesConfig
    from neorl_train.federation._settings import PrivacyConfig as PrivacyConfig

__all__ = [
    "Client",
    "Compressed",
    "Coordinator",
    "Fault",
    "Federated",
    "Federation",
    "FederationConfig",
    "GossipConfig",
    "Introduction",
    "MessagesConfig",
    "Pairings",
    "PrivacyConfig",
    "Proposals",
    "Proximal",
    "RetuningSite",
    "RoundRecord",
    "RoundStart",
    "Update",
    "compress",
    "decompress",
    "epsilon",
    "federate",
    "federate_retuning",
    "federation_checkpoints",
    "join_federation",
    "n_bytes",
    "serve_federation",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__)
