"""The rows of control loops, from a dataset or a historian's export."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from neorl_agents.loops import LoopRecord
from neorl_core import Channel, InputError
from neorl_core.infrastructure import unknown_name
from neorl_envs import Dataset, read_dataset
from neorl_envs.datasets import LoopTags, loops_of

TABLES = (".csv", ".txt", ".tsv", ".parquet", ".pq")
FAR = 30.0
"""How many times larger a setpoint may be than its measurement before their units are doubted."""
PERCENT = (0.0, 100.0)
SAME = 0.01
"""Part of a period by which two rows may be further apart than one period."""


def loop_records(
    path: Path,
    *,
    loop: LoopTags | None = None,
    setpoint: float | None = None,
    setpoint_factor: float | None = None,
    measurement_range: tuple[float, ...] = (),
    output_range: tuple[float, ...] = (),
    period_s: float | None = None,
) -> tuple[LoopRecord, ...]:
    """The loops of a log.

    Args:
        path: A dataset file, whose loops are declared or have channels such as ``TIC_201_PV``; or a
            table of a historian, as CSV or Parquet.
        loop: Channels or columns of one loop, which the log need not show by itself.
        setpoint: Constant setpoint of the named loop.
        setpoint_factor: By what a logged setpoint is multiplied to have the unit of the
            measurement. Without it, a setpoint of a table that seems to have another is refused.
        measurement_range: Range of its instrument, low and high.
        output_range: Range of its output; one of 0 to 100 is in percent if the log names no unit.
        period_s: Seconds between the rows of a table that has no timestamps; otherwise the period
            of the grid on which a table is put.

    Returns:
        One record for each loop; loops of a dataset have their rows at the same times.

    Raises:
        InputError: If the file cannot be read, holds no loop, or lacks a channel that is named, or
            if measurement and setpoint seem to have different units.
    """
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    stamped, is_table = True, is_a_table(path)
    if is_table:
        try:
            from neorl_envs.plant_logs import read_loop_log
        except ModuleNotFoundError:
            raise InputError(f"{path} is a table; to read it install neorl-envs[etl]") from None
        log = read_loop_log(
            path,
            loop=loop,
            measurement_range=measurement_range,
            output_range=output_range,
            period_s=period_s,
        )
        if not log.stamped and period_s is None:
            raise InputError(
                f"{path} has no timestamps; give the seconds between its rows with --period"
            )
        datasets, loops, stamped, guessed = log
    else:
        dataset, guessed = read_dataset(path), ()
        loops = loops_of(dataset) if loop is None else (loop,)
        datasets = (dataset,) * len(loops)
    if not loops:
        raise InputError(
            f"{path} declares no [[loop]], and no channels are called such as TIC_201_PV, "
            "TIC_201_SP and TIC_201_OP; name those of a loop with --pv and --op"
        )
    records = tuple(
        _record(dataset, one, {*guessed}) for dataset, one in zip(datasets, loops, strict=True)
    )
    if is_table and setpoint_factor is None:
        _require_one_unit(records, datasets, loops)
    changes: dict[str, Any] = {} if stamped else {"period": float(period_s or 1.0)}
    if setpoint is not None:
        changes["setpoint"] = np.full(len(records[0].measurement), setpoint)
    for field, given in (("measurement_range", measurement_range), ("output_range", output_range)):
        if given:
            changes[field] = tuple(map(float, given))
    scale = 1.0 if setpoint_factor is None else setpoint_factor
    usual = "%" if tuple(output_range) == PERCENT else ""
    return tuple(
        dataclasses.replace(
            record,
            output_unit=record.output_unit or usual,
            **({"setpoint": scale * record.setpoint} | changes),
        )
        for record in records
    )


def is_a_table(path: Path) -> bool:
    """Whether a file is a table of a historian by its name, not a dataset."""
    return path.name.lower().removesuffix(".gz").endswith(TABLES)


def _record(dataset: Dataset, loop: LoopTags, guessed: set[str]) -> LoopRecord:
    columns = dataset.transitions
    observed = {channel.name: i for i, channel in enumerate(dataset.spec.obs)}
    moved = {channel.name: i for i, channel in enumerate(dataset.spec.action)}
    for name in filter(None, (loop.measurement, loop.setpoint)):
        if name not in observed:
            raise unknown_name("observed channel", name, observed)
    if loop.output not in moved:
        raise unknown_name("manipulated channel", loop.output, moved)
    measured: Channel = dataset.spec.obs[observed[loop.measurement]]
    driven: Channel = dataset.spec.action[moved[loop.output]]

    def column(matrix: Any, place: int) -> np.ndarray:
        return np.asarray(matrix)[:, place].astype(np.float64)

    measurement = column(columns.obs, observed[loop.measurement])
    setpoint = np.full(len(measurement), np.nan)
    if loop.setpoint:
        setpoint = column(columns.obs, observed[loop.setpoint])
    manual = None if dataset.mode is None else np.asarray(dataset.mode)[:, moved[loop.output]]
    return LoopRecord(
        name=loop.name,
        measurement=measurement,
        output=column(columns.action, moved[loop.output]),
        setpoint=setpoint,
        automatic=np.ones(len(measurement), bool) if manual is None else ~manual,
        segment=_segments(dataset),
        period=float(dataset.spec.dt),
        measurement_unit=measured.unit.replace("?", ""),
        output_unit=driven.unit.replace("?", ""),
        measurement_range=(float(measured.low), float(measured.high)),
        output_range=(float(driven.low), float(driven.high)),
        tags={
            role: name
            for role, name in (
                ("measurement", loop.measurement), ("output", loop.output),
                ("setpoint", loop.setpoint), ("mode", loop.mode),
            )
            if name
        },
        ranges_known=not guessed & {loop.measurement, loop.output},
        mode_known=manual is not None,
        left_out=left_out(dataset),
    )  # fmt: skip


def left_out(dataset: Dataset) -> tuple[str, ...]:
    """The hours that clocks passed twice and whose rows a converted log lost, in sentences."""
    hours = dataset.attributes.get("ingestion", {}).get("repeated_hours", ())
    return tuple(
        f"left out: {one['rows']} rows from {one['from']} to {one['to']}: {one['reason']}"
        for one in hours
    )


def _require_one_unit(
    records: Sequence[LoopRecord], datasets: Sequence[Dataset], loops: Sequence[LoopTags]
) -> None:
    """Refuses a setpoint that is not in the unit of its measurement, by name or by size."""
    for record, dataset, loop in zip(records, datasets, loops, strict=True):
        _require_unit_of_setpoint(record, dataset, loop)


def _require_unit_of_setpoint(record: LoopRecord, dataset: Dataset, loop: LoopTags) -> None:
    if not (loop.setpoint and record.has_setpoint):
        return
    units = {channel.name: channel.unit.replace("?", "") for channel in dataset.spec.obs}
    unit = units[loop.setpoint]
    give = (
        "name the loop with --pv, --op and --sp, and give with --sp-factor by what the setpoint is "
        "multiplied to have the unit of the measurement"
    )
    if unit and record.measurement_unit and unit != record.measurement_unit:
        raise InputError(
            f"{record.name}: its measurement is in {record.measurement_unit} and its setpoint in "
            f"{unit}; {give}"
        )
    measured, wanted = (
        float(np.median(np.abs(column[np.isfinite(column)]))) if np.isfinite(column).any() else 0.0
        for column in (record.measurement, record.setpoint)
    )
    if measured > 0 and wanted > 0 and not 1 / FAR < wanted / measured < FAR:
        raise InputError(
            f"{record.name}: its measurement is about {measured:.3g} and its setpoint about "
            f"{wanted:.3g}, as if one were in percent and the other a fraction; {give} (1 if they "
            "have the same)"
        )


def _segments(dataset: Dataset) -> np.ndarray:
    """A number for every stretch of rows without a gap; a cut between episodes is none."""
    rows = np.arange(dataset.n_rows)
    if dataset.time is not None:
        apart = np.abs(np.diff(dataset.time) - dataset.spec.dt) > SAME * dataset.spec.dt
    else:
        columns = dataset.transitions
        obs, following = np.asarray(columns.obs), np.asarray(columns.next_obs)
        apart = np.any(obs[1:] != following[:-1], axis=1)
    return np.append(0, np.cumsum(apart))[: len(rows)]
