//! A way to the server that can be blocked: a proxy on a loopback port that passes bytes on and knows nothing of them.

use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The proxy; dropping it closes everything.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    open: watch::Sender<bool>,
}

impl Proxy {
    /// A way to the server of that URL.
    pub(crate) async fn to(url: &http::Uri) -> Self {
        let target = (url.host().unwrap().to_owned(), url.port_u16().unwrap_or(443));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (open, blocked) = watch::channel(true);
        tokio::spawn(async move {
            let mut dropped = blocked.clone();
            let serve = async {
                while let Ok((stream, _)) = listener.accept().await {
                    // Whoever comes while it is blocked is hung up on.
                    if *blocked.borrow() {
                        tokio::spawn(pass(stream, target.clone(), blocked.clone()));
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

    /// Breaks every connection, and lets nobody in.
    pub(crate) fn block(&self) {
        self.open.send_replace(false);
    }

    /// Lets everybody in again.
    pub(crate) fn unblock(&self) {
        self.open.send_replace(true);
    }
}

/// Passes bytes on until one end hangs up or the way is blocked.
async fn pass(mut near: TcpStream, target: (String, u16), mut open: watch::Receiver<bool>) {
    let Ok(mut far) = TcpStream::connect(target).await else { return };
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
        // An error means that the proxy is gone.
        _ = open.wait_for(|open| !open) => {}
    }
}
