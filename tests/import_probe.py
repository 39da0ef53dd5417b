"""Import the modules named on the command line in this fresh interpreter and print, as JSON, what
that did to the world. The first name is the package: what it alone pulls in is listed too.

Some dependencies do work when they are imported (one sets a variable, one asks for the processor's
name); an effect counts when the innermost module on the stack, the standard library aside, is ours.
"""

import json
import sys
import sysconfig
import threading
import warnings

STARTS = {"subprocess.Popen", "os.fork", "os.mkdir", "os.remove", "socket.connect"}
SETS = {"os.putenv", "os.unsetenv"}
LIBRARY = sysconfig.get_path("stdlib")


def ours() -> bool:
    """Whether a module of these packages is the one being imported."""
    frame = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        standard = file.startswith(LIBRARY) and "site-packages" not in file
        if not standard and not file.startswith("<frozen"):
            return "neorl_" in file
        frame = frame.f_back
    return False


def importing(package: str, names: list[str]) -> dict[str, list[str]]:
    """The effects of importing, and the top-level modules that the package pulled in."""
    effects: list[str] = []
    watching = True

    def watch(event: str, arguments: tuple) -> None:
        writes = event == "open" and set(str(arguments[1])) & set("wax+")
        if watching and (writes or event in STARTS | SETS) and ours():
            effects.append(f"{event} {arguments[:2]}")

    sys.addaudithook(watch)
    __import__(package)
    pulled = sorted({name.partition(".")[0] for name in sys.modules})
    for name in names:
        __import__(name)
    watching = False
    if threading.active_count() > 1:
        effects.append(f"starts {threading.enumerate()[1:]}")
    return {"effects": effects, "pulled": pulled}


def main() -> None:
    warnings.simplefilter("error")
    package, *names = sys.argv[1:]
    if package == "neorl_deploy":
        print(json.dumps(importing(package, names)))
        return
    import jax

    settings = dict(jax.config.values)
    seen = importing(package, names)
    if dict(jax.config.values) != settings:
        seen["effects"].append("changes JAX's configuration")
    try:
        # Refused once a backend runs.
        jax.config.update("jax_num_cpu_devices", 3)
    except RuntimeError:
        seen["effects"].append("starts a JAX backend")
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
