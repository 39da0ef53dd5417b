"""What was identified is told with the units of the loop."""

from neorl_agents.classical import Loop, Task
from neorl_core import Channel, Spec
from neorl_train.candidates._fitted import identification_lines

SPEC = Spec(
    (Channel("outlet", "degF", 32.0, 212.0), Channel("feed", "degF", 32.0, 212.0)),
    (Channel("steam", "%", 0.0, 100.0),),
    (),
    dt=2.0,
    horizon=500,
)
TASK = Task((Loop("outlet", "steam", 140.0),), ("feed",))
LOOP = {"gain": 0.039, "pole": 0.967, "static_gain": 1.2, "slope": 0.02, "time_constant": 60.0}
GAINS = {"delay": 7, "share": 0.993, "kp": 1.9, "ki": 0.03, "kd": 0.0, "tau": 0.0}


def words(name, report):
    return list(identification_lines(name, report, TASK, SPEC))


def test_a_loop_is_told_as_a_step_shows_it_and_its_doubts_as_warnings():
    report = {"loops": [{**LOOP, **GAINS, "gain_margin": 0.6, "warnings": ["it swings"]}]}
    assert words("pid", report) == [
        "pid: outlet by steam: gain 1.2 degF per %, time constant 60 s, dead time 14 s, explains "
        "99.3% of the variance of the output changes, kp 1.9 % per degF, ki 0.03 % per degF and s, "
        "gain margin 0.6",
        "warning: pid: outlet by steam: it swings",
    ]
    # An imitated loop has no model of the plant: its share is of the action, as its warning has it.
    (imitated,) = words("pid_imitation", {"loops": [{"share": 0.5, "kp": 1.76, "rows": 9}]})
    assert "explains 50.0% of the variance of the action, " in imitated
    integrating = {**LOOP, "pole": 1.0, "static_gain": None, "time_constant": None, **GAINS}
    (line,) = words("pid", {"loops": [{**integrating, "gain_margin": None, "warnings": []}]})
    assert line.startswith("pid: outlet by steam: integrating, 0.02 degF per % and s, dead time")
    assert "margin" not in line


def test_a_plant_is_told_channel_by_channel():
    report = {"order": 3, "delay": [7], "gain": [[1.2], [0.1]], "residual": [0.45, 0.28]}
    report |= {"plant_radius": 1.0, "loop_radius": 0.9, "warnings": ["too long"]}
    assert words("lqg", report) == [
        "lqg: order 3, dead time 14 s, gain of outlet by steam 1.2 degF per %, feed by steam 0.1 "
        "degF per %, error one period ahead outlet 0.45 degF, feed 0.28 degF, slowest mode of the "
        "plant integrating or growing (1 a period), of the loop 19 s",
        "warning: lqg: too long",
    ]


def test_what_another_distribution_reports_is_told_key_by_key():
    assert words("mine", {"alpha": 0.25, "poles": [0.5, 0.25]}) == [
        "mine: alpha 0.25, poles 0.5 0.25"
    ]
