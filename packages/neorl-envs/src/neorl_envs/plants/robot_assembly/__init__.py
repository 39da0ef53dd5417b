r"""A seven-joint arm puts a peg into a hole whose place it knows to two millimetres.

*Arm.* Kinematics and inertias of the Franka Emika Panda without its hand. An inner torque loop has
taken gravity and Coriolis forces away and follows joint speeds $u$:

$$\ddot q = \mathrm{clip}(20\,(u - \dot q) + M(q)^{-1} J(q)^T F, \pm \ddot q_{max})$$

semi-implicit Euler, 50 substeps of 1 ms in a period of 50 ms; $M$ at the start of the period.
`RobotAssembly(fidelity="fast")` has a constant diagonal $M$ of 1.3, 1.3, 0.9, 0.9, 0.3, 0.3 and
0.2 kg m2.

*Contact.* A peg of 9.9 mm radius, a hole 0.05 to 0.5 mm wider, 25 mm deep, with a chamfer of 1 mm,
in a part of 60 mm radius. Eight points of the tip's rim against plate, chamfer and wall, the peg's
side against the mouth, the tip against the bottom; at each

$$f_n = \max(K \delta - D v_n, 0), \qquad f_t = -\mu f_n v_t / \sqrt{v_t^2 + v_0^2}$$

| parameter | value | source |
|---|---|---|
| frames, masses, inertias, armature, ranges | in `_arm.py` | panda.xml of mujoco_menagerie |
| largest speeds and accelerations | in `_arm.py` | the vendor's limits, as in franka_rust |
| $K$ (randomised), $D$, $v_0$ | 2e4 N/m, 100 N s/m, 0.01 m/s | own choice |
| friction $\mu$ | 0.15 to 0.30, drawn | own choice |
| hole off its place | 2 mm aside, 0.5 mm in height, 1 degree, drawn | own choice |
| servo | 20 1/s | own choice |

| measured | unit, range, noise |
|---|---|
| `q_1` to `q_7` | rad, the joints' ranges, 1e-5 |
| `dq_1` to `dq_7` | rad/s, the joints' largest speeds, 1e-3 |
| `F_x` to `F_z` on the peg, in the base's axes, 100 Hz filter | N, 200, 0.5 |
| `M_x` to `M_z`, about the flange | N m, 50, 0.02 |
| `e_x` to `e_z`, from the tip to the nominal hole | m, 1.5, 2e-5 |
| `depth` below the nominal plate | m, 0 to 0.03, 2e-5 |

Manipulated: `u_1` to `u_7`, a quarter of the joints' largest speeds, at most 5 rad/s2.

*Dead time.* Declared for no channel: encoders, force sensor and commands pass at 1 kHz, so their
delay of 1 to 3 ms is lost in a period of 50 ms; the filter of the force and the servo are in the
equations.

*Reward*, in points: 100 for the whole depth, less 2 for a metre (0.1 m at most), 0.01 of the
squared speeds and 0.05 for a step, and 100 for a trip (80 N, a joint at its end), which is more
than an episode of doing nothing (75 at most): giving up early never pays. Ends with 25 mm of depth.
*Costs*, both never allowed: `force`, the peak of the period beyond 50 N, as a part of it;
`collision`, the missing part of 10 mm between the links' capsules and table or part.

*Controllers.* Both are resolved rates with a damped inverse of the Jacobian. "straight push" goes
to the nominal hole and presses. "spiral search", the reference, presses with a wanted force,
searches along a spiral of 1 mm a turn, and inserts yielding to the wall once the tip falls in. The
documented bad policies: a push with 0.25 m/s, which breaks the force limit, and a posture that
takes the hand through the table.

*Published*: the arm. *Own and tuned until insertion works*: everything about contact, and the price
of distance. Two-point contact (wedging, jamming) happens but is not reported apart.
"""

from neorl_envs.plants.robot_assembly._arm import Frames as Frames
from neorl_envs.plants.robot_assembly._arm import jacobian as jacobian
from neorl_envs.plants.robot_assembly._arm import link_frames as link_frames
from neorl_envs.plants.robot_assembly._arm import mass_matrix as mass_matrix
from neorl_envs.plants.robot_assembly._control import Insertion as Insertion
from neorl_envs.plants.robot_assembly._control import InsertionCarry as InsertionCarry
from neorl_envs.plants.robot_assembly._control import bad_policy as bad_policy
from neorl_envs.plants.robot_assembly._control import bad_posture as bad_posture
from neorl_envs.plants.robot_assembly._control import insertion_law as insertion_law
from neorl_envs.plants.robot_assembly._control import straight_push as straight_push
from neorl_envs.plants.robot_assembly._physics import Cell as Cell
from neorl_envs.plants.robot_assembly._physics import Constants as Constants

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
