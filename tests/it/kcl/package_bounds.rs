//! Registries and repositories that send more than anybody can keep: each is stopped at its bound, before the checksum
//! can be known, and nothing is left behind.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{StatusCode, Uri},
    response::{IntoResponse as _, Response},
};
use futures::stream;
use konverge_base::{
    checkout::Checkout,
    error::chain,
    model::{
        package_lock::{LockedPackage, PackageLock},
        stack::RemotePackage,
    },
};
use konverge_kcl::{Bounds, PackageFetcher, PackageTrust, SandboxMode};
use serde_json::json;
use sha2::Digest as _;

use crate::support::{compiler::core, git::Repository, kcl::interpreter};

/// What a registry does.
#[derive(Clone)]
enum Registry {
    /// Serves an archive, as it should.
    Serves(Bytes),
    /// Never ends its manifest.
    EndlessManifest,
    /// Never ends its layer.
    EndlessLayer,
    /// Says how long its layer is: longer than anybody wants.
    LongLayer,
    /// Never answers.
    Silent,
    /// Asks for a token, and never ends it.
    EndlessToken,
}

const MODULE: &str = "[package]\nname = \"lib\"\n";

fn bounds() -> Bounds {
    Bounds {
        transferred: 1 << 20,
        unpacked: 2 << 20,
        files: 100,
        time: Duration::from_secs(60),
    }
}

fn endless() -> Body {
    Body::from_stream(stream::repeat_with(|| {
        Ok::<_, std::io::Error>(Bytes::from_static(&[b' '; 65536]))
    }))
}

async fn answer(State(registry): State<Registry>, uri: Uri) -> Response {
    let is_blob = uri.path().contains("/blobs/");
    let digest = match &registry {
        Registry::Serves(archive) => hex(archive),
        _ => "0".repeat(64),
    };
    let layer = json!({"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": format!("sha256:{digest}"), "size": 1});
    let manifest = || {
        json!({"schemaVersion": 2, "layers": [layer]})
            .to_string()
            .into_response()
    };
    match registry {
        Registry::Silent => std::future::pending().await,
        Registry::EndlessManifest => endless().into_response(),
        Registry::EndlessToken if uri.path() == "/token" => endless().into_response(),
        Registry::EndlessToken => {
            let challenge = format!(
                "Bearer realm=\"http://{}/token\",service=\"x\"",
                uri.query().unwrap_or("127.0.0.1:1")
            );
            (StatusCode::UNAUTHORIZED, [("www-authenticate", challenge)]).into_response()
        }
        Registry::Serves(archive) if is_blob => archive.into_response(),
        Registry::EndlessLayer if is_blob => endless().into_response(),
        Registry::LongLayer if is_blob => Response::builder()
            .header("content-length", "99999999999")
            .body(endless())
            .unwrap(),
        _ => manifest(),
    }
}

fn hex(content: &[u8]) -> String {
    sha2::Sha256::digest(content)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// `127.0.0.1:PORT` of a registry that behaves so.
async fn serve(registry: Registry) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = listener.local_addr().unwrap().to_string();
    let router = Router::new().fallback(answer).with_state(registry);
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    host
}

async fn packages(folder: &Path) -> PackageFetcher {
    PackageFetcher {
        folder: folder.canonicalize().unwrap(),
        offline: false,
        core: core().await,
        executable: env!("CARGO_BIN_EXE_konverge").into(),
        sandbox: SandboxMode::Required,
        bounds: bounds(),
        environment: BTreeMap::from([("PATH".to_owned(), std::env::var("PATH").unwrap())]),
        whole: Arc::default(),
        unlocked: Arc::default(),
        asker: PackageTrust::Own,
        checkout: Checkout::default(),
    }
}

fn wanted(requirement: &serde_json::Value, contents: &[&str]) -> Vec<RemotePackage> {
    use base64::Engine as _;
    let sum = sha2::Sha256::digest(contents.concat());
    vec![RemotePackage {
        name: "lib".to_owned(),
        declared: "lib".to_owned(),
        requirement: requirement.to_string(),
        locked: LockedPackage {
            checksum: Some(base64::engine::general_purpose::STANDARD.encode(sum)),
            ..LockedPackage::default()
        },
    }]
}

/// Asks for a package, and says why it was refused; nothing of it is left.
async fn refused(packages: &PackageFetcher, requirement: &serde_json::Value) -> String {
    let wanted = wanted(requirement, &["x"]);
    let error = packages
        .resolve(&wanted, &PackageLock::default())
        .await
        .unwrap_err();
    assert_eq!(std::fs::read_dir(&packages.folder).unwrap().count(), 0, "{error}");
    chain(&error)
}

fn oci(host: &str) -> serde_json::Value {
    json!({"oci": format!("oci://{host}/lib"), "tag": "1"})
}

/// An archive that a few lines of Python make: `add(name, bytes)`, into `tar`, compressed.
fn archive(script: &str) -> Bytes {
    let program = format!(
        "import io, sys, tarfile\nout = io.BytesIO()\nwith tarfile.open(fileobj=out, mode='w:gz', format=tarfile.PAX_FORMAT) as tar:\n    def add(name, data, **more):\n        info = tarfile.TarInfo(name)\n        info.size = len(data)\n        for key, value in more.items(): setattr(info, key, value)\n        tar.addfile(info, io.BytesIO(data))\n    {}\nsys.stdout.buffer.write(out.getvalue())\n",
        script.replace('\n', "\n    ")
    );
    let output = std::process::Command::new(interpreter())
        .args(["-c", &program])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout.into()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_never_ends_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let packages = packages(folder.path()).await;
    for (registry, words) in [
        (Registry::EndlessManifest, "sends more than"),
        (Registry::EndlessLayer, "sends more than 1048576 bytes"),
        (Registry::LongLayer, "sends more than 1048576 bytes"),
    ] {
        let host = serve(registry).await;
        let said = refused(&packages, &oci(&host)).await;
        assert!(said.contains(words) && said.contains(&host), "{said}");
    }
    let token = serve(Registry::EndlessToken).await;
    let said = refused(&packages, &oci(&token)).await;
    assert!(said.contains(&token), "{said}");
    let impatient = PackageFetcher {
        bounds: Bounds {
            time: Duration::from_millis(300),
            ..bounds()
        },
        ..packages
    };
    let said = refused(&impatient, &oci(&serve(Registry::Silent).await)).await;
    assert!(said.contains("did not answer within"), "{said}");
}

/// What a raw server sends once it was asked: `head`, and then `part` again and again, after a pause each time.
async fn send_without_end(head: &'static str, part: &'static [u8], pause: Duration) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut question = [0; 4096];
                let _ = connection.read(&mut question).await;
                let mut sent = connection.write_all(head.as_bytes()).await;
                while sent.is_ok() {
                    tokio::time::sleep(pause).await;
                    sent = connection.write_all(part).await;
                }
            });
        }
    });
    host
}

/// Servers that speak no proper HTTP: a head that never ends, a body without a length that never ends, and drops of
/// either that come as long as anybody waits.
#[tokio::test(flavor = "multi_thread")]
async fn a_socket_that_never_ends_is_left() {
    const BODY: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n";
    const HEAD: &str = "HTTP/1.1 200 OK\r\n";
    const HEADER: &[u8] = b"X-More: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n";
    static MUCH: [u8; 65536] = [b' '; 65536];
    let folder = tempfile::tempdir().unwrap();
    let packages = packages(folder.path()).await;
    let host = send_without_end(BODY, &MUCH, Duration::ZERO).await;
    let said = refused(&packages, &oci(&host)).await;
    assert!(
        said.contains("sends more than 4194304 bytes") && said.contains(&host),
        "{said}"
    );
    let host = send_without_end(HEAD, HEADER, Duration::ZERO).await;
    let said = refused(&packages, &oci(&host)).await;
    assert!(
        said.contains(&host) && !said.contains("did not answer within"),
        "{said}"
    );

    let impatient = PackageFetcher {
        bounds: Bounds {
            time: Duration::from_millis(500),
            ..bounds()
        },
        ..packages
    };
    let drop_of = Duration::from_millis(20);
    for (head, part) in [(BODY, &b" "[..]), (HEAD, HEADER), ("", b"")] {
        let host = send_without_end(head, part, drop_of).await;
        let said = refused(&impatient, &oci(&host)).await;
        assert!(said.contains("did not answer within"), "{head:?}: {said}");
        // The same over git's own protocol: its process is ended with the time.
        let requirement = json!({"git": format!("http://{host}/lib"), "tag": "v1"});
        let said = refused(&impatient, &requirement).await;
        assert!(
            said.contains("git did not end within") || said.contains("did not end"),
            "{head:?}: {said}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_that_unfolds_is_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let packages = packages(folder.path()).await;
    for (script, words) in [
        ("add('a.k', bytes(50 << 20))", "more than 2097152 bytes"),
        (
            "for n in range(60): add('a%d.k' % n, bytes(1 << 20))",
            "more than 2097152 bytes",
        ),
        // What is passed over unfolds as well.
        (
            "for n in range(60): add('d%d' % n, bytes(1 << 20), type=b'V')",
            "more than 2097152 bytes",
        ),
        (
            "add('a.k', b'', pax_headers={'comment': 'x' * (40 << 20)})",
            "more than 2097152 bytes",
        ),
        (
            "for n in range(1000): add('f/%d.k' % n, b'')",
            "more than 100 files",
        ),
        (
            "for n in range(1000): add('f/%d' % n, b'', type=tarfile.DIRTYPE)",
            "more than 100 files",
        ),
        ("add('../evil.k', b'x')", "the archive holds the path"),
        ("add('/evil.k', b'x')", "the archive holds the path"),
    ] {
        let archive = archive(script);
        assert!(archive.len() < 1 << 20, "{} bytes are fetched", archive.len());
        let host = serve(Registry::Serves(archive)).await;
        let said = refused(&packages, &oci(&host)).await;
        assert!(said.contains(words), "{script}: {said}");
    }
    let host = serve(Registry::Serves(Bytes::from_static(
        b"no archive at all, but long enough to be looked at",
    )))
    .await;
    let said = refused(&packages, &oci(&host)).await;
    assert!(said.contains("cannot be unpacked"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_package_within_its_bounds_is_unpacked() {
    let folder = tempfile::tempdir().unwrap();
    let packages = packages(folder.path()).await;
    let code = "a = 1\n".repeat(10_000);
    let archive = archive(&format!(
        "add('kcl.mod', b\"{}\")\nadd('deep/er/size.k', b'a = 1\\n' * 10000)\nadd('link', b'', type=tarfile.SYMTYPE, linkname='/etc/passwd')",
        MODULE.escape_default()
    ));
    let host = serve(Registry::Serves(archive)).await;
    // In walking order: a folder where its name stands.
    let all = wanted(&oci(&host), &[&code, MODULE]);
    let found = packages.resolve(&all, &PackageLock::default()).await.unwrap();
    assert_eq!(
        std::fs::read_to_string(found[0].folder.join("deep/er/size.k")).unwrap(),
        code
    );
    assert!(!found[0].folder.join("link").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_that_is_too_large_is_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let packages = packages(folder.path()).await;
    let requirement = |repository: &Repository| json!({"git": format!("file://{}", repository.path().display()), "tag": "v1"});
    let tagged = |write: &dyn Fn(&Repository)| {
        let repository = Repository::init();
        repository.write("kcl.mod", MODULE);
        write(&repository);
        repository.commit("A package");
        repository.git(["tag", "v1"]);
        repository
    };
    let noise: Vec<u8> = (0..200_000_u64)
        .flat_map(|n| sha2::Sha256::digest(n.to_le_bytes()))
        .collect();
    let large = tagged(&|repository| {
        repository.write("noise.k", &noise);
    });
    let unfolding = tagged(&|repository| {
        repository.write("zeros.k", vec![b' '; 50 << 20]);
    });
    let many = tagged(&|repository| {
        for number in 0..300 {
            repository.write(&format!("f/{number}.k"), "");
        }
    });
    for (repository, words) in [
        (&large, "git was sent more than 1048576 bytes"),
        (&unfolding, "its files hold more than 2097152 bytes"),
        (&many, "more than 100 files"),
    ] {
        let said = refused(&packages, &requirement(repository)).await;
        assert!(said.contains(words), "{said}");
    }
    let commit = large.git(["rev-parse", "HEAD~0"]);
    let whole = json!({"git": format!("file://{}", large.path().display()), "commit": commit.trim()[..12]});
    let said = refused(&packages, &whole).await;
    assert!(said.contains("git was sent more than"), "{said}");
}
