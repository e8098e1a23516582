//! The Secrets that a workload declares.

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{KusionError, apps::App, kubernetes_object::ObjectName};
use konverge_base::model::{spec::Resource, text::json_name};
use konverge_secrets::{SecretReference, SecretTemplate};

/// A secret as the developer declares it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SecretConfig {
    #[serde(rename = "_type")]
    _schema: Option<String>,
    #[serde(rename = "type")]
    kind: SecretKind,
    /// Parameters that Kusion reads but does not use.
    #[serde(rename = "params", default)]
    _params: BTreeMap<String, Value>,
    #[serde(default)]
    data: BTreeMap<String, String>,
    #[serde(default)]
    immutable: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum SecretKind {
    Basic,
    Token,
    Opaque,
    Certificate,
    External,
}

impl SecretKind {
    fn kubernetes_type(self) -> &'static str {
        match self {
            Self::Basic => "kubernetes.io/basic-auth",
            Self::Certificate => "kubernetes.io/tls",
            Self::Token | Self::Opaque | Self::External => "Opaque",
        }
    }

    /// Returns the keys that a secret of this type has; `None` if any key is allowed.
    fn keys(self) -> Option<&'static [&'static str]> {
        match self {
            Self::Basic => Some(&["username", "password"]),
            Self::Token => Some(&["token"]),
            Self::Certificate => Some(&["tls.crt", "tls.key"]),
            Self::Opaque | Self::External => None,
        }
    }
}

/// Generates the Secrets of an application's workload, sorted by name. An external secret keeps its
/// references, which are resolved when it is applied. A value that Kusion would generate anew at each run
/// becomes a reference to a value that is generated once.
pub(super) fn generate(
    app: &App,
    namespace: &str,
    notes: &mut Vec<String>,
) -> Result<Vec<Resource>, KusionError> {
    let Some(workload) = &app.workload else {
        return Ok(Vec::new());
    };
    let refuse = |name: &str, message: String| KusionError::App {
        app: app.name.clone(),
        message: format!("the secret `{}`: {message}", name.escape_debug()),
    };
    let mut declared: Vec<(&String, &Value)> = match workload.config.get("secrets") {
        Some(Value::Object(secrets)) => secrets.iter().collect(),
        None | Some(Value::Null) => Vec::new(),
        Some(_) => {
            return Err(KusionError::App {
                app: app.name.clone(),
                message: "`secrets` of the workload must be a dictionary of secrets".to_owned(),
            });
        }
    };
    declared.sort_by_key(|(name, _)| *name);
    let mut resources = Vec::new();
    for (name, config) in declared {
        // The message of the parser may quote a value.
        let unreadable = |_: serde_json::Error| {
            refuse(
                name,
                "needs a `type` and `data`, a dictionary of texts".to_owned(),
            )
        };
        let secret: SecretConfig = serde_json::from_value(config.clone()).map_err(unreadable)?;
        let literal = secret.data.iter().find(|(_, value)| !is_reference(value));
        if let (SecretKind::External, Some((key, _))) = (secret.kind, literal) {
            let what = format!(
                "`{}` is not a reference: write `ref://NAME/KEY`",
                key.escape_debug()
            );
            return Err(refuse(name, what));
        }
        let data = data_of(app, name, &secret, notes)?;
        let body = json!({
            "data": data,
            "immutable": secret.immutable,
            "type": secret.kind.kubernetes_type(),
        });
        let object = ObjectName::new("v1", "Secret", Some(namespace), name);
        resources.push(object.resource(&app.name, &Map::new(), &Map::new(), body)?);
    }
    Ok(resources)
}

fn is_reference(value: &str) -> bool {
    SecretTemplate::parse(value).is_ok_and(|template| template.is_some())
}

fn data_of(
    app: &App,
    name: &str,
    secret: &SecretConfig,
    notes: &mut Vec<String>,
) -> Result<BTreeMap<String, String>, KusionError> {
    let known = secret.kind.keys();
    for key in secret.data.keys() {
        if known.is_some_and(|known| !known.contains(&key.as_str())) {
            notes.push(format!(
                "`{}`: the secret `{name}` of type `{}` has no key `{}`; it is left out",
                app.name,
                json_name(secret.kind),
                key.escape_debug()
            ));
        }
    }
    let kept = secret.data.iter();
    let kept = kept.filter(|(key, _)| known.is_none_or(|known| known.contains(&key.as_str())));
    let mut data: BTreeMap<String, String> = kept
        .map(|(key, value)| (key.clone(), STANDARD.encode(value)))
        .collect();
    let generated = matches!(secret.kind, SecretKind::Basic | SecretKind::Token);
    for key in known.iter().copied().flatten().filter(|_| generated) {
        if secret.data.get(*key).is_none_or(String::is_empty) {
            let no_name = || KusionError::NoValue {
                app: app.name.clone(),
                secret: name.to_owned(),
                kind: json_name(secret.kind),
                key,
            };
            let path = format!("{}/{name}", app.name);
            let reference = SecretReference::generated(&path, key).ok_or_else(no_name)?;
            data.insert((*key).to_owned(), STANDARD.encode(reference.to_string()));
        }
    }
    Ok(data)
}
