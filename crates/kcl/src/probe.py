# Run once by `konverge` with the interpreter that is to host the core: says where everything is that a worker needs
# before the sandbox closes. Reads nothing else, writes one line of JSON.
import glob, importlib.machinery, importlib.util, json, os, platform, sys, sysconfig

answer = {
    "executable": os.path.realpath(sys.executable),
    "tag": "cp%d%d" % sys.version_info[:2] if sys.implementation.name == "cpython" else sys.implementation.name,
    "system": platform.system(),
    "release": platform.mac_ver()[0],
    "machine": platform.machine(),
    "version": None,
    "extension": None,
    "readable": [],
}
if getattr(sys, "abiflags", ""):
    answer["tag"] += sys.abiflags

home = sys.argv[1] if len(sys.argv) > 1 else None
if home is None:
    spec = importlib.util.find_spec("kcl_lib")
    home = os.path.dirname(os.path.dirname(spec.origin)) if spec and spec.origin else None
if home is not None:
    found = glob.glob(os.path.join(glob.escape(home), "kcl_lib", "_kcl_lib*.so"))
    metadata = glob.glob(os.path.join(glob.escape(home), "kcl_lib-*.dist-info"))
    if metadata:
        answer["version"] = os.path.basename(metadata[0])[len("kcl_lib-") : -len(".dist-info")]
    if found and metadata:
        answer["extension"] = os.path.realpath(found[0])
        loader = importlib.machinery.ExtensionFileLoader("_kcl_lib", answer["extension"])
        module = importlib.util.module_from_spec(importlib.util.spec_from_loader("_kcl_lib", loader))
        loader.exec_module(module)
        # The one call that a worker makes (worker.py).
        answer["callable"] = hasattr(module, "call_with_plugin_agent")

stdlib = os.path.realpath(sysconfig.get_path("stdlib"))
readable = {answer["executable"]}
if answer["extension"]:
    readable.add(answer["extension"])
for name in os.listdir(stdlib):
    if name not in ("site-packages", "dist-packages", "test"):
        readable.add(os.path.join(stdlib, name))
# macOS has no such list, and no sandbox that needs it.
if answer["system"] == "Linux":
    with open("/proc/self/maps") as maps:
        for line in maps:
            path = line.split(None, 5)[-1].strip()
            if path.startswith("/") and os.path.isfile(path):
                readable.add(path)
answer["folders"] = [stdlib]
answer["readable"] = sorted(readable)
print(json.dumps(answer))
