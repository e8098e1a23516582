//! The errors in a compiled Spec. Each has the path of the wrong value.

use konverge_base::{
    error::{ErrorKind, UserError},
    model::ResourceId,
};

/// The error of an unusable Spec.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each field is")]
pub enum SpecError {
    /// The text is neither YAML nor JSON.
    #[error("{message}")]
    Text {
        file: String,
        /// The line, from 1, if known.
        line: Option<u32>,
        /// The column, from 1, if known.
        column: Option<u32>,
        message: String,
    },
    /// A value has the wrong type or structure.
    #[error("{}{message}", at(.path))]
    Shape {
        /// The path from the top of the Spec, such as `resources[3].attributes.kind`; empty for the top itself.
        path: String,
        message: String,
    },
    /// An object lacks a part of its identity, or the part is null. The usual cause is an option that is not set.
    #[error("{}{message}", at(.path))]
    Unset { path: String, message: String },
    /// Two resources have the same id.
    #[error("{path}: the id `{id}` is already that of {earlier}")]
    Duplicate {
        /// The path of the second resource.
        path: String,
        /// The path of the first resource.
        earlier: String,
        id: ResourceId,
    },
    /// A value that has the form of a reserved marker.
    #[error("{path}: a Spec cannot contain `{mark}`, which Konverge shows in place of a hidden value")]
    Mark {
        /// The path of the value.
        path: String,
        mark: String,
    },
}

fn at(path: &str) -> String {
    if path.is_empty() {
        String::new()
    } else {
        format!("{path}: ")
    }
}

impl From<SpecError> for UserError {
    fn from(error: SpecError) -> Self {
        let failure = UserError::from_error(ErrorKind::Spec, error.clone());
        match error {
            SpecError::Text {
                file, line, column, ..
            } => failure.at(file, line, column),
            SpecError::Shape { path, .. } if path.is_empty() => failure.hint(
                "print the resources as a list, or under `resources:`, each with `id`, `type` and `attributes`",
            ),
            SpecError::Shape { .. } | SpecError::Unset { .. } => failure,
            SpecError::Duplicate { id, .. } => {
                failure.hint(format!("give one of the two resources another id, or print `{id}` once"))
            }
            SpecError::Mark { .. } => failure
                .hint("write the real value, because reviewers must see what is applied; if the value is meant as it is, add another key to this mapping"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_no_list_of_resources_gets_the_form_as_a_hint() {
        let hints = |path: &str| {
            let error = SpecError::Shape {
                path: path.to_owned(),
                message: "must be a list".to_owned(),
            };
            UserError::from(error).hints
        };
        assert!(hints("")[0].contains("`resources:`"));
        assert!(hints("resources[3].attributes").is_empty());
    }
}
