//! TCP relays in front of servers. They count the requests to all servers together, to tell a test when to kill the
//! client.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::Notify,
};

#[derive(Default)]
struct Counter {
    requests: AtomicUsize,
    kill_at: AtomicUsize,
    before: AtomicBool,
    killed: Notify,
}

/// The relays of a test. Each piece of data that is read at once counts as a request.
#[derive(Clone, Default)]
pub struct Relays(Arc<Counter>);

impl Relays {
    /// Starts a relay to the server at this address (`http://HOST:PORT`), and returns its address.
    pub async fn to(&self, address: &str) -> String {
        let server = address.trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = listener.local_addr().unwrap();
        let counter = Arc::clone(&self.0);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&server).await.unwrap();
                tokio::spawn(relay(client, server, Arc::clone(&counter)));
            }
        });
        format!("http://{own}")
    }

    /// Sets the request, counted from 1, that completes [`Relays::killed`]: before the server gets it, or after the
    /// client has its response.
    pub fn kill_at(&self, nth: usize, before: bool) {
        self.0.requests.store(0, SeqCst);
        self.0.before.store(before, SeqCst);
        self.0.kill_at.store(nth, SeqCst);
    }

    /// Waits for that request.
    pub async fn killed(&self) {
        self.0.killed.notified().await;
    }
}

async fn relay(mut client: TcpStream, mut server: TcpStream, counter: Arc<Counter>) {
    let (mut of_client, mut of_server) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let mut is_last = false;
    loop {
        tokio::select! {
            read = client.read(&mut of_client) => match read {
                Ok(length @ 1..) => {
                    let is_nth = counter.requests.fetch_add(1, SeqCst) + 1 == counter.kill_at.load(SeqCst);
                    if is_nth && counter.before.load(SeqCst) {
                        counter.killed.notify_one();
                        return std::future::pending().await;
                    }
                    is_last |= is_nth;
                    if server.write_all(&of_client[..length]).await.is_err() {
                        return;
                    }
                }
                _ => return,
            },
            read = server.read(&mut of_server) => match read {
                Ok(length @ 1..) => {
                    if client.write_all(&of_server[..length]).await.is_err() {
                        return;
                    }
                    if std::mem::take(&mut is_last) {
                        counter.killed.notify_one();
                    }
                }
                _ => return,
            },
        }
    }
}
