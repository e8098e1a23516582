//! The `export` use case: bundles of compiled stacks, written into folders or pushed as an artifact.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use serde_json::Value;

use konverge_base::{
    checkout::{self, Existing},
    error::{ErrorKind, UserError},
    interrupt::Interrupt,
    model::{CommitId, StackId, spec::Spec, stack::Stack},
};
use konverge_cloud::RegistryLogin;
use konverge_delivery as delivery;
use konverge_export::{
    Bundle, BundleRequest, Document, ExportTarget, Exported, LeaveOut, export, stack_slug,
};
use konverge_publish::{ArtifactReference, Published, RegistryClient};
use konverge_report::json;
use konverge_run::{RunContext, repository_root, stack_outputs};
use konverge_secrets::Secrets;

/// The name of the file with which an export describes itself.
const DOCUMENT: &str = "konverge.json";

/// A compiled stack.
pub struct CompiledStack {
    /// The identity of the stack.
    pub id: StackId,
    /// The commit, if a commit was compiled.
    pub commit: Option<CommitId>,
    /// The Spec of the stack.
    pub spec: Spec,
}

/// Returns the Spec of a stack with the given values for the outputs that it reads of other stacks, by `ALIAS.NAME`.
///
/// # Errors
/// A value is missing: no other tool can look up the output of a stack.
pub fn with_values(
    secrets: &Secrets,
    stack: &Stack,
    spec: &Spec,
    given: &BTreeMap<String, Value>,
) -> Result<Spec, UserError> {
    let filled = stack_outputs::fill_given(secrets, stack, spec, given)?;
    let Some(missing) = filled.missing.first() else {
        return Ok(filled.spec);
    };
    let what = format!(
        "stack {}: it reads `{missing}` of another stack, which no other tool knows",
        stack.id
    );
    Err(UserError::new(ErrorKind::Spec, what)
        .hint(format!("give the value: `--output-value {missing}=VALUE`")))
}

/// Packages a compiled stack for another tool.
///
/// # Errors
/// The Spec has something that the tool cannot represent. The error names each.
pub fn wrap(
    stack: &CompiledStack,
    target: &ExportTarget,
    leave_out: LeaveOut,
    in_clear: &[String],
) -> Result<Exported, UserError> {
    let request = BundleRequest {
        stack: &stack.id,
        commit: stack.commit.as_ref(),
        spec: &stack.spec,
        leave_out,
        in_clear,
        target: target.name(),
    };
    Ok(export(&Bundle::new(&request)?, target)?)
}

/// Checks that each stack gets a folder of its own.
///
/// # Errors
/// Two identities give one name.
pub fn check_names<'a>(stacks: impl IntoIterator<Item = &'a StackId>) -> Result<(), UserError> {
    let mut names: BTreeMap<String, &StackId> = BTreeMap::new();
    for id in stacks {
        let name = stack_slug(id);
        if let Some(other) = names.insert(name.clone(), id) {
            let what = format!("`{other}` and `{id}` would both be written to `{name}`");
            return Err(UserError::new(ErrorKind::Usage, what)
                .hint("export the stacks one by one, with another `--to` for each"));
        }
    }
    Ok(())
}

/// Writes the files of a stack into a folder of its own, replacing what an earlier export of the stack left there.
///
/// # Errors
/// The folder has other files, a link leads there, or the system refuses.
pub fn write(run: &RunContext, to: &Path, exported: &Exported) -> Result<PathBuf, UserError> {
    let failed = |place: &Path, error: io::Error| {
        UserError::new(ErrorKind::Usage, format!("the export cannot be written: {error}"))
            .at(place.display().to_string(), None, None)
            .hint("choose another folder with `--to`")
    };
    refuse_links(run, to)?;
    fs::create_dir_all(to).map_err(|error| failed(to, error))?;
    let place = to.join(stack_slug(&exported.document.stack));
    let is_there = check_replaced(&place, &exported.document)?;
    // Write beside the folder, then rename: a reader sees the old export or the new one, and a killed run leaves the
    // old one.
    let fresh = to.join(format!(".konverge-{}", uuid::Uuid::new_v4().simple()));
    let written = write_files(&fresh, exported).and_then(|()| {
        if is_there {
            let old = fresh.with_extension("old");
            fs::rename(&place, &old)?;
            fs::rename(&fresh, &place)?;
            fs::remove_dir_all(&old)
        } else {
            fs::rename(&fresh, &place)
        }
    });
    if written.is_err() {
        // Ignore an error: the folder may not have been created.
        let _ = fs::remove_dir_all(&fresh);
    }
    written
        .map(|()| place.clone())
        .map_err(|error| failed(&place, error))
}

fn write_files(folder: &Path, exported: &Exported) -> io::Result<()> {
    fs::create_dir(folder)?;
    for (path, content) in &exported.files {
        checkout::write(folder, Path::new(path), content, Existing::Keep)?;
    }
    let document = json::document(&exported.document);
    checkout::write(folder, Path::new(DOCUMENT), document.as_bytes(), Existing::Keep).map(drop)
}

/// Refuses to write through a link of the repository: the author of a change may have placed it.
fn refuse_links(run: &RunContext, to: &Path) -> Result<(), UserError> {
    let Ok(root) = repository_root(&run.dir) else {
        return Ok(());
    };
    let below = to
        .ancestors()
        .take_while(|folder| folder.starts_with(&root) && *folder != root);
    let link = below.filter(|folder| folder.is_symlink()).last();
    let Some(link) = link else { return Ok(()) };
    Err(
        UserError::new(ErrorKind::Usage, "`--to` leads through a link of the repository")
            .at(link.display().to_string(), None, None)
            .hint("name the folder itself, or one outside the repository"),
    )
}

/// Returns true if the folder has an earlier export of the stack. Any other content is an error.
fn check_replaced(place: &Path, document: &Document) -> Result<bool, UserError> {
    let refuse = |what: &str| {
        UserError::new(ErrorKind::Usage, format!("{what}, and it would be replaced"))
            .at(place.display().to_string(), None, None)
            .hint("choose an empty folder with `--to`, or remove this folder")
    };
    match fs::symlink_metadata(place) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Ok(found) if found.is_dir() => {}
        _ => return Err(refuse("this is not a folder")),
    }
    let text = fs::read(place.join(DOCUMENT)).unwrap_or_default();
    let earlier: Option<serde_json::Value> = serde_json::from_slice(&text).ok();
    let is_ours = earlier.is_some_and(|earlier| {
        earlier["stack"] == document.stack.as_str() && earlier["target"] == document.target
    });
    if is_ours {
        Ok(true)
    } else {
        Err(refuse(
            "this folder holds no earlier export of the stack for the same tool",
        ))
    }
}

/// Pushes the files of a stack. The artifact depends on the Spec alone: it does not name the commit.
///
/// # Errors
/// The tag has other content, or the registry refuses.
pub async fn push(
    run: &RunContext,
    to: &ArtifactReference,
    exported: &Exported,
) -> Result<(Published, String), UserError> {
    let artifact = delivery::artifact(exported);
    let login = RegistryLogin::find(&run.env, &to.host);
    let registry = RegistryClient::new(login, Interrupt::new(run.cancel.clone()));
    let published = registry.publish(to, &artifact, &[]).await?;
    Ok((published, artifact.digest()))
}
