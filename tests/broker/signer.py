"""A client of raw frames that signs them as RocketMQ's AclClientRPCHook does."""
import base64
import hashlib
import hmac
import json

from tests.broker.peer import Peer


class Signer(Peer):
    """unsigned: fields that are sent beside those that the signature covers."""

    def __init__(self, address, access_key, secret, serialize=0):
        super().__init__(address, serialize)
        self._access_key, self._secret = access_key, secret
        self.unsigned = {}

    def send(self, code, body=b"", frame_flag=0, **ext):
        """Signature=... in place of the right one."""
        if isinstance(body, dict):
            body = json.dumps(body).encode()
        ext = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in ext.items()}
        signed = {"AccessKey": self._access_key} | ext
        content = "".join(signed[name] for name in sorted(signed)).encode() + body
        signature = base64.b64encode(hmac.new(self._secret.encode(), content, hashlib.sha1).digest()).decode()
        return super().send(code, body, frame_flag, **({"Signature": signature} | signed | self.unsigned))
