//! A proxy that can be closed: it then cuts all connections, and refuses new ones.

use std::net::SocketAddr;

use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// The proxy, on a port of its own.
pub struct Gate {
    address: SocketAddr,
    open: watch::Sender<bool>,
}

impl Gate {
    /// Starts an open proxy in front of the server at this URL.
    pub async fn before(url: &str) -> Self {
        let server = url.trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let (open, seen) = watch::channel(true);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let (mut seen, server) = (seen.clone(), server.clone());
                if !*seen.borrow() {
                    continue;
                }
                tokio::spawn(async move {
                    let Ok(mut server) = TcpStream::connect(&server).await else {
                        return;
                    };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                        _ = seen.wait_for(|open| !open) => {}
                    }
                });
            }
        });
        Self { address, open }
    }

    /// Returns the address of the proxy.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Closes the proxy: cuts open connections, and refuses new ones.
    pub fn shut(&self) {
        self.open.send_replace(false);
    }

    /// Opens the proxy again.
    pub fn open(&self) {
        self.open.send_replace(true);
    }
}
