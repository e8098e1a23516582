//! The call of a built-in module, and its result.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::KusionError;
use konverge_base::model::spec::Resource;
use konverge_secrets::without_secrets;

/// Arguments of a call of a built-in module.
pub(crate) struct ModuleCall<'a> {
    pub(crate) project: &'a str,
    pub(crate) stack: &'a str,
    pub(crate) app: &'a str,
    /// The part of the application, for messages.
    pub(crate) place: &'a str,
    /// The namespace of the resources.
    pub(crate) namespace: &'a str,
    /// The order of the variables of a container.
    pub(crate) env_order: EnvOrder,
    /// The developer's settings.
    pub(crate) developer: &'a Value,
    /// The platform's settings.
    pub(crate) platform: &'a Map<String, Value>,
    /// The workload of the application, as the developer wrote it.
    pub(crate) workload: Option<&'a Value>,
}

/// The order of the environment variables of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EnvOrder {
    /// The order in which the developer wrote them: Kusion 0.12.0 keeps it for its own workloads.
    Declared,
    /// The order in which go-yaml sorts keys: modules get the developer's settings as YAML that Kusion wrote.
    Natural,
}

/// Result of a built-in module.
#[derive(Debug, Default)]
pub(crate) struct ModuleOutput {
    /// The workload of the application, if the module makes it.
    pub(crate) workload: Option<Resource>,
    /// The other resources.
    pub(crate) resources: Vec<Resource>,
    /// Notes for the developer.
    pub(crate) notes: Vec<String>,
}

impl ModuleCall<'_> {
    /// Returns the prefix of all names: `<project>-<stack>-<app>`.
    pub(super) fn unique_name(&self) -> String {
        format!("{}-{}-{}", self.project, self.stack, self.app)
    }

    /// Returns the labels of every object, which also select the pods.
    pub(super) fn selector(&self) -> Map<String, Value> {
        let pair = |key: &str, value: &str| (key.to_owned(), Value::String(value.to_owned()));
        Map::from_iter([
            pair("app.kubernetes.io/name", self.app),
            pair("app.kubernetes.io/part-of", self.project),
        ])
    }

    /// Returns an error of this call.
    pub(super) fn refuse(&self, message: impl Into<String>) -> KusionError {
        KusionError::Module {
            app: self.app.to_owned(),
            place: self.place.to_owned(),
            message: message.into(),
        }
    }

    /// Deserializes a part of the settings; `what` names it in errors.
    pub(super) fn read<T: DeserializeOwned>(&self, what: &str, value: &Value) -> Result<T, KusionError> {
        // The message may quote a value, which may be secret.
        T::deserialize(value)
            .map_err(|error| self.refuse(format!("{what}: {}", without_secrets(&error.to_string()))))
    }
}

/// Merges texts by key: a later value replaces an earlier one. The result is sorted by key.
pub(super) fn merge_texts<'a>(
    parts: impl IntoIterator<Item = (&'a String, &'a String)>,
    base: Map<String, Value>,
) -> Map<String, Value> {
    let mut merged: BTreeMap<String, Value> = base.into_iter().collect();
    let texts = parts.into_iter();
    merged.extend(texts.map(|(key, value)| (key.clone(), Value::String(value.clone()))));
    merged.into_iter().collect()
}
