"""An HTTPS server beside a test cluster: a mutating webhook (POST) and a kubelet's logs (GET).

The webhook rewrites `data.image` of an object to a mirror, and writes down each request in an annotation, dry-runs too:
the one is idempotent, the other is not.
"""
import base64, http.server, json, ssl, sys, uuid


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        which = "previous" if "previous=true" in self.path else "current"
        self.answer("text/plain", f"{which} run\nno such table: orders\n".encode())

    def do_POST(self):
        length = int(self.headers["content-length"])
        request = json.loads(self.rfile.read(length))["request"]
        patch = [{"op": "add", "path": "/metadata/annotations/recorded", "value": str(uuid.uuid4())}]
        image = request["object"].get("data", {}).get("image", "")
        if image and not image.startswith("mirror/"):
            patch.append({"op": "replace", "path": "/data/image", "value": "mirror/" + image})
        response = {"uid": request["uid"], "allowed": True, "patchType": "JSONPatch",
                    "patch": base64.b64encode(json.dumps(patch).encode()).decode()}
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
        self.answer("application/json", json.dumps(review).encode())

    def answer(self, kind, body):
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


port, certificate, key = sys.argv[1:]
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate, key)
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), Handler)
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
