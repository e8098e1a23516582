//! What is wrong in a `konverge.yaml` whose keys and types are right: an unknown scheme, a name of nothing, rules
//! that contradict each other.

use super::{Config, DriftPolicy, Reconcile, StackRule};
use crate::model::{ClusterName, RepoPath, workspace_name::is_workspace_name};

/// The schemes of `state.url` that are supported.
const STORES: [&str; 9] = [
    "file", "s3", "gs", "az", "oss", "postgres", "mysql", "https", "http",
];

/// The schemes of `state.kusion_releases`: the backends of Kusion's releases.
const RELEASE_STORES: [&str; 4] = ["file", "s3", "gs", "oss"];

/// A message, and what to do next.
type Problem = (String, String);

impl Config {
    /// The first problem of the file.
    pub(super) fn problem(&self) -> Option<Problem> {
        let is_cluster = |name: &ClusterName| self.clusters.contains_key(name);
        self.version_problem()
            .or_else(|| self.store_problem())
            .or_else(|| self.release_store_problem())
            .or_else(|| self.credentials_problem())
            .or_else(|| self.provider_source_problem())
            .or_else(|| self.health_rules_problem())
            .or_else(|| self.secrets.problem(is_cluster))
            .or_else(|| self.state.recipients_problem(&self.secrets))
            .or_else(|| self.drift_problem())
            .or_else(|| hinted(self.policy.sets_problem()))
            .or_else(|| folder_glob_problem("exclude", &self.exclude))
            .or_else(|| folder_glob_problem("include", &self.include))
            .or_else(|| self.stacks.iter().find_map(|rule| self.stack_rule_problem(rule)))
    }

    fn version_problem(&self) -> Option<Problem> {
        let version = self.version.filter(|version| *version != 1)?;
        Some((
            format!("version {version} is not known"),
            "this Konverge reads version 1; a newer file needs a newer Konverge".to_owned(),
        ))
    }

    fn store_problem(&self) -> Option<Problem> {
        let (scheme, _) = self.state.url.as_deref()?.split_once("://")?;
        (!STORES.contains(&scheme)).then(|| {
            (
                format!("state.url: unknown scheme `{}`", scheme.escape_debug()),
                format!("known are {}", STORES.join(", ")),
            )
        })
    }

    fn release_store_problem(&self) -> Option<Problem> {
        let url = self.state.kusion_releases.as_ref()?;
        let is_known = url
            .split_once("://")
            .is_some_and(|(scheme, _)| RELEASE_STORES.contains(&scheme));
        (!is_known).then(|| {
            (
                format!(
                    "state.kusion_releases: `{}` is not the URL of a backend of Kusion's",
                    url.split(['?', '#']).next().unwrap_or_default().escape_debug()
                ),
                "write `file:///home/me/.kusion`, `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX` or `oss://BUCKET/PREFIX`"
                    .to_owned(),
            )
        })
    }

    /// A password in one of the addresses of the file.
    fn credentials_problem(&self) -> Option<Problem> {
        let url = self.state.url.iter().map(|url| ("state.url".to_owned(), url));
        let releases = self.state.kusion_releases.iter();
        let releases = releases.map(|url| ("state.kusion_releases".to_owned(), url));
        let options = self.state.options.iter();
        let options = options.map(|(name, value)| (format!("state.options.{name}"), value));
        let addresses = self.terraform.provider_addresses.iter();
        let addresses = addresses.flat_map(|(source, values)| {
            let key = format!("terraform.provider_addresses.{source}");
            values.iter().map(move |value| (key.clone(), value))
        });
        let (key, _) = url
            .chain(releases)
            .chain(options)
            .chain(addresses)
            .find(|(_, value)| holds_credentials(value))?;
        Some((
            format!("{key} holds credentials, and this file is read by everybody who sees the repository"),
            "remove them from the address: credentials come from the environment; if they are real, change them"
                .to_owned(),
        ))
    }

    fn provider_source_problem(&self) -> Option<Problem> {
        let source = self.terraform.provider_addresses.keys().find(|source| {
            !matches!(source.split('/').count(), 2 | 3) || source.split('/').any(str::is_empty)
        })?;
        Some((
            format!(
                "terraform.provider_addresses: `{}` is not the source of a provider",
                source.escape_debug()
            ),
            "write it as under `terraform.providers`, such as `hashicorp/vault`".to_owned(),
        ))
    }

    fn health_rules_problem(&self) -> Option<Problem> {
        let folder = self.apply.health_rules.as_ref()?;
        RepoPath::normalize(folder)
            .is_none_or(|path| path.is_root())
            .then(|| {
                (
                    format!(
                        "apply.health_rules: `{}` is not a folder of the repository",
                        folder.escape_debug()
                    ),
                    "write its path from the root, such as `ops/health`".to_owned(),
                )
            })
    }

    fn drift_problem(&self) -> Option<Problem> {
        (self.drift.reconcile == Reconcile::Restore && self.policy.drift == DriftPolicy::Stop).then(|| {
            (
                "drift.reconcile restores drift, but policy.drift stops a stack with drift".to_owned(),
                "remove one of the two".to_owned(),
            )
        })
    }

    fn stack_rule_problem(&self, rule: &StackRule) -> Option<Problem> {
        let mut globs = rule.after.iter().flatten().chain([&rule.pattern]);
        let wrong_glob = globs.find_map(|glob| Some((glob, globset::Glob::new(glob).err()?)));
        if let Some((glob, error)) = wrong_glob {
            return Some((
                format!("`{}` is not a glob: {error}", glob.escape_debug()),
                "write `appops/*/prod`".to_owned(),
            ));
        }
        if let Some(name) = rule.workspace.as_deref().filter(|name| !is_workspace_name(name)) {
            return Some((
                format!(
                    "stacks rule `{}`: `{}` is not the name of a workspace",
                    rule.pattern,
                    name.escape_debug()
                ),
                "write `prod` for the file `workspaces/prod.yaml`".to_owned(),
            ));
        }
        let cluster = rule.cluster.as_ref()?;
        (!self.clusters.contains_key(cluster)).then(|| {
            (
                format!(
                    "stacks rule `{}` names cluster `{cluster}`, which is not under `clusters`",
                    rule.pattern
                ),
                "define it under `clusters`, or name one that is".to_owned(),
            )
        })
    }
}

/// A glob of folders that is none.
fn folder_glob_problem(key: &str, globs: &[String]) -> Option<Problem> {
    globs.iter().find_map(|glob| {
        let error = globset::Glob::new(glob.strip_prefix('!').unwrap_or(glob)).err()?;
        Some((
            format!("{key}: `{}` is not a glob: {error}", glob.escape_debug()),
            "write `examples/**`".to_owned(),
        ))
    })
}

fn hinted(problem: Option<(String, &str)>) -> Option<Problem> {
    problem.map(|(message, hint)| (message, hint.to_owned()))
}

/// Returns true if a text is, or contains in its query, an address with a password, or over HTTP with any
/// user part.
fn holds_credentials(text: &str) -> bool {
    text.match_indices("://").any(|(at, sign)| {
        let rest = &text[at + sign.len()..];
        let authority = rest.split(['/', '?', '#', '&']).next().unwrap_or_default();
        let userinfo = authority.rsplit_once('@').map(|(userinfo, _)| userinfo);
        let is_web = text[..at].ends_with("http") || text[..at].ends_with("https");
        userinfo.is_some_and(|userinfo| is_web || userinfo.contains(':'))
    })
}
