//! Reads the schemas of providers from `terraform providers schema -json`, to find how an attribute is
//! stored.

use std::collections::HashMap;

use serde::Deserialize;

use konverge_base::model::FieldPath;

/// The schemas of a set of providers.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ProviderSchemas {
    /// The schema of each provider, by its address as the executable writes it.
    #[serde(default)]
    provider_schemas: HashMap<String, ProviderSchema>,
}

#[derive(Debug, Deserialize)]
struct ProviderSchema {
    #[serde(default)]
    resource_schemas: HashMap<String, ResourceSchema>,
}

#[derive(Debug, Deserialize)]
struct ResourceSchema {
    block: Block,
}

#[derive(Debug, Deserialize)]
struct Block {
    #[serde(default)]
    attributes: HashMap<String, Attribute>,
    #[serde(default)]
    block_types: HashMap<String, BlockType>,
}

#[derive(Debug, Deserialize)]
struct BlockType {
    #[serde(default)]
    nesting_mode: Nesting,
    block: Block,
}

#[derive(Debug, Deserialize)]
struct Attribute {
    #[serde(default)]
    write_only: bool,
    nested_type: Option<NestedType>,
}

#[derive(Debug, Deserialize)]
struct NestedType {
    #[serde(default)]
    nesting_mode: Nesting,
    #[serde(default)]
    attributes: HashMap<String, Attribute>,
}

/// The way in which the members of a nested block or object are addressed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Nesting {
    List,
    Set,
    Map,
    /// `single`, `group`, and unknown modes: by name.
    #[default]
    #[serde(other)]
    Single,
}

/// The places in which Terraform stores the value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Keeping {
    /// No place: only the provider gets the value.
    Nowhere,
    /// The plan and the state.
    InState {
        /// The write-only variant of this attribute, if the schema has one, such as `password_wo` for
        /// `password`.
        write_only: Option<String>,
    },
}

impl ProviderSchemas {
    /// Parses the output of the executable.
    pub(super) fn read(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// Returns how the value at a path (RFC 6901) of a resource is stored. A path that is not in the schema
    /// counts as stored in the state.
    pub(super) fn keeping(&self, provider: &str, kind: &str, path: &FieldPath) -> Keeping {
        let schema = self.provider_schemas.get(provider);
        let resource = schema.and_then(|schema| schema.resource_schemas.get(kind));
        let steps: Vec<_> = path.components().collect();
        let kept = Keeping::InState { write_only: None };
        resource.map_or(kept, |resource| resource.block.keeping(&steps))
    }
}

impl Block {
    fn keeping(&self, steps: &[String]) -> Keeping {
        let [first, rest @ ..] = steps else {
            return Keeping::InState { write_only: None };
        };
        match self.block_types.get(first) {
            Some(inner) => inner.block.keeping(below(inner.nesting_mode, rest)),
            None => of_attribute(&self.attributes, first, rest),
        }
    }
}

fn of_attribute(attributes: &HashMap<String, Attribute>, name: &str, rest: &[String]) -> Keeping {
    let is_write_only = |name: &str| attributes.get(name).is_some_and(|attribute| attribute.write_only);
    if is_write_only(name) {
        return Keeping::Nowhere;
    }
    let nested = attributes
        .get(name)
        .and_then(|attribute| attribute.nested_type.as_ref());
    match (nested, nested.map(|nested| below(nested.nesting_mode, rest))) {
        (Some(nested), Some([first, rest @ ..])) => of_attribute(&nested.attributes, first, rest),
        _ => {
            let twin = format!("{name}_wo");
            Keeping::InState {
                write_only: is_write_only(&twin).then_some(twin),
            }
        }
    }
}

/// Returns the steps below an index or a key. A Spec may write the only item of a list as an object.
fn below(nesting: Nesting, steps: &[String]) -> &[String] {
    let is_index = |step: &String| step.bytes().all(|byte| byte.is_ascii_digit());
    match (nesting, steps) {
        (Nesting::Map, [_, rest @ ..]) => rest,
        (Nesting::List | Nesting::Set, [first, rest @ ..]) if is_index(first) => rest,
        (_, steps) => steps,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_a_schema_calls_write_only_is_kept_nowhere() {
        let auth = json!({
            "attributes": {"token_wo": {"type": "string", "write_only": true}, "user": {"type": "string"}},
        });
        let text = json!({"format_version": "1.0", "provider_schemas": {"h/n/t": {"resource_schemas": {"t_x": {"block": {
            "attributes": {
                "password": {"type": "string", "sensitive": true},
                "password_wo": {"type": "string", "write_only": true},
                "name": {"type": "string"},
                "by_name": {"nested_type": {"nesting_mode": "map", "attributes": {"key_wo": {"write_only": true}, "key": {}}}},
            },
            "block_types": {
                "auth": {"nesting_mode": "list", "block": auth},
                "login": {"nesting_mode": "single", "block": auth},
            },
        }}}}}});
        let schemas = ProviderSchemas::read(&text.to_string()).unwrap();
        let keeping = |path: &str| schemas.keeping("h/n/t", "t_x", &path.into());
        for path in [
            "/password_wo",
            "/auth/0/token_wo",
            "/auth/token_wo",
            "/login/token_wo",
            "/by_name/0/key_wo",
            "/by_name/prod/key_wo",
        ] {
            assert_eq!(keeping(path), Keeping::Nowhere, "{path}");
        }
        let kept = |write_only: Option<&str>| Keeping::InState {
            write_only: write_only.map(str::to_owned),
        };
        assert_eq!(keeping("/password"), kept(Some("password_wo")));
        assert_eq!(keeping("/by_name/prod/key"), kept(Some("key_wo")));
        for path in [
            "/name",
            "/auth/0/user",
            "/auth/0",
            "/unknown/x",
            "",
            "/by_name/key_wo",
        ] {
            assert_eq!(keeping(path), kept(None), "{path}");
        }
        assert_eq!(
            schemas.keeping("h/n/t", "t_y", &"/password_wo".into()),
            kept(None)
        );
        assert_eq!(
            schemas.keeping("h/n/u", "t_x", &"/password_wo".into()),
            kept(None)
        );
    }
}
