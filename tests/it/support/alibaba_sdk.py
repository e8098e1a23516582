"""Asks KMS as the client that Alibaba publishes does: HOST ID SECRET KEY. Prints what it found as JSON."""

import base64
import json
import sys

from alibabacloud_kms20160120 import models
from alibabacloud_kms20160120.client import Client
from alibabacloud_tea_openapi.models import Config

host, access, secret, key = sys.argv[1:]
client = Client(Config(access_key_id=access, access_key_secret=secret, endpoint=host, protocol="http"))

value = client.get_secret_value(models.GetSecretValueRequest(secret_name="pay")).body
first = client.get_secret_value(models.GetSecretValueRequest(secret_name="pay", version_id="v1")).body
listed = client.list_secret_version_ids(models.ListSecretVersionIdsRequest(secret_name="pay")).body
versions = {found.version_id: found.version_stages.version_stage for found in listed.version_ids.version_id}
try:
    client.get_secret_value(models.GetSecretValueRequest(secret_name="none"))
    missing = "nothing"
except Exception as error:
    missing = error.code
plain = base64.b64encode(b"a data key").decode()
context = {"konverge": "here"}
sealed = client.encrypt(models.EncryptRequest(key_id=key, plaintext=plain, encryption_context=context)).body
opened = client.decrypt(
    models.DecryptRequest(ciphertext_blob=sealed.ciphertext_blob, encryption_context=context)
).body
print(
    json.dumps(
        {
            "newest": [value.secret_data, value.version_id],
            "first": [first.secret_data, first.version_id],
            "versions": versions,
            "missing": missing,
            "opened": opened.plaintext == plain,
        }
    )
)
