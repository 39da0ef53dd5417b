"""A bundle behind HTTP, by the Open Inference Protocol (extra ``http``)."""

from neorl_deploy.serving._app import application as application
from neorl_deploy.serving._limits import ServingLimits as ServingLimits
from neorl_deploy.serving._server import serve_http as serve_http

__all__ = ["ServingLimits", "application", "serve_http"]
