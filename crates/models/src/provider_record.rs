//! Records of provider schemas: the schemas of selected resources, from one provider in one version.

use konverge_base::model::digest::canonical_json;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::error::ModelError;

/// The host of a provider address without a host.
const DEFAULT_HOST: &str = "registry.terraform.io";

/// A provider with its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderVersion {
    /// `host/namespace/name`.
    pub address: String,
    /// The exact version.
    pub version: String,
}

impl ProviderVersion {
    /// Parses `[host/]namespace/name@version`; `None` if the text does not have this form.
    pub fn parse(text: &str) -> Option<Self> {
        let (source, version) = text.split_once('@')?;
        let is_plain = |part: &str| {
            !part.is_empty()
                && !part.starts_with(['.', '-'])
                && part
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        };
        let parts: Vec<_> = source.split('/').collect();
        let address = match parts.len() {
            2 => format!("{DEFAULT_HOST}/{source}"),
            3 => source.to_owned(),
            _ => return None,
        };
        let version = version.trim_start_matches('v');
        let is_version = is_plain(version) && version.starts_with(|c: char| c.is_ascii_digit());
        (parts.into_iter().all(is_plain) && is_version).then(|| Self {
            address: address.to_lowercase(),
            version: version.to_owned(),
        })
    }

    /// Returns the name of the provider without host and namespace.
    pub fn name(&self) -> &str {
        self.address.rsplit('/').next().unwrap_or_default()
    }
}

/// Extracts the schemas of some resources from the output of `terraform providers schema -json`. The record names
/// the provider, and has the SHA-256 of the schemas' canonical JSON. The same schemas give the same bytes.
///
/// # Errors
/// The document does not contain the provider or a resource.
pub fn record_provider(
    document: &Value,
    of: &ProviderVersion,
    resources: &[String],
) -> Result<Value, ModelError> {
    let providers = document.get("provider_schemas").and_then(Value::as_object);
    let providers = providers.ok_or(ModelError::Nothing("provider schema"))?;
    let known = find(providers, &of.address).and_then(|provider| provider.get("resource_schemas"));
    let known = known
        .and_then(Value::as_object)
        .ok_or(ModelError::Nothing("schema of this provider"))?;
    let mut recorded = Map::new();
    for name in resources {
        let schema = known.get(name).ok_or_else(|| ModelError::UnknownKind {
            kind: name.clone(),
            known: similar(known, name),
        })?;
        recorded.insert(name.clone(), schema.clone());
    }
    let canonical = canonical_json(&json!({&of.address: {"resource_schemas": recorded}}));
    let schemas: Value = serde_json::from_str(&canonical).expect("canonical JSON is JSON");
    Ok(json!({
        "format_version": "1.0",
        "recorded": {
            "address": of.address,
            "version": of.version,
            "sha256": hex::encode(Sha256::digest(&canonical)),
            "source": "terraform providers schema -json",
        },
        "provider_schemas": schemas,
    }))
}

/// Finds a provider by its address, also under the default host of OpenTofu.
fn find<'a>(providers: &'a Map<String, Value>, address: &str) -> Option<&'a Value> {
    let short = address.strip_prefix(DEFAULT_HOST).unwrap_or_default();
    let of_opentofu = || providers.get(&format!("registry.opentofu.org{short}"));
    providers.get(address).or_else(of_opentofu)
}

/// Returns some names with the same beginning, for the error message.
fn similar(known: &Map<String, Value>, name: &str) -> Vec<String> {
    let start: String = name.split_inclusive('_').take(2).collect();
    known
        .keys()
        .filter(|one| one.starts_with(&start))
        .take(10)
        .cloned()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn providers_are_named_with_a_version() {
        let parse =
            |text: &str| ProviderVersion::parse(text).map(|of| format!("{} {}", of.address, of.version));
        assert_eq!(
            parse("hashicorp/aws@6.25.0").as_deref(),
            Some("registry.terraform.io/hashicorp/aws 6.25.0")
        );
        assert_eq!(
            parse("r.example/Team/x@v1.0.0-rc.1").as_deref(),
            Some("r.example/team/x 1.0.0-rc.1")
        );
        for wrong in [
            "aws@1.0.0",
            "hashicorp/aws",
            "hashicorp/aws@",
            "a/../b@1",
            "a/b/c/d@1",
            "a//b@1",
            "a/b@../1",
            "a/b@x",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_record_has_what_was_asked_for_in_one_order() {
        let of = ProviderVersion::parse("hashicorp/aws@1.0.0").unwrap();
        let block = |order: [&str; 2]| json!({"block": {"attributes": {order[0]: {"type": "string"}, order[1]: {"type": "string"}}}});
        let document = |order, host: &str| {
            let resources = json!({"aws_s3_bucket": block(order), "aws_s3_object": block(order)});
            json!({"provider_schemas": {format!("{host}/hashicorp/aws"): {"resource_schemas": resources}}})
        };
        let wanted = ["aws_s3_bucket".to_owned()];
        let of_terraform = record_provider(&document(["a", "b"], DEFAULT_HOST), &of, &wanted).unwrap();
        let of_tofu = record_provider(&document(["b", "a"], "registry.opentofu.org"), &of, &wanted).unwrap();
        assert_eq!(of_terraform.to_string(), of_tofu.to_string());
        let schemas =
            of_terraform["provider_schemas"]["registry.terraform.io/hashicorp/aws"]["resource_schemas"]
                .as_object();
        assert_eq!(schemas.unwrap().keys().collect::<Vec<_>>(), ["aws_s3_bucket"]);
        let missing = record_provider(
            &document(["a", "b"], DEFAULT_HOST),
            &of,
            &["aws_s3_buckets".to_owned()],
        );
        let known = vec!["aws_s3_bucket".to_owned(), "aws_s3_object".to_owned()];
        assert_eq!(
            missing,
            Err(ModelError::UnknownKind {
                kind: "aws_s3_buckets".to_owned(),
                known
            })
        );
        let other = ProviderVersion::parse("aliyun/alicloud@1.0.0").unwrap();
        assert!(record_provider(&document(["a", "b"], DEFAULT_HOST), &other, &wanted).is_err());
    }
}
