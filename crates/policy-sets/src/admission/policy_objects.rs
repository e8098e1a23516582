//! The objects in the files of a set of Kubernetes policies: admission policies with their bindings, or
//! Gatekeeper's templates with their constraints.

use std::fmt::Display;

use konverge_base::model::GroupKind;
use serde_json::Value;

use super::request::{self, AdmissionRequest, Namespaces, Plurals};
use crate::{possible_reads::Mentions, rule::PolicyFile};

/// An object of a set.
pub(crate) struct PolicyObject {
    pub name: String,
    pub object: Value,
    /// The path of the file that contains the object.
    path: String,
}

impl PolicyObject {
    /// Parses all objects of the files.
    ///
    /// # Errors
    /// A file that is not YAML.
    pub(crate) fn read(files: &[PolicyFile]) -> Result<Vec<Self>, String> {
        let mut found = Vec::new();
        for file in files {
            let documents = konverge_base::yaml::documents(&file.text)
                .map_err(|error| format!("{}: {error}", file.path))?;
            let objects = documents.into_iter().flat_map(objects_of);
            found.extend(objects.filter(|object| !object.is_null()).map(|object| Self {
                name: object["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
                object,
                path: file.path.clone(),
            }));
        }
        Ok(found)
    }

    /// Returns an error message that names the object and its file.
    pub(crate) fn error(&self, why: impl Display) -> String {
        format!("{}: {}: {why}", self.path, self.name)
    }

    /// Returns the kind of the object if its API version starts with `group`, which ends in `/`.
    pub(crate) fn kind_in(&self, group: &str) -> Option<&str> {
        let api_version = self.object["apiVersion"].as_str().unwrap_or_default();
        let is_in = api_version.starts_with(group);
        is_in.then(|| self.object["kind"].as_str().unwrap_or_default())
    }
}

/// Returns the objects of a YAML document: the items if it is a `List`, as `kubectl get` prints it, or else the
/// document itself.
fn objects_of(mut document: Value) -> Vec<Value> {
    let is_list = document["kind"] == "List" && document["apiVersion"] == "v1";
    match document.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) if is_list => items,
        Some(items) => {
            document["items"] = items;
            vec![document]
        }
        None => vec![document],
    }
}

/// Facts about the cluster that files of a set declare.
#[derive(Default)]
pub(crate) struct KnownCluster {
    pub namespaces: Namespaces,
    pub plurals: Plurals,
}

impl KnownCluster {
    /// Adds the object if it is a Namespace or a CustomResourceDefinition.
    pub(crate) fn add(&mut self, of: &PolicyObject) {
        request::add_plural(&mut self.plurals, &of.object);
        if GroupKind::from_object(&of.object) == GroupKind::NAMESPACE {
            self.namespaces.insert(of.name.clone(), of.object.clone());
        }
    }
}

/// The values that a rule reads and that only the cluster has, found by the words in the source. Searched once for
/// each rule.
pub(crate) struct ClusterReads {
    word: Option<&'static str>,
    reads_namespace: bool,
}

impl ClusterReads {
    /// Searches the words of a rule for `words`, the names of values that only the cluster has.
    pub(crate) fn of(mentions: &Mentions, words: &'static [&'static str]) -> Self {
        let mut words = words.iter().copied();
        Self {
            word: words.find(|word| mentions.has_word(word)),
            reads_namespace: mentions.has_word("namespaceObject"),
        }
    }

    /// Returns the reason why the rule cannot be evaluated on a request before the apply; `None` if it can. The
    /// message calls the rule `reader`, and the component that has the value `knower`.
    pub(crate) fn missing(
        &self,
        reader: &str,
        knower: &str,
        request: &AdmissionRequest<'_>,
        namespaces: &Namespaces,
    ) -> Option<String> {
        if let Some(word) = self.word {
            return Some(format!(
                "the {reader} reads `{word}`, which only the {knower} knows"
            ));
        }
        let mut namespace = request.own_namespace().into_iter();
        let is_missing = self.reads_namespace && namespace.any(|name| !namespaces.contains_key(name));
        is_missing.then(|| {
            format!("the {reader} reads `namespaceObject`, and the Namespace is not part of the stack")
        })
    }
}
