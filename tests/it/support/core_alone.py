# Compiles stacks with the official core and nothing of ours: settings read by the core, files where they lie.
# Arguments: the repository, then the folders of the stacks in it. Prints one line a stack, as JSON: the folder, what the
# core printed (`documents`), and the files that it loaded (`files`).
import json, os, sys, tomllib
import kcl_lib.api as kcl

root = os.path.realpath(sys.argv[1])
service = kcl.API()


def module_above(folder):
    while not os.path.isfile(os.path.join(folder, "kcl.mod")):
        folder = os.path.dirname(folder)
    return folder


def compile(folder):
    names = [name for name in ("kcl.yaml", "ci-test/settings.yaml") if os.path.isfile(os.path.join(folder, name))]
    module = os.path.join(folder, "kcl.mod")
    packages = []
    if os.path.isfile(module):
        # A package of its own: the entries stand in its profile, its dependencies are resolved by the core.
        with open(module, "rb") as text:
            entries = tomllib.load(text)["profile"]["entries"]
        manifest = kcl.UpdateDependenciesArgs(manifest_path=folder)
        packages = list(service.update_dependencies(manifest).external_pkgs)
        args = []
    else:
        settings = service.load_settings_files(
            kcl.LoadSettingsFilesArgs(work_dir=folder, files=[os.path.join(folder, name) for name in names])
        )
        configs = settings.kcl_cli_configs
        entries = list(configs.files) or list(configs.file)
        args = [kcl.Argument(name=option.key, value=option.value) for option in settings.kcl_options]
    result = service.exec_program(
        kcl.ExecProgramArgs(work_dir=folder, k_filename_list=entries, args=args, external_pkgs=packages)
    )
    if result.err_message:
        sys.exit(f"{folder}: {result.err_message}")

    places = {"${KCL_MOD}": module_above(folder)}
    places.update({"${%s:KCL_MOD}" % package.pkg_name: package.pkg_path for package in packages})

    def path(entry):
        for word, place in places.items():
            entry = entry.replace(word, place)
        return os.path.realpath(os.path.join(folder, entry))

    parsed = service.parse_program(
        kcl.ParseProgramArgs(paths=[path(entry) for entry in entries], external_pkgs=packages)
    )
    files = sorted({os.path.relpath(os.path.realpath(file), root) for file in parsed.paths})
    modules = sorted({os.path.relpath(os.path.join(place, "kcl.mod"), root) for place in places.values()})
    return {"documents": result.json_result, "files": files, "modules": modules}


for folder in sys.argv[2:]:
    print(json.dumps({"folder": folder} | compile(os.path.join(root, folder))))
