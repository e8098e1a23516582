"""The Python packages of Konverge, without any build dependency.

- `konverge`: a wheel that carries the binary, made by scripts/release:
  `python3 scripts/wheel/konverge_wheel.py BINARY TARGET FOLDER`
- `konverge-hooks`: what pre-commit and prek install from a checkout of this repository (pyproject.toml). It is empty, and
  requires `konverge` of the same version. This file is its build backend (PEP 517).

The same input gives the same bytes.
"""

import base64
import hashlib
import os
import pathlib
import re
import sys
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLATFORMS = {
    "x86_64-unknown-linux-gnu": "manylinux_2_28_x86_64",
    "aarch64-unknown-linux-gnu": "manylinux_2_28_aarch64",
    "x86_64-apple-darwin": "macosx_11_0_x86_64",
    "aarch64-apple-darwin": "macosx_11_0_arm64",
}


def version():
    text = (ROOT / "Cargo.toml").read_text()
    return re.search(r'^version = "([^"]+)"', text, re.M).group(1)


def write(folder, name, tag, metadata, files):
    """Writes a wheel; `files` are name → (content, mode). Returns its file name."""
    info = f"{name}-{version()}.dist-info"
    pure = "true" if tag.endswith("-any") else "false"
    wheel = f"Wheel-Version: 1.0\nGenerator: konverge\nRoot-Is-Purelib: {pure}\nTag: {tag}\n"
    files = {
        **files,
        f"{info}/METADATA": (metadata.encode(), 0o644),
        f"{info}/WHEEL": (wheel.encode(), 0o644),
    }
    record = ""
    for path, (content, _) in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        record += f"{path},sha256={digest},{len(content)}\n"
    record += f"{info}/RECORD,,\n"
    files[f"{info}/RECORD"] = (record.encode(), 0o644)
    # A zip file knows no time before 1980.
    moment = max(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), 315532800)
    file_name = f"{name}-{version()}-{tag}.whl"
    with zipfile.ZipFile(pathlib.Path(folder) / file_name, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path, (content, mode) in files.items():
            entry = zipfile.ZipInfo(path, time.gmtime(moment)[:6])
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    return file_name


def metadata(name, summary, requires=()):
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version()}", f"Summary: {summary}"]
    lines += ["License: Apache-2.0", "Requires-Python: >=3.8"]
    lines += [f"Requires-Dist: {one}" for one in requires]
    return "\n".join(lines) + "\n"


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """The hook of PEP 517: the package of the hooks."""
    text = metadata("konverge-hooks", "Hooks for pre-commit and prek", [f"konverge=={version()}"])
    return write(wheel_directory, "konverge_hooks", "py3-none-any", text, {})


def build_binary_wheel(binary, target, folder):
    """The wheel with the binary."""
    if target not in PLATFORMS:
        sys.exit(f"there is no wheel for `{target}`: one of {', '.join(PLATFORMS)}")
    content = pathlib.Path(binary).read_bytes()
    script = f"konverge-{version()}.data/scripts/konverge"
    text = metadata("konverge", "The CI agent of a Konfig monorepo")
    return write(folder, "konverge", f"py3-none-{PLATFORMS[target]}", text, {script: (content, 0o755)})


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: konverge_wheel.py BINARY TARGET FOLDER")
    print(build_binary_wheel(*sys.argv[1:]))
