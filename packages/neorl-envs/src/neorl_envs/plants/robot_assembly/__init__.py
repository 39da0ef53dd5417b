r"""A seven-joint arm inserts a peg into a hole whose position it knows to within two millimetres.

*Arm.* Kinematics and inertias of the Franka Emika Panda without its hand. An inner torque loop
compensates gravity and Coriolis forces and tracks joint speeds $u$:

$$\ddot q = \mathrm{clip}(20\,(u - \dot q) + M(q)^{-1} J(q)^T F, \pm \ddot q_{max})$$

integrated by the semi-implicit Euler method with 50 substeps of 1 ms per period of 50 ms; $M$ is
that of the start of the period. `RobotAssembly(fidelity="fast")` has a constant diagonal $M$ of
1.3, 1.3, 0.9, 0.9, 0.3, 0.3 and 0.2 kg m2.

*Contact.* The peg has a radius of 9.9 mm. The hole is 0.05 to 0.5 mm wider and 25 mm deep, with a
chamfer of 1 mm, in a part of 60 mm radius. Ten contact points are modelled: eight points of the
tip's rim against plate, chamfer and wall, the side of the peg against the mouth, and the tip
against the bottom. The forces at each are

$$f_n = \max(K \delta - D v_n, 0), \qquad f_t = -\mu f_n v_t / \sqrt{v_t^2 + v_0^2}$$

| parameter | value | source |
|---|---|---|
| frames, masses, inertias, armature, ranges | in `_arm.py` | panda.xml of mujoco_menagerie |
| largest speeds and accelerations | in `_arm.py` | the vendor's limits, as in franka_rust |
| $K$ (randomised), $D$, $v_0$ | 2e4 N/m, 100 N s/m, 0.01 m/s | own choice |
| friction $\mu$ (random) | 0.15 to 0.30 | own choice |
| offset of the hole (random) | 2 mm laterally, 0.5 mm in height, 1 degree | own choice |
| servo | 20 1/s | own choice |

| measured | unit, range, noise |
|---|---|
| `q_1` to `q_7` | rad, joint ranges, 1e-5 |
| `dq_1` to `dq_7` | rad/s, largest joint speeds, 1e-3 |
| `F_x` to `F_z` on the peg, in the axes of the base, 100 Hz filter | N, 200, 0.5 |
| `M_x` to `M_z`, about the flange | N m, 50, 0.02 |
| `e_x` to `e_z`, from the tip to the nominal hole | m, 1.5, 2e-5 |
| `depth` below the nominal plate | m, 0 to 0.03, 2e-5 |

Manipulated: `u_1` to `u_7`, up to a quarter of the largest joint speeds, at most 5 rad/s2.

*Dead time.* Not declared for any channel: encoders, force sensor and commands are transmitted at
1 kHz, so their delay of 1 to 3 ms is negligible in a period of 50 ms. The force filter and the
servo are in the equations.

*Reward*, in points: 100 for the full depth; in each step minus 2 per metre of distance (0.1 m at
most), minus 0.01 times the squared speeds, and minus 0.05; and minus 100 for a trip (80 N, or a
joint at its end). A trip costs more than an episode of doing nothing (75 at most), so giving up
early never pays. The episode ends at a depth of 25 mm. *Costs*, neither of which is allowed:
`force`, the relative excess of the peak force of the period over 50 N; `collision`, the fraction
missing from a clearance of 10 mm between the capsules of the links and the table or part.

*Controllers.* Both use resolved rates with a damped inverse of the Jacobian. "straight push" moves
to the nominal hole and presses. "spiral search", the reference, presses with a given force,
searches along a spiral of 1 mm per turn, and inserts with lateral compliance once the tip falls
into the hole. The documented bad policies are a push at 0.25 m/s, which violates the force limit,
and a posture that moves the hand through the table.

*Published*: the arm. *Our own choices, tuned until insertion works*: everything about contact, and
the price of distance. Two-point contact (wedging, jamming) occurs but is not reported separately.
"""

from neorl_envs.plants.robot_assembly._env import Insertion as Insertion
from neorl_envs.plants.robot_assembly._env import InsertionCarry as InsertionCarry
from neorl_envs.plants.robot_assembly._env import bad_policy as bad_policy
from neorl_envs.plants.robot_assembly._env import bad_posture as bad_posture
from neorl_envs.plants.robot_assembly._env import insertion_law as insertion_law
from neorl_envs.plants.robot_assembly._env import straight_push as straight_push
from neorl_envs.plants.robot_assembly._physics import Cell as Cell
from neorl_envs.plants.robot_assembly._physics import Constants as Constants
from neorl_envs.plants.robot_assembly._physics import Frames as Frames
from neorl_envs.plants.robot_assembly._physics import jacobian as jacobian
from neorl_envs.plants.robot_assembly._physics import link_frames as link_frames
from neorl_envs.plants.robot_assembly._physics import mass_matrix as mass_matrix

__all__ = [
    "Cell",
    "Constants",
    "Frames",
    "Insertion",
    "InsertionCarry",
    "bad_policy",
    "bad_posture",
    "insertion_law",
    "jacobian",
    "link_frames",
    "mass_matrix",
    "straight_push",
]
