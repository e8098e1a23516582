"""Files of a folder over HTTPS, as git reads a repository; below `/private/` only for those who say a name and a password.

Every request is a line of the log: its path, and whether a credential came with it.
"""
import functools, http.server, ssl, sys

port, certificate, key, folder = sys.argv[1:]


class Handler(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        known = "authorization" in self.headers
        print(self.path, "known" if known else "nobody", flush=True)
        if self.path.startswith("/private/") and not known:
            self.send_response(401)
            self.send_header("www-authenticate", 'Basic realm="private"')
            self.send_header("content-length", "0")
            self.end_headers()
        else:
            super().do_GET()

    def log_message(self, *_):
        pass


context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate, key)
handler = functools.partial(Handler, directory=folder)
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), handler)
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
