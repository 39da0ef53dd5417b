"""The page of a loop, in a real browser, and what its server answers."""

import contextlib
import html
import http.client
import json
import re
import socket
import subprocess

import pytest
from prometheus_client.parser import text_string_to_metric_families

from neorl_deploy import DeployError
from neorl_deploy.audit import AuditError
from neorl_deploy.dashboard import live_page, still_page
from neorl_deploy.loop import Board, Mode, Quality, audit_log, recorder
from neorl_deploy.runtime import flag_sentences
from neorl_deploy.serving import ServingLimits, beside
from neorl_safety.filters import Flag

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    "--enable-logging=stderr",
    "--virtual-time-budget=3000",
)
TOKEN = "a-token-of-thirty-two-characters"


@pytest.fixture
def driven(make, fresh, tmp_path):
    """A loop that was closed, lost a measurement and is in its fallback; its board and its log."""
    log = audit_log(tmp_path / "loop" / "audit", fresh.bundle)
    bench = make(record=recorder(log))
    board = Board(fresh.manifest)
    bench.loop.ask(Mode.CLOSED_LOOP, "shift leader: <b>trial</b> </script><script>alert(1)")
    for step in range(40):
        if step == 30:
            bench.plant.quality["TI"] = Quality.BAD
        board.after(bench.step())
    log.close()
    return bench, board, tmp_path / "loop"


def test_the_board_says_who_acts_and_why(driven):
    _, board, _ = driven
    shown = board.snapshot()
    json.dumps(shown, allow_nan=False)
    assert shown["state"]["mode"] == "fallback"
    assert shown["state"]["acts"] == "the fallback"
    assert shown["faults"] == {"temperature": "its quality is bad"}
    assert len(shown["points"]) == 40
    assert shown["points"][-1]["obs"][1] is None
    assert shown["counts"]["mode fallback"] == shown["counts"]["fallback"] == 10
    assert shown["events"][-1]["text"].startswith("closed loop -> fallback: temperature")
    assert "nonfinite" not in shown["events"][-1]["text"]
    # The first period of the fallback is that in which the measurement was lost.
    assert shown["lost"] == {"temperature": shown["points"][30]["at"]}
    empty = Board(board._manifest, lambda: ("shadow", "begun")).snapshot()
    assert (empty["rollout"], empty["state"]) == (["shadow", "begun"], None)


def test_every_flag_has_a_sentence():
    names = [flag.name.lower() for flag in Flag]
    sentences = flag_sentences(names)
    assert len({*sentences}) == len(names)
    for name, sentence in zip(names, sentences, strict=True):
        assert sentence != name.replace("_", " ")
        assert "nonfinite" not in sentence
    assert flag_sentences(names, lost=True) == sentences[2:], "the first two follow from the loss"


def visit(browser, page, tmp_path, width):
    """The page in a frame of some width, and the width that it takes."""
    framed = tmp_path / f"framed{width}.html"
    framed.write_text(
        f'<!doctype html><title>?</title><iframe id="f" width="{width}" height="2000" '
        f'srcdoc="{html.escape(page)}" onload="document.title = '
        "f.contentDocument.documentElement.scrollWidth; "
        "document.body.append(f.contentDocument.body.innerText)"
        '"></iframe>'
    )
    command = [browser, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    seen = subprocess.run([*command, framed.as_uri()], capture_output=True, text=True, check=True)
    assert "CONSOLE" not in seen.stderr, "the page's policy refuses and reports outside requests"
    return int(re.search(r"<title>(\d+)</title>", seen.stdout)[1]), html.unescape(seen.stdout)


def test_a_browser_shows_the_page_at_both_widths_and_asks_nobody(driven, fresh, browser, tmp_path):
    page = still_page(driven[2] / "audit", fresh.bundle)

    for width in (390, 1400):
        taken, text = visit(browser, page, tmp_path, width)
        assert taken <= width
        for words in ("the fallback", "temperature: its quality is bad", "valve", "%", "jacket"):
            assert words in text
        # What is written below the page in the frame is what an operator reads.
        told = text[text.index("</iframe>") :]
        assert re.search(r"Temperature lost at \d\d:\d\d:\d\d, so the fallback acts\.", told)
        assert "nonfinite" not in told
        axes = re.findall(r"(-?[\d.]+) to (-?[\d.]+)", told)
        assert len(axes) >= 3
        assert all(low != high for low, high in axes)
        assert "<b>trial</b> </script>" in text  # as text: it neither formats nor ends anything
    assert not re.search(r"(src|href)\s*=\s*[\"']?(https?:)?//", page)


def test_a_page_needs_a_whole_log_of_its_bundle(command, driven, fresh, exported, tmp_path):
    _, _, folder = driven
    out = tmp_path / "page.html"
    command("shadow", folder, exported, "--html", out)
    assert "exists already" in command.refused("shadow", folder, exported, "--html", out)
    log = audit_log(tmp_path / "empty", fresh.bundle)
    log.close()
    with pytest.raises(AuditError, match="holds no recorded control period to show"):
        still_page(tmp_path / "empty", fresh.bundle)


def free_port():
    with contextlib.closing(socket.socket()) as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


def ask(port, path, token=TOKEN):
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    with contextlib.closing(client):
        client.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
        answer = client.getresponse()
        return answer.status, answer.read().decode()


def test_a_running_loop_answers_whether_it_turns_and_what_it_counts(driven):
    bench, board, _ = driven
    port, limits = free_port(), ServingLimits(token=TOKEN)
    now = [bench.clock.monotonic]
    with beside(board, 30.0, host="127.0.0.1", port=port, limits=limits, clock=lambda: now[0]):
        assert ask(port, "/health", token="") == (200, '{"live":true}')
        assert ask(port, "/ready", token="") == (200, '{"ready":true}')
        assert ask(port, "/", token="") == (200, live_page())
        assert ask(port, "/state.json", token="")[0] == 401
        assert ask(port, "/metrics", token="wrong" * 8)[0] == 401
        assert json.loads(ask(port, "/state.json")[1])["state"]["mode"] == "fallback"
        samples = {
            (sample.name, *sample.labels.values()): sample.value
            for family in text_string_to_metric_families(ask(port, "/metrics")[1])
            for sample in family.samples
        }
        assert samples[("neorl_loop_periods_total",)] == 40
        assert samples[("neorl_loop_faults_total",)] == 10
        assert samples[("neorl_loop_mode", "fallback")] == 1
        assert samples[("neorl_loop_mode_periods_total", "fallback")] == 10
        now[0] += 200.0  # the loop hangs
        assert ask(port, "/ready", token="")[0] == 503
        assert ask(port, "/health", token="")[0] == 200
        with (
            pytest.raises(DeployError, match=f"cannot listen on 127.0.0.1:{port}"),
            beside(board, 30.0, host="127.0.0.1", port=port, limits=limits),
        ):
            pass
    with pytest.raises(OSError, match="refused"):
        ask(port, "/health")
    with (
        pytest.raises(DeployError, match="require a token"),
        beside(board, 30.0, host="0.0.0.0", port=port, limits=ServingLimits()),
    ):
        pass


def test_a_person_with_the_token_stops_the_loop_over_http(make, fresh):
    """In the next period, and at any rate of requests."""
    bench, board, port = make().close(), Board(fresh.manifest), free_port()
    limits = ServingLimits(token=TOKEN, rate=1e-3, burst=1)

    def post(body, token=TOKEN, path="/stop"):
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        with contextlib.closing(client):
            client.request("POST", path, body, {"Authorization": f"Bearer {token}"})
            return client.getresponse().status

    with beside(board, 30.0, host="127.0.0.1", port=port, limits=limits, stop=bench.loop.stop):
        by = json.dumps({"by": "operator 7: steam leak"})
        assert post(by, token="wrong" * 8) == 401
        for body in ("", "[]", '{"by": " "}', '{"by": 7}', '{"by": NaN}'):
            assert post(body) == 422
        assert post("x" * 70_000) == 413
        assert ask(port, "/stop")[0] == 405
        bench.step()
        assert (bench.loop.mode, bench.loop.stopped) == (Mode.CLOSED_LOOP, "")
        while ask(port, "/metrics")[0] == 200:  # the rate of others is used up
            pass
        assert post(by) == 202
        bench.step()
    assert bench.loop.mode is Mode.FALLBACK
    assert bench.loop.stopped == "operator 7: steam leak (over HTTP)"


def test_without_a_token_nobody_stops_a_loop_over_http(driven):
    _, board, _ = driven
    port, stops = free_port(), []
    with beside(
        board, 30.0, host="127.0.0.1", port=port, limits=ServingLimits(), stop=stops.append
    ):
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        with contextlib.closing(client):
            client.request("POST", "/stop", '{"by": "a page in a browser"}')
            assert client.getresponse().status == 403
    assert stops == []
    limits = ServingLimits(token=TOKEN)
    with beside(board, 30.0, host="127.0.0.1", port=port, limits=limits):
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        with contextlib.closing(client):
            client.request("POST", "/stop", "{}", {"Authorization": f"Bearer {TOKEN}"})
            assert client.getresponse().status == 403


def test_a_browser_shows_a_running_loop(driven, browser, tmp_path):
    _, board, _ = driven
    port = free_port()
    with beside(board, 30.0, host="127.0.0.1", port=port, limits=ServingLimits(token=TOKEN)):
        address = f"http://127.0.0.1:{port}/#{TOKEN}"
        command = [browser, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
        seen = subprocess.run([*command, address], capture_output=True, text=True, check=True)
    assert "CONSOLE" not in seen.stderr
    assert "temperature: its quality is bad" in seen.stdout
    assert "No answer from the loop" not in re.sub(
        r"<script>.*?</script>", "", seen.stdout, flags=re.S
    )
