//! The URLs of a repository's pages at its forge. A stored document never decides the host of a link: the
//! repository is taken from the default branch, the job, or the clone.

use konverge_base::model::CommitId;
use serde::{Serialize, Serializer};

use crate::kind::ForgeKind;

/// The maximum length of a login.
const LONGEST_LOGIN: usize = 64;

/// A repository at a forge, which creates the URLs of its pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepositoryPages {
    kind: ForgeKind,
    /// `https://HOST`, followed by a path only if the forge supports one.
    server: String,
    /// `OWNER/NAME`; at GitLab with any number of groups before the name.
    repository: String,
}

/// The page of a run or of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunPage {
    /// A run of a workflow, or a pipeline.
    Run(u64),
    /// A job of a pipeline at GitLab.
    Job(u64),
}

impl RepositoryPages {
    /// Parses the URL of a repository, such as `https://HOST/OWNER/NAME`. Returns `None` if the URL does not have
    /// the form of this kind of forge.
    pub fn parse(kind: ForgeKind, url: &str) -> Option<Self> {
        let rest = url.strip_prefix("https://")?;
        let (host, path) = rest.split_once('/')?;
        let names: Vec<_> = path.split('/').collect();
        let of_server = match kind {
            ForgeKind::Github if names.len() == 2 => 0,
            ForgeKind::Github => return None,
            ForgeKind::Gitea => names.len().checked_sub(2)?,
            // GitLab may be below a path, which looks like a group. Only a job knows its server, so a URL is read
            // without such a path.
            ForgeKind::Gitlab => 0,
        };
        let (below, repository) = names.split_at(of_server);
        let server = [&[host][..], below].concat().join("/");
        Self::new(kind, &format!("https://{server}"), &repository.join("/"))
    }

    /// Returns the repository of a clone, if its host has the name of a known forge: `github.com`,
    /// `gitlab.acme.example`.
    pub fn of_clone(origin: &str) -> Option<Self> {
        let rest = origin.strip_prefix("https://")?;
        let hosts = [
            ("github.", ForgeKind::Github),
            ("gitlab.", ForgeKind::Gitlab),
            ("gitea.", ForgeKind::Gitea),
            ("codeberg.org/", ForgeKind::Gitea),
        ];
        let (_, kind) = hosts.into_iter().find(|(host, _)| rest.starts_with(host))?;
        Self::parse(kind, origin)
    }

    /// Creates a repository on a server; `None` if the server or the path is not safe in a link.
    pub fn new(kind: ForgeKind, server: &str, repository: &str) -> Option<Self> {
        let address = server.strip_prefix("https://")?;
        let (host, below) = match address.split_once('/') {
            Some((host, below)) => (host, Some(below)),
            None => (address, None),
        };
        let depth = repository.split('/').count();
        let is_repository = repository.split('/').all(is_name)
            && if kind == ForgeKind::Gitlab {
                depth >= 2
            } else {
                depth == 2
            };
        let is_server = is_host(host) && below.is_none_or(|below| below.split('/').all(is_name));
        (is_server && is_repository).then(|| Self {
            kind,
            server: server.to_owned(),
            repository: repository.to_owned(),
        })
    }

    /// Returns the kind of forge.
    pub fn kind(&self) -> ForgeKind {
        self.kind
    }

    /// Returns the URL of the repository.
    pub fn url(&self) -> String {
        format!("{}/{}", self.server, self.repository)
    }

    /// Returns `HOST/OWNER/NAME`, the form that `gh --repo` accepts.
    pub fn name(&self) -> String {
        self.url().replacen("https://", "", 1)
    }

    /// Returns `OWNER/NAME`.
    pub fn path(&self) -> &str {
        &self.repository
    }

    fn page(&self, page: &str) -> String {
        let between = match self.kind {
            ForgeKind::Github | ForgeKind::Gitea => "",
            ForgeKind::Gitlab => "/-",
        };
        format!("{}{between}/{page}", self.url())
    }

    /// Returns the URL of a commit.
    pub fn commit(&self, commit: &CommitId) -> String {
        self.page(&format!("commit/{commit}"))
    }

    /// Returns the URL of a pull request.
    pub fn pull_request(&self, number: u64) -> String {
        let folder = match self.kind {
            ForgeKind::Github => "pull",
            ForgeKind::Gitea => "pulls",
            ForgeKind::Gitlab => "merge_requests",
        };
        self.page(&format!("{folder}/{number}"))
    }

    /// Returns the URL of an issue.
    pub fn issue(&self, number: u64) -> String {
        self.page(&format!("issues/{number}"))
    }

    /// Returns the URL of the commits on the default branch that changed a path. The path is percent-encoded.
    pub fn history(&self, path: &str) -> String {
        self.page(&format!("commits/HEAD/{path}"))
    }

    /// Parses the URL of a run or a job of this repository. The URL of an attempt counts as its run.
    pub fn run(&self, page: &str) -> Option<RunPage> {
        let rest = page.strip_prefix(self.url().as_str())?;
        let number = |text: &str| text.parse::<u64>().ok();
        match self.kind {
            ForgeKind::Github | ForgeKind::Gitea => {
                let rest = rest.strip_prefix("/actions/runs/")?;
                let (run, attempt) = rest.split_once("/attempts/").unwrap_or((rest, "1"));
                number(attempt)?;
                number(run).map(RunPage::Run)
            }
            ForgeKind::Gitlab => {
                let rest = rest.strip_prefix("/-/")?;
                if let Some(job) = rest.strip_prefix("jobs/") {
                    return number(job).map(RunPage::Job);
                }
                let rest = rest.strip_prefix("pipelines/")?;
                let (run, attempt) = rest.split_once("#attempt-").unwrap_or((rest, "1"));
                number(attempt)?;
                number(run).map(RunPage::Run)
            }
        }
    }

    /// Returns the URL of a person or an App; `None` if the name cannot be a login.
    pub fn person(&self, name: &str) -> Option<String> {
        let app = name
            .strip_suffix("[bot]")
            .filter(|_| self.kind == ForgeKind::Github);
        let (login, folder) = match app {
            Some(app) => (app, "apps/"),
            None => (name, ""),
        };
        self.is_login(login)
            .then(|| format!("{}/{folder}{login}", self.server))
    }

    /// Returns the URL of the user who started a run. `None` outside a run of this repository: there the name is an
    /// account of some machine.
    pub fn actor(&self, run: &str, name: &str) -> Option<String> {
        self.run(run).and_then(|_| self.person(name))
    }

    fn is_login(&self, name: &str) -> bool {
        let is_word = |byte: u8| byte.is_ascii_alphanumeric();
        let has_dots = self.kind != ForgeKind::Github;
        (1..=LONGEST_LOGIN).contains(&name.len())
            && name
                .bytes()
                .all(|byte| is_word(byte) || byte == b'-' || byte == b'_' || (has_dots && byte == b'.'))
            && name.bytes().next().is_some_and(is_word)
    }
}

impl Serialize for RepositoryPages {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.url())
    }
}

/// The page on which a person starts a job of Konverge by hand. Its URL shows which forge it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkflowPage {
    url: String,
    repository: RepositoryPages,
    /// The file of the workflow; `None` for GitLab, where all pipelines share one file.
    file: Option<String>,
}

impl WorkflowPage {
    /// Parses the URL of the page.
    pub fn parse(url: &str) -> Option<Self> {
        let forms = [
            (ForgeKind::Github, "/actions/workflows/"),
            (ForgeKind::Gitea, "/actions?workflow="),
            (ForgeKind::Gitlab, "/-/pipelines/new"),
        ];
        let (kind, (repository, file)) = forms
            .into_iter()
            .find_map(|(kind, between)| Some((kind, url.split_once(between)?)))?;
        let has_file = kind != ForgeKind::Gitlab;
        let is_file = if has_file { is_name(file) } else { file.is_empty() };
        let repository = RepositoryPages::parse(kind, repository).filter(|_| is_file)?;
        Some(Self {
            url: url.to_owned(),
            repository,
            file: has_file.then(|| file.to_owned()),
        })
    }

    /// Returns the URL of the page.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the URL of the list of the workflow's runs.
    pub fn runs(&self) -> &str {
        self.url.strip_suffix("/new").unwrap_or(&self.url)
    }

    /// Returns the repository of the page.
    pub fn repository(&self) -> &RepositoryPages {
        &self.repository
    }

    /// Returns the file of the workflow; `None` for GitLab.
    pub fn file(&self) -> Option<&str> {
        self.file.as_deref()
    }
}

/// Returns true for a host, with or without a port.
fn is_host(text: &str) -> bool {
    let (host, port) = text.split_once(':').unwrap_or((text, "443"));
    is_name(host) && port.parse::<u16>().is_ok()
}

/// Returns true for a path segment that needs no escaping in a URL and is not `.` or `..`.
fn is_name(part: &str) -> bool {
    !part.bytes().all(|byte| byte == b'.')
        && part
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ForgeKind::{Gitea, Github, Gitlab};

    fn pages(kind: ForgeKind, url: &str) -> RepositoryPages {
        RepositoryPages::parse(kind, url).unwrap()
    }

    #[test]
    fn a_link_leads_to_the_repository_and_to_nothing_else() {
        let commit = "a".repeat(40).parse().unwrap();
        let links = |kind, url| {
            let pages = pages(kind, url);
            [
                pages.commit(&commit),
                pages.pull_request(7),
                pages.issue(8),
                pages.history("apps/a"),
            ]
            .map(|link| link.strip_prefix(url).unwrap().to_owned())
        };
        let [commit_page, ..] = links(Github, "https://github.com/acme/infra");
        assert_eq!(commit_page, format!("/commit/{commit}"));
        assert_eq!(
            links(Github, "https://github.com/acme/infra")[1..],
            ["/pull/7", "/issues/8", "/commits/HEAD/apps/a"]
        );
        assert_eq!(
            links(Gitea, "https://acme.example/git/acme/infra")[1..],
            ["/pulls/7", "/issues/8", "/commits/HEAD/apps/a"]
        );
        assert_eq!(
            links(Gitlab, "https://gitlab.com/acme/platform/infra")[1..],
            ["/-/merge_requests/7", "/-/issues/8", "/-/commits/HEAD/apps/a"]
        );
        for url in [
            "http://github.com/acme/infra",
            "https://github.com/acme",
            "https://github.com/acme/infra/x",
            "https://github.com/acme/..",
            "https://github.com/acme/in\"fra",
            "https://ada@github.com/acme/infra",
            "https://github.com:x/acme/infra",
            "javascript:alert(1)",
        ] {
            assert_eq!(RepositoryPages::parse(Github, url), None, "{url}");
        }
        for url in [
            "https://acme.example/infra",
            "https://acme.example/../acme/infra",
            "https://acme.example//infra",
        ] {
            assert_eq!(RepositoryPages::parse(Gitea, url), None, "{url}");
            assert_eq!(RepositoryPages::parse(Gitlab, url), None, "{url}");
        }
        assert!(RepositoryPages::parse(Github, "https://github.example:8443/acme/infra").is_some());
    }

    #[test]
    fn the_host_of_a_clone_tells_the_forge() {
        let kind = |origin| RepositoryPages::of_clone(origin).map(|pages| pages.kind());
        assert_eq!(kind("https://github.acme.example/acme/infra"), Some(Github));
        assert_eq!(kind("https://gitlab.com/acme/platform/infra"), Some(Gitlab));
        assert_eq!(kind("https://codeberg.org/acme/infra"), Some(Gitea));
        assert_eq!(kind("https://acme.example/acme/infra"), None);
        assert_eq!(kind("git@github.com:acme/infra"), None);
    }

    #[test]
    fn a_run_of_another_place_is_no_link() {
        let acme = pages(Github, "https://github.com/acme/infra");
        let run = "https://github.com/acme/infra/actions/runs/7/attempts/2";
        assert_eq!(acme.run(run), Some(RunPage::Run(7)));
        for run in [
            "ada@laptop",
            "https://evil.example/acme/infra/actions/runs/7",
            "https://github.com/acme/infra2/actions/runs/7",
            "https://github.com/acme/infra.evil/actions/runs/7",
            "https://github.com/acme/infra/actions/runs/7/../../x",
            "https://github.com/acme/infra/actions/runs/x",
            "https://github.com/acme/infra/actions/runs/7?x=<b>",
        ] {
            assert_eq!(acme.run(run), None, "{run}");
        }
        let gitlab = pages(Gitlab, "https://gitlab.com/acme/infra");
        let at = |page: &str| gitlab.run(&format!("https://gitlab.com/acme/infra/-/{page}"));
        assert_eq!(at("jobs/77"), Some(RunPage::Job(77)));
        assert_eq!(at("pipelines/42"), Some(RunPage::Run(42)));
        assert_eq!(at("pipelines/42#attempt-2"), Some(RunPage::Run(42)));
        for page in ["jobs/x", "jobs/7/../x", "pipelines/42#<b>", "actions/runs/7"] {
            assert_eq!(at(page), None, "{page}");
        }
    }

    #[test]
    fn only_a_login_is_a_link() {
        let github = pages(Github, "https://github.example/a/b");
        for (name, page) in [
            ("ada-l", "ada-l"),
            ("ada_corp", "ada_corp"),
            ("renovate[bot]", "apps/renovate"),
        ] {
            let page = format!("https://github.example/{page}");
            assert_eq!(github.person(name), Some(page));
        }
        let gitea = pages(Gitea, "https://acme.example/git/a/b");
        assert_eq!(
            gitea.person("ada.l").as_deref(),
            Some("https://acme.example/git/ada.l")
        );
        for name in [
            "",
            "[bot]",
            "Ada Lovelace",
            "-ada",
            "ada/../x",
            "ada\u{202e}",
            "ada?x",
            "a@b",
        ] {
            assert_eq!(github.person(name), None, "{name}");
            assert_eq!(gitea.person(name), None, "{name}");
        }
        assert_eq!(github.person(&"a".repeat(65)), None);
        assert_eq!(gitea.person("renovate[bot]"), None);
        let run = "https://github.example/a/b/actions/runs/7";
        assert!(github.actor(run, "ada").is_some());
        assert_eq!(github.actor("ada@laptop", "ada"), None);
    }

    #[test]
    fn the_form_of_the_page_tells_the_forge() {
        let read = |url| {
            let page = WorkflowPage::parse(url)?;
            let file = page.file().map(str::to_owned);
            Some((page.repository().kind(), page.repository().url(), file))
        };
        let file = Some("konverge.yml".to_owned());
        let infra = "https://acme.example/acme/infra".to_owned();
        assert_eq!(
            read("https://acme.example/acme/infra/actions/workflows/konverge.yml"),
            Some((Github, infra.clone(), file.clone()))
        );
        assert_eq!(
            read("https://acme.example/acme/infra/actions?workflow=konverge.yml"),
            Some((Gitea, infra.clone(), file))
        );
        assert_eq!(
            read("https://acme.example/acme/infra/-/pipelines/new"),
            Some((Gitlab, infra, None))
        );
        for url in [
            "https://acme.example/acme/infra",
            "https://acme.example/acme/infra/actions/workflows/a/b.yml",
            "https://acme.example/acme/infra/actions?workflow=a.yml&actor=1",
            "https://acme.example/acme/infra/-/pipelines/new?x=1",
            "javascript:alert(1)//actions/workflows/a.yml",
        ] {
            assert_eq!(WorkflowPage::parse(url), None, "{url}");
        }
    }
}
