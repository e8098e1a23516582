//! Reports files that are imported by themselves although their package is imported too.

use std::collections::BTreeSet;

use konverge_base::{
    error::UserError,
    model::{
        lint::{Diagnostic, LintRule},
        stack::Stack,
    },
};
use konverge_repo::affected::{self, MixedImport};
use konverge_run::{OpenRevision, compiler::FileContents};

/// Returns a warning for each import of a file whose package the program imports too, at the line of the import.
pub(super) fn find(
    workspace: &OpenRevision,
    files: &FileContents,
    stacks: &[&Stack],
) -> Result<Vec<Diagnostic>, UserError> {
    let mut found = BTreeSet::new();
    for stack in stacks {
        found.extend(workspace.analysis.half_packages(stack)?);
    }
    Ok(found.iter().map(|half| describe(half, files)).collect())
}

fn describe(half: &MixedImport, files: &FileContents) -> Diagnostic {
    let MixedImport { by, file, package } = half;
    let message = format!(
        "imports `{file}` by itself, and the program imports its package `{package}` too: if the file uses a name of its package, the core compiles or rejects it unpredictably"
    );
    let content = files.iter().find(|(path, _)| path == by);
    let line = content.and_then(|(_, content)| line_of(content, file.file_name().trim_end_matches(".k")));
    let remark = Diagnostic::new(by, LintRule::Irreproducible, &message).at(line, None);
    remark.warning().hint(format!(
        "import the package alone, `import {}`: it holds what the file defines; or give the file a folder of its own",
        package.as_str().replace('/', ".")
    ))
}

/// Returns the line of the import that ends in this name.
fn line_of(content: &[u8], name: &str) -> Option<u32> {
    let imports = |line: &[u8]| {
        affected::scan(line)
            .iter()
            .any(|import| import.path.rsplit('.').next() == Some(name))
    };
    let at = content.split(|byte| *byte == b'\n').position(imports)?;
    u32::try_from(at + 1).ok()
}
