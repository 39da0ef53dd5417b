"""Prints the guarded step of a bundle in the languages of controllers and simulators."""

from neorl_deploy.forms._c import c_source as c_source
from neorl_deploy.forms._form import Evaluation as Evaluation
from neorl_deploy.forms._form import Form as Form
from neorl_deploy.forms._form import Variable as Variable
from neorl_deploy.forms._form import form_of as form_of
from neorl_deploy.forms._form import operations_of as operations_of
from neorl_deploy.forms._lowering import NoFormError as NoFormError
from neorl_deploy.forms._plcopen import plcopen_xml as plcopen_xml
from neorl_deploy.forms._sheet import SealedStep as SealedStep
from neorl_deploy.forms._structured_text import structured_text as structured_text
from neorl_deploy.forms._unit import write_unit as write_unit
from neorl_deploy.forms._write import write_forms as write_forms

__all__ = [
    "Evaluation",
    "Form",
    "NoFormError",
    "SealedStep",
    "Variable",
    "c_source",
    "form_of",
    "operations_of",
    "plcopen_xml",
    "structured_text",
    "write_forms",
    "write_unit",
]
