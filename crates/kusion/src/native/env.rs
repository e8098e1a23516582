//! [`Environment`]: the environment variables of a container in Kusion's order, which matters: a variable may
//! refer only to variables before it.

use std::cmp::Ordering;

use serde_json::{Map, Value, json};

use super::{call::EnvOrder, files::SecretKey};

/// The variables of a container.
pub(super) struct Environment<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Environment<'a> {
    /// Reads the variables in this order.
    ///
    /// # Errors
    /// A value is not a string.
    pub(super) fn read(variables: &'a Map<String, Value>, order: EnvOrder) -> Result<Self, String> {
        let text = |(name, value): (&'a String, &'a Value)| match value {
            Value::String(value) => Ok((name.as_str(), value.as_str())),
            _ => Err(format!(
                "env `{}`: its value is not a string",
                name.escape_debug()
            )),
        };
        let schema = crate::apps::SCHEMA;
        let own = variables.iter().filter(|(name, _)| *name != schema);
        let mut variables = own.map(text).collect::<Result<Vec<_>, _>>()?;
        if order == EnvOrder::Natural {
            variables.sort_by(|(a, _), (b, _)| natural(a, b));
        }
        Ok(Self(variables))
    }

    /// Returns the variables as Kubernetes' list. The value `secret://NAME/KEY` becomes a reference to a key
    /// of a Secret.
    pub(super) fn variables(&self) -> Result<Value, String> {
        let one = |(name, value): &(&str, &str)| {
            if !value.starts_with("secret://") {
                return Ok(json!({"name": name, "value": value}));
            }
            let Some(SecretKey {
                secret,
                key: Some(key),
            }) = SecretKey::parse(value)
            else {
                return Err(format!(
                    "env `{}`: write `secret://NAME/KEY`",
                    name.escape_debug()
                ));
            };
            Ok(json!({"name": name, "valueFrom": {"secretKeyRef": {"key": key, "name": secret}}}))
        };
        self.0.iter().map(one).collect()
    }

    /// Returns notes for variables that refer to a later one: Kubernetes does not replace such a reference.
    pub(super) fn used_too_early(&self, app: &str, container: &str) -> Vec<String> {
        let mut found = Vec::new();
        for (position, (name, value)) in self.0.iter().enumerate() {
            let mut after = self.0.iter().skip(position + 1);
            if let Some((later, _)) = after.find(|(other, _)| value.contains(&format!("$({other})"))) {
                found.push(format!(
                    "`{app}`: in the container `{container}`, the variable `{}` stands before `{}`, as in Kusion, so `$({})` is not replaced by its value",
                    name.escape_debug(),
                    later.escape_debug(),
                    later.escape_debug()
                ));
            }
        }
        found
    }
}

/// Compares keys as go-yaml does: letters sort after other characters, but before them if they follow a
/// digit; runs of digits compare as numbers.
fn natural(a: &str, b: &str) -> Ordering {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let Some(at) = a.iter().zip(&b).position(|(one, two)| one != two) else {
        return a.len().cmp(&b.len());
    };
    let (one, two) = (a[at], b[at]);
    match (one.is_alphabetic(), two.is_alphabetic()) {
        (true, true) => one.cmp(&two),
        (false, false) => {
            let in_number = at > 0 && is_in_number(&a[..at]);
            (number(&a[at..], in_number).cmp(&number(&b[at..], in_number))).then(one.cmp(&two))
        }
        (first, _) => {
            let behind_digit = at > 0 && a[at - 1].is_ascii_digit();
            if first == behind_digit {
                Ordering::Less
            } else {
                Ordering::Greater
            }
        }
    }
}

/// Returns true if a text ends with digits that are not all zero, so that a following zero belongs to their
/// number.
fn is_in_number(before: &[char]) -> bool {
    let digits = before.iter().rev().take_while(|c| c.is_ascii_digit());
    digits.into_iter().any(|digit| *digit != '0')
}

/// Returns the number at the start of a text and its count of digits.
fn number(text: &[char], in_number: bool) -> (u128, usize) {
    let digits: Vec<u128> = text
        .iter()
        .map_while(|c| c.to_digit(10).map(u128::from))
        .collect();
    let start = u128::from(in_number);
    let value = digits
        .iter()
        .fold(start, |sum, digit| sum.saturating_mul(10).saturating_add(*digit));
    (value, digits.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> Map<String, Value> {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| ((*name).to_owned(), json!(value)))
            .collect()
    }

    fn names(pairs: &[&str], order: EnvOrder) -> Vec<String> {
        let variables = variables(&pairs.iter().map(|name| (*name, "")).collect::<Vec<_>>());
        let read = Environment::read(&variables, order).unwrap();
        read.0.iter().map(|(name, _)| (*name).to_owned()).collect()
    }

    /// The order of go-yaml's own test of keys, and of names that are usual for variables.
    #[test]
    fn keys_are_sorted_as_go_yaml_does() {
        let yaml = [
            "", ".1", ".2", ".a", "1", "2", "a!10", "a/0001", "a/002", "a/3", "a/10", "a/11", "a/0012",
            "a/100", "a~10", "ab/1", "b/1", "b/01", "b/2", "b/02", "b/3", "b/03", "b1", "b01", "b3", "c2.10",
            "c10.2", "d1", "d7", "d7abc", "d12", "d12a", "e2b", "e4b", "e21a",
        ];
        let mut mixed = yaml.to_vec();
        mixed.reverse();
        assert_eq!(names(&mixed, EnvOrder::Natural), yaml);
        let usual = ["URL10", "URL2", "DBNAME", "DB_HOST", "A", "_A", "a"];
        let sorted = ["_A", "A", "DB_HOST", "DBNAME", "URL2", "URL10", "a"];
        assert_eq!(names(&usual, EnvOrder::Natural), sorted);
        assert_eq!(names(&usual, EnvOrder::Declared), usual);
    }

    #[test]
    fn a_variable_is_a_text_or_a_key_of_a_secret() {
        let read = |pairs: &[(&str, &str)]| {
            let variables = variables(pairs);
            Environment::read(&variables, EnvOrder::Natural)
                .unwrap()
                .variables()
        };
        let expected = json!([
            {"name": "A", "valueFrom": {"secretKeyRef": {"key": "password", "name": "db"}}},
            {"name": "B", "value": "b"},
        ]);
        assert_eq!(
            read(&[("B", "b"), ("A", "secret://db/password")]).unwrap(),
            expected
        );
        for wrong in ["secret://db", "secret://db/a/b", "secret:///key"] {
            assert!(read(&[("A", wrong)]).is_err(), "{wrong}");
        }
        let number = Map::from_iter([("A".to_owned(), json!(1))]);
        assert!(Environment::read(&number, EnvOrder::Declared).is_err());
    }

    #[test]
    fn a_variable_that_is_used_before_its_turn_is_named() {
        let pairs = [
            ("DBURL", "$(DB_HOST)"),
            ("DB_HOST", "h"),
            ("B", "$(C)"),
            ("C", "1"),
        ];
        let variables = variables(&pairs);
        let notes = |order| {
            Environment::read(&variables, order)
                .unwrap()
                .used_too_early("shop", "web")
        };
        let (natural, declared) = (notes(EnvOrder::Natural), notes(EnvOrder::Declared));
        assert_eq!(
            (natural.len(), declared.len()),
            (1, 2),
            "{natural:?} {declared:?}"
        );
        assert!(natural[0].contains("`B` stands before `C`"), "{natural:?}");
        assert!(
            declared[0].contains("`$(DB_HOST)` is not replaced"),
            "{declared:?}"
        );
    }
}
