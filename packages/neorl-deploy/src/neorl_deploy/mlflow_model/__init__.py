"""A bundle as an MLflow model: no pickle, no code in the model, and MLflow is not imported."""

from neorl_deploy.mlflow_model._model import BundleModel as BundleModel
from neorl_deploy.mlflow_model._model import _load_pyfunc as _load_pyfunc
from neorl_deploy.mlflow_model._model import write_mlflow_model as write_mlflow_model

__all__ = ["BundleModel", "write_mlflow_model"]
