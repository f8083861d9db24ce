"""Certificates by a deployment's own authority, for servers and clients (X.509, RFC 5280).

A service's certificate serves both sides of a connection: the learner presents its own to parties and key holders, and
each service presents its own to itself when its health is checked.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from parley.common.encoding.texts import as_utf8

AUTHORITY_LASTS, CERTIFICATE_LASTS = dt.timedelta(days=3650), dt.timedelta(days=365)
_SKEW = dt.timedelta(hours=1)  # how far the clock of another machine may be behind
_USES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


@dataclass(frozen=True, slots=True)
class Credentials:
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def read(cls, certificate: bytes, key: bytes) -> Credentials:
        """Read both from PEM; raises ValueError where either is invalid, or they do not belong together."""
        private = load_pem_private_key(as_utf8(key), None)
        parsed = x509.load_pem_x509_certificate(as_utf8(certificate))
        if not isinstance(private, ec.EllipticCurvePrivateKey) or private.public_key() != parsed.public_key():
            raise ValueError("the private key is not the certificate's")
        return cls(parsed, private)

    @property
    def certificate_pem(self) -> str:
        """The certificate as PEM."""
        return pem_of(self.certificate)

    @property
    def key_pem(self) -> str:
        """The private key as PEM, not encrypted."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode("ascii")

    @property
    def lasts(self) -> dt.timedelta:
        """How long the certificate is still valid; negative when it has expired."""
        return self.certificate.not_valid_after_utc - dt.datetime.now(dt.UTC)

    @property
    def share_left(self) -> float:
        """The share of the certificate's lifetime that is left; negative when it has expired."""
        return self.lasts / (self.certificate.not_valid_after_utc - self.certificate.not_valid_before_utc)

    def request(self) -> str:
        """Make a request, as PEM, for a new certificate of the same name and key."""
        return _request(self.certificate.subject, self.key)


def make_authority(name: str, lasts: dt.timedelta = AUTHORITY_LASTS) -> Credentials:
    """Make an authority that signs the certificates of services, and of no other authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        _builder(name, key.public_key(), lasts)
        .issuer_name(_common_name(name))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage("key_cert_sign", "crl_sign"), critical=True)
    )
    return Credentials(builder.sign(key, hashes.SHA256()), key)


def issue(authority: Credentials, hosts: Sequence[str], lasts: dt.timedelta = CERTIFICATE_LASTS) -> Credentials:
    """Issue a service's certificate for its names and addresses, the first being its subject, with a new key."""
    key = ec.generate_private_key(ec.SECP256R1())
    return Credentials(_certify(authority, hosts, key.public_key(), lasts), key)


def renew(authority: Credentials, credentials: Credentials, lasts: dt.timedelta = CERTIFICATE_LASTS) -> Credentials:
    """Issue a new certificate for the same names and key."""
    return Credentials(
        _certify(authority, hosts_of(credentials.certificate), credentials.key.public_key(), lasts), credentials.key
    )


def request_certificate(name: str) -> tuple[str, str]:
    """Make ``(request, key)`` as PEM: the request for an authority to sign, and a new private key, which stays here."""
    key = ec.generate_private_key(ec.SECP256R1())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return _request(_common_name(name), key), private.decode("ascii")


def _request(name: x509.Name, key: ec.EllipticCurvePrivateKey) -> str:
    request = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    return request.public_bytes(Encoding.PEM).decode("ascii")


def answer_request(
    authority: Credentials, request: str, name: str, lasts: dt.timedelta = CERTIFICATE_LASTS
) -> x509.Certificate:
    """Certify the key of a request for a name, whichever name it asks for; raises ValueError for an invalid request."""
    csr = x509.load_pem_x509_csr(request.encode())
    key = csr.public_key()
    if not csr.is_signature_valid or not isinstance(key, ec.EllipticCurvePublicKey):
        raise ValueError("not a request that is signed by an elliptic curve's key")
    return _certify(authority, [name], key, lasts)


def _certify(
    authority: Credentials, hosts: Sequence[str], key: ec.EllipticCurvePublicKey, lasts: dt.timedelta
) -> x509.Certificate:
    """Sign a service's certificate."""
    issuer = authority.certificate
    builder = (
        _builder(hosts[0], key, lasts)
        .issuer_name(issuer.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage("digital_signature"), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .add_extension(x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(
                issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
            ),
            critical=False,
        )
    )
    return builder.sign(authority.key, hashes.SHA256())


def pem_of(certificate: x509.Certificate) -> str:
    """Return a certificate as PEM."""
    return certificate.public_bytes(Encoding.PEM).decode("ascii")


def hosts_of(certificate: x509.Certificate) -> list[str]:
    """Return the names and addresses that a certificate is for."""
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in names]


def _builder(name: str, key: ec.EllipticCurvePublicKey, lasts: dt.timedelta) -> x509.CertificateBuilder:
    """Return a builder with the fields that certificates of authorities and of services share."""
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_common_name(name))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + lasts)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general_name(host: str) -> x509.GeneralName:
    """Return an IP address if the text is one, a DNS name otherwise."""
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_usage(*uses: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{use: use in uses for use in _USES})
