"""The templates for clusters on the page about devices: syntax, and the names that they use."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

TEMPLATES = Path(__file__).resolve().parents[2] / "docs" / "pages" / "how-to" / "templates"
COORDINATOR, PROCESSES, PROCESS = "NEORL_COORDINATOR", "NEORL_PROCESSES", "NEORL_PROCESS"
NAMES = {COORDINATOR, PROCESSES, PROCESS}


def _scripts():
    """Every shell script: the one of SLURM, and the command of the container."""
    *_, job = yaml.safe_load_all((TEMPLATES / "train-job.yaml").read_text())
    (container,) = job["spec"]["template"]["spec"]["containers"]
    return [(TEMPLATES / "train.sbatch").read_text(), container["command"][-1]]


@pytest.mark.parametrize("number", [0, 1])
def test_the_scripts_are_bash_that_runs_or_resumes(number):
    script = _scripts()[number]
    checked = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True)
    assert checked.returncode == 0, checked.stderr
    assert re.findall(r"neorl-train (run|resume)", script) == ["resume", "run"]


def test_slurm_directives_are_options_that_sbatch_has():
    """Read by `sbatch` before the script begins, so that bash does not see a fault in them."""
    lines = (TEMPLATES / "train.sbatch").read_text().splitlines()
    options = [line.removeprefix("#SBATCH --") for line in lines if line.startswith("#SBATCH")]
    known = {"job-name", "nodes", "ntasks-per-node", "gpus-per-task", "cpus-per-task", "time"}
    known |= {"signal", "requeue", "output"}
    assert {option.partition("=")[0] for option in options} == known
    assert "export NEORL_COORDINATOR=auto" in lines


def test_the_job_names_its_processes_as_the_command_reads_them():
    service, job = yaml.safe_load_all((TEMPLATES / "train-job.yaml").read_text())
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    assert (job["kind"], spec["completionMode"]) == ("Job", "Indexed")
    environment = {one["name"]: one for one in pod["containers"][0]["env"]}
    assert environment.keys() == NAMES
    assert int(environment[PROCESSES]["value"]) == spec["completions"]
    assert spec["completions"] == spec["parallelism"]
    address = environment[COORDINATOR]["value"]
    host, port = address.split(":")
    assert port.isdecimal()
    # Pod 0 of an indexed job is JOB-0, and the headless service of its subdomain resolves it.
    assert host == f"{job['metadata']['name']}-0.{pod['subdomain']}"
    assert service["metadata"]["name"] == pod["subdomain"]
    assert service["spec"]["clusterIP"] == "None"
    claimed = {volume["name"] for volume in pod["volumes"]}
    assert {mount["name"] for mount in pod["containers"][0]["volumeMounts"]} == claimed
