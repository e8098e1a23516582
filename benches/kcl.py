# The floor that benches/kcl.rs measures against: the official core in one process, called in a plain loop, with nothing
# of ours. Arguments: what to do, the repository, the stacks' folders. Prints one line of JSON.
import time

started = time.perf_counter()
import glob, json, os, sys, tomllib

import kcl_lib.api as kcl

what, root, folders = sys.argv[1], sys.argv[2], sys.argv[3:]
service = kcl.API()


def setup(folder):
    folder = os.path.join(root, folder)
    module = os.path.join(folder, "kcl.mod")
    if os.path.isfile(module):
        with open(module, "rb") as text:
            entries = tomllib.load(text)["profile"]["entries"]
        packages = service.update_dependencies(kcl.UpdateDependenciesArgs(manifest_path=folder)).external_pkgs
        return dict(work_dir=folder, k_filename_list=entries, external_pkgs=packages)
    names = [name for name in ("kcl.yaml", "ci-test/settings.yaml") if os.path.isfile(os.path.join(folder, name))]
    settings = service.load_settings_files(
        kcl.LoadSettingsFilesArgs(work_dir=folder, files=[os.path.join(folder, name) for name in names])
    )
    args = [kcl.Argument(name=option.key, value=option.value) for option in settings.kcl_options]
    return dict(work_dir=folder, k_filename_list=list(settings.kcl_cli_configs.files), args=args)


def compile(prepared, **how):
    result = service.exec_program(kcl.ExecProgramArgs(**prepared, **how))
    if result.err_message:
        sys.exit(result.err_message)
    return result.json_result


def each(work):
    """Seconds and processor seconds for all, and what came out."""
    begun, used = time.perf_counter(), time.process_time()
    answers = [work(prepared) for prepared in all_prepared]
    return time.perf_counter() - begun, time.process_time() - used, answers


all_prepared = [setup(folder) for folder in folders]
if what == "first":
    compile(all_prepared[0])
    print(json.dumps({"seconds": time.perf_counter() - started}))
elif what == "loop":
    compile(all_prepared[0])
    seconds, used, _ = each(compile)
    print(json.dumps({"seconds": seconds, "used": used}))
elif what == "parts":
    # What the core spends where, and what it offers against doing it again: by turns, the least of each.
    ways = {
        "whole": compile,
        "fast_eval": lambda prepared: compile(prepared, fast_eval=True),
        "checked": lambda prepared: service.exec_program(kcl.ExecProgramArgs(**prepared, compile_only=True)),
        "parsed": lambda prepared: service.load_package(
            kcl.LoadPackageArgs(
                parse_args=kcl.ParseProgramArgs(
                    paths=[os.path.join(prepared["work_dir"], path) for path in prepared["k_filename_list"]],
                    external_pkgs=prepared.get("external_pkgs", []),
                )
            )
        ),
    }
    best, outputs = {}, {}
    for _ in range(5):
        for name, way in ways.items():
            _, used, answers = each(way)
            best[name] = min(used, best.get(name, used))
            outputs[name] = answers
    equal = sum(a == b for a, b in zip(outputs["whole"], outputs["fast_eval"]))
    print(json.dumps({"seconds": best, "equal": equal}))
