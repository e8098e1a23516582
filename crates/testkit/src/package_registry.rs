//! A fake registry of KCL packages over plain HTTP on this machine, in the form that kpm reads: a manifest for each
//! tag, and one archive.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use axum::{
    Router, extract::State, http::StatusCode, http::Uri, response::IntoResponse as _, response::Response,
};
use base64::Engine as _;
use serde_json::json;
use sha2::Digest as _;

/// The served content by path, and the recorded requests.
#[derive(Default)]
struct Served {
    contents: HashMap<String, Vec<u8>>,
    asked: Vec<String>,
}

/// A running registry.
pub struct PackageRegistry {
    host: String,
    served: Arc<Mutex<Served>>,
}

async fn answer(State(served): State<Arc<Mutex<Served>>>, uri: Uri) -> Response {
    let mut served = served.lock().unwrap();
    served.asked.push(uri.path().to_owned());
    match served.contents.get(uri.path()) {
        Some(content) => content.clone().into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

fn digest(content: &[u8]) -> String {
    let hash = sha2::Sha256::digest(content);
    let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

impl PackageRegistry {
    /// Starts an empty registry in the runtime of the test.
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let served = Arc::<Mutex<Served>>::default();
        let router = Router::new().fallback(answer).with_state(Arc::clone(&served));
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { host, served }
    }

    /// Returns the host, `127.0.0.1:PORT`.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Serves these files as a version of a package, replacing the earlier content of that version.
    pub fn push(&self, name: &str, tag: &str, files: &[(&str, &str)]) {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let mut tar = std::process::Command::new("tar");
        tar.args(["-C", folder.path().to_str().unwrap(), "-c"]);
        let archive = tar
            .args(files.iter().map(|(path, _)| path))
            .output()
            .unwrap()
            .stdout;
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest(b"{}"), "size": 2},
            "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": digest(&archive), "size": archive.len()}],
        });
        let contents = &mut self.served.lock().unwrap().contents;
        contents.insert(
            format!("/v2/{name}/manifests/{tag}"),
            manifest.to_string().into_bytes(),
        );
        contents.insert(format!("/v2/{name}/blobs/{}", digest(&archive)), archive);
    }

    /// Returns the number of requests for a version.
    pub fn asked(&self, name: &str, tag: &str) -> usize {
        let path = format!("/v2/{name}/manifests/{tag}");
        let asked = &self.served.lock().unwrap().asked;
        asked.iter().filter(|asked| **asked == path).count()
    }
}

/// Returns the checksum of a package as kpm computes it: over the contents of its files in walking order.
pub fn sum(contents: &[&str]) -> String {
    let hash = sha2::Sha256::digest(contents.concat());
    base64::engine::general_purpose::STANDARD.encode(hash)
}
