"""Kinematics and inertia of the arm by MuJoCo 4.0.0, stored for the tests of neorl-envs.

    python -m venv build/venv-mujoco
    build/venv-mujoco/bin/pip install "mujoco==4.0.0"
    build/venv-mujoco/bin/python tools/studies/oracles/mujoco_arm.py

The model is written here, from the numbers of franka_emika_panda/panda.xml of mujoco_menagerie
(seven links without hand and meshes, and a site at the tip of the tool).
"""

import argparse
from pathlib import Path

import mujoco
import numpy as np

FIXTURES = Path(__file__).parents[3] / "packages/neorl-envs/tests/plants/robot_assembly"
TOOL = 0.107 + 0.1034 + 0.06  # m from the last joint
POSES = 24
LINKS = (
    # position, quaternion, mass, centre of mass, full inertia, range
    ("0 0 0.333", "1 0 0 0", "4.970684", "0.003875 0.002081 -0.04762",
     "0.70337 0.70661 0.0091170 -0.00013900 0.0067720 0.019169", (-2.8973, 2.8973)),
    ("0 0 0", "1 -1 0 0", "0.646926", "-0.003141 -0.02872 0.003495",
     "0.0079620 2.8110e-2 2.5995e-2 -3.925e-3 1.0254e-2 7.04e-4", (-1.7628, 1.7628)),
    ("0 -0.316 0", "1 1 0 0", "3.228604", "2.7518e-2 3.9252e-2 -6.6502e-2",
     "3.7242e-2 3.6155e-2 1.083e-2 -4.761e-3 -1.1396e-2 -1.2805e-2", (-2.8973, 2.8973)),
    ("0.0825 0 0", "1 1 0 0", "3.587895", "-5.317e-2 1.04419e-1 2.7454e-2",
     "2.5853e-2 1.9552e-2 2.8323e-2 7.796e-3 -1.332e-3 8.641e-3", (-3.0718, -0.0698)),
    ("-0.0825 0.384 0", "1 -1 0 0", "1.225946", "-1.1953e-2 4.1065e-2 -3.8437e-2",
     "3.5549e-2 2.9474e-2 8.627e-3 -2.117e-3 -4.037e-3 2.29e-4", (-2.8973, 2.8973)),
    ("0 0 0", "1 1 0 0", "1.666555", "6.0149e-2 -1.4117e-2 -1.0517e-2",
     "1.964e-3 4.354e-3 5.433e-3 1.09e-4 -1.158e-3 3.41e-4", (-0.0175, 3.7525)),
    ("0.088 0 0", "1 1 0 0", "7.35522e-01", "1.0517e-2 -4.252e-3 6.1597e-2",
     "1.2516e-2 1.0027e-2 4.815e-3 -4.28e-4 -1.196e-3 -7.41e-4", (-2.8973, 2.8973)),
)  # fmt: skip


def model() -> mujoco.MjModel:
    text = ""
    for place, turn, mass, centre, inertia, _ in LINKS:
        text += f'<body pos="{place}" quat="{turn}"><inertial mass="{mass}" pos="{centre}" '
        text += f'fullinertia="{inertia}"/><joint type="hinge" axis="0 0 1" armature="0.1"/>'
    text += f'<site name="tip" pos="0 0 {TOOL!r}"/>' + "</body>" * len(LINKS)
    head = '<mujoco><compiler angle="radian"/><worldbody>'
    return mujoco.MjModel.from_xml_string(head + text + "</worldbody></mujoco>")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=FIXTURES / "mujoco_arm.npz")
    out = parser.parse_args().out
    arm = model()
    data = mujoco.MjData(arm)
    low, high = np.asarray([link[-1] for link in LINKS]).T
    poses = np.random.default_rng(4).uniform(low, high, (POSES, len(LINKS)))
    tip, turn, jacobian, inertia = [], [], [], []
    for q in poses:
        data.qpos[:] = q
        mujoco.mj_forward(arm, data)
        linear, angular = np.zeros((3, 7)), np.zeros((3, 7))
        mujoco.mj_jacSite(arm, data, linear, angular, 0)
        full = np.zeros((7, 7))
        try:
            mujoco.mj_fullM(arm, full, data.qM)
        except (AttributeError, TypeError):
            mujoco.mj_fullM(arm, data, full)
        tip.append(data.site_xpos[0].copy())
        turn.append(data.site_xmat[0].copy().reshape(3, 3))
        jacobian.append(np.concatenate([linear, angular]))
        inertia.append(full)
    stored = {"q": poses, "tip": tip, "rotation": turn, "jacobian": jacobian, "inertia": inertia}
    np.savez_compressed(out, **{name: np.asarray(rows) for name, rows in stored.items()})


if __name__ == "__main__":
    main()
