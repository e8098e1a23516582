//! Builds the root module of a batch as JSON, and its state.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value, json};

use super::{
    address::{Address, PLACEHOLDER},
    binary::Binary,
    error::TerraformError,
    expression::{Inside, Translator, literal},
    module_resource::ModuleResource,
    providers::ProviderRef,
    resource_state,
    secret_references::{ModuleSecrets, SecretPlace, VariableValues},
};
use konverge_base::model::{Digest, ResourceId, masked_value};

/// The address of each provider configuration in the module, by source and alias.
type BlockPlaces<'a> = HashMap<(&'a str, Option<&'a str>), String>;

/// A module as files for Terraform.
#[derive(Debug)]
pub(super) struct ModuleFiles {
    /// The content of `main.tf.json`.
    pub(super) configuration: Value,
    /// The content of `terraform.tfstate`.
    pub(super) state: Value,
    /// The resources of each provider configuration, to which its errors apply.
    pub(super) users: ProviderUsers,
    /// The values of the variables.
    pub(super) variables: VariableValues,
}

/// The resources of each provider configuration, by the name that Terraform's errors use: the address of the
/// configuration, or its position in the module.
pub(super) type ProviderUsers = HashMap<String, Vec<ResourceId>>;

/// The names of the providers and their configurations in the module.
#[derive(Debug, Default)]
struct Names {
    /// The local name of each source.
    local: BTreeMap<String, String>,
    /// The alias of each configuration, by source and digest; the first configuration of a source has no
    /// alias.
    aliases: BTreeMap<(String, String), (Option<String>, Value)>,
}

impl Names {
    fn of(subjects: &[ModuleResource]) -> Self {
        let mut names = Self::default();
        for subject in subjects.iter().filter(|s| !s.provider.is_builtin()) {
            names.add(&subject.provider, &subject.meta);
        }
        names
    }

    fn add(&mut self, provider: &ProviderRef, meta: &Value) {
        if !self.local.contains_key(&provider.source) {
            let short = provider.name().to_owned();
            let taken = short == "terraform" || self.local.values().any(|name| *name == short);
            let name = if taken { provider.long_name() } else { short };
            self.local.insert(provider.source.clone(), name);
        }
        let digest = Digest::of_json(meta).short();
        let first = !self.aliases.keys().any(|(source, _)| *source == provider.source);
        self.aliases
            .entry((provider.source.clone(), digest.clone()))
            .or_insert_with(|| {
                let alias = (!first).then(|| format!("m{}", &digest[..8]));
                (alias, meta.clone())
            });
    }

    fn alias(&self, subject: &ModuleResource) -> Option<&str> {
        let key = (
            subject.provider.source.clone(),
            Digest::of_json(&subject.meta).short(),
        );
        self.aliases.get(&key).and_then(|(alias, _)| alias.as_deref())
    }

    /// Returns the `provider` argument of a resource.
    fn argument(&self, subject: &ModuleResource) -> Option<String> {
        let local = self.local.get(&subject.provider.source)?;
        Some(match self.alias(subject) {
            Some(alias) => format!("{local}.{alias}"),
            None => local.clone(),
        })
    }

    /// Returns the `provider` of a resource as the state writes it.
    fn in_state(&self, subject: &ModuleResource, binary: &Binary) -> String {
        let base = format!("provider[\"{}\"]", binary.source_of(&subject.provider.source));
        match self.alias(subject) {
            Some(alias) => format!("{base}.{alias}"),
            None => base,
        }
    }

    /// Returns the `provider` blocks, and the address of each.
    fn blocks(&self, secrets: &ModuleSecrets) -> (Map<String, Value>, BlockPlaces<'_>) {
        let mut blocks: Map<String, Value> = Map::new();
        let mut places = HashMap::new();
        for ((source, _), (alias, meta)) in &self.aliases {
            let mut block = literal_members(meta, secrets);
            if let Some(alias) = alias {
                block.insert("alias".to_owned(), json!(alias));
            }
            if block.is_empty() {
                continue;
            }
            let list = blocks
                .entry(self.local[source].clone())
                .or_insert_with(|| json!([]));
            if let Some(list) = list.as_array_mut() {
                let place = format!("provider.{}[{}]", self.local[source], list.len());
                places.insert((source.as_str(), alias.as_deref()), place);
                list.push(Value::Object(block));
            }
        }
        (blocks, places)
    }

    fn users(
        &self,
        subjects: &[ModuleResource],
        places: &HashMap<(&str, Option<&str>), String>,
        binary: &Binary,
    ) -> ProviderUsers {
        let mut users = ProviderUsers::default();
        for subject in subjects.iter().filter(|subject| !subject.provider.is_builtin()) {
            let place = places.get(&(subject.provider.source.as_str(), self.alias(subject)));
            for name in place.cloned().into_iter().chain([self.in_state(subject, binary)]) {
                users.entry(name).or_default().push(subject.id().clone());
            }
        }
        users
    }
}

/// Returns the `terraform` block that requires these providers.
pub(super) fn requirements<'a>(
    providers: impl IntoIterator<Item = (&'a ProviderRef, String)>,
    binary: &Binary,
) -> Value {
    let required: Map<String, Value> = providers
        .into_iter()
        .filter(|(provider, _)| !provider.is_builtin())
        .map(|(provider, name)| {
            (
                name,
                json!({"source": binary.source_of(&provider.source), "version": provider.version}),
            )
        })
        .collect();
    json!({ "required_providers": required })
}

/// Builds the module. Returns an error for each item whose values cannot be written as JSON syntax.
pub(super) fn build(
    subjects: &[ModuleResource],
    binary: &Binary,
    secrets: &ModuleSecrets,
) -> Result<ModuleFiles, Vec<(ResourceId, TerraformError)>> {
    let names = Names::of(subjects);
    let wanted: HashMap<ResourceId, Address> = subjects
        .iter()
        .filter(|s| s.item.desired.is_some())
        .map(|s| (s.id().clone(), s.address.clone()))
        .collect();
    let wanted = Inside::new(wanted);
    let mut resources: Map<String, Value> = Map::new();
    let mut imports = Vec::new();
    let mut failed = Vec::new();
    let mut unknown = secrets.has_unknown();
    for subject in subjects {
        match body(subject, &names, &wanted, secrets) {
            Ok(None) => {}
            Ok(Some(body)) => {
                let desired = subject.item.desired.as_ref();
                unknown |= desired.is_some_and(|d| d.attributes.values().any(masked_value::holds_unknown));
                place(&mut resources, &subject.address, Value::Object(body));
            }
            Err(error) => failed.push((subject.id().clone(), error)),
        }
        if let Some(import) = subject.import_id() {
            imports.push(json!({"to": subject.address.to_string(), "id": literal(import)}));
        }
    }
    if !failed.is_empty() {
        return Err(failed);
    }
    // Expressions for unknown values refer to this resource. It does not exist before the apply, so Terraform
    // plans them as unknown.
    if unknown {
        let placeholder = Address {
            kind: "terraform_data".to_owned(),
            name: PLACEHOLDER.to_owned(),
        };
        place(&mut resources, &placeholder, json!({}));
    }
    let used = subjects.iter().map(|s| &s.provider).filter(|p| !p.is_builtin());
    let named = used.map(|p| (p, names.local[&p.source].clone()));
    let mut configuration = Map::new();
    configuration.insert("terraform".to_owned(), requirements(named, binary));
    let (blocks, places) = names.blocks(secrets);
    for (key, part) in [
        ("variable", secrets.declarations()),
        ("provider", Value::Object(blocks)),
        ("resource", Value::Object(resources)),
        ("import", Value::Array(imports)),
    ] {
        let empty = part.as_object().is_some_and(Map::is_empty) || part.as_array().is_some_and(Vec::is_empty);
        if !empty {
            configuration.insert(key.to_owned(), part);
        }
    }
    Ok(ModuleFiles {
        configuration: Value::Object(configuration),
        state: state(subjects, &names, binary),
        users: names.users(subjects, &places, binary),
        variables: secrets.values(),
    })
}

fn place(resources: &mut Map<String, Value>, address: &Address, body: Value) {
    let of_kind = resources.entry(address.kind.clone()).or_insert_with(|| json!({}));
    if let Some(of_kind) = of_kind.as_object_mut() {
        of_kind.insert(address.name.clone(), body);
    }
}

fn body(
    subject: &ModuleResource,
    names: &Names,
    wanted: &Inside,
    secrets: &ModuleSecrets,
) -> Result<Option<Map<String, Value>>, TerraformError> {
    let Some(desired) = &subject.item.desired else {
        return Ok(None);
    };
    let translator = Translator {
        id: subject.id(),
        inside: wanted,
        secret: &|text| secrets.expression(text, SecretPlace::Attribute),
    };
    let mut attributes = desired.attributes.clone();
    let lifecycle = attributes.shift_remove("lifecycle");
    let mut body = translator.object(&attributes)?;
    if let Some(lifecycle) = lifecycle {
        body.insert("lifecycle".to_owned(), lifecycle);
    }
    let after: Vec<_> = desired
        .depends_on
        .iter()
        .filter(|id| *id != subject.id())
        .filter_map(|id| wanted.address(id))
        .map(|address| json!(address.to_string()))
        .collect();
    if !after.is_empty() {
        body.insert("depends_on".to_owned(), Value::Array(after));
    }
    if let Some(provider) = names.argument(subject) {
        body.insert("provider".to_owned(), json!(provider));
    }
    Ok(Some(body))
}

fn state(subjects: &[ModuleResource], names: &Names, binary: &Binary) -> Value {
    let known: Vec<_> = subjects.iter().map(|s| s.address.to_string()).collect();
    let entries = subjects
        .iter()
        .filter_map(|s| {
            s.resource_state()
                .map(|h| h.entry_for(&s.address, &names.in_state(s, binary), &known))
        })
        .collect();
    resource_state::document(&binary.version, "konverge", entries)
}

/// Writes members as literals: their text is neither an expression nor a reference to a resource. A secret
/// becomes a variable.
fn literal_members(meta: &Value, secrets: &ModuleSecrets) -> Map<String, Value> {
    fn literals(value: &Value, secrets: &ModuleSecrets) -> Value {
        let below = |value| literals(value, secrets);
        match value {
            Value::String(text) => {
                let secret = secrets.expression(text, SecretPlace::Provider);
                Value::String(secret.unwrap_or_else(|| literal(text)))
            }
            Value::Array(items) => items.iter().map(below).collect(),
            Value::Object(map) => Value::Object(map.iter().map(|(k, v)| (literal(k), below(v))).collect()),
            other => other.clone(),
        }
    }
    match literals(meta, secrets) {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::model::spec::{Resource, RuntimeKind};
    use konverge_engine::runtime::{Item, Needs};

    fn binary() -> Binary {
        Binary {
            path: "terraform".into(),
            make: crate::BinaryKind::Terraform,
            version: "1.11.4".to_owned(),
        }
    }

    fn subject(id: &str, provider: &str, meta: Value, attributes: Value) -> ModuleResource {
        let desired = Resource {
            id: id.parse().unwrap(),
            runtime: RuntimeKind::Terraform,
            attributes: attributes.as_object().unwrap().clone(),
            depends_on: vec!["n:t:t_x:first".parse().unwrap()],
            extensions: json!({"provider": provider, "providerMeta": meta})
                .as_object()
                .unwrap()
                .clone(),
            sharing: konverge_base::model::spec::Sharing::default(),
        };
        let (address, provider, meta) = super::super::module_resource::parse_desired(&desired).unwrap();
        ModuleResource {
            item: Item {
                id: desired.id.clone(),
                cluster: None,
                prior: None,
                desired: Some(desired),
                needs: Needs::default(),
            },
            address,
            provider,
            meta,
            holding: None,
            moved_from: None,
            made: None,
            written: konverge_secrets::WrittenReferences::new(),
        }
    }

    #[test]
    fn providers_configurations_and_names_are_kept_apart() {
        let subjects = [
            subject("n:t:t_x:first", "n/t/1.0.0", json!({"region": "a"}), json!({})),
            subject(
                "n:t:t_x:second",
                "n/t/1.0.0",
                json!({"region": "b${x}"}),
                json!({}),
            ),
            subject(
                "m:t:t_x:third",
                "m/t/2.0.0",
                json!(null),
                json!({"v": "$kusion_path.n:t:t_x:first.id", "u": {"$unknown": true}}),
            ),
        ];
        let module = build(&subjects, &binary(), &ModuleSecrets::default())
            .unwrap()
            .configuration;
        let required = &module["terraform"]["required_providers"];
        assert_eq!(
            required["t"],
            json!({"source": "registry.terraform.io/n/t", "version": "1.0.0"})
        );
        assert_eq!(
            required["registry-terraform-io-m-t"]["source"],
            "registry.terraform.io/m/t"
        );
        let resources = &module["resource"]["t_x"];
        let (one, two) = (&resources["first"]["provider"], &resources["second"]["provider"]);
        assert_ne!(one, two);
        assert_eq!(
            resources["first"].get("depends_on"),
            None,
            "nothing depends on itself"
        );
        assert_eq!(resources["second"]["depends_on"], json!(["t_x.first"]));
        assert_eq!(resources["third"]["v"], "${t_x.first.id}");
        assert!(module["resource"]["terraform_data"][PLACEHOLDER].is_object());
        let blocks = module["provider"]["t"].as_array().unwrap();
        assert_eq!(blocks.len(), 2);
        assert!(blocks.iter().any(|block| block["region"] == "${\"b\\u0024{x}\"}"));
    }

    #[test]
    fn a_reference_to_nowhere_is_the_fault_of_its_resource_alone() {
        let subjects = [
            subject("n:t:t_x:first", "n/t/1.0.0", json!({}), json!({})),
            subject(
                "n:t:t_x:second",
                "n/t/1.0.0",
                json!({}),
                json!({"v": "$kusion_path.n:t:t_x:gone.id"}),
            ),
        ];
        let failed = build(&subjects, &binary(), &ModuleSecrets::default()).unwrap_err();
        assert_eq!(failed.len(), 1);
        assert_eq!(failed[0].0.as_str(), "n:t:t_x:second");
    }
}
