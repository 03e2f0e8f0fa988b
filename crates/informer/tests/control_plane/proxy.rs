//! A connection to the server that can be blocked: a TCP proxy on a loopback port that forwards bytes.

use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The proxy; dropping it closes all connections.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    open: watch::Sender<bool>,
}

impl Proxy {
    /// Starts a proxy to the server with this URL.
    pub(crate) async fn to(url: &http::Uri) -> Self {
        let target = (url.host().unwrap().to_owned(), url.port_u16().unwrap_or(443));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (open, blocked) = watch::channel(true);
        tokio::spawn(async move {
            let mut dropped = blocked.clone();
            let serve = async {
                while let Ok((stream, _)) = listener.accept().await {
                    // Connections are closed immediately while the proxy is blocked.
                    if *blocked.borrow() {
                        tokio::spawn(forward(stream, target.clone(), blocked.clone()));
                    }
                }
            };
            tokio::select! {
                () = serve => {}
                () = async { while dropped.changed().await.is_ok() {} } => {}
            }
        });
        Self { address, open }
    }

    /// Breaks every connection and accepts no new ones.
    pub(crate) fn block(&self) {
        self.open.send_replace(false);
    }

    /// Accepts connections again.
    pub(crate) fn unblock(&self) {
        self.open.send_replace(true);
    }
}

/// Forwards bytes until one end closes or the proxy is blocked.
async fn forward(mut near: TcpStream, target: (String, u16), mut open: watch::Receiver<bool>) {
    let Ok(mut far) = TcpStream::connect(target).await else { return };
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
        // An error means that the proxy was dropped.
        _ = open.wait_for(|open| !open) => {}
    }
}
