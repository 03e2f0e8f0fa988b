//! The certificate of a server and the authority that signed it. Both are generated for each server; their
//! private keys are never stored.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::TlsAcceptor;

use super::ListenError;

/// The TLS identity of a server.
pub(super) struct Identity {
    pub(super) ca_pem: String,
    pub(super) ca_der: Vec<u8>,
    pub(super) acceptor: TlsAcceptor,
}

impl Identity {
    /// Generates an identity for a server on `address`, valid for the loopback names as well.
    pub(super) fn new(address: IpAddr) -> Result<Self, ListenError> {
        make(address).map_err(|error| ListenError::Certificate(error.to_string()))
    }
}

fn make(address: IpAddr) -> Result<Identity, Box<dyn std::error::Error>> {
    let mut ca = CertificateParams::new(Vec::new())?;
    ca.distinguished_name.push(DnType::CommonName, "informer-apiserver");
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.key_usages =
        vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    let ca_key = KeyPair::generate()?;
    let ca_certificate = ca.self_signed(&ca_key)?;

    let mut names =
        vec!["localhost".to_owned(), "kubernetes".to_owned(), "kubernetes.default.svc".to_owned()];
    let mut addresses = vec![IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    if !address.is_unspecified() && !addresses.contains(&address) {
        addresses.push(address);
    }
    names.extend(addresses.iter().map(ToString::to_string));
    let mut leaf = CertificateParams::new(names)?;
    leaf.distinguished_name.push(DnType::CommonName, "kube-apiserver");
    leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    leaf.use_authority_key_identifier_extension = true;
    let leaf_key = KeyPair::generate()?;
    let issuer = Issuer::from_params(&ca, &ca_key);
    let leaf_certificate = leaf.signed_by(&leaf_key, &issuer)?;

    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(leaf_key.serialize_der()));
    // Set explicitly: the application may have installed another default provider.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![leaf_certificate.der().clone()], key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Identity {
        ca_pem: ca_certificate.pem(),
        ca_der: ca_certificate.der().to_vec(),
        acceptor: TlsAcceptor::from(Arc::new(config)),
    })
}
