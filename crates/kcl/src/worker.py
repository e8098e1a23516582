# The KCL worker: loads the official core's native library and answers one request after the other until its input
# ends. Started by `konverge __worker` with the path of the library, in a sandbox that lets it read little and write
# nothing. Frames: see protocol.rs.
import sys
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from os import dup, dup2, read, write


def read_exactly(count):
    parts = []
    while count:
        part = read(0, min(count, 1 << 20))
        if not part:
            sys.exit(0)
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def answer(status, message):
    frame = memoryview((1 + len(message)).to_bytes(4, "big") + status + message)
    while frame:
        frame = frame[write(answers, frame) :]


# Whatever the core prints by itself must not look like an answer.
answers = dup(1)
dup2(2, 1)

loader = ExtensionFileLoader("_kcl_lib", sys.argv[1])
core = loader.create_module(ModuleSpec("_kcl_lib", loader, origin=sys.argv[1]))
loader.exec_module(core)
answer(b"+", b"ready")

while True:
    frame = read_exactly(int.from_bytes(read_exactly(4), "big"))
    split = 2 + int.from_bytes(frame[:2], "big")
    try:
        # No plugin agent: `import kcl_plugin.*` has nobody to call.
        result = bytes(core.call_with_plugin_agent(frame[2:split], frame[split:], 0))
    except MemoryError:
        answer(b"!", b"out of memory")
        continue
    except BaseException as error:
        answer(b"!", str(error).encode("utf-8", "replace"))
        continue
    if result.startswith(b"ERROR:"):
        answer(b"-", result[6:])
    else:
        if not result:
            # An old core answers a panic with nothing: what it said ends here.
            write(2, b"\0")
        answer(b"+", result)
