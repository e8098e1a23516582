//! Packages of providers, unpacked once and shared by runs side by side: from a mirror of archives, as a registry would
//! give them.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use konverge_base::model::plan::Action;
use konverge_engine::runtime::Runtime;
use konverge_state::Sealer;
use serde_json::json;
use tempfile::TempDir;

use super::{
    interruption,
    runtime_fixture::{Rig, Sink, StateSeal},
};
use crate::support::terraform;

/// A mirror in the packed layout: one archive for each registry.
fn packed_mirror() -> TempDir {
    let mirror = TempDir::new().unwrap();
    for registry in ["registry.terraform.io", "registry.opentofu.org"] {
        let package = terraform::mirror()
            .join(registry)
            .join("hashicorp/local/2.9.0/linux_amd64");
        let folder = mirror.path().join(registry).join("hashicorp/local");
        std::fs::create_dir_all(&folder).unwrap();
        let files = std::fs::read_dir(package)
            .unwrap()
            .map(|file| file.unwrap().path());
        let packed = Command::new("python3")
            .args(["-m", "zipfile", "-c"])
            .arg(folder.join("terraform-provider-local_2.9.0_linux_amd64.zip"))
            .args(files)
            .status()
            .unwrap();
        assert!(packed.success());
    }
    mirror
}

fn rig(binary: &Path, mirror: &Path, cache: &Path) -> Rig {
    with_key(binary, mirror, cache, &Sealer::generate())
}

fn with_key(binary: &Path, mirror: &Path, cache: &Path, key: &Sealer) -> Rig {
    Rig::with(binary.to_owned(), |options| {
        options.mirror = Some(mirror.to_owned());
        options.plugin_cache = Some(cache.to_owned());
        options.key = Some(Arc::new(StateSeal(key.clone())));
    })
}

/// The provider's executables in a folder.
fn executables(cache: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    super::runtime_fixture::walk(cache, &mut files);
    files.retain(|file| {
        file.file_name()
            .unwrap()
            .to_string_lossy()
            .contains("provider-local")
    });
    files
}

pub async fn shared_by_runs_side_by_side(binary: PathBuf) {
    let (mirror, cache) = (packed_mirror(), TempDir::new().unwrap());
    // One run executes the provider for as long as the test likes.
    let first = rig(&binary, mirror.path(), cache.path());
    interruption::pipe(&first.path("slow"));
    let planned = first.plan(&[first.file("slow", json!("slow"))]).await.remove(0);
    let kept = executables(cache.path());
    assert_eq!(kept.len(), 1, "{kept:?}");
    let sink = Sink::default();
    let slow = first.runtime.apply(&first.scope, planned, &sink);
    let others = async {
        let run = || async {
            let mut rig = rig(&binary, mirror.path(), cache.path());
            let wanted = [rig.file("quick", json!("quick"))];
            rig.apply(&wanted).await;
            assert!(rig.path("quick").exists());
        };
        tokio::join!(run(), run(), run(), run());
        assert!(sink.end_of("slow").is_none(), "the first run is still under way");
        interruption::read_pipe(first.path("slow")).await;
    };
    let (slow, ()) = tokio::join!(slow, others);
    slow.unwrap();
    assert!(sink.end_of("slow").unwrap().is_ok());

    // Runs that find the folder empty at the same time: one package comes of it.
    let cache = TempDir::new().unwrap();
    let run = || async {
        let rig = rig(&binary, mirror.path(), cache.path());
        rig.actions(&[rig.file("new", json!("new"))]).await["new"]
    };
    let made = tokio::join!(run(), run(), run(), run());
    assert_eq!(
        made,
        (Action::Create, Action::Create, Action::Create, Action::Create)
    );
    assert_eq!(executables(cache.path()).len(), 1);
    let left: Vec<_> = std::fs::read_dir(cache.path()).unwrap().flatten().collect();
    assert_eq!(left.len(), 1, "nothing half-made is left: {left:?}");

    // What is kept is used: the mirror is empty now.
    let empty = TempDir::new().unwrap();
    let offline = rig(&binary, empty.path(), cache.path());
    assert_eq!(
        offline.actions(&[offline.file("x", json!("x"))]).await["x"],
        Action::Create
    );
}

pub async fn a_damaged_package(binary: PathBuf) {
    let (mirror, cache) = (packed_mirror(), TempDir::new().unwrap());
    let key = Sealer::generate();
    let mut first = with_key(&binary, mirror.path(), cache.path(), &key);
    let wanted = [first.file("x", json!("x"))];
    first.apply(&wanted).await;
    let [executable]: [PathBuf; 1] = executables(cache.path()).try_into().unwrap();
    std::fs::remove_file(&executable).unwrap();
    std::fs::write(&executable, "damaged").unwrap();
    // The hash of the first use is remembered: what does not have it is taken from the mirror again.
    let mut second = with_key(&binary, mirror.path(), cache.path(), &key);
    second.scope = first.scope.clone();
    second.recorded = first.recorded.clone();
    assert_eq!(second.actions(&wanted).await["x"], Action::Unchanged);
}
