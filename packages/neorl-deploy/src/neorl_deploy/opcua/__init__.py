"""A plant behind an OPC UA server (extra ``opcua``)."""

from neorl_deploy.opcua._client import OpcUaPlant as OpcUaPlant

__all__ = ["OpcUaPlant"]
