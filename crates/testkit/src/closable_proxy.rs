//! A proxy that can be closed: it then cuts all connections and refuses new ones.

use std::net::SocketAddr;

use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// The door, on a port of its own.
pub struct Gate {
    address: SocketAddr,
    open: watch::Sender<bool>,
}

impl Gate {
    /// Open, before the server at this URL.
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

    /// Where clients find it.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Cuts what is under way, and lets nobody through.
    pub fn shut(&self) {
        self.open.send_replace(false);
    }

    /// Lets everybody through.
    pub fn open(&self) {
        self.open.send_replace(true);
    }
}
