"""A mail server (aiosmtpd) that wants a password, on 127.0.0.1. MODE: `plain`, `smtps` or `starttls`. Each mail that it
takes becomes a line of OUT, and nobody@ is refused, as Python's own parser reads it. ANSWERS, if given, are those to the first mails.
"""
import email, email.policy, json, ssl, sys, threading
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult

port, mode, out, folder, user, password, *answers = sys.argv[1:]


class Handler:
    async def handle_RCPT(self, server, session, envelope, address, options):
        if address.startswith("nobody"):
            return "550 no such user"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        answer = answers.pop(0) if answers else "250 taken"
        mail = email.message_from_bytes(envelope.original_content, policy=email.policy.default)
        line = {"answer": answer, "from": envelope.mail_from, "to": envelope.rcpt_tos, "tls": session.ssl is not None,
                "user": session.auth_data, "headers": [[k, str(v)] for k, v in mail.items()], "text": mail.get_content().replace("\r\n", "\n")}
        with open(out, "a") as file:
            file.write(json.dumps(line) + "\n")
        return answer


def authenticate(server, session, envelope, mechanism, data):
    known = data.login.decode() == user and data.password.decode() == password
    return AuthResult(success=known, handled=known, auth_data=data.login.decode())


context = None
if mode != "plain":
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"{folder}/server.crt", f"{folder}/server.key")
settings = {"auth_required": True, "auth_require_tls": mode == "starttls", "authenticator": authenticate}
if mode == "starttls":
    settings |= {"tls_context": context, "require_starttls": True}
server = Controller(Handler(), hostname="127.0.0.1", port=int(port), ssl_context=context if mode == "smtps" else None,
                    **settings)
server.start()
threading.Event().wait()
