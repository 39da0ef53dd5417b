"""``neorl-train open``: who may open the page, and what it says of a file that is no log."""

import dataclasses
import http.client
import re
import shlex
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from neorl_core.infrastructure.command_line import parse_options
from neorl_train._command import open_session
from neorl_train._command.main import main
from neorl_train._command.subcommands import open as opened
from neorl_train._command.subcommands.loop import (
    LoopOptions,
    faceplate_words,
    read_records,
    typed_faceplate,
)

BOUNDARY = "----of-the-test"


class Answer(NamedTuple):
    status: int
    text: str
    headers: dict[str, str]


@pytest.fixture
def address(tmp_path: Path) -> Iterator[urllib.parse.SplitResult]:
    with opened.served(tmp_path / "out") as address:
        yield urllib.parse.urlsplit(address)


def asked(address, method: str, place: str, body: bytes | None = None, **headers: str) -> Answer:
    client = http.client.HTTPConnection("127.0.0.1", address.port, timeout=600)
    path = place if place.startswith("/") else address.path + place
    client.request(method, path, body, {key.replace("_", "-"): v for key, v in headers.items()})
    answer = client.getresponse()
    found = Answer(answer.status, answer.read().decode(), dict(answer.headers))
    client.close()
    return found


def dropped(address, name: str, content: bytes, place: str = "log") -> Answer:
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="log"; filename="{name}"\r\n\r\n'
    body = head.encode() + content + f"\r\n--{BOUNDARY}--\r\n".encode()
    kind = f"multipart/form-data; boundary={BOUNDARY}"
    return asked(address, "POST", place, body, Content_Type=kind)


def told(answer: Answer) -> str:
    """The line on what is wrong."""
    (line,) = re.findall(r'role="alert">([^<]*)<', answer.text)
    return line


def table(rows: int = 600, head: str = "time,LIC-7.PV,LIC-7.SP,LIC-7.OP") -> bytes:
    """A loop whose output is at its upper limit."""
    rng = np.random.default_rng(0)
    stamps = np.datetime64("2024-03-01T10:00:00") + 10 * np.arange(rows).astype("m8[s]")
    level = 40 + rng.normal(0, 0.1, rows)
    lines = [f"{t},{y:.3f},45.0,100.0" for t, y in zip(stamps, level, strict=True)]
    return "\n".join([head, *lines, ""]).encode()


def test_it_is_served_to_this_machine_and_to_whoever_has_the_address(address) -> None:
    assert address.hostname == "127.0.0.1"
    first = asked(address, "GET", "")
    assert first.status == 200
    assert "default-src 'none'" in first.headers["Content-Security-Policy"]
    assert not re.search(r"(src|href)\s*=\s*[\"']?(https?:)?//", first.text)
    assert "<script" not in first.text
    assert asked(address, "GET", "/").status == 404
    assert asked(address, "GET", "/" + "x" * len(address.path.strip("/")) + "/").status == 404
    # A page elsewhere whose name leads to this machine knows neither the name nor the address.
    assert asked(address, "GET", "", Host=f"evil.example:{address.port}").status == 403
    assert asked(address, "POST", "log", b"", Origin="http://evil.example").status == 403


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("log.csv", b"", "is empty"),
        ("log.xlsx", b"PK", "save it as CSV first"),
        ("log.csv", b"\x00\x01\x02", "log.csv"),
        ("log.parquet", b"PAR1", "log.parquet: cannot read it as a table"),
        ("log.csv", b"a,b\n" + b"1,2\n" * 300, "no column of timestamps"),
        ("../../etc/log.csv", b"time,a\n", "log.csv: the log has no row"),
    ],
)
def test_a_bad_file_is_one_clear_line(address, name: str, content: bytes, words: str) -> None:
    answer = dropped(address, name, content)
    assert answer.status == 400
    assert words in told(answer)
    assert "neorl-open-" not in answer.text
    assert asked(address, "GET", "loops").status == 404


def test_a_file_that_is_too_large_is_refused(address, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opened, "LARGEST", 2**20)
    answer = dropped(address, "log.csv", b"1" * (2**20 + 1))
    assert answer.status == 400
    assert "at most 1 MB" in told(answer)


def test_a_dropped_log_is_confirmed_and_answered(address, tmp_path: Path) -> None:
    answer = dropped(address, "log.csv", table())
    assert (answer.status, answer.headers["Location"]) == (303, address.path + "loops")
    page = asked(address, "GET", "loops").text
    assert "600 rows, a row every 10 s" in page
    chosen = re.findall(r'<option value="([^"]*)" selected', page)
    assert chosen[:6] == ["LIC-7.PV", "LIC-7.SP", "LIC-7.OP", "", "1", "0 100"]
    assert not any(chosen[6:])  # Nothing is assumed of a faceplate.
    answers = {
        "loops": "1", "0.use": "yes", "0.name": "LIC-7", "0.pv": "LIC-7.PV", "0.sp": "LIC-7.SP",
        "0.op": "LIC-7.OP", "0.factor": "1", "0.op_range": "", "0.low": "0", "0.high": "50",
    }  # fmt: skip
    wrong = answers | {"0.high": ""}
    sent = asked(address, "POST", "confirm", urllib.parse.urlencode(wrong).encode())
    assert "give both ends" in told(sent)
    sent = asked(address, "POST", "confirm", urllib.parse.urlencode(answers).encode())
    assert sent.status == 303
    page = asked(address, "GET", "answers").text
    assert "at a limit 100% of the time" in page
    assert "neorl-train loop log.csv --pv LIC-7.PV --op LIC-7.OP --sp LIC-7.SP" in page
    assert page == asked(address, "GET", "answers").text
    later = dropped(address, "later.csv", table(head="time,A,B,C"), "after")
    assert later.status == 400
    assert "LIC-7.PV" in told(later)
    assert not (tmp_path / "out").exists()


def test_what_is_doubtful_must_be_chosen(address) -> None:
    """An output that may be a fraction, a setpoint in another unit, and two columns of one name."""
    lines = table().decode().splitlines()
    cells = [line.split(",") for line in lines[1:]]
    rows = [f"{t},{y},{float(w) / 100},0.9{i % 9}" for i, (t, y, w, _) in enumerate(cells)]
    dropped(address, "log.csv", "\n".join([lines[0], *rows]).encode())
    page = asked(address, "GET", "loops").text
    assert page.count('class="asked"') == 2
    one = {"0.use": "yes", "0.pv": "LIC-7.PV", "0.op": "LIC-7.OP", "0.op_range": "0 1",
           "0.sp": "LIC-7.SP", "0.name": "tank"}  # fmt: skip
    half = asked(address, "POST", "confirm", urllib.parse.urlencode(one).encode())
    assert "tank: choose the unit of its set point" in half.text
    assert half.text.count('class="asked"') == 1
    assert 'value="0 1" selected' in half.text
    assert "as if one were in percent and the other a fraction" in page
    head = "time,LIC-7.PV,LIC-7.PV,LIC-7.SP,LIC-7.OP"
    rows = [f"{t},{y},{i},{w},{u}" for i, (t, y, w, u) in enumerate(cells)]
    dropped(address, "log.csv", "\n".join([head, *rows]).encode())
    page = asked(address, "GET", "loops").text
    assert page.count('class="asked"') == 1
    assert "Two columns are called LIC-7.PV" in page
    assert "No picture: choose the columns first." in page
    chosen = {**one, "0.pv": "LIC-7.PV_duplicated_0", "0.op_range": "0 100", "0.factor": "1",
              "show": "yes"}  # fmt: skip
    shown = asked(address, "POST", "confirm", urllib.parse.urlencode(chosen).encode())
    assert shown.status == 200
    assert "No picture" not in shown.text
    assert 'value="LIC-7.PV_duplicated_0" selected' in shown.text


def test_a_port_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["open", "--port", "70000"]) == 2
    assert "--port must be 0 to 65535" in capsys.readouterr().err


def under_control(rows: int = 600) -> bytes:
    """A level under a reverse-acting PI of 2 % per unit and 20 minutes."""
    rng = np.random.default_rng(1)
    stamps = np.datetime64("2024-03-01T10:00:00") + 10 * np.arange(rows).astype("m8[s]")
    level, output, last, lines = 20.0, 50.0, 0.0, ["time,LIC-7.PV,LIC-7.SP,LIC-7.OP"]
    for row, t in enumerate(stamps):
        setpoint = 20.0 + row // 100 % 2
        error = setpoint - level
        output += 2.0 * (error - last) + 2.0 * 10 / 1200 * error
        last = error
        lines.append(f"{t},{level:.9f},{setpoint},{output:.9f}")
        level += 0.02 * (output - 50) - 0.02 * (level - 20) + 0.02 * rng.standard_normal()
    return "\n".join([*lines, ""]).encode()


LEVEL = {
    "0.use": "yes", "0.name": "LIC-7", "0.pv": "LIC-7.PV", "0.sp": "LIC-7.SP", "0.op": "LIC-7.OP",
    "0.factor": "1", "0.op_range": "0 100", "0.low": "0", "0.high": "50", "show": "yes",
}  # fmt: skip
BAND = {"0.kind": "band", "0.proportional": "100", "0.integral": "20",
        "0.integral_unit": "minutes", "0.direction": "reverse"}  # fmt: skip


def test_a_typed_faceplate_says_which_loop_it_makes(address) -> None:
    """100 % of a range of 50 moves the valve by 100 %: 2 % per unit."""
    dropped(address, "log.csv", under_control())

    def shown(**changes: str) -> Answer:
        typed = LEVEL | BAND | {f"0.{key}": value for key, value in changes.items()}
        return asked(address, "POST", "confirm", urllib.parse.urlencode(typed).encode())

    page = shown()
    assert page.status == 200
    (made,) = re.findall(r'class="made"><strong>([^<]*)<', page.text)
    assert made == (
        "Proportional band 100 %, reset 20 min; this is gain 2, integral time 1200 s, reverse "
        "acting. The rows of the log agree."
    )
    for kept in ("50", "100", "20", "LIC-7"):
        assert f'value="{kept}"' in page.text
    (made,) = re.findall('class="made"><strong>([^<]*)<', shown(integral_unit="per_minute").text)
    assert "reset 20 repeats/min; this is gain 2, integral time 3 s" in made
    assert "But the faceplate says" in made
    assert "the rows of the log show proportional band 100 %, reset 0.05 repeats/min" in made
    (made,) = re.findall('class="made"><strong>([^<]*)<', shown(direction="direct").text)
    assert "and the rows of the log show proportional band 100 %, reset 20 min, reverse" in made
    for changes, words in (
        ({"kind": ""}, "say whether its gain is in percent or in engineering units"),
        ({"direction": ""}, "say whether the output falls (reverse) or rises (direct)"),
        ({"integral_unit": ""}, "say whether its reset is a time or repeats"),
        ({"proportional": ""}, "give either its gain or its proportional band"),
        ({"proportional": "-3"}, "proportional must be positive, got -3"),
        ({"low": "", "high": ""}, "percent of the ranges of instrument and output"),
    ):
        wrong = shown(**changes)
        assert wrong.status == 400
        assert words in told(wrong)
        assert "--" not in told(wrong)


def test_what_was_typed_is_the_same_as_a_command(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_bytes(under_control())
    answers = {key.removeprefix("0."): value for key, value in (LEVEL | BAND).items()}
    options = open_session.options_of(log, tmp_path, answers)
    (*_, line) = open_session.command_of(options).partition("neorl-train loop log.csv ")
    assert parse_options(LoopOptions, [str(log), *shlex.split(line)], program="loop") == (
        dataclasses.replace(options, out=Path(), sp_factor=None)
    )
    (record,) = read_records(options)
    today = typed_faceplate(options, record)
    assert faceplate_words(today) == (
        "proportional band 100 %, reset 20 min; this is gain 2, integral time 1200 s, reverse "
        "acting"
    )
    assert record.output_unit == "%"
