//! Fetches packages from git repositories with the `git` program, which supports all transports and credential
//! helpers.

use std::path::{Path, PathBuf};

use super::{
    bounds::{Bounds, Count},
    checksum,
    fetcher::PackageFetcher,
    source::GitRevision,
};
use konverge_base::{
    error::{SharedError, chain},
    process::{ProcessError, ProcessResult, Program},
};

/// The maximum address space of git, in bytes, because a small pack may unpack to any size.
const MEMORY: u64 = 4 << 30;

/// The parts of git's messages that show that a file exceeded its size limit.
const TOO_LARGE: [&str; 3] = ["File too large", "signal 25", "SIGXFSZ"];

/// The part of git's message for a server that only serves plain files.
const NOT_SHALLOW: &str = "does not support shallow";

/// The maximum length of a line in git's file listing (mode, id, size and path), in bytes.
const LONGEST_LINE: u64 = 4200;

/// Fetches one revision and copies the package from it into `target`. Returns the commit id.
pub(super) async fn fetch(
    packages: &PackageFetcher,
    url: &str,
    at: &GitRevision,
    package: Option<&str>,
    target: &Path,
) -> Result<String, SharedError> {
    let time = packages.bounds.time;
    let fetched = tokio::time::timeout(time, fetch_unbounded(packages, url, at, package, target)).await;
    fetched.map_err(|_| format!("git did not end within {} s", time.as_secs()))?
}

async fn fetch_unbounded(
    packages: &PackageFetcher,
    url: &str,
    at: &GitRevision,
    package: Option<&str>,
    target: &Path,
) -> Result<String, SharedError> {
    let clone = tempfile::tempdir()?;
    let folder = clone.path();
    git(packages, folder, &["init", "--quiet"]).await?;
    let url = &*address(packages, folder, url).await?;
    let revision = |branches: &str| match at {
        GitRevision::Tag(tag) => format!("refs/tags/{tag}"),
        GitRevision::Branch(branch) => format!("{branches}/{branch}"),
        GitRevision::Commit(commit) => commit.clone(),
    };
    let wanted = revision("refs/heads");
    // A shallow fetch of the one revision first: it is much smaller than the history.
    let shallow = ["fetch", "--quiet", "--depth=1", "--", url, &wanted];
    match (git(packages, folder, &shallow).await, at) {
        (Ok(_), _) => {
            check_out(packages, folder, "FETCH_HEAD").await?;
        }
        // The server needs a full commit id, does not serve single commits, or does not support shallow fetches: fetch
        // everything.
        (Err(why), at) if matches!(at, GitRevision::Commit(_)) || chain(&*why).contains(NOT_SHALLOW) => {
            let branches = "+refs/heads/*:refs/remotes/o/*";
            let everything = ["fetch", "--quiet", "--tags", "--", url, branches];
            git(packages, folder, &everything).await?;
            check_out(packages, folder, &revision("refs/remotes/o")).await?;
        }
        (Err(why), _) => return Err(why),
    }
    // Only the package is copied, so that the history and the rest of the repository are deleted with the clone.
    let root = match package {
        Some(package) => subfolder(folder, package)?,
        None => folder.to_owned(),
    };
    copy(&root, target, packages.bounds)?;
    let head = git(packages, folder, &["rev-parse", "--verify", "HEAD^{commit}"]).await?;
    Ok(String::from_utf8_lossy(&head.stdout).trim().to_owned())
}

/// Returns the address to fetch from. Public forges no longer serve `git://`, so it is replaced by `https://`, as in
/// kpm, unless an `insteadOf` in the user's git configuration says otherwise.
async fn address(packages: &PackageFetcher, folder: &Path, url: &str) -> Result<String, SharedError> {
    let Some(rest) = url.strip_prefix("git://") else {
        return Ok(url.to_owned());
    };
    let found = git(packages, folder, &["ls-remote", "--get-url", "--", url]).await?;
    let is_configured = String::from_utf8_lossy(&found.stdout).trim() != url;
    Ok(if is_configured {
        url.to_owned()
    } else {
        format!("https://{rest}")
    })
}

/// Checks a revision out, after its number of files and their bytes were checked against the limits.
async fn check_out(packages: &PackageFetcher, folder: &Path, revision: &str) -> Result<(), SharedError> {
    let listed = git(packages, folder, &["ls-tree", "-r", "-z", "-l", revision, "--"]).await?;
    let mut count = Count::new(packages.bounds);
    for line in listed
        .stdout
        .split(|byte| *byte == 0)
        .filter(|line| !line.is_empty())
    {
        let line = String::from_utf8_lossy(line);
        // The format is `MODE TYPE ID SIZE<tab>PATH`; a submodule has no size.
        let facts = line.split('\t').next().unwrap_or_default();
        let size = facts.split_whitespace().nth(3).and_then(|size| size.parse().ok());
        count.add(size.unwrap_or(0))?;
    }
    let checkout = ["checkout", "--quiet", "--detach", revision, "--"];
    git(packages, folder, &checkout).await.map(|_| ())
}

async fn git(
    packages: &PackageFetcher,
    folder: &Path,
    arguments: &[&str],
) -> Result<ProcessResult, SharedError> {
    // The repository is not trusted: no hook of the user runs on it, no transport runs a command, and no link is
    // created that could lead outside of the folder.
    let fixed = [
        "-c",
        "core.hooksPath=/dev/null",
        "-c",
        "protocol.ext.allow=never",
        "-c",
        "core.symlinks=false",
    ];
    let executable = packages.checkout.find(&["git"])?;
    let mut program = Program::new(executable)
        .args(fixed)
        .args(arguments.iter().copied());
    let kept = packages.asker.variables(&packages.environment).into_iter();
    let kept = kept.map(|(name, value)| (name.into(), value.into()));
    // Git must not wait for a password, must not read the system's configuration, and must print messages in English,
    // because some of them are recognized below.
    let own = [
        ("GIT_TERMINAL_PROMPT", "0"),
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("LC_ALL", "C"),
    ];
    let own = own.map(|(name, value)| (name.into(), value.into()));
    program.env = Some(kept.chain(own).collect());
    program.dir = Some(folder.to_owned());
    let bounds = &packages.bounds;
    program.deadline = bounds.time;
    program.most_file_bytes = Some(bounds.transferred.max(bounds.unpacked));
    program.most_memory = Some(MEMORY);
    program.most_output = usize::try_from(bounds.files.saturating_mul(LONGEST_LINE)).unwrap_or(usize::MAX);
    if arguments.first() == Some(&"fetch") {
        program.most_file_bytes = Some(bounds.transferred);
    }
    let ended = program.run().await.map_err(|error| match error {
        ProcessError::TooMuch { .. } => format!("it holds more than {} files", bounds.files).into(),
        other => SharedError::from(other),
    })?;
    if ended.code == Some(0) {
        return Ok(ended);
    }
    let stderr = String::from_utf8_lossy(&ended.stderr);
    if ended.signal == Some(nix::libc::SIGXFSZ) || TOO_LARGE.iter().any(|words| stderr.contains(words)) {
        return Err(format!("git was sent more than {} bytes", bounds.transferred).into());
    }
    let line = stderr.lines().find(|line| !line.trim().is_empty());
    Err(format!("git: {}", line.unwrap_or("failed with no error output")).into())
}

/// Returns the folder of the package in a repository: the folder with that path, or else the one whose `kcl.mod` has
/// that name.
fn subfolder(root: &Path, package: &str) -> Result<PathBuf, SharedError> {
    let plain = !package.split('/').any(|part| part == "..") && !package.starts_with('/');
    if plain && root.join(package).join("kcl.mod").is_file() {
        return Ok(root.join(package));
    }
    let mut found = None;
    checksum::walk(root, root, &mut |path, _| {
        let is_module = path.file_name().is_some_and(|name| name == "kcl.mod");
        if found.is_none() && is_module && name_of(path).as_deref() == Some(package) {
            found = path.parent().map(Path::to_owned);
        }
        Ok(())
    })?;
    found.ok_or_else(|| format!("the repository has no package `{}`", package.escape_debug()).into())
}

fn name_of(module: &Path) -> Option<String> {
    let table: toml::Table = std::fs::read_to_string(module).ok()?.parse().ok()?;
    Some(table.get("package")?.get("name")?.as_str()?.to_owned())
}

fn copy(from: &Path, to: &Path, bounds: Bounds) -> Result<(), SharedError> {
    let mut count = Count::new(bounds);
    checksum::walk(from, from, &mut |path, relative| {
        if relative.split('/').any(|part| part == ".git") {
            return Ok(());
        }
        let target = to.join(relative);
        if let Some(folder) = target.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let bytes = std::fs::copy(path, target)?;
        count.add(bytes).map_err(std::io::Error::other)
    })?;
    Ok(())
}
