//! Golden files: `ci-test/stdout.golden.yaml` contains the KCL output of a stack, compared by meaning.

use std::path::Path;

use serde_json::json;

use super::{super::OpenRevision, remark};
use crate::{
    checkout::{Existing, write},
    error::{ErrorKind, UserError},
    model::{
        lint::{Diagnostic, LintRule},
        spec::Spec,
        stack::Stack,
    },
    spec, yaml,
};

const FILE: &str = "stdout.golden.yaml";

/// The maximum number of resources that a diagnostic names.
const NAMED: usize = 5;

/// Compares a Spec with the stack's golden file, or rewrites the file. A missing file is not compared, but it
/// is created on update.
pub(super) fn compare(
    workspace: &OpenRevision,
    root: &Path,
    stack: &Stack,
    printed: &Spec,
    update: bool,
) -> Result<Option<Diagnostic>, UserError> {
    let path = stack.folder.child("ci-test").child(FILE);
    let content = workspace
        .source
        .read_path(&path)
        .map_err(|error| UserError::new(ErrorKind::Git, error.to_string()))?;
    let kept = content.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let difference = match &kept {
        None if !update => return Ok(None),
        None => "does not exist".to_owned(),
        Some(text) => match spec::read_text(text, path.as_str()) {
            Ok(golden) => match difference(&golden, printed) {
                Some(difference) => difference,
                None => return Ok(None),
            },
            Err(error) => error.to_string(),
        },
    };
    if update {
        let text = yaml::to_string(&json!({"resources": printed.resources}));
        let written = write(root, path.as_str().as_ref(), text.as_bytes(), Existing::Replace);
        written.map_err(|error| {
            UserError::new(
                ErrorKind::Layout,
                format!("the golden file is not written: {error}"),
            )
            .at(path.to_string(), None, None)
            .hint("put a plain file there, or remove the link, and run it again")
        })?;
        return Ok(None);
    }
    let mut remark = remark(
        &path,
        LintRule::Golden,
        &format!("is not what the stack compiles to: {difference}"),
    );
    remark.hint = Some(format!(
        "if that is wanted: `konverge check --update {}`",
        stack.folder
    ));
    Ok(Some(remark))
}

/// Describes which resources were added, removed or changed. Values are not shown, because they may be
/// secret.
fn difference(golden: &Spec, printed: &Spec) -> Option<String> {
    let find = |spec: &Spec, id: &crate::model::ResourceId| {
        spec.resources
            .iter()
            .find(|resource| resource.id == *id)
            .map(|resource| resource.digest())
    };
    let mut words = Vec::new();
    for resource in &printed.resources {
        match find(golden, &resource.id) {
            None => words.push(format!("+ {}", resource.id)),
            Some(digest) if digest != resource.digest() => words.push(format!("~ {}", resource.id)),
            Some(_) => {}
        }
    }
    let gone = golden
        .resources
        .iter()
        .filter(|resource| find(printed, &resource.id).is_none());
    words.extend(gone.map(|resource| format!("- {}", resource.id)));
    if words.is_empty() {
        return None;
    }
    let more = words.len().saturating_sub(NAMED);
    words.truncate(NAMED);
    let mut text = words.join(", ");
    if more > 0 {
        text.push_str(&format!(" and {more} more"));
    }
    Some(text)
}
