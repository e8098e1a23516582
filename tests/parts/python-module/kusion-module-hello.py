"""A Kusion module on grpcio: the protocol as a module in another language than Go speaks it, without go-plugin's own
services. What the developer gives as `mode` says how it behaves."""

import os
import sys
import threading
import time
from concurrent import futures

import grpc

FIELDS = {1: "project", 2: "stack", 3: "app", 4: "workload", 5: "dev_config", 6: "platform_config", 7: "context"}


def number(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def read(data):
    """The fields of a message that has only texts and bytes."""
    at, fields = 0, {}
    while at < len(data):
        tag, at = number(data, at)
        length, at = number(data, at)
        fields[FIELDS.get(tag >> 3, tag >> 3)] = data[at : at + length].decode()
        at += length
    return fields


def field(tag, text):
    data, length = text.encode(), b""
    size = len(data)
    while True:
        length += bytes([size & 0x7F | (0x80 if size > 0x7F else 0)])
        size >>= 7
        if not size:
            return bytes([tag << 3 | 2]) + length + data


RESOURCE = """id: v1:ConfigMap:{project}:{app}-hello
type: Kubernetes
attributes:
  apiVersion: v1
  kind: ConfigMap
  metadata: {{name: {app}-hello, namespace: {project}, creationTimestamp: null, labels: null}}
  data: {{platform: "{platform}"}}
dependsOn: null
extensions: null
"""

# The names as Go writes types without tags, a value that is not set, and bytes as numbers: {"spec":{"replicas":2}}
PATCHER = """environments:
- name: HELLO
  value: ""
  valuefrom:
    fieldref: null
    resourcefieldref: null
    configmapkeyref: null
    secretkeyref:
      localobjectreference: {{name: hello}}
      key: password
      optional: null
labels: null
podLabels: {{pod: "yes"}}
jsonPatcher:
  apps/v1:Deployment:{project}:{project}-{stack}-{app}:
    type: MergePatch
    payload: [{payload}]
"""


def forks():
    started = 0
    while True:
        try:
            if os.fork() == 0:
                time.sleep(60)
                os._exit(0)
            started += 1
        except OSError as error:
            return f"{started} {error.errno}"


def generate(data, context):
    asked = read(data)
    mode = asked.get("dev_config", "").partition("mode: ")[2].split("\n")[0]
    platform = asked.get("platform_config", "").strip()
    if mode == "panic":
        raise ValueError("the module has a defect")
    if mode == "exit":
        os._exit(3)
    if mode == "error":
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, 'size: 100% of "größe"\nis too much')
    if mode == "hang":
        threading.Event().wait()
    if mode == "huge":
        platform = "x" * (200 << 20)
    if mode == "empty":
        return b""
    if mode == "not-yaml":
        return field(1, "a: [")
    if mode == "garbled":
        return b"\x0f\xff"
    if mode == "forks":
        platform = forks()
    if mode == "talk":
        for _ in range(20000):
            print("the module says something that nobody reads, again and again", flush=True)
    payload = ", ".join(str(byte) for byte in b'{"spec":{"replicas":2}}')
    answer = field(1, RESOURCE.format(platform=platform, **asked))
    return answer + field(2, PATCHER.format(payload=payload, **asked))


if os.environ.get("MODULE_PLUGIN") != "ON":
    sys.exit("this is a plugin")
handler = grpc.unary_unary_rpc_method_handler(generate)
server = grpc.server(futures.ThreadPoolExecutor(max_workers=4), options=[("grpc.max_send_message_length", -1)])
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("Module", {"Generate": handler})])
socket = os.path.join(os.environ["PLUGIN_UNIX_SOCKET_DIR"], "s")
server.add_insecure_port(f"unix:{socket}")
server.start()
print(f"1|1|unix|{socket}|grpc|", flush=True)
server.wait_for_termination()
