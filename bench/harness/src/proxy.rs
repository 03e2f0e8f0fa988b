//! A proxy that counts the bytes that a program receives from a control plane.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fs, io, thread};

use crate::failure::Failure;

/// Forwards connections to a server, until the harness ends.
///
/// Connections are not decrypted, so the bytes include TLS.
pub(super) struct Proxy {
    /// A kubeconfig with the address of the proxy.
    pub(super) kubeconfig: PathBuf,
    received: Arc<AtomicU64>,
}

impl Proxy {
    /// Starts a proxy for the server of a kubeconfig, which must be on this machine, and writes a kubeconfig to `folder`.
    pub(super) fn start(kubeconfig: &Path, folder: &Path, name: &str) -> Result<Self, Failure> {
        let failed = |what: &str, error: io::Error| Failure::Failed(format!("cannot {what}: {error}"));
        let text = fs::read_to_string(kubeconfig)
            .map_err(|error| failed(&format!("read {}", kubeconfig.display()), error))?;
        let server = server(&text).ok_or_else(|| {
            Failure::Failed(format!("{}: no server at https://127.0.0.1", kubeconfig.display()))
        })?;
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|error| failed("start a proxy", error))?;
        let address = listener.local_addr().map_err(|error| failed("start a proxy", error))?;
        let path = folder.join(format!("kubeconfig-{name}"));
        fs::write(&path, text.replace(&server.to_string(), &address.to_string()))
            .map_err(|error| failed("write a kubeconfig", error))?;
        let received = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&received);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // A connection that cannot be forwarded is closed, which the client notices.
                let _ = forward(client, server, &counter);
            }
        });
        Ok(Self { kubeconfig: path, received })
    }

    /// Returns the number of bytes that the program has received.
    #[allow(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
    pub(super) fn received(&self) -> f64 {
        self.received.load(Ordering::Relaxed) as f64
    }
}

/// Returns the address of the server in a kubeconfig.
fn server(kubeconfig: &str) -> Option<SocketAddr> {
    let url = kubeconfig.lines().find_map(|line| line.trim().strip_prefix("server: https://"))?;
    url.trim().trim_end_matches('/').parse().ok()
}

/// Copies both directions of a connection.
fn forward(client: TcpStream, server: SocketAddr, received: &Arc<AtomicU64>) -> io::Result<()> {
    let server = TcpStream::connect(server)?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    let (to_server, from_client) = (server.try_clone()?, client.try_clone()?);
    thread::spawn(move || copy(from_client, to_server, |_| {}));
    let received = Arc::clone(received);
    thread::spawn(move || {
        copy(server, client, |bytes| {
            received.fetch_add(bytes as u64, Ordering::Relaxed);
        });
    });
    Ok(())
}

/// Copies one direction until either side is closed, and closes the other one.
fn copy(mut from: TcpStream, mut to: TcpStream, count: impl Fn(usize)) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(bytes) = from.read(&mut buffer) {
        count(bytes);
        if bytes == 0 || to.write_all(&buffer[..bytes]).is_err() {
            break;
        }
    }
    // Both fail if the connection was reset.
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxy_forwards_both_directions_and_counts_received_bytes() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let folder = std::env::temp_dir().join(format!("informer-bench-proxy-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let original = folder.join("original");
        fs::write(&original, format!("    server: https://{}\n", server.local_addr().unwrap())).unwrap();
        let proxy = Proxy::start(&original, &folder, "a").ok().unwrap();
        let address = super::server(&fs::read_to_string(&proxy.kubeconfig).unwrap()).unwrap();
        let mut client = TcpStream::connect(address).unwrap();
        let (mut accepted, _) = server.accept().unwrap();
        client.write_all(b"request").unwrap();
        let mut request = [0; 7];
        accepted.read_exact(&mut request).unwrap();
        assert_eq!(&request, b"request");
        accepted.write_all(b"a response").unwrap();
        drop(accepted);
        let mut response = Vec::new();
        client.read_to_end(&mut response).unwrap();
        assert_eq!((&response[..], proxy.received()), (&b"a response"[..], 10.0));
        fs::remove_dir_all(folder).unwrap();
    }
}
