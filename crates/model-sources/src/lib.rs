//! KCL models of custom resources, of Kubernetes' kinds and of Terraform resources, which the crate
//! [`konverge_kcl_models`] makes: imported from their sources, recorded in `konverge.yaml`, and compared with what they
//! were made from.

mod comparison;
mod kubernetes_release;
pub mod model_changes;
mod model_folder;
mod provider_record;
mod record;
mod sources;

use konverge_base::{
    error::{ErrorKind, UserError},
    model::{RepoPath, file_source::Source},
};
use konverge_config::{Config, ModelSourceConfig};
use konverge_kcl_models::{GenerateOptions, ModelFiles, generate, is_package_path, read_documents};
use konverge_repo::git::Repository;
use konverge_run::{RunContext, compiler::Compilers};

pub use comparison::StaleModel;
use comparison::stale_files;
pub use provider_record::record;
pub use sources::repository_paths;
use sources::{SourceContent, read_repository_source};

/// Result of an import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelImportReport {
    /// The folder of the models.
    pub folder: RepoPath,
    /// The number of files.
    pub files: usize,
    /// Reason why the import is not recorded in `konverge.yaml`.
    pub unrecorded: Option<String>,
}

/// Imports models of the kinds in `only`, or of all, and replaces those that an earlier import wrote into the folder.
/// Without `into`, that is one below `base/pkg`.
///
/// # Errors
/// A source cannot be read or translated, the folder has files of another origin, or the core is not available.
pub async fn import(
    run: &RunContext,
    sources: &[String],
    only: &[String],
    into: Option<&str>,
) -> Result<ModelImportReport, UserError> {
    let repository = Repository::discover(&run.dir)?;
    let worktree = repository.worktree()?;
    let config = Config::load(worktree.as_ref())?;
    let sources = sources::parse(run, repository.root(), sources)?;
    let folder = match into {
        Some(into) => {
            sources::repository_path(run, repository.root(), into).ok_or_else(|| not_importable(into))?
        }
        None => RepoPath::root()
            .child("base")
            .child("pkg")
            .child(&sources[0].name()),
    };
    let import_path = import_path(worktree.as_ref(), &folder)?;
    model_folder::check(repository.root(), &folder)?;
    let content = sources::read(run, &config, worktree.as_ref(), &sources).await?;
    run.check_interrupted()?;
    let options = GenerateOptions {
        only: only.to_vec(),
        import_path,
    };
    let files = generate(read_documents(&content.documents)?, &options)?;
    let compilers = Compilers::new(run, &config);
    let pool = &compilers.pool(config.kcl.core()).await?;
    let files = model_folder::format(pool, &files).await?;
    // Compile the models before anything is written: models that the core refuses must not replace working ones.
    model_folder::compile(pool, &files, &options.import_path).await?;
    run.begin_writes()?;
    model_folder::replace(repository.root(), &folder, &files)?;
    let unrecorded = sources.iter().find_map(sources::ModelSource::unrecorded);
    // Record the import only if all sources can be read again from the repository or a cluster.
    if unrecorded.is_none() {
        let entry = ModelSourceConfig {
            from: sources.iter().map(ToString::to_string).collect(),
            into: folder.to_string(),
            only: only.to_vec(),
            version: content.version,
            hash: Some(content.digest.to_string()),
        };
        record::write(repository.root(), &config.models, entry)?;
    }
    Ok(ModelImportReport {
        folder,
        files: files.len(),
        unrecorded,
    })
}

/// Generates the models of every entry of `models.sources` again, and returns what differs.
///
/// # Errors
/// A source cannot be read or translated.
pub async fn check(run: &RunContext) -> Result<(usize, Vec<StaleModel>), UserError> {
    let repository = Repository::discover(&run.dir)?;
    let worktree = repository.worktree()?;
    let config = Config::load(worktree.as_ref())?;
    if config.models.sources.is_empty() {
        return Err(
            UserError::new(ErrorKind::Config, "konverge.yaml records no models")
                .hint("`konverge models import SOURCE` generates some, and records their source"),
        );
    }
    let mut stale = Vec::new();
    for entry in &config.models.sources {
        run.check_interrupted()?;
        let sources = sources::recorded(&entry.from)?;
        let content = sources::read(run, &config, worktree.as_ref(), &sources).await?;
        let files = formatted(run, &config, &generated(worktree.as_ref(), entry, &content)?).await?;
        let mut found = stale_files(worktree.as_ref(), entry, &files)?;
        if found.is_empty()
            && entry
                .hash
                .as_ref()
                .is_some_and(|hash| *hash != content.digest.to_string())
        {
            found.push(StaleModel::moved_source(entry, content.version.as_deref()));
        }
        stale.extend(found);
    }
    Ok((config.models.sources.len(), stale))
}

/// Returns the models of an entry that differ from what its sources in a revision generate. A source outside of the
/// repository is not read.
///
/// # Errors
/// A source cannot be read or translated, or the folder cannot be imported.
pub fn stale_in_revision(
    revision: &dyn Source,
    entry: &ModelSourceConfig,
) -> Result<Vec<StaleModel>, UserError> {
    let mut documents = Vec::new();
    for path in entry.from.iter().filter_map(|from| RepoPath::normalize(from)) {
        documents.extend(read_repository_source(revision, &path)?);
    }
    let files = generated(revision, entry, &SourceContent::new(documents, None))?;
    stale_files(revision, entry, &files)
}

/// Generates the files of an entry from the content of its sources.
///
/// # Errors
/// The content cannot be translated, or the folder cannot be imported.
fn generated(
    source: &dyn Source,
    entry: &ModelSourceConfig,
    content: &SourceContent,
) -> Result<ModelFiles, UserError> {
    let folder = entry.folder().ok_or_else(|| not_importable(&entry.into))?;
    let import_path = import_path(source, &folder)?;
    let options = GenerateOptions {
        only: entry.only.clone(),
        import_path,
    };
    Ok(generate(read_documents(&content.documents)?, &options)?)
}

/// Returns the path by which KCL imports a folder, relative to the nearest `kcl.mod` above it.
fn import_path(source: &dyn Source, folder: &RepoPath) -> Result<String, UserError> {
    let files = source.files();
    let root = folder
        .ancestors()
        .find(|above| files.contains_key(&above.child("kcl.mod")));
    let path = folder.relative_to(&root.unwrap_or_default());
    let path = path.filter(|path| is_package_path(path));
    path.map(|path| path.replace('/', "."))
        .ok_or_else(|| not_importable(folder.as_str()))
}

fn not_importable(folder: &str) -> UserError {
    let what = format!("KCL cannot import the folder `{}`", folder.escape_debug());
    UserError::new(ErrorKind::Usage, what).hint(
        "give a folder of the repository whose parts are identifiers, no keywords, and do not begin with a module of the core, such as `--into base/pkg/argo`",
    )
}

/// Returns the files as the core formats them.
async fn formatted(run: &RunContext, config: &Config, files: &ModelFiles) -> Result<ModelFiles, UserError> {
    let compilers = Compilers::new(run, config);
    model_folder::format(&compilers.pool(config.kcl.core()).await?, files).await
}
