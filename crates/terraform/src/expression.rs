//! Converts values to Terraform's JSON syntax. References become expressions; other text never does.
//!
//! In `.tf.json` every string is a template. Text with `${` or `%{` is written as one interpolation of a
//! quoted string in which `$` and `%` are `\uXXXX`, so Terraform's scanner never sees the start of an
//! expression in it.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::{
    address::{Address, PLACEHOLDER, is_identifier},
    error::{TerraformError, of_resource},
};
use konverge_base::{
    error::ErrorKind,
    model::{
        ResourceId, masked_value,
        reference::{MARK, Reference, Targets},
    },
};

/// The resources of a module, which references may name.
#[derive(Debug, Default)]
pub(super) struct Inside {
    addresses: HashMap<ResourceId, Address>,
    targets: Targets,
}

impl Inside {
    pub(super) fn new(addresses: HashMap<ResourceId, Address>) -> Self {
        let targets = addresses.keys().collect();
        Self { addresses, targets }
    }

    /// Returns the address of a resource of the module.
    pub(super) fn address(&self, id: &ResourceId) -> Option<&Address> {
        self.addresses.get(id)
    }
}

/// Translates the values of one resource into Terraform's JSON syntax.
pub(super) struct Translator<'a> {
    /// The resource with the values.
    pub(super) id: &'a ResourceId,
    /// The module of the resource.
    pub(super) inside: &'a Inside,
    /// Returns the expression for a text that refers to a secret.
    pub(super) secret: &'a dyn Fn(&str) -> Option<String>,
}

/// Returns an expression whose value is unknown before the apply.
pub(super) fn unknown() -> String {
    format!("${{jsondecode(terraform_data.{PLACEHOLDER}.id)}}")
}

impl Translator<'_> {
    /// Returns a value as an expression in JSON.
    pub(super) fn value(&self, given: &Value) -> Result<Value, TerraformError> {
        Ok(match given {
            unknown if masked_value::is_unknown(unknown) => Value::String(self::unknown()),
            secret if masked_value::is_secret(secret) => {
                let what = format!("`{}` holds a masked value where a real one is needed", self.id);
                return Err(of_resource(ErrorKind::Internal, self.id, what).into());
            }
            Value::String(text) => Value::String(self.text(text)?),
            Value::Array(items) => Value::Array(
                items
                    .iter()
                    .map(|item| self.value(item))
                    .collect::<Result<_, _>>()?,
            ),
            Value::Object(map) => Value::Object(self.object(map)?),
            other => other.clone(),
        })
    }

    /// Returns an object's members as expressions, and also its keys, because Terraform reads them as
    /// templates too.
    pub(super) fn object(&self, map: &Map<String, Value>) -> Result<Map<String, Value>, TerraformError> {
        map.iter()
            .map(|(key, member)| Ok((literal(key), self.value(member)?)))
            .collect()
    }

    fn text(&self, text: &str) -> Result<String, TerraformError> {
        if let Some(secret) = (self.secret)(text) {
            return Ok(secret);
        }
        if !text.contains(MARK) {
            return Ok(literal(text));
        }
        let no_target = |_| {
            let what = format!("`{}` refers to a resource that does not exist: `{text}`", self.id);
            of_resource(ErrorKind::Spec, self.id, what)
        };
        let mut template = String::new();
        let mut at = 0;
        for reference in self.inside.targets.scan(text).map_err(no_target)? {
            template.push_str(&literal(&text[at..reference.place.start]));
            template.push_str(&format!("${{{}}}", self.traversal(&reference)));
            at = reference.place.end;
        }
        template.push_str(&literal(&text[at..]));
        Ok(template)
    }

    /// Returns a reference as an expression.
    fn traversal(&self, reference: &Reference) -> String {
        let mut expression = self.inside.addresses[&reference.target].to_string();
        for key in &reference.path {
            push_step(&mut expression, key);
        }
        expression
    }
}

/// Appends a path step to an expression. A number is an index or a map key, which Terraform converts as
/// needed; with leading zeros it must be a key.
fn push_step(expression: &mut String, key: &str) {
    let number = key.bytes().all(|b| b.is_ascii_digit()) && !key.starts_with('0');
    if key == "0" || (number && !key.is_empty()) {
        expression.push_str(&format!("[{key}]"));
    } else if is_identifier(key) {
        expression.push_str(&format!(".{key}"));
    } else {
        expression.push_str(&format!("[{}]", quote(key)));
    }
}

/// Returns a template whose value is exactly this text.
pub(super) fn literal(text: &str) -> String {
    if text.contains("${") || text.contains("%{") || text.ends_with(['$', '%']) {
        format!("${{{}}}", quote(text))
    } else {
        text.to_owned()
    }
}

/// Returns a quoted HCL string whose value is exactly this text.
fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '$' | '%' => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn translate(given: Value) -> Result<Value, TerraformError> {
        let id: ResourceId = "p:local:local_file:me".parse().unwrap();
        let mut addresses = HashMap::new();
        for (id, name) in [("p:local:local_file:a", "a"), ("p:local:local_file:a.b", "r_a_b")] {
            addresses.insert(
                id.parse().unwrap(),
                Address {
                    kind: "local_file".to_owned(),
                    name: name.to_owned(),
                },
            );
        }
        Translator {
            id: &id,
            inside: &Inside::new(addresses),
            secret: &|_| None,
        }
        .value(&given)
    }

    #[test]
    fn plain_values_stay() {
        let plain = json!({"a": ["x$y 100% x", 1, true, null], "b": {"c": "d"}});
        assert_eq!(translate(plain.clone()).unwrap(), plain);
    }

    #[test]
    fn hostile_text_holds_no_introducer_outside_the_one_interpolation() {
        for hostile in [
            "${file(\"/etc/passwd\")}",
            "%{for x in y}",
            "$${x}",
            "$$${x}",
            "a\"}${x}",
            "\\${x}",
            "x$",
        ] {
            let text = translate(json!(hostile)).unwrap();
            let inner = text
                .as_str()
                .unwrap()
                .strip_prefix("${\"")
                .unwrap()
                .strip_suffix("\"}")
                .unwrap();
            assert!(!inner.contains('$') && !inner.contains('%'), "{inner}");
            assert!(
                !inner.replace("\\\\", "").replace("\\\"", "").contains('"'),
                "{inner}"
            );
        }
        let keys = translate(json!({"tags": {"${x}": 1}})).unwrap();
        assert_eq!(keys["tags"]["${\"\\u0024{x}\"}"], 1);
    }

    #[test]
    fn references_become_traversals() {
        let whole = |text: &str| translate(json!(text)).unwrap();
        assert_eq!(
            whole("$kusion_path.p:local:local_file:a.content"),
            "${local_file.a.content}"
        );
        assert_eq!(
            whole("$kusion_path.p:local:local_file:a.b.content"),
            "${local_file.r_a_b.content}"
        );
        assert_eq!(
            whole("$kusion_path.p:local:local_file:a.list.0.x[1][\"a.${b}\"]"),
            "${local_file.a.list[0].x[1][\"a.\\u0024{b}\"]}"
        );
        assert_eq!(
            whole("http://$kusion_path.p:local:local_file:a.id:80/${x}."),
            "http://${local_file.a.id}${\":80/\\u0024{x}.\"}"
        );
        assert!(translate(json!("$kusion_path.p:local:local_file:zz.id")).is_err());
    }

    #[test]
    fn an_unknown_value_is_unknown_to_terraform_and_a_masked_one_is_refused() {
        assert_eq!(
            translate(json!([masked_value::unknown()])).unwrap(),
            json!(["${jsondecode(terraform_data.konverge_unknown.id)}"])
        );
        assert!(translate(json!({"password": masked_value::secret("0")})).is_err());
    }
}
