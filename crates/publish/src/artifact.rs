//! [`Artifact`]: the bytes of an OCI artifact, which depend only on its files and annotations.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write as _,
};

use flate2::{Compression, GzBuilder};
use serde_json::json;
use sha2::{Digest as _, Sha256};

/// The media types of the parts. Argo CD accepts only layers of known types; Flux uses the first layer.
pub(crate) const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG_TYPE: &str = "application/vnd.cncf.flux.config.v1+json";
const LAYER_TYPE: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// An artifact of one layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Artifact {
    pub(crate) manifest: Vec<u8>,
    pub(crate) config: Vec<u8>,
    pub(crate) layer: Vec<u8>,
}

impl Artifact {
    /// Creates an artifact of files, by path. Owners and times are 0, so that equal files have equal bytes.
    pub fn new(files: &BTreeMap<String, Vec<u8>>, annotations: &BTreeMap<String, String>) -> Self {
        let config = b"{}".to_vec();
        let layer = compress(&archive(files));
        let part = |kind: &str, content: &[u8]| json!({"mediaType": kind, "digest": digest(content), "size": content.len()});
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": part(CONFIG_TYPE, &config),
            "layers": [part(LAYER_TYPE, &layer)],
            "annotations": annotations,
        });
        Self {
            manifest: manifest.to_string().into_bytes(),
            config,
            layer,
        }
    }

    /// Returns the digest of the manifest, which identifies the artifact.
    pub fn digest(&self) -> String {
        digest(&self.manifest)
    }
}

/// Returns the digest of bytes: `sha256:` and 64 hexadecimal digits.
pub(crate) fn digest(content: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(content)))
}

fn archive(files: &BTreeMap<String, Vec<u8>>) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    let folders: BTreeSet<String> = files.keys().flat_map(|path| folders_of(path)).collect();
    for folder in folders {
        add(&mut archive, &folder, &[], tar::EntryType::Directory, 0o755);
    }
    for (path, content) in files {
        add(&mut archive, path, content, tar::EntryType::Regular, 0o644);
    }
    archive.into_inner().expect("memory takes every write")
}

/// Returns the folders of a path, for example `a/` and `a/b/` for `a/b/c`.
fn folders_of(path: &str) -> impl Iterator<Item = String> + '_ {
    path.match_indices('/').map(|(at, _)| path[..=at].to_owned())
}

fn add(archive: &mut tar::Builder<Vec<u8>>, path: &str, content: &[u8], kind: tar::EntryType, mode: u32) {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(content.len() as u64);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    archive
        .append_data(&mut header, path, content)
        .expect("memory takes every write, and the paths are relative");
}

fn compress(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    let written = encoder.write_all(content).and_then(|()| encoder.finish());
    written.expect("memory takes every write")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artifact(files: &[(&str, &str)]) -> Artifact {
        let files = files
            .iter()
            .map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec()));
        Artifact::new(&files.collect(), &BTreeMap::new())
    }

    #[test]
    fn equal_files_are_equal_bytes_and_others_are_not() {
        let one = artifact(&[("manifests/000/a.yaml", "a"), ("konverge.json", "{}")]);
        assert_eq!(
            one,
            artifact(&[("konverge.json", "{}"), ("manifests/000/a.yaml", "a")])
        );
        assert_ne!(
            one.digest(),
            artifact(&[("konverge.json", "{}"), ("manifests/000/a.yaml", "b")]).digest()
        );
        // The time of the build, its user and its system stand nowhere.
        assert_eq!(one.layer[4..8], [0; 4]);
    }

    #[test]
    fn long_paths_and_folders_are_kept() {
        let long = format!("manifests/000/{}.yaml", "x".repeat(180));
        let built = artifact(&[(&long, "content")]);
        let mut content = Vec::new();
        std::io::copy(
            &mut flate2::read::GzDecoder::new(built.layer.as_slice()),
            &mut content,
        )
        .unwrap();
        let mut archive = tar::Archive::new(content.as_slice());
        let entries = archive.entries().unwrap().map(|entry| entry.unwrap());
        let paths: Vec<_> = entries
            .map(|entry| entry.path().unwrap().display().to_string())
            .collect();
        assert_eq!(paths, ["manifests/", "manifests/000/", &long]);
    }
}
