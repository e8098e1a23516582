//! Rejects reserved markers in a Spec. A reviewer would see such a marker as *known after apply* or as an unchanged
//! secret, and would so approve any value.

use serde_json::{Map, Value};

use super::SpecError;
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        masked_value::{is_secret, is_unknown},
        spec::Spec,
        stack_output::OUTPUTS_KEY,
    },
};

/// Returns an error if any attribute or provider configuration contains a marker.
pub(super) fn refuse(spec: &Spec) -> Result<(), SpecError> {
    for resource in &spec.resources {
        let parts = [
            ("attributes", &resource.attributes),
            ("extensions", &resource.extensions),
        ];
        let found = parts.into_iter().find_map(|(path, part)| in_map(part, path));
        if let Some((path, mark)) = found {
            return Err(refusal(&format!("{}: {path}", resource.id), &mark));
        }
    }
    match in_map(&spec.outputs, OUTPUTS_KEY) {
        Some((path, mark)) => Err(refusal(&path, &mark)),
        None => Ok(()),
    }
}

fn refusal(path: &str, mark: &str) -> SpecError {
    let what =
        format!("{path}: a Spec cannot contain `{mark}`, which Konverge shows in place of a hidden value");
    UserError::new(ErrorKind::Spec, what)
        .hint("write the real value, because reviewers must see what is applied; if the value is meant as it is, add another key to this mapping")
        .into()
}

fn is_mark(map: &Map<String, Value>) -> bool {
    // A marker is always a map with one key.
    if map.len() != 1 {
        return false;
    }
    let value = Value::Object(map.clone());
    is_unknown(&value) || is_secret(&value)
}

fn in_map(map: &Map<String, Value>, path: &str) -> Option<(String, String)> {
    if is_mark(map) {
        return Some((path.to_owned(), Value::Object(map.clone()).to_string()));
    }
    map.iter()
        .find_map(|(key, value)| in_value(value, &format!("{path}.{key}")))
}

fn in_value(value: &Value, path: &str) -> Option<(String, String)> {
    match value {
        Value::Array(items) => items
            .iter()
            .enumerate()
            .find_map(|(index, item)| in_value(item, &format!("{path}[{index}]"))),
        Value::Object(map) => in_map(map, path),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::spec::{append_crds, read_text};
    use konverge_base::{error::UserError, model::RepoPath};

    #[test]
    fn a_forged_mark_is_an_error_with_its_path_and_a_way_out() {
        for (attributes, path) in [
            ("{x: {y: [a, {$unknown: true}]}}", "t: attributes.x.y[1]: "),
            ("{x/y: {$secret: deadbeefcafe}}", "t: attributes.x/y: "),
            ("{$secret: deadbeefcafe}", "t: attributes: "),
        ] {
            let text = format!("- {{id: t, type: Terraform, attributes: {attributes}}}");
            let failure = UserError::from(read_text(&text, "f").unwrap_err());
            assert!(failure.message.starts_with(path), "{}", failure.message);
            assert!(!failure.hints.is_empty());
        }
        let crd = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: a}\nspec: {$unknown: true}\n";
        let files = [(RepoPath::normalize("p/crd/x.yaml").unwrap(), crd)];
        assert!(append_crds(&mut konverge_base::model::spec::Spec::default(), &files).is_err());
    }

    #[test]
    fn what_is_shown_as_it_stands_is_no_mark() {
        let text = "- {id: t, type: Terraform, attributes: {a: {$unknown: false}, b: {$secret: x, more: y}, c: $secret}}";
        assert!(read_text(text, "f").is_ok());
    }
}
