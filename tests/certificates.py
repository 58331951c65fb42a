"""Certificates for listeners and clients, of an authority of the test's own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12

PASSWORD = "certificate-hush"


class Authority:
    """Signs certificates; its own is ``ca``. Keys are protected by ``PASSWORD``."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self.folder = folder
        self.ca = folder / f"{name}.pem"
        self._name, self._key = _name(name), ec.generate_private_key(ec.SECP256R1())
        alone = x509.BasicConstraints(ca=True, path_length=None)
        self._certificate = self._signed(name, self._key, 30, alone)
        self.ca.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, *hosts: str, days: int = 30) -> Path:
        """A certificate for a name and its hosts; beside NAME.pem lie NAME.key and NAME.p12."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [
            x509.IPAddress(ip_address(host)) if host[0].isdigit() else x509.DNSName(host)
            for host in hosts
        ]
        certificate = self._signed(
            name, key, days, x509.SubjectAlternativeName(names or [x509.DNSName(name)])
        )
        path = self.folder / f"{name}.pem"
        path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        protected = serialization.BestAvailableEncryption(PASSWORD.encode())
        path.with_suffix(".key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protected
            )
        )
        path.with_suffix(".p12").write_bytes(
            pkcs12.serialize_key_and_certificates(
                name.encode(), key, certificate, [self._certificate], protected
            )
        )
        return path

    def _signed(
        self,
        name: str,
        key: ec.EllipticCurvePrivateKey,
        days: int,
        extension: x509.ExtensionType,
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(_name(name))
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=40))
            .not_valid_after(now + timedelta(days=days))
            .add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
            .sign(self._key, hashes.SHA256())
        )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])
