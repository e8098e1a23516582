//! Values as Terraform's JSON syntax wants them: text that can never become an expression, references that do.
//!
//! In `.tf.json` every string is a template. Text that holds `${` or `%{` is written as one interpolation of a quoted
//! string in which `$` and `%` are `\uXXXX`: the template scanner sees no introducer in it, whatever stands around.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::{
    address::{Address, PLACEHOLDER, is_identifier},
    error::TerraformError,
};
use crate::model::{ResourceId, value};

/// What a reference starts with; its form is that of `spec::references`.
const MARK: &str = "$kusion_path.";

/// Turns the values of one resource into Terraform's JSON syntax.
pub(super) struct Translator<'a> {
    /// Whose values these are.
    pub(super) id: &'a ResourceId,
    /// The resources that references may name: those of the same module.
    pub(super) addresses: &'a HashMap<ResourceId, Address>,
}

/// One piece of a string.
enum Piece<'t> {
    Text(&'t str),
    Expression(String),
}

impl Translator<'_> {
    /// The value as an expression in JSON.
    pub(super) fn value(&self, given: &Value) -> Result<Value, TerraformError> {
        Ok(match given {
            unknown if value::is_unknown(unknown) => {
                Value::String(format!("${{jsondecode(terraform_data.{PLACEHOLDER}.id)}}"))
            }
            secret if value::as_secret(secret).is_some() => {
                return Err(TerraformError::MaskedValue { id: self.id.clone() });
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

    /// The members as expressions; keys are templates too.
    pub(super) fn object(&self, map: &Map<String, Value>) -> Result<Map<String, Value>, TerraformError> {
        map.iter()
            .map(|(key, member)| Ok((literal(key), self.value(member)?)))
            .collect()
    }

    fn text(&self, text: &str) -> Result<String, TerraformError> {
        if !text.contains(MARK) {
            return Ok(literal(text));
        }
        let mut template = String::new();
        for piece in self.pieces(text)? {
            match piece {
                Piece::Text(text) => template.push_str(&literal(text)),
                Piece::Expression(expression) => template.push_str(&format!("${{{expression}}}")),
            }
        }
        Ok(template)
    }

    fn pieces<'t>(&self, text: &'t str) -> Result<Vec<Piece<'t>>, TerraformError> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(start) = rest.find(MARK) {
            if start > 0 {
                pieces.push(Piece::Text(&rest[..start]));
            }
            let reference = &rest[start + MARK.len()..];
            let target = self
                .addresses
                .iter()
                .filter(|(id, _)| {
                    reference
                        .strip_prefix(id.as_str())
                        .is_some_and(|tail| tail.starts_with(['.', ':', '[']))
                })
                .max_by_key(|(id, _)| id.as_str().len());
            let Some((id, address)) = target else {
                return Err(TerraformError::NoTarget {
                    id: self.id.clone(),
                    text: text.to_owned(),
                });
            };
            let (expression, tail) = traversal(address, &reference[id.as_str().len()..]);
            pieces.push(Piece::Expression(expression));
            rest = tail;
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest));
        }
        Ok(pieces)
    }

    /// The resources of the module that the values refer to.
    pub(super) fn targets(&self, given: &Value, found: &mut Vec<ResourceId>) {
        match given {
            Value::String(text) if text.contains(MARK) => {
                for (start, _) in text.match_indices(MARK) {
                    let reference = &text[start + MARK.len()..];
                    let longest = self
                        .addresses
                        .keys()
                        .filter(|id| reference.starts_with(id.as_str()))
                        .max_by_key(|id| id.as_str().len());
                    found.extend(longest.cloned());
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.targets(item, found)),
            Value::Object(map) => map.values().for_each(|member| self.targets(member, found)),
            _ => {}
        }
    }
}

/// `.key`, `:key`, `[0]` and `["key"]` for as long as they follow each other, as a traversal from the address.
fn traversal<'t>(address: &Address, mut path: &'t str) -> (String, &'t str) {
    let mut expression = address.to_string();
    let mut first = true;
    loop {
        let dotted = path
            .strip_prefix('.')
            .or_else(|| if first { path.strip_prefix(':') } else { None });
        if let Some(tail) = dotted {
            let length = tail
                .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '-'))
                .unwrap_or(tail.len());
            if length == 0 {
                return (expression, path);
            }
            push_step(&mut expression, &tail[..length]);
            path = &tail[length..];
        } else if let Some((key, tail)) = path.strip_prefix("[\"").and_then(|tail| tail.split_once("\"]")) {
            expression.push_str(&format!("[{}]", quoted(key)));
            path = tail;
        } else if let Some((index, tail)) = path.strip_prefix('[').and_then(|tail| tail.split_once(']'))
            && !index.is_empty()
            && index.bytes().all(|b| b.is_ascii_digit())
        {
            expression.push_str(&format!("[{index}]"));
            path = tail;
        } else {
            return (expression, path);
        }
        first = false;
    }
}

fn push_step(expression: &mut String, key: &str) {
    if key.bytes().all(|b| b.is_ascii_digit()) {
        expression.push_str(&format!("[{key}]"));
    } else if is_identifier(key) {
        expression.push_str(&format!(".{key}"));
    } else {
        expression.push_str(&format!("[{}]", quoted(key)));
    }
}

/// A template whose value is exactly this text.
pub(super) fn literal(text: &str) -> String {
    if text.contains("${") || text.contains("%{") || text.ends_with(['$', '%']) {
        format!("${{{}}}", quoted(text))
    } else {
        text.to_owned()
    }
}

/// An HCL string in quotes whose value is exactly this text.
fn quoted(text: &str) -> String {
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
    #![allow(clippy::unwrap_used)]
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
            addresses: &addresses,
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
            translate(json!([value::unknown()])).unwrap(),
            json!(["${jsondecode(terraform_data.konverge_unknown.id)}"])
        );
        assert!(translate(json!({"password": value::secret("0")})).is_err());
    }
}
