"""A plant behind a Modbus TCP server (extra ``modbus``)."""

from neorl_deploy.modbus._client import ModbusPlant as ModbusPlant

__all__ = ["ModbusPlant"]
