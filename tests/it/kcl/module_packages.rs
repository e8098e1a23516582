//! Packages with the binary of a module, as Kusion pushes them: an image index with a manifest for each platform.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
    sync::Arc,
};

use axum::{
    Router, extract::State, http::StatusCode, http::Uri, response::IntoResponse as _, response::Response,
};
use base64::Engine as _;
use konverge_base::{
    checkout::Checkout,
    error::chain,
    model::{
        package_lock::{LockedPackage, PackageLock},
        stack::RemotePackage,
    },
};
use konverge_kcl::{Bounds, KclError, PackageFetcher, PackageTrust, ResolvedPackage, SandboxMode, platform};
use serde_json::json;
use sha2::Digest as _;

use crate::support::compiler::core;

const MODULE: &str = "[package]\nname = \"hello\"\nversion = \"0.1.0\"\n";
const BINARY: &str = "not really a program";
const FILE: &str = "kusion-module-hello_0.1.0";

/// What a registry serves, by the last part of the path.
type Served = Arc<HashMap<String, Vec<u8>>>;

async fn answer(State(served): State<Served>, uri: Uri) -> Response {
    let name = uri.path().rsplit('/').next().unwrap_or_default();
    match served.get(name) {
        Some(content) => content.clone().into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

fn digest(content: &[u8]) -> String {
    let hash = sha2::Sha256::digest(content);
    let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// An archive of the package; `transform` renames its files.
fn archive(binary: &str, transform: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("kcl.mod"), MODULE).unwrap();
    std::fs::write(folder.path().join(FILE), binary).unwrap();
    let mut tar = std::process::Command::new("tar");
    tar.args([
        "-P",
        "-C",
        folder.path().to_str().unwrap(),
        "-cz",
        "--transform",
        transform,
    ]);
    tar.args(["kcl.mod", FILE]).output().unwrap().stdout
}

/// An index whose entries are for these platforms, at the tag `0.1.0`. The manifest is as Kusion writes it.
fn index(platforms: &[(&str, &str)], archive: Vec<u8>) -> HashMap<String, Vec<u8>> {
    let manifest = json!({
        "schemaVersion": 2,
        "config": {"mediaType": "application/vnd.io.kusion.config.v1+json", "digest": digest(b"{}"), "size": 2},
        "layers": [{"mediaType": "application/vnd.io.kusion.content.v1.tar+gzip", "digest": digest(&archive), "size": archive.len()}],
    });
    let manifest = manifest.to_string().into_bytes();
    let entries = platforms.iter().map(|(os, architecture)| {
        json!({"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest(&manifest), "size": manifest.len(), "platform": {"os": os, "architecture": architecture}})
    });
    let index = json!({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": entries.collect::<Vec<_>>()});
    HashMap::from([
        (digest(&manifest), manifest),
        (digest(&archive), archive),
        ("0.1.0".to_owned(), index.to_string().into_bytes()),
    ])
}

async fn serve(served: HashMap<String, Vec<u8>>) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = listener.local_addr().unwrap().to_string();
    let router = Router::new().fallback(answer).with_state(Arc::new(served));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    host
}

/// Asks for the module; the lock pins the package with `binary`.
async fn fetch(folder: &Path, host: &str, binary: &str) -> Result<Vec<ResolvedPackage>, KclError> {
    let packages = PackageFetcher {
        folder: folder.canonicalize().unwrap(),
        offline: false,
        core: core().await,
        executable: env!("CARGO_BIN_EXE_konverge").into(),
        sandbox: SandboxMode::BestEffort,
        bounds: Bounds::default(),
        environment: BTreeMap::new(),
        whole: Arc::default(),
        unlocked: Arc::default(),
        asker: PackageTrust::Own,
        checkout: Checkout::default(),
    };
    let sum = sha2::Sha256::digest([MODULE, binary].concat());
    let wanted = RemotePackage {
        name: "hello".to_owned(),
        declared: "hello".to_owned(),
        requirement: json!({"oci": format!("oci://{host}/nested/acme/hello"), "tag": "0.1.0"}).to_string(),
        locked: LockedPackage {
            checksum: Some(base64::engine::general_purpose::STANDARD.encode(sum)),
            ..LockedPackage::default()
        },
    };
    packages.resolve(&[wanted], &PackageLock::default()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_manifest_of_this_platform_is_unpacked_with_its_binary() {
    let folder = tempfile::tempdir().unwrap();
    let platforms = [("windows", "amd64"), platform(), ("darwin", "arm64")];
    let host = serve(index(&platforms, archive(BINARY, ""))).await;
    let found = fetch(folder.path(), &host, BINARY).await.unwrap();
    let unpacked = std::fs::read_to_string(found[0].folder.join(FILE)).unwrap();
    assert_eq!(unpacked, BINARY);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_does_not_hold_what_is_pinned_is_refused() {
    let own = [platform()];
    let mut forged = index(&own, archive(BINARY, ""));
    let manifest = forged
        .iter()
        .find(|(_, content)| content.starts_with(b"{\"schemaVersion\":2,\"config\""))
        .unwrap()
        .0
        .clone();
    forged.get_mut(&manifest).unwrap().push(b' ');
    let mut nested = index(&own, archive(BINARY, ""));
    let inner = nested["0.1.0"].clone();
    let outer = json!({"manifests": [{"digest": digest(&inner), "platform": {"os": own[0].0, "architecture": own[0].1}}]});
    nested.insert(digest(&inner), inner);
    nested.insert("0.1.0".to_owned(), outer.to_string().into_bytes());
    for (served, says) in [
        (
            index(&[("darwin", "arm64"), ("windows", "amd64")], archive(BINARY, "")),
            "only darwin/arm64, windows/amd64",
        ),
        // The tag was moved to another binary.
        (index(&own, archive("another program", "")), "hello"),
        (forged, "does not have the digest that names it"),
        (nested, "its index names another index"),
        (
            index(&own, archive(BINARY, "s,^kusion,../../kusion,")),
            "the archive holds the path",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let error = fetch(folder.path(), &serve(served).await, BINARY)
            .await
            .unwrap_err();
        assert!(chain(&error).contains(says), "{says}: {error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{error}");
    }
    let folder = tempfile::tempdir().unwrap();
    let moved = serve(index(&own, archive("another program", ""))).await;
    let error = fetch(folder.path(), &moved, BINARY).await.unwrap_err();
    assert!(matches!(error, KclError::PackageDiffers { .. }), "{error}");
}
