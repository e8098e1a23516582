//! Names in KCL: of packages, files, schemas and attributes.

use konverge_base::model::kcl_modules::SYSTEM_MODULES;

/// Reserved words: keywords and names of types. An attribute with such a name needs a `$`; a folder cannot have it.
const RESERVED: &str = "True False None Undefined import and or in is not as if else elif for schema mixin protocol \
     relaxed check assert all any map filter lambda rule type str int float bool self super option with global nonlocal \
     return";

fn is_reserved(name: &str) -> bool {
    RESERVED.split(' ').any(|word| word == name)
}

fn is_identifier(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Returns true if KCL can import a path of folders: all are identifiers, none is a keyword, and the first is not a
/// system module.
pub fn is_package_path(path: &str) -> bool {
    let first = path.split('/').next().unwrap_or_default();
    let is_segment = |name: &str| is_identifier(name) && !is_reserved(name);
    path.split('/').all(is_segment) && !SYSTEM_MODULES.contains(&first)
}

/// Converts a name to a folder that KCL can import: `argoproj.io` becomes `argoproj_io`.
pub fn package_segment(name: &str) -> String {
    let safe: String = name
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_lowercase()
            } else {
                '_'
            }
        })
        .collect();
    match safe.chars().next() {
        None => "_".to_owned(),
        Some(first) if first.is_ascii_digit() => format!("_{safe}"),
        Some(_) if is_reserved(&safe) || SYSTEM_MODULES.contains(&safe.as_str()) => {
            format!("{safe}_")
        }
        Some(_) => safe,
    }
}

/// Returns the file of a kind. KCL does not load files that begin with `_` or end with `_test.k`.
pub(crate) fn file_name(kind: &str) -> String {
    let name = package_segment(kind);
    let name = name.trim_start_matches('_');
    if name.is_empty() || name.ends_with("_test") || name == "common" {
        format!("{name}_kind.k")
    } else {
        format!("{name}.k")
    }
}

/// Converts a name to the name of a schema, or to a part of one: `job-template` becomes `JobTemplate`.
pub(crate) fn schema_part(name: &str) -> String {
    let mut part = String::new();
    let mut is_start = true;
    for letter in name.chars() {
        if !letter.is_ascii_alphanumeric() {
            is_start = true;
            continue;
        }
        part.push(if is_start {
            letter.to_ascii_uppercase()
        } else {
            letter
        });
        is_start = false;
    }
    part
}

/// Converts the name of a kind to the name of a schema.
pub(crate) fn schema_name(kind: &str) -> String {
    let name = schema_part(kind);
    if name.starts_with(|first: char| first.is_ascii_alphabetic()) && !is_reserved(&name) {
        plain_schema(name)
    } else {
        plain_schema(format!("Kind{name}"))
    }
}

/// Appends a `_` to a name that has a special meaning in KCL: the suffix `Mixin` makes a mixin, which cannot be
/// used as a type, and `Protocol` a protocol, which cannot have checks. No name of a source ends in `_`, so there
/// is no conflict.
pub(crate) fn plain_schema(name: String) -> String {
    let has_meaning = is_reserved(&name) || name.ends_with("Mixin") || name.ends_with("Protocol");
    if has_meaning { format!("{name}_") } else { name }
}

/// The form in which an attribute is written in KCL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AttributeName {
    /// An identifier, with `$` before a keyword. Checks can use it.
    Identifier(String),
    /// A string in quotes. Checks cannot use it.
    Quoted(String),
    /// No form: KCL does not output names that begin with `_`, and a literal cannot contain `${`.
    Impossible,
}

/// Returns how to write the attribute for a property.
pub(crate) fn attribute_name(property: &str) -> AttributeName {
    if property.starts_with('_') || property.is_empty() {
        return AttributeName::Impossible;
    }
    if is_identifier(property) {
        if is_reserved(property) {
            AttributeName::Identifier(format!("${property}"))
        } else {
            AttributeName::Identifier(property.to_owned())
        }
    } else {
        quoted(property).map_or(AttributeName::Impossible, AttributeName::Quoted)
    }
}

/// Returns a string literal; `None` for a text with `${` or control characters, which versions of KCL interpret
/// differently.
pub(crate) fn quoted(text: &str) -> Option<String> {
    if text.contains("${") || text.chars().any(char::is_control) {
        return None;
    }
    Some(format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")))
}

/// Returns a string as a literal type; `None` if it has a backslash, with which the type would never match, or
/// other unusual characters.
pub(crate) fn literal_type(text: &str) -> Option<String> {
    let is_safe = |c: char| !matches!(c, '"' | '\\' | '$' | '\'') && !c.is_control();
    text.chars().all(is_safe).then(|| format!("\"{text}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_safe_in_kcl() {
        for (name, segment) in [
            ("argoproj.io", "argoproj_io"),
            ("1b", "_1b"),
            ("check", "check_"),
            ("math", "math_"),
            ("", "_"),
            ("../x", "___x"),
        ] {
            assert_eq!(package_segment(name), segment);
        }
        for (kind, file) in [
            ("ApplicationSet", "applicationset.k"),
            ("aws_lb_test", "aws_lb_test_kind.k"),
            ("Common", "common_kind.k"),
            ("_x", "x.k"),
            ("__", "_kind.k"),
        ] {
            assert_eq!(file_name(kind), file);
        }
        let identifier = |name: &str| AttributeName::Identifier(name.to_owned());
        assert_eq!(attribute_name("if"), identifier("$if"));
        assert_eq!(attribute_name("regex"), identifier("regex"));
        assert_eq!(attribute_name("a-b"), AttributeName::Quoted("\"a-b\"".to_owned()));
        assert_eq!(
            attribute_name("$ref"),
            AttributeName::Quoted("\"$ref\"".to_owned())
        );
        for impossible in ["_a", "", "a${b}", "a\nb"] {
            assert_eq!(
                attribute_name(impossible),
                AttributeName::Impossible,
                "{impossible}"
            );
        }
        for (kind, schema) in [
            ("Protocol", "Protocol_"),
            ("app-mixin", "AppMixin_"),
            ("ProtocolMapping", "ProtocolMapping"),
            ("none", "KindNone"),
            ("9-protocol", "Kind9Protocol_"),
        ] {
            assert_eq!(schema_name(kind), schema);
        }
        assert!(is_package_path("base/pkg/argo"));
        for path in ["regex/x", "a/if", "a//b", "../a", "/a", "a-b", ""] {
            assert!(!is_package_path(path), "{path}");
        }
    }
}
