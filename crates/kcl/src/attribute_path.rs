//! [`AttributePath`]: the path of an attribute that an edit changes, starting at a variable: `server.env.LOG_LEVEL`.

use std::{fmt, str::FromStr};

/// The keys from a variable of the program to an attribute; at least one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttributePath(Vec<String>);

/// The error for a text that is not the path of an attribute.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAttributePath {
    /// A key is missing, or needs quotes.
    #[error("`{}` is not a path of an attribute", .0.escape_debug())]
    Form(String),
    /// The path contains the index of a list.
    #[error("`{}` names an item of a list, which cannot be set by itself", .0.escape_debug())]
    Item(String),
}

impl AttributePath {
    /// Creates a path from keys; `None` if there are none.
    pub fn from_keys(keys: Vec<String>) -> Option<Self> {
        (!keys.is_empty()).then_some(Self(keys))
    }

    /// Returns the keys.
    pub fn keys(&self) -> &[String] {
        &self.0
    }
}

impl FromStr for AttributePath {
    type Err = InvalidAttributePath;

    fn from_str(text: &str) -> Result<Self, InvalidAttributePath> {
        let wrong = || InvalidAttributePath::Form(text.to_owned());
        let (mut keys, mut rest) = (Vec::new(), text);
        loop {
            let (key, after) = match rest.strip_prefix('"') {
                Some(quoted) => quoted.split_once('"').ok_or_else(wrong)?,
                None => rest.split_at(rest.find(['.', '[']).unwrap_or(rest.len())),
            };
            if key.is_empty() || !rest.starts_with('"') && !is_identifier(key) {
                return Err(wrong());
            }
            keys.push(key.to_owned());
            rest = after;
            // `a["b"]` means the same as `a."b"`.
            while let Some(index) = rest.strip_prefix('[') {
                let quoted = index.strip_prefix('"').and_then(|index| index.split_once("\"]"));
                let Some((key, after)) = quoted.filter(|(key, _)| !key.is_empty()) else {
                    return Err(InvalidAttributePath::Item(text.to_owned()));
                };
                keys.push(key.to_owned());
                rest = after;
            }
            match rest.strip_prefix('.') {
                Some(next) => rest = next,
                None if rest.is_empty() => return Ok(Self(keys)),
                None => return Err(wrong()),
            }
        }
    }
}

impl fmt::Display for AttributePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, key) in self.0.iter().enumerate() {
            let dot = if index == 0 { "" } else { "." };
            if is_identifier(key) {
                write!(f, "{dot}{key}")?
            } else {
                write!(f, "{dot}\"{}\"", key.escape_debug())?
            }
        }
        Ok(())
    }
}

/// Returns true if a key needs no quotes in KCL.
pub(super) fn is_identifier(key: &str) -> bool {
    let name = key.strip_prefix('$').unwrap_or(key);
    name.chars().next().is_some_and(|c| c.is_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_may_be_quoted() {
        for (text, keys, shown) in [
            ("server.image", vec!["server", "image"], "server.image"),
            ("a.\"b-c.d\".e", vec!["a", "b-c.d", "e"], "a.\"b-c.d\".e"),
            ("a[\"b-c\"][\"d\"].e", vec!["a", "b-c", "d", "e"], "a.\"b-c\".d.e"),
        ] {
            let path: AttributePath = text.parse().unwrap();
            assert_eq!(path.keys(), keys);
            assert_eq!(path.to_string(), shown);
        }
    }

    #[test]
    fn other_words_are_refused() {
        for text in [
            "", ".", "a.", ".a", "a..b", "a b", "a-b", "a.\"b", "a.\"\"", "a\"b\"", "1a", "a;b", "a.\"b\"c",
        ] {
            let refused = text.parse::<AttributePath>();
            assert!(matches!(refused, Err(InvalidAttributePath::Form(_))), "{text}");
        }
        for text in ["a[0]", "a[0].b", "a[b]", "a["] {
            let refused = text.parse::<AttributePath>();
            assert!(matches!(refused, Err(InvalidAttributePath::Item(_))), "{text}");
        }
    }
}
