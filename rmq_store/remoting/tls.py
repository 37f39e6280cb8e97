"""The TLS contexts of both sides of a connection (RocketMQ: TlsHelper, TlsSystemConfig). Loads ssl: imported where TLS is asked
for.

options: a table with RocketMQ's names, tls.server.* or tls.client.*; see docs/broker.md.
"""
import ssl
from collections.abc import Mapping
from typing import Any

from rmq_store.errors import ConfigError

__all__ = ["SERVER_FILES", "client_context", "server_context"]

Options = Mapping[str, Any]
SERVER_FILES = ("tls.server.certPath", "tls.server.keyPath", "tls.server.trustCertPath")
CLIENT_AUTH = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "require": ssl.CERT_REQUIRED}


def server_context(options: Options) -> ssl.SSLContext:
    """For connections that come. Raises ConfigError."""
    certificate, key, trust = (str(options[name]) for name in SERVER_FILES)
    auth = CLIENT_AUTH[options["tls.server.need.client.auth"]]
    if not certificate or not key:
        raise ConfigError("tls.server.mode is on: give tls.server.certPath and tls.server.keyPath, PEM files of a certificate "
                          "and its key")
    if auth is not ssl.CERT_NONE and not trust:
        raise ConfigError("tls.server.need.client.auth is on: give tls.server.trustCertPath, a PEM file of those who sign the "
                          "certificates of clients")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = auth
    _load(context, "tls.server.", certificate, key, str(options["tls.server.keyPassword"]), trust)
    return context


def client_context(options: Options) -> ssl.SSLContext:
    """For connections to name servers and to a master's broker. As in RocketMQ, the certificate of the other side counts if
    somebody trusted has signed it, whatever host it names; without tls.client.authServer any counts. Raises ConfigError."""
    certificate, key, trust = (str(options[f"tls.client.{name}"]) for name in ("certPath", "keyPath", "trustCertPath"))
    authenticates = bool(options["tls.client.authServer"])
    if bool(certificate) != bool(key):
        raise ConfigError("give tls.client.certPath and tls.client.keyPath together, PEM files of a certificate and its key")
    if trust and not authenticates:
        raise ConfigError("tls.client.trustCertPath says who signs the certificates of servers, and tls.client.authServer is "
                          "false: set tls.client.authServer=true")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED if authenticates else ssl.CERT_NONE
    if authenticates and not trust:
        context.load_default_certs()
    _load(context, "tls.client.", certificate, key, str(options["tls.client.keyPassword"]), trust)
    return context


def _load(context: ssl.SSLContext, side: str, certificate: str, key: str, password: str, trust: str) -> None:
    """Raises ConfigError."""
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    where = f"{side}certPath={certificate} and {side}keyPath={key}"
    try:
        if certificate:     # without an answer OpenSSL would ask for a password at the terminal
            context.load_cert_chain(certificate, key, password=lambda: password)
        if trust:
            where = f"{side}trustCertPath={trust}"
            context.load_verify_locations(trust)
    except (OSError, ValueError) as error:      # ssl.SSLError is an OSError
        cure = "" if not certificate or (trust and where.endswith(trust)) else f"; an encrypted key needs {side}keyPassword"
        raise ConfigError(f"{where} cannot be used: {error}{cure}") from None
