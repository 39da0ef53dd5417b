"""Import the modules named on the command line in this fresh interpreter and print, as JSON, what
that did to the world. The first name is the package: what it alone pulls in is listed too.
"""

import json
import os
import sys
import threading
import warnings

STARTS = {"subprocess.Popen", "os.fork", "os.putenv", "os.mkdir", "os.remove", "socket.connect"}


def importing(package: str, names: list[str]) -> dict[str, list[str]]:
    """The effects of importing, and the top-level modules that the package pulled in."""
    effects: list[str] = []
    watching = True

    def watch(event: str, arguments: tuple) -> None:
        if watching and event == "open" and set(str(arguments[1])) & set("wax+"):
            effects.append(f"opens {arguments[0]} for writing")
        elif watching and event in STARTS and arguments[0] != "uname":  # h5py asks once
            effects.append(f"{event} {arguments[:2]}")

    environment = dict(os.environ)
    sys.addaudithook(watch)
    __import__(package)
    pulled = sorted({name.partition(".")[0] for name in sys.modules})
    for name in names:
        __import__(name)
    watching = False
    if dict(os.environ) != environment:
        effects.append("changes the environment variables")
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
