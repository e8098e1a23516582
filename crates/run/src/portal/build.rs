//! `portal build`: the static site. A page of a stack is built again only if something of the stack changed, and written
//! only if its content did.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde::{Deserialize, Serialize};

use super::{
    overview::{StackSources, read_overview},
    site::{MANIFEST, Site},
    stack::{HistoryRange, read_stack},
};
use crate::StateBackend;
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{Digest, StackId},
    secrets::Secrets,
};
use konverge_portal::{
    StackIndex,
    html::{self, PageMode, StackPage},
    site_path,
};

/// The number of stacks that are read concurrently.
const STACKS_AT_ONCE: usize = 8;
/// The number of files that are written concurrently.
const FILES_AT_ONCE: usize = 16;
/// The number of newest serials on the page of a stack. All but the oldest of them have a page with what they changed.
const SERIALS: usize = 11;

/// What a build did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct BuildReport {
    /// The number of stacks.
    pub stacks: usize,
    /// The number of stacks that were read.
    pub read: usize,
    /// The number of files of the site.
    pub files: usize,
    /// The number of files that were written.
    pub written: usize,
    /// The number of files that were deleted.
    pub deleted: usize,
    /// What a reader must know, as on the overview.
    pub notices: Vec<String>,
}

/// What the site holds: by path the digest of each file.
#[derive(Default, Serialize, Deserialize)]
struct SiteManifest {
    version: u32,
    repository: String,
    /// By stack what its pages were made of.
    stacks: BTreeMap<String, StackFiles>,
    /// The other pages.
    files: BTreeMap<String, Digest>,
    /// Files that a build may have left when it was stopped.
    #[serde(default)]
    leftover: BTreeSet<String>,
}

#[derive(Clone, Serialize, Deserialize)]
struct StackFiles {
    fingerprint: Digest,
    files: BTreeMap<String, Digest>,
}

impl SiteManifest {
    fn paths(&self) -> BTreeSet<String> {
        let of_stacks = self.stacks.values().flat_map(|stack| stack.files.keys());
        let all = of_stacks.chain(self.files.keys()).chain(&self.leftover);
        all.filter(|path| site_path::is_own(path)).cloned().collect()
    }

    fn digest(&self, path: &str) -> Option<Digest> {
        let of_stack = || self.stacks.values().find_map(|stack| stack.files.get(path));
        self.files.get(path).or_else(of_stack).copied()
    }
}

/// Builds the site.
///
/// # Errors
/// Errors of the store; a site of another repository; a file that cannot be written.
pub async fn build(sources: StackSources<'_>, site: &dyn Site) -> Result<BuildReport, UserError> {
    let index = Arc::new(read_overview(sources).await?);
    let before = read_manifest(site, &index.overview.repository).await?;
    let mut manifest = SiteManifest {
        version: 1,
        repository: index.overview.repository.clone(),
        ..SiteManifest::default()
    };
    let mut report = BuildReport {
        stacks: index.overview.stacks.len(),
        notices: index.overview.notices.clone(),
        ..BuildReport::default()
    };
    let secrets = &sources.backend.secrets;
    let mut changed = Vec::new();
    for row in &index.overview.stacks {
        let fingerprint = index.fingerprints.get(&row.id);
        let earlier = before.stacks.get(row.id.as_str());
        let is_open = row.conditions.contains(&konverge_portal::StackCondition::Open);
        match earlier.filter(|earlier| !is_open && fingerprint == Some(&earlier.fingerprint)) {
            Some(earlier) => {
                manifest.stacks.insert(row.id.to_string(), earlier.clone());
            }
            None => changed.push(row.id.clone()),
        }
    }
    report.read = changed.len();
    // Each is a task of its own: reading documents and making pages takes more time than the requests.
    let mut built = stream::iter(changed)
        .map(|id| tokio::spawn(stack_files(sources.backend.clone(), Arc::clone(&index), id)))
        .buffer_unordered(STACKS_AT_ONCE);
    while let Some(task) = built.next().await {
        let (id, files) = task.map_err(|error| UserError::new(ErrorKind::Internal, error.to_string()))??;
        let earlier = before.stacks.get(id.as_str()).map(|stack| &stack.files);
        let known = |path: &str| earlier.and_then(|files| files.get(path)).copied();
        let digests = write_changed(site, secrets, files, known, &mut report).await?;
        let fingerprint = index.fingerprints.get(&id).copied();
        let fingerprint = fingerprint.unwrap_or_else(|| Digest::of_bytes(b"unknown"));
        manifest.stacks.insert(
            id.to_string(),
            StackFiles {
                fingerprint,
                files: digests,
            },
        );
    }
    drop(built);
    let common = common_files(&index);
    let known = |path: &str| before.digest(path);
    manifest.files = write_changed(site, secrets, common, known, &mut report).await?;
    finish(site, &before, manifest, &mut report).await?;
    Ok(report)
}

/// Writes the manifest, then deletes what the site no longer has.
async fn finish(
    site: &dyn Site,
    before: &SiteManifest,
    mut manifest: SiteManifest,
    report: &mut BuildReport,
) -> Result<(), UserError> {
    let now = manifest.paths();
    report.files = now.len();
    let gone: BTreeSet<_> = before.paths().difference(&now).cloned().collect();
    manifest.leftover.clone_from(&gone);
    let is_same = before.version == 1 && report.written == 0 && report.read == 0 && gone.is_empty();
    if !is_same {
        let text = serde_json::to_vec(&manifest).unwrap_or_default();
        site.write(MANIFEST, text).await?;
    }
    for path in &gone {
        site.delete(path).await?;
    }
    report.deleted = gone.len();
    Ok(())
}

async fn read_manifest(site: &dyn Site, repository: &str) -> Result<SiteManifest, UserError> {
    let Some(bytes) = site.read(MANIFEST).await? else {
        // From now on the folder is known as the portal's, whatever stops this run.
        let claimed = SiteManifest {
            repository: repository.to_owned(),
            ..SiteManifest::default()
        };
        let text = serde_json::to_vec(&claimed).unwrap_or_default();
        site.write(MANIFEST, text).await?;
        return Ok(claimed);
    };
    // Of a damaged manifest nothing can be used: every page is written again.
    let manifest: SiteManifest = serde_json::from_slice(&bytes).unwrap_or_default();
    if manifest.repository.is_empty() || manifest.repository == repository {
        Ok(manifest)
    } else {
        Err(UserError::new(
            ErrorKind::Usage,
            format!(
                "the site is of the repository `{}`, and the states are of `{repository}`",
                manifest.repository.escape_debug()
            ),
        )
        .hint("name another folder or another prefix for each repository"))
    }
}

/// Files by path.
type Files = BTreeMap<String, String>;

async fn stack_files(
    backend: StateBackend,
    index: Arc<StackIndex>,
    id: StackId,
) -> Result<(StackId, Files), UserError> {
    let mut files = Files::new();
    if let Some(read) = read_stack(&backend, &index, &id, HistoryRange::Newest(SERIALS)).await? {
        let pairs: Vec<_> = read
            .differences
            .iter()
            .map(|difference| (difference.from, difference.to))
            .collect();
        let page = StackPage {
            view: &read.details,
            differences: &pairs,
            older: read.older,
            mode: PageMode::Static,
        };
        files.insert(site_path::stack(&id), html::stack(&page));
        for difference in &read.differences {
            let name = site_path::difference(difference.from, difference.to);
            let path = format!("{}/{name}", site_path::stack_folder(&id));
            files.insert(path, html::difference(difference));
        }
    }
    Ok((id, files))
}

fn common_files(index: &StackIndex) -> Files {
    let (overview, search) = (&index.overview, &index.search);
    let mut files = Files::from([
        (
            site_path::OVERVIEW.to_owned(),
            html::overview(overview, overview, PageMode::Static, None, ""),
        ),
        (
            site_path::SEARCH.to_owned(),
            html::search(search, PageMode::Static, "", None),
        ),
        (site_path::SEARCH_DATA.to_owned(), html::search_data(search)),
        (site_path::STYLE.to_owned(), html::style()),
        (site_path::SCRIPT.to_owned(), html::SCRIPT.to_owned()),
    ]);
    for kind in search.listings() {
        files.extend(html::kind(search, kind).map(|page| (site_path::kind(kind), page)));
    }
    files
}

/// Writes the files whose content differs from what is known of the site.
async fn write_changed(
    site: &dyn Site,
    secrets: &Secrets,
    files: Files,
    known: impl Fn(&str) -> Option<Digest>,
    report: &mut BuildReport,
) -> Result<BTreeMap<String, Digest>, UserError> {
    let (mut digests, mut due) = (BTreeMap::new(), Vec::new());
    for (path, content) in files {
        // What is masked on a terminal is masked here.
        let content = secrets.mask_finished(&content);
        let digest = Digest::of_bytes(content.as_bytes());
        if known(&path) != Some(digest) {
            due.push((path.clone(), content));
        }
        digests.insert(path, digest);
    }
    report.written += due.len();
    stream::iter(due)
        .map(|(path, content)| async move { site.write(&path, content.into_bytes()).await })
        .buffer_unordered(FILES_AT_ONCE)
        .try_collect::<()>()
        .await?;
    Ok(digests)
}
