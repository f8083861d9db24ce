"""TLS by settings: 1.3 and nothing older, and client certificates where the owner asks for them."""

from __future__ import annotations

import socket
import ssl
import time
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from parley.common.errors import InvalidInputError
from parley.common.service.serve import tls_context
from parley.common.service.settings import Tls
from tests.support.cluster import Cluster
from tests.support.processes import free_port, start_party, stopped_at_exit
from tests.support.rounds import ASKING


def certificate(directory: Path, name: str) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1 and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    paths = directory / f"{name}.pem", directory / f"{name}.key"
    paths[0].write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    unencrypted = serialization.NoEncryption()
    paths[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, unencrypted))
    return paths


def get(url: str, context: ssl.SSLContext) -> int:
    """Send a request; return its status."""
    with httpx.Client(verify=context, trust_env=False, headers=ASKING) as client:
        return client.get(f"{url}/v1/party").status_code


def wait_until_listening(port: int) -> None:
    """Wait until somebody takes connections."""
    deadline = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        else:
            return


def test_tls(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n_parties=1)
    server, key = certificate(tmp_path, "server")
    known_certificate, known_key = certificate(tmp_path, "known")
    stranger, stranger_key = certificate(tmp_path, "stranger")
    tls = {"certificate": server, "key": key, "client_ca": known_certificate}
    settings = cluster.party_settings("party-1", port=free_port(), tls=tls)
    url = f"https://127.0.0.1:{settings.port}"
    with stopped_at_exit(start_party(settings)):
        wait_until_listening(settings.port)
        mine = ssl.create_default_context(cafile=server)
        mine.load_cert_chain(known_certificate, known_key)
        assert get(url, mine) == 200
        mine.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(httpx.TransportError):
            get(url, mine)
        for chain in (None, (stranger, stranger_key)):
            other = ssl.create_default_context(cafile=server)
            if chain:
                other.load_cert_chain(*chain)
            with pytest.raises(httpx.TransportError):
                get(url, other)
        with pytest.raises(httpx.TransportError):
            get(url, ssl.create_default_context(cafile=stranger))


def test_a_key_that_is_not_the_certificates_is_refused(tmp_path: Path) -> None:
    server, _ = certificate(tmp_path, "server")
    _, key = certificate(tmp_path, "other")
    with pytest.raises(InvalidInputError, match="cannot be used"):
        tls_context(Tls(certificate=server, key=key))
    with pytest.raises(InvalidInputError, match="cannot be used"):
        tls_context(Tls(certificate=tmp_path / "none", key=key))
