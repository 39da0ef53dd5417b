"""Input and output: names, settings, extensions, document headers, atomic writes, programs.

The only part of this package that touches the disk; it serves the shells of the other packages.
"""

from neorl_core.infrastructure._compiled_programs import CompiledPrograms as CompiledPrograms
from neorl_core.infrastructure._compiled_programs import cache_fault as cache_fault
from neorl_core.infrastructure._compiled_programs import (
    keep_compiled_programs as keep_compiled_programs,
)
from neorl_core.infrastructure._compiled_programs import (
    publish_compiled_programs as publish_compiled_programs,
)
from neorl_core.infrastructure._extras import install_line as install_line
from neorl_core.infrastructure._files import check_head as check_head
from neorl_core.infrastructure._files import head as head
from neorl_core.infrastructure._files import is_full_disk as is_full_disk
from neorl_core.infrastructure._files import replacing as replacing
from neorl_core.infrastructure._files import sync_folder as sync_folder
from neorl_core.infrastructure._files import write_bytes as write_bytes
from neorl_core.infrastructure._files import write_json as write_json
from neorl_core.infrastructure._files import write_text as write_text
from neorl_core.infrastructure._lazy_names import lazy_names as lazy_names
from neorl_core.infrastructure._plain_data import Binder as Binder
from neorl_core.infrastructure._programs import equations as equations
from neorl_core.infrastructure._programs import factorises as factorises
from neorl_core.infrastructure._registry import Registry as Registry
from neorl_core.infrastructure._registry import nearest_name as nearest_name
from neorl_core.infrastructure._registry import unknown_name as unknown_name
from neorl_core.infrastructure._settings import MAX_SEED as MAX_SEED
from neorl_core.infrastructure._settings import Range as Range
from neorl_core.infrastructure._settings import range_of as range_of
from neorl_core.infrastructure._settings import require_settings as require_settings
from neorl_core.infrastructure._settings import setting as setting

__all__ = [
    "MAX_SEED",
    "Binder",
    "CompiledPrograms",
    "Range",
    "Registry",
    "cache_fault",
    "check_head",
    "equations",
    "factorises",
    "head",
    "install_line",
    "is_full_disk",
    "keep_compiled_programs",
    "lazy_names",
    "nearest_name",
    "publish_compiled_programs",
    "range_of",
    "replacing",
    "require_settings",
    "setting",
    "sync_folder",
    "unknown_name",
    "write_bytes",
    "write_json",
    "write_text",
]
