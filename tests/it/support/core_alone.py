# Compiles one stack with the official core and nothing of ours: settings read by the core, files where they lie.
# Arguments: the repository, then the stack's folder in it. Prints the core's JSON.
import os, sys, tomllib
import kcl_lib.api as kcl

root, folder = sys.argv[1:]
folder = os.path.join(root, folder)
service = kcl.API()
names = [name for name in ("kcl.yaml", "ci-test/settings.yaml") if os.path.isfile(os.path.join(folder, name))]
module = os.path.join(folder, "kcl.mod")
packages = []
if os.path.isfile(module):
    # A package of its own: the entries stand in its profile, its dependencies are resolved by the core.
    with open(module, "rb") as text:
        entries = tomllib.load(text)["profile"]["entries"]
    manifest = kcl.UpdateDependenciesArgs(manifest_path=folder)
    packages = service.update_dependencies(manifest).external_pkgs
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
    sys.exit(result.err_message)
print(result.json_result)
