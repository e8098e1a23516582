//! The files and folders that containers mount: ConfigMaps for files with content, Secrets for all others.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::call::ModuleCall;
use crate::{KusionError, kubernetes_object::ObjectName};
use konverge_base::model::spec::Resource;

/// A file as the developer writes it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct FileConfig {
    #[serde(rename = "_type")]
    _schema: Option<String>,
    #[serde(default)]
    content: String,
    #[serde(default)]
    content_from: String,
    mode: String,
}

/// The volumes of a pod, and the ConfigMaps that they need.
#[derive(Default)]
pub(super) struct PodFiles {
    pub(super) volumes: Vec<Value>,
    pub(super) config_maps: Vec<Resource>,
}

/// A reference `secret://NAME[/KEY]`, also written `${secret://NAME/KEY}`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SecretKey {
    pub(super) secret: String,
    pub(super) key: Option<String>,
}

impl SecretKey {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let inner = text.strip_prefix("${").and_then(|text| text.strip_suffix('}'));
        let rest = inner.unwrap_or(text).strip_prefix("secret://")?;
        let mut parts = rest.split('/');
        let secret = parts.next().filter(|name| !name.is_empty())?.to_owned();
        let key = parts.next().filter(|key| !key.is_empty()).map(str::to_owned);
        parts.next().is_none().then_some(Self { secret, key })
    }
}

impl PodFiles {
    /// Adds the volumes of a container's files and folders, and returns its mounts: files, then folders, each
    /// sorted by path.
    pub(super) fn add(
        &mut self,
        call: &ModuleCall<'_>,
        container: &str,
        files: &BTreeMap<String, FileConfig>,
        dirs: &BTreeMap<String, String>,
        notes: &mut Vec<String>,
    ) -> Result<Vec<Value>, KusionError> {
        let mut mounts = Vec::new();
        for (index, (path, file)) in files.iter().enumerate() {
            let refuse = |message: &str| {
                call.refuse(format!(
                    "the file `{}` of `{container}`: {message}",
                    path.escape_debug()
                ))
            };
            let mode = mode(&file.mode).ok_or_else(|| refuse("its mode must be octal, such as `0644`"))?;
            if !file.mode.starts_with('0') {
                notes.push(format!(
                    "`{}`: the mode `{}` of the file `{}` has no 0 in front and is read as a decimal number, {mode:#o}",
                    call.app,
                    file.mode,
                    path.escape_debug()
                ));
            }
            let (folder, name) = split(path).ok_or_else(|| refuse("its path has no file name"))?;
            if !file.content_from.is_empty() {
                let Some(SecretKey {
                    secret,
                    key: Some(key),
                }) = SecretKey::parse(&file.content_from)
                else {
                    return Err(refuse("`contentFrom` must be `secret://NAME/KEY`"));
                };
                self.volumes
                    .push(json!({"name": secret, "secret": {"defaultMode": mode, "secretName": secret}}));
                mounts.push(json!({"mountPath": rooted(path), "name": secret, "subPath": key}));
            } else if file.content.is_empty() {
                notes.push(format!(
                    "`{}`: the file `{}` of the container `{container}` is empty, and Kusion mounts no empty file",
                    call.app,
                    path.escape_debug()
                ));
            } else {
                let volume = format!("{}-{container}-{index}", call.unique_name());
                self.config_maps
                    .push(config_map(call, &volume, name, &file.content)?);
                self.volumes
                    .push(json!({"configMap": {"defaultMode": mode, "name": volume}, "name": volume}));
                mounts.push(json!({"mountPath": folder, "name": volume}));
            }
        }
        for (path, reference) in dirs {
            let Some(SecretKey { secret, .. }) = SecretKey::parse(reference) else {
                let message = format!(
                    "the folder `{}` of `{container}`: write `secret://NAME`",
                    path.escape_debug()
                );
                return Err(call.refuse(message));
            };
            self.volumes
                .push(json!({"name": secret, "secret": {"secretName": secret}}));
            mounts.push(json!({"mountPath": rooted(path), "name": secret}));
        }
        Ok(mounts)
    }
}

fn config_map(call: &ModuleCall<'_>, name: &str, file: &str, content: &str) -> Result<Resource, KusionError> {
    let object = ObjectName {
        api_version: "v1",
        kind: "ConfigMap",
        namespace: Some(call.namespace),
        name,
    };
    let data = json!({ file: content });
    let body = Map::from_iter([("data".to_owned(), data)]);
    object.resource(call.app, &Map::new(), &Map::new(), body)
}

/// Parses the permission bits as Go parses a number: `0644` is octal, `420` decimal.
fn mode(text: &str) -> Option<u16> {
    let bits = match text.strip_prefix("0o").or_else(|| text.strip_prefix('0')) {
        Some("") => Ok(0),
        Some(octal) => u16::from_str_radix(octal, 8),
        None => text.parse(),
    };
    bits.ok().filter(|bits| *bits <= 0o777)
}

/// Splits a path into folder and file name, cleaned as by Go's `filepath.Dir`.
fn split(path: &str) -> Option<(String, &str)> {
    let (folder, name) = path.rsplit_once('/').unwrap_or((".", path));
    let folder = if path.starts_with('/') {
        rooted(folder)
    } else if folder.split('/').all(|part| matches!(part, "" | ".")) {
        ".".to_owned()
    } else {
        rooted(folder).trim_start_matches('/').to_owned()
    };
    (!matches!(name, "" | "." | "..")).then_some((folder, name))
}

/// Returns the path below the root, cleaned as by Go's `filepath.Join`.
fn rooted(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cleaned_as_go_does() {
        for (path, clean) in [
            ("/var/x/", "/var/x"),
            ("a//b/./c", "/a/b/c"),
            ("/a/../../b", "/b"),
            ("", "/"),
        ] {
            assert_eq!(rooted(path), clean, "{path}");
        }
        for (path, folder) in [
            ("/etc/a.conf", "/etc"),
            ("/etc//x/a", "/etc/x"),
            ("a", "."),
            ("./a", "."),
            ("b/a", "b"),
            ("/a", "/"),
        ] {
            assert_eq!(
                split(path).map(|(folder, _)| folder),
                Some(folder.to_owned()),
                "{path}"
            );
        }
        assert_eq!(split("/etc/.."), None);
    }

    #[test]
    fn a_mode_is_read_as_go_reads_numbers() {
        for (text, bits) in [
            ("0777", Some(511)),
            ("0644", Some(420)),
            ("420", Some(420)),
            ("644", None),
            ("0888", None),
            ("", None),
        ] {
            assert_eq!(mode(text), bits, "{text}");
        }
    }

    #[test]
    fn a_path_has_a_name() {
        let parts = |path| split(path).map(|(folder, name)| format!("{folder} {name}"));
        assert_eq!(parts("/tmp/example.txt").as_deref(), Some("/tmp example.txt"));
        assert_eq!(parts("/example.txt").as_deref(), Some("/ example.txt"));
        for path in ["/tmp/", "/", "", "/tmp/.."] {
            assert_eq!(split(path), None, "{path}");
        }
    }
}
