//! The sources of models: files of the repository, files outside it, a cluster, a release of Kubernetes.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        ClusterName, Digest, RepoPath,
        file_source::{FileKind, Source},
    },
    yaml,
};
use konverge_config::{Config, ModelSourceConfig};
use konverge_kcl_models::package_segment;
use konverge_run::{RunBuilder, RunContext};

use super::kubernetes_release;

/// The maximum size of a file.
const LONGEST: u64 = 64 << 20;
/// The maximum number of files of a source.
const MOST_FILES: usize = 2_000;

/// One source of models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ModelSource {
    /// The OpenAPI documents of a configured cluster.
    Cluster(ClusterName),
    /// The OpenAPI document of a release of Kubernetes.
    Kubernetes(String),
    /// A file or a folder of the repository.
    Repository(RepoPath),
    /// A file or a folder outside of the repository.
    Outside(PathBuf),
}

/// The documents of sources.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SourceContent {
    /// The parsed documents of the sources.
    pub(super) documents: Vec<Value>,
    /// The version, if a source has one.
    pub(super) version: Option<String>,
    /// The digest of the documents, in any order.
    pub(super) digest: Digest,
}

impl SourceContent {
    pub(super) fn new(documents: Vec<Value>, version: Option<String>) -> Self {
        let digest = Digest::of_set(documents.iter().map(Digest::of_json));
        Self {
            documents,
            version,
            digest,
        }
    }
}

impl fmt::Display for ModelSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster(name) => write!(f, "cluster:{name}"),
            Self::Kubernetes(version) => write!(f, "kubernetes@{version}"),
            Self::Repository(path) => f.write_str(path.as_str()),
            Self::Outside(path) => write!(f, "{}", path.display()),
        }
    }
}

impl ModelSource {
    /// Returns the name of the folder below `base/pkg`.
    pub(super) fn name(&self) -> String {
        let file = |path: &Path| {
            path.file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned()
        };
        package_segment(&match self {
            Self::Cluster(name) => name.to_string(),
            Self::Kubernetes(_) => "kubernetes".to_owned(),
            Self::Repository(path) => file(Path::new(path.as_str())),
            Self::Outside(path) => file(path),
        })
    }

    /// Returns the reason why the source cannot be recorded.
    pub(super) fn unrecorded(&self) -> Option<String> {
        match self {
            Self::Outside(path) => Some(format!("`{}` is not in the repository", path.display())),
            _ => None,
        }
    }
}

/// Parses the sources of a command line.
pub(super) fn parse(run: &RunContext, root: &Path, texts: &[String]) -> Result<Vec<ModelSource>, UserError> {
    let parse = |text: &String| match special(text)? {
        Some(source) => Ok(source),
        None => Ok(match repository_path(run, root, text) {
            Some(path) => ModelSource::Repository(path),
            None => ModelSource::Outside(run.dir.join(text)),
        }),
    };
    texts.iter().map(parse).collect()
}

/// Parses the sources of an entry of `konverge.yaml`. A file outside the repository is not one of them.
pub(super) fn recorded(texts: &[String]) -> Result<Vec<ModelSource>, UserError> {
    let parse = |text: &String| match special(text)? {
        Some(source) => Ok(source),
        None => RepoPath::normalize(text)
            .map(ModelSource::Repository)
            .ok_or_else(|| {
                let what = format!(
                    "models.sources: `{}` is not a path of the repository",
                    text.escape_debug()
                );
                UserError::new(ErrorKind::Config, what)
                    .hint("import the models again: `konverge models import`")
            }),
    };
    texts.iter().map(parse).collect()
}

/// Returns the paths of an entry of `konverge.yaml`, its folder first; `None` if a source is not in the repository.
pub fn repository_paths(entry: &ModelSourceConfig) -> Option<Vec<RepoPath>> {
    if entry.from.iter().any(|from| from.contains([':', '@'])) {
        return None;
    }
    let sources = entry.from.iter().filter_map(|from| RepoPath::normalize(from));
    Some(entry.folder().into_iter().chain(sources).collect())
}

/// Parses a source that is not a path; `None` for a path.
fn special(text: &str) -> Result<Option<ModelSource>, UserError> {
    let wrong = |what: String, hint: &str| Err(UserError::new(ErrorKind::Usage, what).hint(hint));
    if let Some(name) = text.strip_prefix("cluster:") {
        return match name.parse() {
            Ok(name) => Ok(Some(ModelSource::Cluster(name))),
            Err(error) => wrong(
                format!("{error}"),
                "give the name of a cluster of konverge.yaml: `cluster:prod`",
            ),
        };
    }
    if let Some(version) = text.strip_prefix("kubernetes@") {
        let is_number =
            |part: &str| !part.is_empty() && part.len() < 4 && part.bytes().all(|byte| byte.is_ascii_digit());
        let is_version = version
            .split_once('.')
            .is_some_and(|(major, minor)| is_number(major) && is_number(minor));
        return if is_version {
            Ok(Some(ModelSource::Kubernetes(version.to_owned())))
        } else {
            wrong(
                format!("`{}` is not a version of Kubernetes", version.escape_debug()),
                "give major and minor: `kubernetes@1.34`",
            )
        };
    }
    if text.contains("://") {
        wrong(
            format!(
                "`{}` is an address",
                konverge_secrets::without_secrets(text).escape_debug()
            ),
            "download the document into the repository, and give the file",
        )
    } else {
        Ok(None)
    }
}

/// Returns a path of the command line relative to the repository; `None` if it leads out of the repository.
pub(super) fn repository_path(run: &RunContext, root: &Path, text: &str) -> Option<RepoPath> {
    let root = root.canonicalize().ok()?;
    let given = run.dir.canonicalize().ok()?.join(text);
    let inside = given.strip_prefix(&root).ok()?.to_str()?;
    RepoPath::normalize(inside).filter(|path| !path.is_root() || text == ".")
}

/// Reads sources.
///
/// # Errors
/// There is no file; a file is not YAML or JSON; a cluster cannot be reached.
pub(super) async fn read(
    run: &RunContext,
    config: &Config,
    worktree: &dyn Source,
    sources: &[ModelSource],
) -> Result<SourceContent, UserError> {
    let (mut documents, mut version) = (Vec::new(), None);
    for source in sources {
        match source {
            ModelSource::Repository(path) => documents.extend(read_repository_source(worktree, path)?),
            ModelSource::Outside(path) => documents.extend(read_outside(path)?),
            ModelSource::Kubernetes(of) => {
                documents.push(kubernetes_release::read(run, of).await?);
                version = Some(of.clone());
            }
            ModelSource::Cluster(name) => {
                let infrastructure = RunBuilder::new(run, config.clone()).connect().await?;
                let schemas = infrastructure.kubernetes.openapi(name).await?;
                documents.extend(schemas.documents);
                version = Some(schemas.version);
            }
        }
    }
    Ok(SourceContent::new(documents, version))
}

/// Reads the documents of a file or a folder of a revision. No link is followed.
///
/// # Errors
/// It does not exist, is too large, or is not YAML or JSON.
pub(super) fn read_repository_source(source: &dyn Source, path: &RepoPath) -> Result<Vec<Value>, UserError> {
    let files = source.files();
    let is_source =
        |file: &RepoPath| *file == *path || file.is_within(path) && is_data(Path::new(file.as_str()));
    let found = files
        .iter()
        .filter(|(file, entry)| entry.kind == FileKind::File && is_source(file));
    let found: Vec<_> = found.take(MOST_FILES + 1).collect();
    if found.is_empty() {
        return Err(missing(&format!(
            "there is no YAML or JSON file at `{path}` in the repository"
        ))
        .hint("add the file to git first: a file that git ignores is not read"));
    }
    check_count(found.len(), path.as_str())?;
    let mut documents = Vec::new();
    for (file, entry) in found {
        let content = source.read(entry.blob);
        let content = content?;
        documents.extend(parse_file(file.as_str(), &content)?);
    }
    Ok(documents)
}

/// Reads the documents of a file or a folder outside of the repository.
pub(super) fn read_outside(path: &Path) -> Result<Vec<Value>, UserError> {
    let failed = |path: &Path, error: std::io::Error| {
        missing(&format!(
            "`{}` cannot be read: {error}",
            path.display().to_string().escape_debug()
        ))
    };
    let (mut queue, mut files) = (vec![path.to_owned()], Vec::new());
    while let Some(place) = queue.pop() {
        let about = fs::metadata(&place).map_err(|error| failed(&place, error))?;
        if !about.is_dir() {
            if place == *path || is_data(&place) {
                files.push((place, about.len()));
            }
            check_count(files.len(), &path.display().to_string())?;
            continue;
        }
        for entry in fs::read_dir(&place).map_err(|error| failed(&place, error))? {
            let entry = entry.map_err(|error| failed(&place, error))?;
            // A link to a folder above would never end, so links are skipped.
            if !entry.path().is_symlink() {
                queue.push(entry.path());
            }
        }
    }
    files.sort();
    let mut documents = Vec::new();
    for (file, size) in files {
        let name = file.display().to_string();
        check_size(&name, size)?;
        documents.extend(parse_file(
            &name,
            &fs::read(&file).map_err(|error| failed(&file, error))?,
        )?);
    }
    Ok(documents)
}

fn parse_file(name: &str, content: &[u8]) -> Result<Vec<Value>, UserError> {
    check_size(name, content.len() as u64)?;
    let text = std::str::from_utf8(content).map_err(|error| {
        UserError::from_error(ErrorKind::Layout, error)
            .context("the file is not UTF-8")
            .at(name, None, None)
            .hint("save the file as UTF-8")
    })?;
    yaml::long_documents(text).map_err(|error| {
        UserError::new(ErrorKind::Layout, error.message)
            .at(name, error.line, error.column)
            .hint(
                "a source is YAML or JSON; the templates of a chart must be rendered first: `helm template`",
            )
    })
}

fn is_data(path: &Path) -> bool {
    let extension = path.extension().unwrap_or_default().to_str().unwrap_or_default();
    matches!(extension, "yaml" | "yml" | "json")
}

fn check_size(name: &str, size: u64) -> Result<(), UserError> {
    if size <= LONGEST {
        return Ok(());
    }
    let what = format!(
        "the file has {} MiB, and at most {} are read",
        size >> 20,
        LONGEST >> 20
    );
    Err(UserError::new(ErrorKind::Layout, what)
        .at(name, None, None)
        .hint("split the file, and give its parts"))
}

fn check_count(count: usize, name: &str) -> Result<(), UserError> {
    if count <= MOST_FILES {
        return Ok(());
    }
    let what = format!("`{}` has more than {MOST_FILES} files", name.escape_debug());
    Err(UserError::new(ErrorKind::Layout, what).hint("give the folder that holds the CRDs"))
}

fn missing(what: &str) -> UserError {
    UserError::new(ErrorKind::Usage, what)
        .hint("a source is a file, a folder, `kubernetes@1.34` or `cluster:NAME`")
}
