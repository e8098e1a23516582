//! Packages of `kcl.mod` from a git repository and an OCI registry: fetched once, checked, refused if they differ.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use konverge_base::{
    checkout::Checkout,
    error::chain,
    model::{
        package_lock::{LockedPackage, PackageLock},
        stack::RemotePackage,
    },
};
use konverge_kcl::{
    Bounds, CompileRequest, KclError, KnownPackages, PackageFetcher, PackageTrust, Pool, SandboxMode,
};

use crate::support::{
    compiler::{core, options, request},
    git::Repository,
    package_registry::sum,
    stores::Registry,
};

pub(super) async fn packages(folder: &Path) -> PackageFetcher {
    let path = std::env::var("PATH").unwrap();
    PackageFetcher {
        folder: folder.canonicalize().unwrap(),
        offline: false,
        core: core().await,
        executable: env!("CARGO_BIN_EXE_konverge").into(),
        sandbox: SandboxMode::BestEffort,
        bounds: Bounds::default(),
        environment: BTreeMap::from([("PATH".to_owned(), path)]),
        whole: Arc::default(),
        unlocked: Arc::default(),
        asker: PackageTrust::Own,
        checkout: Checkout::default(),
    }
}

pub(super) fn wanted(requirement: &serde_json::Value, checksum: Option<&str>) -> Vec<RemotePackage> {
    vec![RemotePackage {
        name: "lib".to_owned(),
        declared: "lib".to_owned(),
        requirement: requirement.to_string(),
        locked: LockedPackage {
            checksum: checksum.map(str::to_owned),
            ..LockedPackage::default()
        },
    }]
}

/// The folders of packages, as their lock allows.
pub(super) async fn resolve(
    packages: &PackageFetcher,
    wanted: &[RemotePackage],
    lock: &str,
) -> Result<Vec<(String, std::path::PathBuf)>, KclError> {
    let lock = PackageLock::parse(lock.as_bytes()).unwrap();
    let found = packages.resolve(wanted, &lock).await?.into_iter();
    Ok(found.map(|package| (package.name, package.folder)).collect())
}

pub(super) const MODULE: &str = "[package]\nname = \"lib\"\nversion = \"0.1.0\"\n";
pub(super) const CODE: &str = "schema Size:\n    cpu: int = 2\n";

/// A repository with the package at its root, tagged `v1`.
pub(super) fn library() -> Repository {
    let library = Repository::init();
    library.write("kcl.mod", MODULE).write("size.k", CODE);
    library.commit("The library");
    library.git(["tag", "v1"]);
    library
}

async fn compile_with(folder: &Path, found: Vec<(String, std::path::PathBuf)>) -> serde_json::Value {
    let mut options = options().await;
    options.packages = Some(folder.canonicalize().unwrap());
    let pool = Pool::start(options).await.unwrap();
    let files = [("kcl.mod", ""), ("main.k", "import lib\na = lib.Size {}\n")];
    let request = CompileRequest {
        packages: found,
        ..request(&files, "", &["main.k"])
    };
    pool.compile(&request).await.unwrap().documents[0].clone()
}

#[tokio::test]
async fn a_git_package_is_fetched_once_checked_and_compiled() {
    let (library, folder) = (library(), tempfile::tempdir().unwrap());
    let packages = packages(folder.path()).await;
    let url = format!("file://{}", library.path().display());
    let requirement = serde_json::json!({"git": url, "tag": "v1"});
    let good = sum(&[MODULE, CODE]);
    let found = resolve(&packages, &wanted(&requirement, Some(&good)), "")
        .await
        .unwrap();
    assert_eq!(
        compile_with(folder.path(), found.clone()).await,
        serde_json::json!({"a": {"cpu": 2}})
    );
    // The server is gone; the folder is enough.
    drop(library);
    let offline = PackageFetcher {
        offline: true,
        ..packages.clone()
    };
    assert_eq!(
        resolve(&offline, &wanted(&requirement, Some(&good)), "")
            .await
            .unwrap(),
        found
    );
    let other = serde_json::json!({"git": url, "tag": "v2"});
    let error = resolve(&offline, &wanted(&other, Some(&good)), "")
        .await
        .unwrap_err();
    assert!(matches!(error, KclError::Offline(_)), "{error}");
}

#[tokio::test]
async fn a_commit_a_branch_and_a_package_in_a_folder_are_found() {
    let (library, folder) = (library(), tempfile::tempdir().unwrap());
    library
        .write("nested/deep/kcl.mod", MODULE.replace("lib", "inner"))
        .write("nested/deep/x.k", "x = 1\n");
    let commit = library.commit("A package in a folder");
    let packages = packages(folder.path()).await;
    let url = format!("file://{}", library.path().display());
    let inner = sum(&[&MODULE.replace("lib", "inner"), "x = 1\n"]);
    for requirement in [
        serde_json::json!({"git": url, "commit": commit, "package": "inner"}),
        serde_json::json!({"git": url, "branch": "main", "package": "nested/deep"}),
    ] {
        let found = resolve(&packages, &wanted(&requirement, Some(&inner)), "")
            .await
            .unwrap();
        assert!(found[0].1.join("x.k").is_file(), "{requirement}");
        assert!(!found[0].1.join(".git").exists());
    }
    // A whole commit id pins by itself.
    let by_commit = serde_json::json!({"git": url, "commit": commit});
    resolve(&packages, &wanted(&by_commit, None), "").await.unwrap();
}

#[tokio::test]
async fn what_differs_from_its_lock_is_refused_and_not_kept() {
    let (library, folder) = (library(), tempfile::tempdir().unwrap());
    let packages = packages(folder.path()).await;
    let url = format!("file://{}", library.path().display());
    let requirement = serde_json::json!({"git": url, "tag": "v1"});
    let wrong = sum(&["something else"]);
    for _ in 0..2 {
        let error = resolve(&packages, &wanted(&requirement, Some(&wrong)), "")
            .await
            .unwrap_err();
        assert!(matches!(error, KclError::PackageDiffers { .. }), "{error}");
        let right = sum(&[MODULE, CODE]);
        assert!(!chain(&error).contains(&right), "{error}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn what_was_fetched_before_is_checked_again() {
    let (library, folder) = (library(), tempfile::tempdir().unwrap());
    let url = format!("file://{}", library.path().display());
    let all = wanted(
        &serde_json::json!({"git": url, "tag": "v1"}),
        Some(&sum(&[MODULE, CODE])),
    );
    let found = resolve(&packages(folder.path()).await, &all, "").await.unwrap();
    let file = found[0].1.join("size.k");
    std::fs::write(&file, CODE.replace('2', "200")).unwrap();

    let offline = PackageFetcher {
        offline: true,
        ..packages(folder.path()).await
    };
    let error = chain(&resolve(&offline, &all, "").await.unwrap_err());
    assert!(error.contains("does not match kcl.mod.lock"), "{error}");
    let again = resolve(&packages(folder.path()).await, &all, "").await.unwrap();
    assert_eq!(again, found);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), CODE);
}

#[tokio::test]
async fn a_package_brings_its_own_dependencies() {
    let (inner, outer, folder) = (library(), Repository::init(), tempfile::tempdir().unwrap());
    let url = |repository: &Repository| format!("file://{}", repository.path().display());
    let module = format!(
        "[package]\nname = \"outer\"\n[dependencies]\nlib = {{ git = \"{}\", tag = \"v1\" }}\n",
        url(&inner)
    );
    outer.write("kcl.mod", &module);
    let commit = outer.commit("Depends on lib");
    let lock = format!(
        "[dependencies.lib]\nname = \"lib\"\nsum = \"{}\"\n",
        sum(&[MODULE, CODE])
    );
    let mut outer_wanted = wanted(&serde_json::json!({"git": url(&outer), "commit": commit}), None);
    outer_wanted[0].name = "outer".to_owned();
    let found = resolve(&packages(folder.path()).await, &outer_wanted, &lock)
        .await
        .unwrap();
    let names: Vec<_> = found.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["outer", "lib"]);
}

/// A stranger gets what the branch has, and nothing that differs from it in place, checksum or lock.
#[tokio::test]
async fn a_stranger_names_no_package_and_no_place() {
    let folder = tempfile::tempdir().unwrap();
    let own = packages(folder.path()).await;
    let lock = |name: &str, sum: &str| format!("[dependencies.{name}]\nname = \"{name}\"\nsum = \"{sum}\"\n");
    // A port that nobody serves: what is let through says that git found no one.
    let there = serde_json::json!({"git": "https://127.0.0.1:1/lib", "tag": "v1"});
    let base = wanted(&there, Some("one"));
    let mut known = KnownPackages::default();
    known.add_wanted(&base);
    known.add_lock(&PackageLock::parse(lock("lib", "one").as_bytes()).unwrap());
    let local = serde_json::json!({"oci": "oci://localhost:1/lib", "tag": "1"});
    let on_disk = serde_json::json!({"git": "file:///srv/lib", "tag": "v1"});
    let by_key = serde_json::json!({"git": "ssh://git@127.0.0.1:1/lib", "tag": "v1"});
    for refused in [&local, &on_disk, &by_key] {
        known.add_wanted(&wanted(refused, Some("one")));
    }
    let stranger = PackageFetcher {
        asker: PackageTrust::Outside(known),
        ..own
    };
    let ask = async |asked: &[RemotePackage], lock: &str| {
        let error = resolve(&stranger, asked, lock).await.unwrap_err();
        (matches!(error, KclError::UnknownPackage(_)), chain(&error))
    };
    let (unknown, said) = ask(&base, &lock("lib", "one")).await;
    assert!(!unknown && said.contains("git: "), "{said}");
    for (asked, lock) in [
        (wanted(&there, Some("two")), lock("lib", "one")),
        (
            wanted(
                &serde_json::json!({"git": "https://127.0.0.1:1/other", "tag": "v1"}),
                Some("one"),
            ),
            lock("lib", "one"),
        ),
        (base.clone(), lock("lib", "two")),
    ] {
        let (unknown, said) = ask(&asked, &lock).await;
        assert!(unknown, "{asked:?}: {said}");
    }
    for refused in [&local, &on_disk, &by_key] {
        let (unknown, said) = ask(&wanted(refused, Some("one")), "").await;
        assert!(!unknown && said.contains("over TLS alone"), "{refused}: {said}");
    }
}

#[tokio::test]
#[ignore = "needs the part `registry`: make test-all"]
async fn an_oci_package_is_pulled_checked_and_compiled() {
    use oci_client::{
        Client, Reference,
        client::{ClientConfig, ClientProtocol, Config, ImageLayer},
        secrets::RegistryAuth,
    };
    let (registry, source, folder) = (
        Registry::start(),
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
    );
    std::fs::write(source.path().join("kcl.mod"), MODULE).unwrap();
    std::fs::write(source.path().join("size.k"), CODE).unwrap();
    let tar = std::process::Command::new("tar")
        .args(["-C", source.path().to_str().unwrap(), "-c", "kcl.mod", "size.k"])
        .output()
        .unwrap()
        .stdout;
    let client = Client::new(ClientConfig {
        protocol: ClientProtocol::Http,
        ..ClientConfig::default()
    });
    let repository = format!("{}/kcl/lib", registry.host());
    let reference: Reference = format!("{repository}:0.1.0").parse().unwrap();
    let layer = ImageLayer::new(tar, "application/vnd.oci.image.layer.v1.tar".to_owned(), None);
    let config = Config::oci_v1(b"{}".to_vec(), None);
    client
        .push(&reference, &[layer], config, &RegistryAuth::Anonymous, None)
        .await
        .unwrap();

    let packages = packages(folder.path()).await;
    let requirement = serde_json::json!({"oci": format!("oci://{repository}"), "tag": "0.1.0"});
    let wrong = sum(&["x"]);
    let error = resolve(&packages, &wanted(&requirement, Some(&wrong)), "")
        .await
        .unwrap_err();
    assert!(matches!(error, KclError::PackageDiffers { .. }), "{error}");
    let good = sum(&[MODULE, CODE]);
    let found = resolve(&packages, &wanted(&requirement, Some(&good)), "")
        .await
        .unwrap();
    assert_eq!(
        compile_with(folder.path(), found).await,
        serde_json::json!({"a": {"cpu": 2}})
    );
    let missing = serde_json::json!({"oci": format!("oci://{repository}"), "tag": "9"});
    let error = resolve(&packages, &wanted(&missing, Some(&good)), "")
        .await
        .unwrap_err();
    assert!(matches!(error, KclError::Package { .. }), "{error}");
}
