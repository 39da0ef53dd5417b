"""A bundle as a model of MLflow: no pickle, no code in the model, MLflow itself not imported."""

from neorl_deploy.mlflow_model._model import BundleModel as BundleModel
from neorl_deploy.mlflow_model._model import _load_pyfunc as _load_pyfunc
from neorl_deploy.mlflow_model._model import write_mlflow_model as write_mlflow_model

__all__ = ["BundleModel", "write_mlflow_model"]
