"""Files of many formats into a ``Dataset``: one reader a file, one table of them."""

from neorl_envs.ingest._read import reader_name as reader_name
from neorl_envs.ingest._readers import READERS as READERS
from neorl_envs.ingest._readers import Reader as Reader
from neorl_envs.ingest._readers import log_suffixes as log_suffixes
from neorl_envs.ingest._readers import register_reader as register_reader

__all__ = ["READERS", "Reader", "log_suffixes", "reader_name", "register_reader"]
