"""Formats, lints, tests and compiles this repository with the official KCL core.

    konfig.py fmt [--check]     format every .k file (or only say which are not)
    konfig.py lint              compile-time diagnostics of every .k file
    konfig.py test              run every *_test.k, and compile the examples
    konfig.py golden [--check]  compile every stack into ci-test/stdout.golden.yaml (or only compare), without the
                                definitions below crd/: `konverge check --update` writes those too. A stack of
                                applications is only compiled: konverge makes its Spec
"""

import difflib
import json
import os
import pathlib
import shutil
import sys
import tempfile
import tomllib

import kcl_lib.api as kcl

ROOT = pathlib.Path(__file__).resolve().parent.parent
CORE = kcl.API()
DEFINITION = "apiextensions.k8s.io/v1:CustomResourceDefinition:"


def sources():
    return sorted(p for p in ROOT.rglob("*.k") if not {".venv", "hack"} & set(p.relative_to(ROOT).parts))


def shown(path):
    return str(pathlib.Path(path).relative_to(ROOT))


def stacks():
    return [file.parent for file in sorted(ROOT.glob("appops/**/stack.yaml"))]


def external(folder):
    """The packages that a kcl.mod depends on: by path here, so this needs no network."""
    found = CORE.update_dependencies(kcl.UpdateDependenciesArgs(manifest_path=str(folder)))
    return list(found.external_pkgs)


def is_application(stack):
    """Whether a stack holds applications of Kusion's form: the core prints these, not their resources."""
    module = stack / "kcl.mod"
    return module.is_file() and "kam" in tomllib.loads(module.read_text()).get("dependencies", {})


def stack_arguments(stack):
    """How to compile a stack: from its kcl.mod (new style), else from kcl.yaml and ci-test/settings.yaml."""
    if (stack / "kcl.mod").is_file():
        profile = tomllib.loads((stack / "kcl.mod").read_text())["profile"]
        return kcl.ExecProgramArgs(work_dir=str(stack), k_filename_list=profile["entries"], external_pkgs=external(stack))
    files = [f for f in (stack / "kcl.yaml", stack / "ci-test/settings.yaml") if f.is_file()]
    settings = CORE.load_settings_files(kcl.LoadSettingsFilesArgs(work_dir=str(stack), files=[str(f) for f in files]))
    options = [kcl.Argument(name=o.key, value=o.value) for o in settings.kcl_options]
    config = settings.kcl_cli_configs
    return kcl.ExecProgramArgs(work_dir=str(stack), k_filename_list=config.files, args=options, disable_none=config.disable_none)


def compile(arguments):
    """What the core prints as YAML, or its complaint."""
    result, error = execute(arguments)
    return (None, error) if error else (result.yaml_result + "\n", None)


def execute(arguments):
    """What the core makes of a program, or its complaint."""
    try:
        result = CORE.exec_program(arguments)
    except Exception as error:  # how the core reports what it cannot parse
        return None, str(error)
    return (None, result.err_message) if result.err_message else (result, None)


def read_resources(text):
    """The resources of a golden file. The core reads the YAML, so that its layout and its quotes do not matter."""
    code = "import yaml\nread = yaml.decode(option('text'))"
    option = kcl.Argument(name="text", value=json.dumps(text))
    result, error = execute(kcl.ExecProgramArgs(k_filename_list=["golden.k"], k_code_list=[code], args=[option]))
    read = None if error else json.loads(result.json_result)["read"]
    return read.get("resources") if isinstance(read, dict) else read


def fmt(check):
    with tempfile.TemporaryDirectory() as scratch:
        # The core formats in place, and needs the tree around a file: so format a copy.
        copy = pathlib.Path(scratch) / "konfig"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".git", ".venv"))
        CORE.format_path(kcl.FormatPathArgs(path=f"{copy}/..."))
        stale = [p for p in sources() if (copy / p.relative_to(ROOT)).read_bytes() != p.read_bytes()]
        for path in stale:
            print(f"{shown(path)}: {'not formatted' if check else 'formatted'}")
            if not check:
                shutil.copyfile(copy / path.relative_to(ROOT), path)
    return not (check and stale)


def lint(_check):
    """One unit is one package: a folder of models, an example, or the entries of a stack."""
    packages = sorted({file.parent for file in (ROOT / "base/pkg").rglob("*.k")})
    units = {shown(folder): [str(folder)] for folder in packages if folder.name != "render"}
    units |= {shown(folder): [str(folder)] for folder in sorted({file.parent for file in (ROOT / "modules").rglob("*.k")})}
    units |= {shown(file): [str(file)] for file in sorted((ROOT / "base/examples").glob("*.k"))}
    units |= {shown(stack): [str(stack / entry) for entry in stack_arguments(stack).k_filename_list] for stack in stacks()}
    clean = True
    with tempfile.TemporaryDirectory() as packages:
        # The linter takes no dependencies but from the package folder: offer this repository there by its own name,
        # and its modules by theirs.
        (pathlib.Path(packages) / "konfig").symlink_to(ROOT)
        for module in (ROOT / "modules").iterdir():
            (pathlib.Path(packages) / module.name).symlink_to(module)
        os.environ["KCL_PKG_PATH"] = packages
        for name, paths in units.items():
            for line in CORE.lint_path(kcl.LintPathArgs(paths=paths)).results:
                clean = False
                print(f"{name}: {line}")
    return clean


def test(_check):
    args = kcl.TestArgs(exec_args=kcl.ExecProgramArgs(work_dir=str(ROOT)), pkg_list=[f"{ROOT}/base/..."])
    outcomes = [(case.name, case.error) for case in CORE.test(args).info]
    for example in sorted((ROOT / "base/examples").glob("*.k")):
        _, error = compile(kcl.ExecProgramArgs(work_dir=str(ROOT), k_filename_list=[str(example)]))
        outcomes.append((shown(example), error))
    for name, error in outcomes:
        print(f"{name}: FAIL\n{error}" if error else f"{name}: ok")
    return not any(error for _, error in outcomes)


def is_same(golden, compiled, has_definitions):
    """Whether a golden file says what the core prints. Konverge adds the definitions below crd/ after it."""
    golden, compiled = read_resources(golden), read_resources(compiled)
    if golden is None or compiled is None:
        return False
    count = len(compiled)
    added = golden[count:]
    return golden[:count] == compiled and (not added or has_definitions and all(r["id"].startswith(DEFINITION) for r in added))


def golden(check):
    same = True
    for stack in stacks():
        path = stack / "ci-test/stdout.golden.yaml"
        text, error = compile(stack_arguments(stack))
        before = path.read_text() if path.is_file() else ""
        if error:
            same = False
            print(f"{shown(stack)}: {error}")
        elif is_application(stack) or is_same(before, text, (stack.parent / "crd").is_dir()):
            continue
        elif check:
            same = False
            print("".join(difflib.unified_diff(before.splitlines(True), text.splitlines(True), shown(path), "compiled")))
        else:
            path.write_text(text)
            print(f"{shown(path)}: written")
    return same


if __name__ == "__main__":
    commands = {c.__name__: c for c in (fmt, lint, test, golden)}
    if len(sys.argv) < 2 or sys.argv[1] not in commands or sys.argv[2:] not in ([], ["--check"]):
        sys.exit(__doc__)
    sys.exit(0 if commands[sys.argv[1]](sys.argv[2:] == ["--check"]) else 1)
