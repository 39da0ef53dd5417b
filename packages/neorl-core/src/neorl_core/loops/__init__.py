"""Control loops as engineers judge them: forms of a PID, margins, step responses, loop health."""

from neorl_core._internal.missing_names import missing_name
from neorl_core.loops._loop_health import HarrisIndex as HarrisIndex
from neorl_core.loops._loop_health import LoopHealth as LoopHealth
from neorl_core.loops._loop_health import Oscillation as Oscillation
from neorl_core.loops._loop_health import harris_index as harris_index
from neorl_core.loops._loop_health import loop_health as loop_health
from neorl_core.loops._loop_health import oscillation as oscillation
from neorl_core.loops._margins import LoopMargins as LoopMargins
from neorl_core.loops._margins import loop_margins as loop_margins
from neorl_core.loops._pid_forms import VENDOR_FORMS as VENDOR_FORMS
from neorl_core.loops._pid_forms import Faceplate as Faceplate
from neorl_core.loops._pid_forms import PIDForm as PIDForm
from neorl_core.loops._pid_forms import PIDGains as PIDGains
from neorl_core.loops._pid_forms import VendorForm as VendorForm
from neorl_core.loops._pid_forms import faceplate as faceplate
from neorl_core.loops._pid_forms import pid_gains as pid_gains
from neorl_core.loops._processes import SampledModel as SampledModel
from neorl_core.loops._processes import TransferFunction as TransferFunction
from neorl_core.loops._step_responses import StepFigures as StepFigures
from neorl_core.loops._step_responses import StepResponse as StepResponse
from neorl_core.loops._step_responses import step_figures as step_figures
from neorl_core.loops._step_responses import step_response as step_response
from neorl_core.loops._stiction import StictionCorrelation as StictionCorrelation
from neorl_core.loops._stiction import StictionFit as StictionFit
from neorl_core.loops._stiction import ValveState as ValveState
from neorl_core.loops._stiction import choudhury_step as choudhury_step
from neorl_core.loops._stiction import he_step as he_step
from neorl_core.loops._stiction import stiction_correlation as stiction_correlation
from neorl_core.loops._stiction import stiction_curve_fit as stiction_curve_fit
from neorl_core.loops._stiction import valve_state as valve_state

__all__ = [
    "VENDOR_FORMS",
    "Faceplate",
    "HarrisIndex",
    "LoopHealth",
    "LoopMargins",
    "Oscillation",
    "PIDForm",
    "PIDGains",
    "SampledModel",
    "StepFigures",
    "StepResponse",
    "StictionCorrelation",
    "StictionFit",
    "TransferFunction",
    "ValveState",
    "VendorForm",
    "choudhury_step",
    "faceplate",
    "harris_index",
    "he_step",
    "loop_health",
    "loop_margins",
    "oscillation",
    "pid_gains",
    "step_figures",
    "step_response",
    "stiction_correlation",
    "stiction_curve_fit",
    "valve_state",
]
globals()["__getattr__"] = missing_name(__name__, __all__)
