//! Transfers bytes over quinn: `serve`, or `get ADDRESS BYTES`.

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use quinn::crypto::rustls::QuicClientConfig;
use quinn::rustls::{self, client::danger, pki_types};
use quinn::{ClientConfig, Connection, Endpoint, ServerConfig};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const PORT: u16 = 4433;

#[tokio::main]
async fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().collect();
    match words.get(1).map(String::as_str) {
        Some("get") => get(words[2].parse()?, words[3].parse()?).await,
        _ => serve().await,
    }
}

async fn serve() -> Outcome<()> {
    let made = rcgen::generate_simple_self_signed(vec!["server".into()])?;
    let key = pki_types::PrivatePkcs8KeyDer::from(made.key_pair.serialize_der());
    let settings = ServerConfig::with_single_cert(vec![made.cert.into()], key.into())?;
    let endpoint = Endpoint::server(settings, SocketAddr::from(([0, 0, 0, 0], PORT)))?;
    while let Some(incoming) = endpoint.accept().await {
        let connection = incoming.await?;
        tokio::spawn(answer(connection));
    }
    Ok(())
}

async fn answer(connection: Connection) -> Outcome<()> {
    let (mut send, mut receive) = connection.accept_bi().await?;
    let mut count = [0; 8];
    receive.read_exact(&mut count).await?;
    send.write_all(&vec![0; u64::from_be_bytes(count) as usize]).await?;
    send.finish()?;
    send.stopped().await?;
    Ok(())
}

async fn get(address: IpAddr, count: u64) -> Outcome<()> {
    let trusting = rustls::ClientConfig::builder()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate))
        .with_no_client_auth();
    let mut endpoint = Endpoint::client(SocketAddr::from(([0, 0, 0, 0], 0)))?;
    let settings = QuicClientConfig::try_from(trusting)?;
    endpoint.set_default_client_config(ClientConfig::new(Arc::new(settings)));
    let connection = endpoint.connect((address, PORT).into(), "server")?.await?;
    let begin = Instant::now();
    let (mut send, mut receive) = connection.open_bi().await?;
    send.write_all(&count.to_be_bytes()).await?;
    send.finish()?;
    let got = receive.read_to_end(count as usize).await?.len();
    println!("{got} bytes in {:?}", begin.elapsed());
    connection.close(0u32.into(), b"");
    endpoint.wait_idle().await;
    if got as u64 == count { Ok(()) } else { Err("bytes are missing".into()) }
}

/// The server makes a certificate of its own.
#[derive(Debug)]
struct AnyCertificate;

impl danger::ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &pki_types::CertificateDer,
        _: &[pki_types::CertificateDer],
        _: &pki_types::ServerName,
        _: &[u8],
        _: pki_types::UnixTime,
    ) -> Result<danger::ServerCertVerified, rustls::Error> {
        Ok(danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &pki_types::CertificateDer,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<danger::HandshakeSignatureValid, rustls::Error> {
        Ok(danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &pki_types::CertificateDer,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<danger::HandshakeSignatureValid, rustls::Error> {
        Ok(danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        rustls::crypto::ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}
