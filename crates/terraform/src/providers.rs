//! The provider of a resource, the check that it may run, and the lock file.

use std::{collections::BTreeMap, fmt::Write as _};

use serde_json::Value;

use super::{
    binary::Binary,
    error::{TerraformError, of_resource},
    options::AllowedProvider,
};
use konverge_base::{
    error::ErrorKind,
    model::{
        ResourceId,
        spec::{Resource, terraform_type},
    },
};

/// The default host of sources.
const DEFAULT_HOST: &str = "registry.terraform.io";
/// The provider inside Terraform itself (`terraform_data`). It needs no package and is always allowed.
pub(super) const BUILTIN: &str = "terraform.io/builtin/terraform";

/// A provider in an exact version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ProviderRef {
    /// The source, `host/namespace/name`.
    pub(super) source: String,
    /// The exact version; empty for the built-in provider.
    pub(super) version: String,
}

impl ProviderRef {
    /// Parses the provider in `extensions.provider`: `[host/]namespace/name/version`.
    pub(super) fn from_resource(resource: &Resource) -> Result<Self, TerraformError> {
        let id = &resource.id;
        let wrong = |why: &str| {
            of_resource(ErrorKind::Spec, id, format!("`{id}` names no provider: {why}")).hint(
                "set `extensions.provider` to `host/namespace/name/version`, as in `registry.terraform.io/hashicorp/aws/5.0.1`",
            )
        };
        let Some(text) = resource.extensions.get("provider").and_then(Value::as_str) else {
            return if terraform_type(&resource.id, &resource.extensions) == Some("terraform_data") {
                Ok(Self::builtin())
            } else {
                Err(wrong("`extensions.provider` is missing").into())
            };
        };
        let shown = || text.escape_debug().to_string();
        let parts: Vec<_> = text.split('/').collect();
        if text == BUILTIN || (parts.len() == 4 && parts[..3].join("/") == BUILTIN) {
            return Ok(Self::builtin());
        }
        let (source, version) = match parts.as_slice() {
            [host, namespace, name, version] => (format!("{host}/{namespace}/{name}"), *version),
            [namespace, name, version] => (format!("{DEFAULT_HOST}/{namespace}/{name}"), *version),
            _ => return Err(wrong(&format!("`{}` has not four parts", shown())).into()),
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:+".contains(c);
        if parts
            .iter()
            .any(|part| part.is_empty() || part.starts_with('.') || !part.chars().all(plain))
        {
            return Err(wrong(&format!("`{}` is not a provider's address", shown())).into());
        }
        Ok(Self {
            source: source.to_lowercase(),
            version: version.trim_start_matches('v').to_owned(),
        })
    }

    fn builtin() -> Self {
        Self {
            source: BUILTIN.to_owned(),
            version: String::new(),
        }
    }

    /// Returns true for the built-in provider.
    pub(super) fn is_builtin(&self) -> bool {
        self.source == BUILTIN
    }

    /// Returns the name without host and namespace.
    pub(super) fn name(&self) -> &str {
        self.source.rsplit('/').next().unwrap_or_default()
    }

    /// Returns a name for a module in which another provider has the same short name.
    pub(super) fn long_name(&self) -> String {
        self.source.replace(['/', '.', ':'], "-")
    }
}

/// Returns the configuration block of a resource, `extensions.providerMeta`, without settings that would
/// select another provider.
pub(super) fn meta_of(resource: &Resource) -> Value {
    match resource.extensions.get("providerMeta") {
        Some(Value::Object(meta)) => {
            let mut meta = meta.clone();
            for key in ["alias", "version"] {
                meta.shift_remove(key);
            }
            Value::Object(meta)
        }
        _ => Value::Object(serde_json::Map::new()),
    }
}

/// Returns a source with its host, which may be missing in the configuration.
pub(super) fn full_source(source: &str) -> String {
    match source.split('/').count() {
        2 => format!("{DEFAULT_HOST}/{source}").to_lowercase(),
        _ => source.to_lowercase(),
    }
}

/// Returns the allowed hashes of a provider's package.
///
/// # Errors
/// The provider is not listed.
pub(super) fn check_allowed<'a>(
    allowed: &'a [AllowedProvider],
    id: &ResourceId,
    provider: &ProviderRef,
) -> Result<&'a [String], TerraformError> {
    if provider.is_builtin() {
        return Ok(&[]);
    }
    let listed: Vec<_> = allowed
        .iter()
        .filter(|a| full_source(&a.source) == provider.source)
        .collect();
    let ProviderRef { source, version } = provider;
    if let Some(found) = listed
        .iter()
        .find(|a| a.version.trim_start_matches('v') == version)
    {
        return Ok(&found.hashes);
    }
    let allowed: Vec<_> = listed
        .iter()
        .map(|a| format!("{} {}", a.source, a.version))
        .collect();
    let what = format!("`{id}` needs the provider {source} {version}, which is not allowed here");
    Err(of_resource(ErrorKind::Policy, id, what)
        .hint(format!(
            "to allow it, add `{{source: {source}, version: {version}, hashes: […]}}` to `terraform.providers` in the default branch's konverge.yaml"
        ))
        .hint(if allowed.is_empty() {
            "no version of this provider is allowed now".to_owned()
        } else {
            format!("allowed now: {}", allowed.join(", "))
        })
        .into())
}

/// Returns the dependency lock file for these providers, which allows only packages with these hashes.
pub(super) fn lock_file(providers: &BTreeMap<ProviderRef, Vec<String>>, binary: &Binary) -> String {
    let mut text = String::new();
    for (provider, hashes) in providers {
        if hashes.is_empty() {
            continue;
        }
        let hashes: Vec<_> = hashes
            .iter()
            .filter(|h| h.chars().all(|c| c.is_ascii_alphanumeric() || "+/=:".contains(c)))
            .map(|h| format!("    \"{h}\",\n"))
            .collect();
        let _ = write!(
            text,
            "provider \"{}\" {{\n  version = \"{version}\"\n  constraints = \"{version}\"\n  hashes = [\n{}  ]\n}}\n",
            binary.source_of(&provider.source),
            hashes.concat(),
            version = provider.version,
        );
    }
    text
}

/// Returns the hashes of each provider in a lock file that Terraform wrote.
pub(super) fn read_lock_file(text: &str) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut source = None;
    for line in text.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("provider \"") {
            source = rest.split('"').next().map(str::to_owned);
        } else if let (Some(source), Some(rest)) = (&source, line.strip_prefix('"')) {
            let hash = rest.split('"').next().unwrap_or_default().to_owned();
            found.entry(source.clone()).or_default().push(hash);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BinaryKind;
    use konverge_base::model::spec::RuntimeKind;
    use serde_json::{Map, json};

    fn resource(provider: &str) -> Resource {
        Resource {
            extensions: json!({"provider": provider, "providerMeta": {"region": "x", "alias": "y"}})
                .as_object()
                .unwrap()
                .clone(),
            ..Resource::new(
                "hashicorp:local:local_file:a".parse().unwrap(),
                RuntimeKind::Terraform,
                Map::new(),
            )
        }
    }

    #[test]
    fn providers_are_read_and_hostile_ones_refused() {
        let full =
            ProviderRef::from_resource(&resource("registry.terraform.io/hashicorp/local/2.9.0")).unwrap();
        assert_eq!(
            (full.source.as_str(), full.version.as_str()),
            ("registry.terraform.io/hashicorp/local", "2.9.0")
        );
        assert_eq!(
            ProviderRef::from_resource(&resource("hashicorp/local/v2.9.0")).unwrap(),
            full
        );
        assert!(
            ProviderRef::from_resource(&resource("terraform.io/builtin/terraform/1"))
                .unwrap()
                .is_builtin()
        );
        for bad in [
            "",
            "local",
            "a/b/../c",
            "a/b\"/c/1",
            "a//c/1",
            "a/b/c/1/2",
            "a/b/c/${x}",
        ] {
            assert!(ProviderRef::from_resource(&resource(bad)).is_err(), "{bad}");
        }
        assert_eq!(meta_of(&resource("a/b/1")), json!({"region": "x"}));
    }

    #[test]
    fn only_listed_versions_may_run() {
        let allowed = [AllowedProvider {
            source: "hashicorp/local".to_owned(),
            version: "2.9.0".to_owned(),
            hashes: vec!["h1:abc=".to_owned()],
        }];
        let check = |text: &str| {
            let resource = resource(text);
            let provider = ProviderRef::from_resource(&resource).unwrap();
            check_allowed(&allowed, &resource.id, &provider).map(<[String]>::to_vec)
        };
        assert_eq!(
            check("registry.terraform.io/hashicorp/local/2.9.0").unwrap(),
            ["h1:abc="]
        );
        assert!(check("registry.terraform.io/hashicorp/local/2.9.1").is_err());
        assert!(check("evil.example/hashicorp/local/2.9.0").is_err());
        assert!(check("terraform.io/builtin/terraform/1").is_ok());
    }

    #[test]
    fn a_lock_file_is_read_as_it_is_written() {
        let provider = ProviderRef::from_resource(&resource("hashicorp/local/2.9.0")).unwrap();
        let hashes = vec!["h1:a+/=".to_owned(), "zh:00ff".to_owned()];
        let locked = BTreeMap::from([(provider.clone(), hashes.clone())]);
        for (make, host) in [
            (BinaryKind::Terraform, "registry.terraform.io"),
            (BinaryKind::OpenTofu, "registry.opentofu.org"),
        ] {
            let binary = Binary {
                path: "x".into(),
                make,
                version: "1.11.4".to_owned(),
            };
            assert_eq!(
                read_lock_file(&lock_file(&locked, &binary)),
                BTreeMap::from([(format!("{host}/hashicorp/local"), hashes.clone())])
            );
        }
    }
}
