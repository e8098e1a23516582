//! References to secrets in Terraform resources. They are allowed where Terraform stores no value: in a
//! write-only attribute, and in the configuration of a provider. A reference with `?as=version` is allowed in
//! any attribute.
//!
//! Each value becomes an *ephemeral* variable of the module: Terraform passes it to the provider, refuses it
//! anywhere else, and writes it neither to the plan nor to the state. The variables are a file in memory. A
//! preview has no values: an attribute gets the reference itself instead, and the provider's configuration is
//! unknown, so that the provider is not called.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

use super::{
    binary::Binary,
    error::{TerraformError, of_resource},
    expression::unknown,
    module_resource::ModuleResource,
    provider_schema::{Keeping, ProviderSchemas},
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{FieldPath, ResourceId, reference, state::Recorded},
};
use konverge_secrets::{SecretResolver, SecretTemplate, TemplatePlace, WrittenReference, WrittenReferences};

/// The record of a Terraform resource in the state, besides its attributes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct TerraformRecord {
    /// The references to secrets that were last written, by path.
    pub(super) references: WrittenReferences,
}

impl TerraformRecord {
    /// Returns the references that were last written to a resource.
    pub(super) fn references_of(recorded: Option<&Recorded>) -> WrittenReferences {
        let record: Option<Self> = recorded.and_then(|recorded| recorded.private.decode());
        record.unwrap_or_default().references
    }
}

/// The secret values in a module, as variables.
#[derive(Default)]
pub(super) struct ModuleSecrets {
    /// The number of the variable; `None` if the value is not known in this plan.
    numbers: BTreeMap<SecretText, Option<usize>>,
    values: Vec<Zeroizing<String>>,
    /// The providers that are not called, because their configuration is unknown in this plan.
    pub(super) unasked: BTreeSet<String>,
}

/// A text with references.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct SecretText {
    text: String,
    place: SecretPlace,
}

/// Location of a text with references.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SecretPlace {
    Attribute,
    Provider,
}

/// The values of a module's variables as a JSON document. `Debug` does not print them.
#[derive(Default)]
pub(super) struct VariableValues(Option<Zeroizing<String>>);

impl VariableValues {
    pub(super) fn document(&self) -> Option<&str> {
        self.0.as_ref().map(|document| document.as_str())
    }
}

impl std::fmt::Debug for VariableValues {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("VariableValues")
    }
}

/// Resources that failed, with their errors.
type Failed = Vec<(ResourceId, TerraformError)>;

/// Replaces references with `?as=version` by versions, and records the references in attributes in `written`.
pub(super) async fn fill_in_versions(
    resolver: Option<&dyn SecretResolver>,
    subjects: &mut [ModuleResource],
) -> Failed {
    let mut failed = Vec::new();
    for subject in subjects {
        if let Err(error) = fill_in(resolver, subject).await {
            failed.push((subject.id().clone(), error));
        }
    }
    failed
}

async fn fill_in(
    resolver: Option<&dyn SecretResolver>,
    subject: &mut ModuleResource,
) -> Result<(), TerraformError> {
    let id = subject.id().clone();
    let before = TerraformRecord::references_of(subject.item.prior.as_ref());
    // A deleted resource keeps the configuration of its last apply, with the versions of that time.
    let Some(desired) = &mut subject.item.desired else {
        return Ok(());
    };
    let mut attributes = Value::Object(std::mem::take(&mut desired.attributes));
    let noted = fill_in_texts(resolver, &id, &before, &mut attributes).await;
    if let Value::Object(attributes) = attributes {
        desired.attributes = attributes;
    }
    let written = noted?;
    let none = WrittenReferences::new();
    fill_in_texts(resolver, &id, &none, &mut subject.meta).await?;
    subject.written = written;
    Ok(())
}

async fn fill_in_texts(
    resolver: Option<&dyn SecretResolver>,
    id: &ResourceId,
    before: &WrittenReferences,
    value: &mut Value,
) -> Result<WrittenReferences, TerraformError> {
    let mut written = WrittenReferences::new();
    for (path, text) in texts(value) {
        let Some(template) = parse(&text)? else {
            continue;
        };
        // The text would change when the reference to another resource in it is resolved, and no longer match.
        if text.contains(reference::MARK) {
            let what = format!("`{id}`: the text at `{path}` refers to a secret and to another resource");
            let hint = "write the reference to the secret alone, or with plain text around it";
            return Err(of_resource(ErrorKind::Secret, id, what).hint(hint).into());
        }
        let resolver = resolver.ok_or_else(|| no_store(id))?;
        let versions = template.versions(resolver).await?;
        let mut noted = WrittenReference::new(&template, &versions);
        let rotated = resolver.rotated();
        if let Some(before) = before.get(&path).filter(|before| before.stays(&noted, rotated)) {
            noted = before.clone();
        }
        if template.is_plain() {
            let text = template.with_versions(&noted.versions())?;
            if let Some(leaf) = value.pointer_mut(path.as_str()) {
                *leaf = Value::String(text);
            }
        }
        written.insert(path, noted);
    }
    Ok(written)
}

/// Refuses references in attributes whose value Terraform stores. `name` returns the address of a provider as
/// the executable writes it.
pub(super) fn check_places(
    schemas: &ProviderSchemas,
    subjects: &[ModuleResource],
    name: impl Fn(&str) -> String,
) -> Failed {
    let of_subject = |subject: &ModuleResource| {
        subject.value_places().find_map(|path| {
            let kind = &subject.address.kind;
            match schemas.keeping(&name(&subject.provider.source), kind, path) {
                Keeping::Nowhere => None,
                Keeping::InState { write_only } => {
                    Some(would_be_stored(subject.id(), path, write_only.as_deref()))
                }
            }
        })
    };
    subjects
        .iter()
        .filter_map(|subject| Some((subject.id().clone(), of_subject(subject)?)))
        .collect()
}

fn would_be_stored(id: &ResourceId, path: &FieldPath, write_only: Option<&str>) -> TerraformError {
    let what = format!(
        "`{id}`: a reference to a secret is not allowed at `{path}`: Terraform would store the value in its state"
    );
    let hint = match write_only {
        Some(name) => format!(
            "write the reference to `{name}`, which is write-only; `{name}_version` with `?as=version` updates it when \
             the secret moves"
        ),
        None => "a reference stands in a write-only attribute or in `extensions.providerMeta`; `?as=version` gives the \
             version, which may stand in any attribute"
            .to_owned(),
    };
    of_resource(ErrorKind::Secret, id, what).hint(hint).into()
}

/// Checks the version: ephemeral variables and write-only attributes need Terraform or OpenTofu 1.11.
pub(super) fn check_version(binary: &Binary) -> Result<(), TerraformError> {
    let mut parts = binary.version.split(['.', '-']).map(str::parse::<u32>);
    let (major, minor) = (parts.next(), parts.next());
    match (major, minor) {
        (Some(Ok(1)), Some(Ok(minor))) if minor < 11 => Err(binary.too_old(&format!(
            "{} 1.11 or newer, for a reference to a secret,",
            binary.make
        ))),
        _ => Ok(()),
    }
}

impl ModuleSecrets {
    /// Resolves the references of a module: to their values in an apply, to none in a preview.
    pub(super) async fn resolve(
        resolver: Option<&dyn SecretResolver>,
        subjects: &[ModuleResource],
    ) -> Result<Self, Failed> {
        let mut secrets = Self::default();
        let mut failed = Vec::new();
        for subject in subjects {
            if let Err(error) = secrets.add(resolver, subject).await {
                failed.push((subject.id().clone(), error));
            }
        }
        if failed.is_empty() {
            Ok(secrets)
        } else {
            Err(failed)
        }
    }

    async fn add(
        &mut self,
        resolver: Option<&dyn SecretResolver>,
        subject: &ModuleResource,
    ) -> Result<(), TerraformError> {
        let desired = subject.item.desired.as_ref();
        let place_of_text = match desired {
            Some(_) => TemplatePlace::Text,
            None => TemplatePlace::RecordedText,
        };
        let attributes = desired.map(|desired| Value::Object(desired.attributes.clone()));
        let of_attributes = attributes.iter().flat_map(texts);
        let of_attributes = of_attributes.map(|(_, text)| (text, SecretPlace::Attribute));
        let of_provider = texts(&subject.meta).into_iter();
        let of_provider = of_provider.map(|(_, text)| (text, SecretPlace::Provider));
        for (text, place) in of_attributes.chain(of_provider) {
            let Some(template) = parse(&text)? else {
                continue;
            };
            let resolver = resolver.ok_or_else(|| no_store(subject.id()))?;
            let has_values = resolver.has_values();
            let of = SecretText { text, place };
            // Recorded before the check for a known text, because several providers may use the same text.
            if place == SecretPlace::Provider && !has_values {
                self.unasked.insert(subject.provider.source.clone());
            }
            if self.numbers.contains_key(&of) {
                continue;
            }
            let value = match (has_values, place) {
                (true, _) => {
                    let value = template.value(resolver, place_of_text).await?;
                    Some(String::from_utf8_lossy(&value).into_owned())
                }
                // A preview reads no values, so the attribute gets the reference itself.
                (false, SecretPlace::Attribute) => Some(of.text.clone()),
                // A provider must not log in with a placeholder: repeated failures could lock the account.
                (false, SecretPlace::Provider) => None,
            };
            let number = value.map(|value| {
                self.values.push(Zeroizing::new(value));
                self.values.len() - 1
            });
            self.numbers.insert(of, number);
        }
        Ok(())
    }

    /// Returns the expression for a text with references; `None` for any other text.
    pub(super) fn expression(&self, text: &str, place: SecretPlace) -> Option<String> {
        if self.is_empty() {
            return None;
        }
        let text = text.to_owned();
        let number = self.numbers.get(&SecretText { text, place })?;
        Some(number.map_or_else(unknown, |number| format!("${{var.{}}}", variable(number))))
    }

    /// Returns true if the module has no reference to a secret.
    pub(super) fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Returns true if a value is not known in this plan.
    pub(super) fn has_unknown(&self) -> bool {
        self.numbers.values().any(Option::is_none)
    }

    /// Returns the `variable` blocks.
    pub(super) fn declarations(&self) -> Value {
        let declare = |number| {
            let block = json!({"type": "string", "ephemeral": true, "sensitive": true});
            (variable(number), block)
        };
        Value::Object((0..self.values.len()).map(declare).collect::<Map<_, _>>())
    }

    /// Returns the values of the variables.
    pub(super) fn values(&self) -> VariableValues {
        if self.values.is_empty() {
            return VariableValues(None);
        }
        let mut document = Zeroizing::new(String::from("{"));
        for (number, value) in self.values.iter().enumerate() {
            if number > 0 {
                document.push(',');
            }
            // A serializer would leave the secrets in buffers that it frees; here each buffer is overwritten.
            let quoted = Zeroizing::new(json!(value.as_str()).to_string());
            document.push_str(&format!("\"{}\":", variable(number)));
            document.push_str(&quoted);
        }
        document.push('}');
        VariableValues(Some(document))
    }
}

impl ModuleResource {
    /// Returns the paths of the attributes with values of secrets.
    fn value_places(&self) -> impl Iterator<Item = &FieldPath> {
        let of_values = self.written.iter().filter(|(_, written)| !written.is_plain());
        of_values.map(|(path, _)| path)
    }

    /// Returns true if an attribute has the value of a secret.
    pub(super) fn has_secret_values(&self) -> bool {
        self.value_places().next().is_some()
    }
}

fn variable(number: usize) -> String {
    format!("konverge_secret_{number}")
}

fn parse(text: &str) -> Result<Option<SecretTemplate>, UserError> {
    SecretTemplate::parse(text).map_err(|error| UserError::from_error(ErrorKind::Secret, error))
}

fn no_store(id: &ResourceId) -> UserError {
    let what = format!("`{id}` refers to a secret, but this run has no secret store");
    of_resource(ErrorKind::Secret, id, what)
        .hint("define the store under `secrets.stores` in the default branch's konverge.yaml")
}

/// Returns true if a text in the value contains a reference.
pub(super) fn refers(value: &Value) -> bool {
    texts(value)
        .iter()
        .any(|(_, text)| !matches!(SecretTemplate::parse(text), Ok(None)))
}

/// Returns the texts with references and their paths.
fn texts(value: &Value) -> Vec<(FieldPath, String)> {
    fn walk(value: &Value, path: FieldPath, found: &mut Vec<(FieldPath, String)>) {
        match value {
            Value::String(text) if text.contains("ref+") || text.trim_start().starts_with("ref://") => {
                found.push((path, text.clone()));
            }
            Value::Array(items) => items
                .iter()
                .enumerate()
                .for_each(|(at, item)| walk(item, path.item(at), found)),
            Value::Object(map) => map
                .iter()
                .for_each(|(key, member)| walk(member, path.join(key), found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    walk(value, FieldPath::root(), &mut found);
    found
}
