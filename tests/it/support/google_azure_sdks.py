"""Reads secrets as the clients that Google and Azure publish do: HOST TOKEN. Prints what they found as JSON."""

import json
import sys
import time

from azure.core.credentials import AccessToken
from azure.core.exceptions import ResourceNotFoundError
from azure.core.pipeline.transport import RequestsTransport
from azure.keyvault.secrets import ApiVersion, SecretClient
from google.api_core.exceptions import NotFound
from google.cloud.secretmanager_v1 import SecretManagerServiceClient
from google.cloud.secretmanager_v1.services.secret_manager_service.transports import SecretManagerServiceRestTransport
from google.oauth2.credentials import Credentials

host, token = sys.argv[1:]


def missing(ask):
    try:
        ask()
    except (NotFound, ResourceNotFoundError) as error:
        return type(error).__name__
    return "nothing"


def google():
    transport = SecretManagerServiceRestTransport(
        host=host, url_scheme="http", credentials=Credentials(token=token)
    )
    client = SecretManagerServiceClient(transport=transport)
    name = "projects/acme/secrets/pay/versions/"
    return {
        "newest": client.access_secret_version(name=name + "latest").payload.data.decode(),
        "first": client.access_secret_version(name=name + "1").payload.data.decode(),
        "version": client.get_secret_version(name=name + "latest").name,
        "missing": missing(lambda: client.get_secret_version(name=name + "9")),
    }


class Token:
    def get_token(self, *scopes, **options):
        return AccessToken(token, int(time.time()) + 3600)


class PlainTransport(RequestsTransport):
    """The client refuses to send a token without TLS. The fake is as behind a proxy that ends it."""

    def send(self, request, **options):
        request.headers["X-Forwarded-Proto"] = "https"
        url = request.url
        request.url = url.replace("https://", "http://", 1)
        try:
            return super().send(request, **options)
        finally:
            request.url = url


def azure():
    client = SecretClient(
        "https://" + host,
        Token(),
        api_version=ApiVersion.V7_4,
        transport=PlainTransport(),
        verify_challenge_resource=False,
    )
    versions = sorted(found.version for found in client.list_properties_of_secret_versions("pay"))
    return {
        "newest": client.get_secret("pay").value,
        "first": client.get_secret("pay", versions[0]).value,
        "versions": versions,
        "missing": missing(lambda: client.get_secret("none")),
    }


print(json.dumps({"google": google(), "azure": azure()}))
