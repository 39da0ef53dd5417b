"""Serves a bundle over HTTP, and the state of a running loop (extra ``http``)."""

from neorl_deploy.serving._app import application as application
from neorl_deploy.serving._limits import ServingLimits as ServingLimits
from neorl_deploy.serving._loop_app import beside as beside
from neorl_deploy.serving._loop_app import loop_application as loop_application
from neorl_deploy.serving._server import serve_http as serve_http

__all__ = ["ServingLimits", "application", "beside", "loop_application", "serve_http"]
