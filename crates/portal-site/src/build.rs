//! `portal build`: writes the static site. The page of a stack is rendered only if data of the stack changed, and
//! written only if its content changed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde::{Deserialize, Serialize};
use tracing::Instrument as _;

use super::{
    branch_config::BranchConfig,
    overview::trends,
    overview::{StackSources, read_overview},
    permissions::permissions,
    rollouts::read_rollouts,
    seen::SeenRecords,
    site::{MANIFEST, Site},
    stack::{HistoryRange, read_stack},
};
use konverge_base::{
    error::{ErrorKind, UserError, chain},
    model::{Digest, StackId},
};
use konverge_config::Config;
use konverge_portal::{
    OverviewRow, RolloutsDocument, StackIndex, StackOrder,
    html::{self, PageMode, StackPage},
    site_path,
};
use konverge_run::StateBackend;
use konverge_secrets::Secrets;

/// The number of stacks that are read concurrently.
const STACKS_AT_ONCE: usize = 8;
/// The number of files that are written concurrently.
const FILES_AT_ONCE: usize = 16;
/// The number of newest serials on the page of a stack. Each of them except the oldest has a page with its changes.
const SERIALS: usize = 11;

/// The counts of a build.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct BuildReport {
    /// The number of stacks.
    pub stacks: usize,
    /// The number of stacks that were read because their data changed.
    pub read: usize,
    /// The number of files of the site.
    pub files: usize,
    /// The number of files that were written.
    pub written: usize,
    /// The number of files that were deleted.
    pub deleted: usize,
    /// The notices of the overview.
    pub notices: Vec<String>,
}

/// The manifest of the site: the digest of each file, by path.
#[derive(Default, Serialize, Deserialize)]
struct SiteManifest {
    version: u32,
    repository: String,
    /// The files of each stack, with the fingerprint of the data that they show.
    stacks: BTreeMap<String, StackFiles>,
    /// The files that belong to no single stack.
    files: BTreeMap<String, Digest>,
    /// Files that a stopped build may not have deleted.
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

/// Builds the site. Without `konverge.yaml` of the default branch it does not show permissions.
///
/// # Errors
/// Errors of the store; a site of another repository; a file that cannot be written.
pub async fn build(
    sources: StackSources<'_>,
    config: Option<&BranchConfig>,
    site: &dyn Site,
) -> Result<BuildReport, UserError> {
    let index = Arc::new(read_overview(sources).await?);
    let seen = Arc::new(SeenRecords::of_site(sources.backend, &index.overview.stacks).await);
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
        let fingerprint = page_fingerprint(&index, &seen, row);
        let earlier = before.stacks.get(row.id.as_str());
        // While a run works on a stack, its documents change but the index does not, so its page is always built again.
        let is_open = row.conditions.contains(&konverge_portal::StackCondition::Open);
        match earlier.filter(|earlier| !is_open && fingerprint == earlier.fingerprint) {
            Some(earlier) => {
                manifest.stacks.insert(row.id.to_string(), earlier.clone());
            }
            None => changed.push((row.id.clone(), fingerprint)),
        }
    }
    report.read = changed.len();
    // Each page is a task of its own, because parsing documents and rendering takes longer than the requests.
    let mut built = stream::iter(changed)
        .map(|(id, fingerprint)| {
            let (backend, index, seen) = (sources.backend.clone(), Arc::clone(&index), Arc::clone(&seen));
            let stack = async move {
                let files = stack_files(&backend, &index, &seen, &id).await?;
                Ok::<_, UserError>((id, fingerprint, files))
            };
            tokio::spawn(stack.in_current_span())
        })
        .buffer_unordered(STACKS_AT_ONCE);
    while let Some(task) = built.next().await {
        let (id, fingerprint, files) =
            task.map_err(|error| UserError::from_error(ErrorKind::Internal, error))??;
        let earlier = before.stacks.get(id.as_str()).map(|stack| &stack.files);
        let known = |path: &str| earlier.and_then(|files| files.get(path)).copied();
        let digests = write_changed(site, secrets, files, known, &mut report).await?;
        manifest.stacks.insert(
            id.to_string(),
            StackFiles {
                fingerprint,
                files: digests,
            },
        );
    }
    drop(built);
    let mut common = common_files(&index);
    common.extend(operation_files(sources.backend, &index, config, &seen).await);
    let known = |path: &str| before.digest(path);
    manifest.files = write_changed(site, secrets, common, known, &mut report).await?;
    finish(site, &before, manifest, &mut report).await?;
    Ok(report)
}

/// Writes the manifest, then deletes files that no longer belong to the site.
async fn finish(
    site: &dyn Site,
    before: &SiteManifest,
    mut manifest: SiteManifest,
    report: &mut BuildReport,
) -> Result<(), UserError> {
    let now = manifest.paths();
    report.files = now.len();
    let gone: BTreeSet<_> = before.paths().difference(&now).cloned().collect();
    // The manifest is written before any file is deleted, and lists these files: so the next build deletes the files
    // that a stopped build left.
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
        // The manifest marks the folder as a site, even if this run is stopped before it writes a page.
        let claimed = SiteManifest {
            repository: repository.to_owned(),
            ..SiteManifest::default()
        };
        let text = serde_json::to_vec(&claimed).unwrap_or_default();
        site.write(MANIFEST, text).await?;
        return Ok(claimed);
    };
    // A damaged manifest is ignored, so every page is written again.
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

/// Contents of files, by path.
type Files = BTreeMap<String, String>;

/// Returns the digest of all data that the pages of a stack show.
fn page_fingerprint(index: &StackIndex, seen: &SeenRecords, row: &OverviewRow) -> Digest {
    let of_row = index.fingerprints.get(&row.id);
    Digest::of_json(&serde_json::json!([of_row, seen.fingerprint(row)]))
}

async fn stack_files(
    backend: &StateBackend,
    index: &StackIndex,
    seen: &SeenRecords,
    id: &StackId,
) -> Result<Files, UserError> {
    let mut files = Files::new();
    if let Some(read) = read_stack(backend, index, id, HistoryRange::Newest(SERIALS), seen).await? {
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
        files.insert(site_path::stack(id), html::stack(&page));
        for difference in &read.differences {
            let name = site_path::difference(difference.from, difference.to);
            let path = format!("{}/{name}", site_path::stack_folder(id));
            files.insert(path, html::difference(difference));
        }
    }
    Ok(files)
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
    for order in StackOrder::ALL {
        files.insert(
            site_path::stacks(order),
            html::stacks(overview, order, PageMode::Static),
        );
    }
    for kind in search.listings() {
        files.extend(html::kind(search, kind).map(|page| (site_path::kind(kind), page)));
    }
    files
}

/// Renders the pages about all stacks: rollouts, trends and permissions.
async fn operation_files(
    backend: &StateBackend,
    index: &StackIndex,
    config: Option<&BranchConfig>,
    seen: &SeenRecords,
) -> Files {
    let (forge, mode) = (index.overview.forge.as_ref(), PageMode::Static);
    let none = Config::default();
    let rollouts = read_rollouts(backend, config.map_or(&none, |branch| &branch.config)).await;
    // An error of one page must not prevent the others.
    let rollouts =
        rollouts.unwrap_or_else(|error| RolloutsDocument::unreadable(&backend.secrets.mask(&chain(&error))));
    let document = config.map(permissions);
    Files::from([
        (
            site_path::ROLLOUTS.to_owned(),
            html::rollouts(&rollouts, forge, mode),
        ),
        (
            site_path::TRENDS.to_owned(),
            html::trends(&trends(index, Some(&seen.history)), mode),
        ),
        (
            site_path::PERMISSIONS.to_owned(),
            html::permissions(document.as_ref(), forge, mode),
        ),
    ])
}

/// Writes the files whose content differs from the manifest of the site.
async fn write_changed(
    site: &dyn Site,
    secrets: &Secrets,
    files: Files,
    known: impl Fn(&str) -> Option<Digest>,
    report: &mut BuildReport,
) -> Result<BTreeMap<String, Digest>, UserError> {
    let (mut digests, mut due) = (BTreeMap::new(), Vec::new());
    for (path, content) in files {
        // Everything that is masked on a terminal is masked on a page, too.
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
