"""Wraps and unwraps a secret as the client that Azure publishes does: HOST TOKEN KEY. Prints what it found as JSON."""

import json
import sys
import time

from azure.core.credentials import AccessToken
from azure.core.exceptions import HttpResponseError
from azure.core.pipeline.transport import RequestsTransport
from azure.keyvault.keys import ApiVersion, KeyClient
from azure.keyvault.keys.crypto import CryptographyClient, KeyWrapAlgorithm

host, token, name = sys.argv[1:]


class Token:
    def get_token(self, *scopes, **options):
        return AccessToken(token, int(time.time()) + 3600)


class PlainTransport(RequestsTransport):
    """The client refuses to send a token without TLS. The fake is as behind a proxy that ends it."""

    def send(self, request, **options):
        url = request.url
        request.url = url.replace("https://", "http://", 1)
        try:
            return super().send(request, **options)
        finally:
            request.url = url


options = {"api_version": ApiVersion.V7_4, "verify_challenge_resource": False}
key = KeyClient("https://" + host, Token(), transport=PlainTransport(), **options).get_key(name)
address = key.id.replace("http://", "https://", 1)
client = CryptographyClient(address, Token(), transport=PlainTransport(), **options)


def refused(ask):
    try:
        ask()
    except HttpResponseError as error:
        return error.status_code
    return 0


plain = b"k" * 64
wrapped = client.wrap_key(KeyWrapAlgorithm.rsa_oaep_256, plain)
print(
    json.dumps(
        {
            "opened": client.unwrap_key(KeyWrapAlgorithm.rsa_oaep_256, wrapped.encrypted_key).key == plain,
            "version": wrapped.key_id.rsplit("/", 1)[1] == address.rsplit("/", 1)[1],
            "too long": refused(lambda: client.wrap_key(KeyWrapAlgorithm.rsa_oaep_256, b"k" * 191)),
            "other": refused(lambda: client.unwrap_key(KeyWrapAlgorithm.rsa_oaep_256, b"x" * 256)),
        }
    )
)
