#!/usr/bin/env python3
"""Writes the answers that catalog/engine is tested with, made by the engines' own code.

    scripts/engine-answers.py            # all of VERSIONS
    scripts/engine-answers.py vllm-0.33.0

What the engines' code needs stands in engine-answers-requirements.txt: scripts/venv.sh
makes an environment of it below .cache, with python3. For each release the script
downloads the wheel from PyPI, unpacks the Python files, and runs the classes and functions
that answer /v1/models, /version, /server_info, /get_server_info, /kv_event_sources and
/metrics there, in a process of their own. Modules that are not installed (torch,
transformers and the like) are replaced by stand-ins: nothing that they would compute is in
an answer. It is not part of the tests; the wheels are some 4 GB.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "engine-answers"
OUT = ROOT / "catalog" / "engine" / "testdata" / "answers"
HERE = pathlib.Path(__file__).resolve().parent
REQUIREMENTS = HERE / "engine-answers-requirements.txt"
VERSIONS = [
    "vllm-0.9.0", "vllm-0.9.2", "vllm-0.10.2", "vllm-0.11.2", "vllm-0.14.0", "vllm-0.18.0", "vllm-0.24.0", "vllm-0.30.0", "vllm-0.33.0",
    "sglang-0.4.7", "sglang-0.5.4", "sglang-0.5.10", "sglang-0.5.15", "sglang-0.5.18", "sglang-0.5.23",
]
TAGS = ["manylinux1_x86_64", "manylinux_2_28_x86_64", "manylinux_2_31_x86_64", "manylinux_2_34_x86_64", "manylinux_2_35_x86_64", "any"]


def environment() -> pathlib.Path:
    """Returns the interpreter of the environment that venv.sh makes of REQUIREMENTS."""
    made = subprocess.run([HERE / "venv.sh", REQUIREMENTS], check=True, stdout=subprocess.PIPE, text=True)
    return pathlib.Path(made.stdout.strip()) / "bin" / "python"


def source(python: pathlib.Path, release: str) -> pathlib.Path:
    """Downloads the release once and returns the folder of its Python files."""
    folder = CACHE / release
    if folder.exists():
        return folder
    name, version = release.split("-", 1)
    wheels = CACHE / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    command = [python, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", wheels]
    for tag in TAGS:
        command += ["--platform", tag]
    command += ["--python-version", "3.11", "--implementation", "cp", "--abi", "abi3", "--abi", "cp38", "--abi", "cp311", "--abi", "none"]
    subprocess.run([*command, f"{name}=={version}"], check=True)
    wheel = next(wheels.glob(f"{name}-{version}-*.whl"))
    partial = folder.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    with zipfile.ZipFile(wheel) as z:
        z.extractall(partial, [n for n in z.namelist() if n.endswith((".py", "METADATA"))])
    wheel.unlink()
    partial.rename(folder)
    return folder


def main() -> None:
    releases = sys.argv[1:] or VERSIONS
    for release in releases:
        if release not in VERSIONS:
            sys.exit(f"{__doc__}\n{release!r} is not allowed; allowed: {', '.join(VERSIONS)}")
    python = environment()
    for release in releases:
        engine = release.split("-", 1)[0]
        folder, out = source(python, release), OUT / release
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        env = {**os.environ, "PYTHONPATH": f"{folder}:{HERE}", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
        subprocess.run([python, "-W", "ignore", HERE / f"engine-answers-{engine}.py", out], check=True, env=env, cwd=folder)
        print(release, *sorted(p.name for p in out.iterdir()))


if __name__ == "__main__":
    main()
